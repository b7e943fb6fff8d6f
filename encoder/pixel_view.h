// What the encoder takes and gives, as its parts know it: pixels, bytes, modes. Layer: encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "encoder/exact_floats.h"
#include "format/constants.h"
#include "format/image_view.h"

namespace l3 {

// Pixels to encode: HWC, channels interleaved, samples in native order.
struct PixelView {
  const uint8_t* data;
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;       // 1 to 4096
  SampleType sample_type;
  uint64_t row_stride_bytes;

  uint32_t sample_bits() const { return SampleBits(sample_type); }
  bool is_signed() const { return IsSigned(sample_type); }
};

struct Bytes {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

enum class Coding {
  kPacked,  // fast to decode
  kRans,    // small
  kStored,  // samples as they are
};

// Called once, with the size of the file; returns memory for it, or null for none.
using AllocateFile = std::function<uint8_t*(uint64_t bytes)>;

}  // namespace l3
