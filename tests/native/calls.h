// The calls of testing.h as bytes: for ctypes, and for a process on another machine's processor.
// All numbers are little-endian.
//
//   question  call, numbers, blobs (u32 each); the numbers (u64); the sizes of the blobs (u64);
//             the blobs
//   answer    result, tile, decoded tiles (u64 each); the blob
#pragma once

#include "native/testing.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a question has, numbers; blobs -> the result and the blob of its answer. A status is that of
// the call; structs are as in memory.
enum L3TestCall {
  kL3TestStatusName = 0,       // status -> 0, name
  kL3TestEngineAvailable = 1,  // engine -> whether
  kL3TestParse = 2,            // ; data -> status, L3TestInfo
  kL3TestDecode = 3,           // engine, stride, threads; data, output -> status, output
  kL3TestDecodePlans = 4,      // engine, threads; data, output, L3TestPlans -> status, output
  kL3TestDecodeChanging = 5,   // engine, step, seed; data, output, changed -> status, output
  kL3TestUploadedBytes = 6,    // ; data, L3TestPlan -> bytes
  kL3TestReadOrientation = 7,  // ; EXIF -> how it turns
  // width, height, channels, sample bits, stride, then those of L3TestEncodeOptions;
  // pixels, ICC, EXIF, palette -> status, file
  kL3TestEncode = 8,
  // The same, and a seed; after the palette, the changed pixels -> status, file
  kL3TestEncodeChanging = 9,
};

// Answers a question. The caller frees `*answer` with l3_test_free. Returns 0 if the question is
// none, or if there is no memory.
int l3_test_call(const uint8_t* question, size_t size, uint8_t** answer, size_t* answer_size);

#ifdef __cplusplus
}
#endif
