// Runs one kernel of a PTX text, for tests of operations and of checks. A C interface, for ctypes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Runs `entry` of the module whose text is `ptx`: `blocks` blocks of `threads` threads in a row,
// with `shared_bytes` of dynamic shared memory. Each buffer becomes global memory of its own, with
// guard space on both sides; its address is a .u64 parameter of the kernel, in order. The kernel
// has no other parameters. Afterwards what lies there is copied back.
//
// A buffer is at an address that is a multiple of 256. A size of 0 is a buffer of no bytes.
// Returns 0 if all is well. Else `error` holds one line, cut off at `error_size` with its 0: what
// is wrong with the text ("<ptx>:LINE: OPERATION: ..."), or the first thing that a check found;
// and buffers hold what the kernel wrote until then.
//
// Options come from the environment at each call: L3_PTX_POLICY, L3_PTX_SEED, L3_PTX_CHECKS and
// L3_PTX_MAX_INSTRUCTIONS (README.md).
int l3_ptx_run(const char* ptx, const char* entry, uint32_t blocks, uint32_t threads,
               uint32_t shared_bytes, void* const* buffers, const size_t* sizes, int buffer_count,
               char* error, size_t error_size);

// The same, where `undefined[i]` says that nobody has written buffer i: its bytes count as unknown
// until the kernel writes them.
int l3_ptx_run_undefined(const char* ptx, const char* entry, uint32_t blocks, uint32_t threads,
                         uint32_t shared_bytes, void* const* buffers, const size_t* sizes,
                         const int* undefined, int buffer_count, char* error, size_t error_size);

// All opcodes with modifiers that the machine knows, a line each. Stays until the process ends.
const char* l3_ptx_operations(void);

#ifdef __cplusplus
}
#endif
