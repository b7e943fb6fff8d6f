// What engines follow: which window of an image goes where in memory, with which channels and of
// which type. Layer: output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/portable.h"
#include "core/tile.h"
#include "format/constants.h"
#include "format/image_view.h"

namespace l3 {

enum class OutputType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF16, kF32, kI64 };
constexpr uint32_t kOutputTypes = 9;

L3_HOST_DEVICE constexpr uint32_t OutputBytes(OutputType type) {
  switch (type) {
    case OutputType::kU8:
    case OutputType::kI8: return 1;
    case OutputType::kU16:
    case OutputType::kI16:
    case OutputType::kF16: return 2;
    case OutputType::kI64: return 8;
    default: return 4;
  }
}

// The type of the samples of the file.
L3_HOST_DEVICE constexpr OutputType StoredType(const ImageInfo& info) {
  switch (info.sample_type) {
    case SampleType::kUint8: return OutputType::kU8;
    case SampleType::kUint16: return OutputType::kU16;
    case SampleType::kInt8: return OutputType::kI8;
    case SampleType::kFloat16: return OutputType::kF16;
    case SampleType::kFloat32: return OutputType::kF32;
    case SampleType::kInt32: return OutputType::kI32;
    case SampleType::kUint32: return OutputType::kU32;
    default: return OutputType::kI16;
  }
}

// A part of the stored image, inside it. May be empty.
struct Window {
  uint32_t x_px, y_px, width_px, height_px;
};

// The tiles that a window needs: those that it touches with its halo.
inline TileSpan TilesOfWindow(const ImageView& view, const Window& window) {
  if (window.width_px == 0 || window.height_px == 0) return {0, 0, 0, 0};
  const ImageInfo& info = view.info;
  const auto begin = [](uint32_t place, uint32_t halo, uint32_t log2) {
    return (place > 0 ? place - halo : 0) >> log2;
  };
  const auto end = [](uint32_t place, uint32_t halo, uint32_t size, uint32_t log2) {
    return ((place < size ? place - 1 + halo : size - 1) >> log2) + 1;
  };
  return {
      begin(window.x_px, view.halo_x_px, info.tile_width_log2),
      end(window.x_px + window.width_px, view.halo_x_px, info.width_px, info.tile_width_log2),
      begin(window.y_px, view.halo_y_px, info.tile_height_log2),
      end(window.y_px + window.height_px, view.halo_y_px, info.height_px, info.tile_height_log2)};
}

// The part of a tile, or of another rectangle of the image, that is in the window.
L3_HOST_DEVICE inline TileRect ClipToWindow(const Window& window, const TileRect& rect) {
  const auto larger = [](uint32_t a, uint32_t b) { return a > b ? a : b; };
  const auto smaller = [](uint32_t a, uint32_t b) { return a < b ? a : b; };
  const uint32_t left = larger(window.x_px, rect.x_px);
  const uint32_t top = larger(window.y_px, rect.y_px);
  const uint32_t right = smaller(window.x_px + window.width_px, rect.x_px + rect.width_px);
  const uint32_t bottom = smaller(window.y_px + window.height_px, rect.y_px + rect.height_px);
  if (right <= left || bottom <= top) return {left, top, 0, 0};
  return {left, top, right - left, bottom - top};
}

// How the samples of a pixel become those of the output. Arithmetic is in float, one
// rounding an operation; a float that goes to an integer type is rounded to the nearest,
// halves away from zero, and saturates.
enum class PixelOp : uint8_t {
  kSelect,  // sample[source[c]], saturated to the type
  kScale,   // (sample[source[c]] - subtract[c]) * multiply[c] * range
  kMix,     // weights[c] . sample[source[0..2]] + bias[c], summed from the left
};

// Sources that no file has. kFillChannel is fill[c]. kLumaChannel is a sample made of the
// first three, in integers: their weighted sum and luma_rounding, divided by kLumaScale and
// rounded down. Of jpeg tiles in YCbCr it is component Y, as if all channels were: no request mixes
// luma and colours.
constexpr uint8_t kFillChannel = 0xFF;
constexpr uint8_t kLumaChannel = 0xFE;
constexpr uint32_t kLumaRed = 9797, kLumaGreen = 19234, kLumaBlue = 3737;
constexpr uint32_t kLumaScale = kLumaRed + kLumaGreen + kLumaBlue;
constexpr uint32_t kLumaScaleLog2 = 15;
static_assert(kLumaScale == 1u << kLumaScaleLog2);

// Pixels around the window that the output has besides, as the stored image lies. With
// them the window is at most 2^32 - 1 pixels wide and high.
struct Border {
  uint32_t left_px, top_px, right_px, bottom_px;
};

// The whole of the store stage for one image. Plain data, shared with kernels.
//
// Pixel (x, y) of the window, channel c, goes to data + x * x_stride_bytes + y *
// y_stride_bytes + channel_offset_bytes[c]. The image may be mirrored or transposed on
// its way, so strides may be negative and in any order. Pixels of the border, which have
// an x or y below 0 or past the window, are filled.
struct OutputPlan {
  union {
    uint8_t* data;
    int64_t origin_bytes;  // before PlaceIn(): from the begin of the tensor to `data`
  };
  int64_t x_stride_bytes, y_stride_bytes;
  int64_t channel_offset_bytes[kMaxChannels];
  Window window;
  Border border;
  uint8_t source[kMaxChannels];  // stored channels, or the above; for kMix stored ones
  OutputType type;
  PixelOp op;
  uint8_t channels;  // of the output, 1 to 4; 3 for kMix
  uint32_t luma_rounding;  // less than kLumaScale
  float range;
  alignas(16) float subtract[kMaxChannels];
  float multiply[kMaxChannels];
  float weights[3][3];
  float bias[3];
  float fill[kMaxChannels];

  L3_HOST_DEVICE uint8_t* Place(int64_t x, int64_t y, uint32_t channel) const {
    return data + (x * x_stride_bytes + y * y_stride_bytes + channel_offset_bytes[channel]);
  }
  // What the places of its channels count from.
  L3_HOST_DEVICE uint8_t* PixelPlace(int64_t x, int64_t y) const {
    return data + (x * x_stride_bytes + y * y_stride_bytes);
  }
  L3_HOST_DEVICE bool HasLuma() const {
    for (uint32_t c = 0; c < channels; ++c) {
      if (source[c] == kLumaChannel) return true;
    }
    return false;
  }
  // Gives the tensor its memory.
  void PlaceIn(void* tensor) { data = static_cast<uint8_t*>(tensor) + origin_bytes; }
  // Where channels are equally far apart.
  void SetChannelStride(int64_t bytes) {
    for (uint32_t c = 0; c < kMaxChannels; ++c) channel_offset_bytes[c] = c * bytes;
  }
};
static_assert(std::is_trivially_copyable_v<OutputPlan>);
// Kernels read these at once.
static_assert(sizeof(OutputPlan) % 16 == 0 && offsetof(OutputPlan, source) % 4 == 0 &&
              offsetof(OutputPlan, subtract) % 16 == 0 && offsetof(OutputPlan, multiply) % 16 == 0);

// The image as stored, HWC, rows packed.
inline OutputPlan WholeImagePlan(const ImageInfo& info, uint8_t* data) {
  OutputPlan plan = {};
  plan.data = data;
  plan.x_stride_bytes = info.pixel_bytes();
  plan.y_stride_bytes = static_cast<int64_t>(info.row_bytes());
  plan.SetChannelStride(info.sample_bytes());
  plan.window = {0, 0, info.width_px, info.height_px};
  plan.type = StoredType(info);
  plan.op = PixelOp::kSelect;
  plan.channels = static_cast<uint8_t>(info.channels);
  for (uint8_t c = 0; c < info.channels; ++c) plan.source[c] = c;
  return plan;
}

// Whether rows of the window leave as they are stored: all channels, HWC.
L3_HOST_DEVICE inline bool HasStoredRows(const ImageInfo& info, const OutputPlan& plan) {
  bool stored = plan.op == PixelOp::kSelect && plan.channels == info.channels &&
                plan.type == StoredType(info) && plan.x_stride_bytes == info.pixel_bytes();
  for (uint32_t c = 0; stored && c < plan.channels; ++c) {
    stored = plan.source[c] == c && plan.channel_offset_bytes[c] == c * info.sample_bytes();
  }
  return stored;
}

// Whether the output is the image as stored: HWC, rows in their order, gaps behind them
// or none.
inline bool IsWholeImageAsStored(const ImageInfo& info, const OutputPlan& plan) {
  const Window& window = plan.window;
  const Border& border = plan.border;
  return HasStoredRows(info, plan) && plan.y_stride_bytes >= 0 &&
         window.width_px == info.width_px && window.height_px == info.height_px &&
         (border.left_px | border.top_px | border.right_px | border.bottom_px) == 0;
}

// A part of the border, in pixels from the window's first one.
struct BorderBand {
  int64_t x, y;
  uint32_t width, height;
};

// Bands above, below, left and right of the window. Together they are the border.
constexpr uint32_t kBorderBands = 4;
L3_HOST_DEVICE inline BorderBand GetBorderBand(const OutputPlan& plan, uint32_t band) {
  const Border& border = plan.border;
  const Window& window = plan.window;
  const int64_t left = -int64_t{border.left_px};
  const uint32_t width = border.left_px + window.width_px + border.right_px;
  switch (band) {
    case 0: return {left, -int64_t{border.top_px}, width, border.top_px};
    case 1: return {left, window.height_px, width, border.bottom_px};
    case 2: return {left, 0, border.left_px, window.height_px};
    default: return {window.width_px, 0, border.right_px, window.height_px};
  }
}

}  // namespace l3
