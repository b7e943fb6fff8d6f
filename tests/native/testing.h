// What tests ask beside l3/l3.h: one engine or another, plans, and files that change. ctypes, the
// fuzz targets and the replay tool sit on it. It copies what it reads and writes to ExactBytes.
// Nothing throws out of it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Returned in place of a Status when a call threw an exception.
#define L3_TEST_EXCEPTION 0xFFFFFFFFu

enum L3TestEngine {
  kL3TestScalar = 0,
  kL3TestAvx2 = 1,
  kL3TestEmulatedCuda = 2,
  kL3TestAvx512 = 3,
  kL3TestEmulatedSmallCuda = 4,  // a GPU with less shared memory
  kL3TestNeon = 5,
  kL3TestEngineCount = 6,
  // For l3_test_decode_changing alone: emulated CUDA with a cache, to it and from it.
  kL3TestEncodedCache = 6,
};

#define L3_TEST_MOST_CHANNELS 40

// OutputPlan of output/output_plan.h, its enumerations as numbers. `data_offset` is the place of
// the window's first sample in the output. Of an image with more than four channels there may be
// more than four, all different ones.
struct L3TestPlan {
  uint64_t data_offset;
  int64_t x_stride_bytes, y_stride_bytes, channel_stride_bytes;
  uint32_t x_px, y_px, width_px, height_px;
  uint32_t left_px, top_px, right_px, bottom_px;
  uint32_t type;
  uint32_t op;
  uint32_t channels;
  uint32_t source[L3_TEST_MOST_CHANNELS];
  uint32_t luma_rounding;
  float subtract[L3_TEST_MOST_CHANNELS];
  float multiply[L3_TEST_MOST_CHANNELS];
  float range;
  float weights[9];
  float bias[3];
  float fill[L3_TEST_MOST_CHANNELS];
};

int l3_test_engine_available(uint32_t engine);

// Decodes to rows `row_stride_bytes` apart. `output_bytes` must be exactly what
// they span; bytes between rows stay. `bad_tile` is set if the Status is a tile's.
uint32_t l3_test_decode(uint32_t engine, const uint8_t* data, size_t size, uint8_t* output,
                        size_t output_bytes, uint64_t row_stride_bytes, uint32_t threads,
                        uint32_t* bad_tile);

// Decodes as each plan says, and fills the borders. The plans must be such that
// output/output_plan.h allows, stay inside the output and not overlap there. The Status and
// `bad_tile` are those of the first bad tile. `decoded_tiles` gets how many times the CUDA engine
// decodes a tile; 0 on the CPU.
uint32_t l3_test_decode_plans(uint32_t engine, const uint8_t* data, size_t size,
                              const struct L3TestPlan* plans, size_t plan_count, uint8_t* output,
                              size_t output_bytes, uint32_t threads, uint32_t* bad_tile,
                              uint64_t* decoded_tiles);

// For l3_test_decode_changing: a second thread changes parts of the file back and forth.
#define L3_TEST_ALL_THE_TIME 0xFFFFFFFFu

// Decodes a file that changes: `data` becomes `changed`, `size` bytes each, once it was parsed and
// `step` tasks that a batch shares out to threads were done (0: at once, which is all there is on
// the CPU), or all the time. `seed` chooses what the two leave open. Without a plan, the image as
// stored; `output_bytes` is what that of `data` takes. An image that got into the cache is decoded
// from there, which the result is then.
uint32_t l3_test_decode_changing(uint32_t engine, const uint8_t* data, const uint8_t* changed,
                                 size_t size, uint32_t step, uint32_t seed,
                                 const struct L3TestPlan* plan, uint8_t* output,
                                 size_t output_bytes, uint32_t* bad_tile);

// Bytes that the CUDA engine uploads to decode by `plan`. 0 for a file that is not sound.
uint64_t l3_test_uploaded_bytes(const uint8_t* data, size_t size, const struct L3TestPlan* plan);

// How an EXIF block asks for the image to be turned: 1 for swapped axes, plus 2 for a flipped
// x axis of the stored image, plus 4 for a flipped y axis.
uint32_t l3_test_read_orientation(const uint8_t* exif, size_t size);

// The encoder uses no kernels above these from now on: 1 baseline, 2 AVX2, 3 AVX-512; 0 all.
void l3_test_limit_kernels(uint32_t kernels);

#ifdef __cplusplus
}
#endif
