// A C interface to every engine and to the encoder, for the tests: ctypes, the
// fuzz targets and the replay tool sit on it. It copies what it reads and
// writes through buffers that end before a page that is not there, or under
// AddressSanitizer before bytes it watches. Nothing throws out of it.
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

struct L3TestInfo {
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t sample_type;  // as the header has it
  uint32_t used_bits;
  uint32_t shift;
  uint32_t tile_width_log2;
  uint32_t tile_height_log2;
  uint32_t meaning;
  uint32_t value_count;  // 0 without a value table
  uint32_t tile_count;
  uint64_t image_bytes;
};

struct L3TestBytes {
  const uint8_t* data;
  size_t size;
};

struct L3TestEncodeOptions {
  uint32_t mode;    // 0 packed, 1 rans, 2 stored
  uint32_t effort;  // 1 to 9
  uint32_t threads;
  uint32_t tile_width_log2;   // 0: the encoder chooses
  uint32_t tile_height_log2;  // 0: the encoder chooses
  uint32_t meaning;
  struct L3TestBytes icc, exif, palette;  // none when empty
  uint32_t kernels;  // 0: the fastest; else none above 1 baseline, 2 AVX2, 3 AVX-512
};

#define L3_TEST_MOST_CHANNELS 40

// OutputPlan of core/output.h, its enumerations as numbers. `data_offset` is the place of
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

const char* l3_test_status_name(uint32_t status);
int l3_test_engine_available(uint32_t engine);

// Validates header, chunks and index, and fills `info` if they are sound.
uint32_t l3_test_parse(const uint8_t* data, size_t size, struct L3TestInfo* info);

// Decodes to rows `row_stride_bytes` apart. `output_bytes` must be exactly what
// they span; bytes between rows stay. `bad_tile` is set if the Status is a tile's.
uint32_t l3_test_decode(uint32_t engine, const uint8_t* data, size_t size, uint8_t* output,
                        size_t output_bytes, uint64_t row_stride_bytes, uint32_t threads,
                        uint32_t* bad_tile);

// Decodes as each plan says, and fills the borders. The plans must be such that core/output.h
// allows, stay inside the output and not overlap there. The Status and `bad_tile` are those of the
// first bad tile. `decoded_tiles` gets how many times the CUDA engine decodes a tile; 0 on the CPU.
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

// Encodes pixels of `pixels_bytes` in all. The caller frees `*encoded` with
// l3_test_free.
uint32_t l3_test_encode(const uint8_t* pixels, size_t pixels_bytes, uint32_t width_px,
                        uint32_t height_px, uint32_t channels, uint32_t sample_type,
                        uint64_t row_stride_bytes, const struct L3TestEncodeOptions* options,
                        uint8_t** encoded, size_t* encoded_bytes);

// Encodes rows of `pixels`, without bytes between them, on one thread. Whenever the encoder comes
// to a row, it may have become that of `changed`, or be that of `pixels` again: `seed` chooses. The
// file need not decode.
uint32_t l3_test_encode_changing(const uint8_t* pixels, const uint8_t* changed, size_t pixels_bytes,
                                 uint32_t width_px, uint32_t height_px, uint32_t channels,
                                 uint32_t sample_type, uint64_t seed,
                                 const struct L3TestEncodeOptions* options, uint8_t** encoded,
                                 size_t* encoded_bytes);
void l3_test_free(uint8_t* encoded);

#ifdef __cplusplus
}
#endif
