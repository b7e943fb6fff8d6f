// The store policy that follows an OutputPlan: windows, mirrors, other types, channels and
// layouts (core/output.h). Layer: cuda. Has the functions of HwcStore.
#pragma once

#include "core/output.h"
#include "cuda/device_memory.h"
#include "cuda/hwc_store.cuh"
#include "cuda/lane_math.cuh"
#include "cuda/warp.h"

namespace l3 {

// The samples of a pixel in memory, interleaved.
template <uint32_t kSampleBytes>
struct PixelInMemory {
  const uint8_t* samples;

  L3_DEVICE uint32_t operator[](uint32_t channel) const {
    return kSampleBytes == 1 ? samples[channel] : LoadU16(samples + 2 * channel);
  }
};

// The samples of a pixel in registers. These have no index: all are looked at.
template <uint32_t kChannels>
struct PixelInRegisters {
  uint32_t sample[kChannels];

  L3_DEVICE uint32_t operator[](uint32_t channel) const {
    uint32_t found = sample[0];
    L3_UNROLL
    for (uint32_t c = 1; c < kChannels; ++c) found = c == channel ? sample[c] : found;
    return found;
  }
};

template <uint32_t kChannels, uint32_t kSampleBytes>
class PlanStore {
 public:
  // `rect` is the tile's place in the image.
  L3_DEVICE PlanStore(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect)
      : plan_(plan),
        x_(rect.x_px - plan.window.x_px),
        y_(rect.y_px - plan.window.y_px),
        info_(info) {}

  // Those of the pixels that are in the window.
  template <class Warp>
  L3_DEVICE void StoreRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                          uint32_t width) const {
    x += x_;
    y += y_;
    if (y >= plan_.window.height_px) return;
    // Pixels to the left of the window have numbers that wrapped around.
    const uint32_t skip = x < plan_.window.width_px ? 0 : 0 - x;
    if (skip >= width) return;
    x += skip;
    const uint32_t right = plan_.window.width_px - x;
    const uint32_t count = width - skip < right ? width - skip : right;
    if (HasStoredRows(info_, plan_)) {
      CopyBytes(warp, row, skip * kPixelBytes, count * kPixelBytes, plan_.Place(x, y, 0));
      return;
    }
    const uint8_t* pixel = row + (skip + warp.lane()) * kPixelBytes;
    const int64_t step = plan_.x_stride_bytes * kWarpLanes;
    const OutputType type = plan_.type;
    L3_NO_UNROLL
    for (uint32_t c = 0; c < plan_.channels; ++c) {
      const ChannelPlan channel = GetChannelPlan(plan_, c);
      uint8_t* out = plan_.Place(int64_t{x} + warp.lane(), y, c);
      L3_NO_UNROLL
      for (uint32_t i = warp.lane(); i < count; i += kWarpLanes) {
        const PixelInMemory<kSampleBytes> samples{pixel + (i - warp.lane()) * kPixelBytes};
        StoreValue(type, OutputValue(channel, samples), out);
        out += step;
      }
    }
  }

  template <uint32_t kWords>
  L3_DEVICE void StorePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    constexpr uint32_t kPixels = 4 * kWords / kPixelBytes;
    x += x_;
    y += y_;
    if (y >= plan_.window.height_px) return;
    const uint32_t width = plan_.window.width_px;
    if (x < width && kPixels <= width - x && HasStoredRows(info_, plan_)) {
      HwcStore<kPixelBytes>(plan_.Place(x, y, 0), 0).StorePixels(words, 0, 0);
      return;
    }
    const OutputType type = plan_.type;
    L3_NO_UNROLL
    for (uint32_t c = 0; c < plan_.channels; ++c) {
      const ChannelPlan channel = GetChannelPlan(plan_, c);
      uint32_t rest[kWords];
      L3_UNROLL
      for (uint32_t k = 0; k < kWords; ++k) rest[k] = words[k];
      L3_NO_UNROLL
      for (uint32_t i = 0; i < kPixels; ++i) {
        if (x + i < width) {
          StoreValue(type, OutputValue(channel, FirstPixel(rest)), plan_.Place(x + i, y, c));
        }
        DropPixel(&rest);
      }
    }
  }

  L3_DEVICE void StorePixel(const uint32_t (&samples)[kChannels], uint32_t x, uint32_t y) const {
    x += x_;
    y += y_;
    if (x >= plan_.window.width_px || y >= plan_.window.height_px) return;
    PixelInRegisters<kChannels> pixel;
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) pixel.sample[c] = samples[c];
    L3_NO_UNROLL
    for (uint32_t c = 0; c < plan_.channels; ++c) {
      StoreValue(plan_.type, OutputValue(GetChannelPlan(plan_, c), pixel), plan_.Place(x, y, c));
    }
  }

 private:
  static constexpr uint32_t kPixelBytes = kChannels * kSampleBytes;

  // Copies `bytes` from `begin` of a row in shared memory, in words where `out` allows it.
  template <class Warp>
  static L3_DEVICE void CopyBytes(const Warp& warp, const uint8_t* row, uint32_t begin,
                                  uint32_t bytes, uint8_t* out) {
    const uint32_t lane = warp.lane();
    uint32_t head = (0u - static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out))) & 3;
    if (head > bytes) head = bytes;
    const uint32_t body = (bytes - head) & ~3u;
    const uint32_t shift = 8 * ((begin + head) & 3);
    L3_NO_UNROLL
    for (uint32_t at = head + 4 * lane; at < head + body; at += 4 * kWarpLanes) {
      const uint8_t* word = row + ((begin + at) & ~3u);
      StoreWord(out + at, FunnelShift(LoadWord(word), LoadWord(word + 4), shift));
    }
    if (lane < head) out[lane] = row[begin + lane];
    const uint32_t tail = head + body + lane;
    if (tail < bytes) out[tail] = row[begin + tail];
  }

  template <uint32_t kWords>
  static L3_DEVICE PixelInRegisters<kChannels> FirstPixel(const uint32_t (&words)[kWords]) {
    constexpr uint32_t kBits = 8 * kSampleBytes;
    PixelInRegisters<kChannels> pixel;
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) {
      pixel.sample[c] = words[c * kBits / 32] >> (c * kBits % 32) & ((1u << kBits) - 1);
    }
    return pixel;
  }
  template <uint32_t kWords>
  static L3_DEVICE void DropPixel(uint32_t (*words)[kWords]) {
    constexpr uint32_t kWhole = kPixelBytes / 4;
    const auto word = [&](uint32_t k) { return k < kWords ? (*words)[k] : 0; };
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) {
      (*words)[k] = FunnelShift(word(k + kWhole), word(k + kWhole + 1), 8 * (kPixelBytes % 4));
    }
  }

  const OutputPlan& plan_;
  // Of the tile's first pixel, from the window's; numbers wrap around.
  uint32_t x_;
  uint32_t y_;
  const ImageInfo& info_;
};

}  // namespace l3
