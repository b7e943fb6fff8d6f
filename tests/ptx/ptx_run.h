// Runs one kernel of a PTX text, for tests of operations and of checks. A C interface, for ctypes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Runs `entry` of the module whose text is `ptx`: `blocks` blocks of `threads` threads in a row,
// with `shared_bytes` of dynamic shared memory. Each buffer becomes global memory of its own, with
// guard space on both sides; its address, a multiple of 256, is a .u64 parameter of the kernel, in
// order. Afterwards the contents are copied back.
//
// Returns 0 if all is well. Else `error` holds one line, cut off at `error_size` with its 0: what
// is wrong with the text ("<ptx>:LINE: OPERATION: ..."), or the first thing that a check found.
// Options come from the environment at each call (README.md).
int l3_ptx_run(const char* ptx, const char* entry, uint32_t blocks, uint32_t threads,
               uint32_t shared_bytes, void* const* buffers, const size_t* sizes, int buffer_count,
               char* error, size_t error_size);

#ifdef __cplusplus
}
#endif
