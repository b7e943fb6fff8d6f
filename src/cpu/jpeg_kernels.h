// What the engines of a processor do faster for jpeg tiles: the inverse transform, rows of samples
// out of blocks, upsampling of chroma, and colour. core/jpeg_pixels.h is the truth. Layer: cpu.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/jpeg_tiles.h"

namespace l3 {

// Kernels read and write whole vectors: the samples that they name, and up to so many behind.
constexpr uint32_t kJpegSpareBytes = 512;

// Turns `count` blocks side by side into 8 rows, `stride` bytes apart.
using JpegRowsFunction = void(const uint8_t* blocks, uint32_t count, uint8_t* rows, size_t stride);
// A row of pixels of a component that has smooth chroma. `near` and `far` are rows of `count`
// samples; `far` is null if the component has all rows. If it has half the columns, there are 2 *
// `count` pixels, and the samples before and behind the rows are read too. `odd`: of the row of
// pixels.
using UpsampleJpegFunction = void(const uint8_t* near, const uint8_t* far, bool half_columns,
                                  uint32_t odd, uint32_t count, uint8_t* out);
// Pixels of three planes: as they are, or ConvertYcbcr() of them. Writes nothing behind the last.
using JpegColorFunction = void(const uint8_t* const* planes, bool is_ycbcr, uint32_t width,
                               uint8_t* out);

struct JpegKernels {
  JpegGroupFunction* transform;  // TransformJpegBlock() of each block
  JpegRowsFunction* rows;
  UpsampleJpegFunction* upsample;
  JpegColorFunction* color;
};

extern const JpegKernels kJpegKernelsCore, kJpegKernelsAvx2, kJpegKernelsAvx512, kJpegKernelsNeon;

}  // namespace l3
