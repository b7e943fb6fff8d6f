// The calls of l3/l3.h and testing.h as bytes: for ctypes, and for a process on another machine's
// processor. All numbers are little-endian.
//
//   question  call, numbers, blobs (u32 each); the numbers (u64); the sizes of the blobs (u64);
//             the blobs
//   answer    result, tile, number (u64 each); the blob
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a question has, numbers; blobs -> the result and the blob of its answer. A status is that of
// the call; structs are as in memory.
enum L3TestCall {
  // Of l3/l3.h.
  kL3TestStatusName = 0,  // status -> 0, name
  kL3TestReadInfo = 1,    // ; file -> status, l3_info
  // height, width, channels, type, row stride, coding, effort, threads, tile height, tile width,
  // labels, kernels as l3_test_limit_kernels() takes them; pixels, ICC, EXIF, palette -> status,
  // file
  kL3TestEncode = 2,
  // Of testing.h.
  kL3TestEngineAvailable = 3,  // engine -> whether
  kL3TestDecode = 4,           // engine, stride, threads; data, output -> status, output
  // engine, threads; data, output, L3TestPlans -> status, output, decoded tiles as the number
  kL3TestDecodePlans = 5,
  kL3TestUploadedBytes = 7,    // ; data, L3TestPlan -> bytes
  kL3TestReadOrientation = 8,  // ; EXIF -> how it turns
  // Of fuzz/generator.h and fuzz/mutator.h. Behind the choices come zeros if the seed is 0, else
  // what it seeds.
  // seed; choices -> status that the file gets, the file and its pixels, bytes of the file as the
  // number
  kL3TestMakeFile = 9,
  kL3TestMutateFile = 10,  // seed; choices, file -> 0, another file
  // Of changing_pixels.h: what kL3TestEncode has, and a seed; after the palette, what the pixels
  // become. Rows have no bytes between them; one thread -> status, file
  kL3TestEncodeChanging = 11,
};

// Answers a question. The caller frees `*answer` with l3_test_free. Returns 0 if the question is
// none, or if there is no memory.
int l3_test_call(const uint8_t* question, size_t size, uint8_t** answer, size_t* answer_size);
void l3_test_free(uint8_t* answer);

#ifdef __cplusplus
}
#endif
