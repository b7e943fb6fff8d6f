// The layout of the L3 paper (Bae et al., ECCV 2022) made lossless, for samples
// of 8 bits: a peer in the benchmarks, not a part of L3's format.
//
// Channels of an image are cut into patches of 64x64. A row of a patch is
//
//   | width : 4 | base : 8 | delta 0 : width | delta 1 : width | ... |    padded to bytes,
//                                                                        lowest bits first
//   residual = base + delta,  sample = prediction + residual   (modulo 256)
//
// The first row of a patch is predicted as 0; below it, a sample is predicted as
// whichever of NW, N and NE is nearest to NW + NE - N. What lies outside the patch
// counts as N. Repaired: widths go from 0 to 8 and are never too small; patches
// at the edges are cut short instead of dropped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/portable.h"

namespace l3 {

constexpr uint32_t kPaperPatch = 64;
constexpr uint32_t kPaperRowHeaderBits = 12;

// Where an image's parts lie, all in host memory or all in the GPU's.
struct PaperImage {
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  const uint32_t* patch_begin;  // in `payload`, of patch p's channel c: p * channels + c
  const uint8_t* payload;       // and a byte more
  uint8_t* pixels;              // rows packed, channels interleaved

  L3_HOST_DEVICE uint32_t patch_columns() const {
    return static_cast<uint32_t>(CeilDiv(width_px, kPaperPatch));
  }
  L3_HOST_DEVICE uint32_t patch_count() const {
    return patch_columns() * static_cast<uint32_t>(CeilDiv(height_px, kPaperPatch));
  }
};

struct PaperPatch {
  uint32_t x_px, y_px, width_px, height_px;
};

L3_HOST_DEVICE inline PaperPatch GetPaperPatch(const PaperImage& image, uint32_t number) {
  const uint32_t x = number % image.patch_columns() * kPaperPatch;
  const uint32_t y = number / image.patch_columns() * kPaperPatch;
  const uint32_t right = image.width_px - x;
  const uint32_t below = image.height_px - y;
  return {x, y, right < kPaperPatch ? right : kPaperPatch,
          below < kPaperPatch ? below : kPaperPatch};
}

L3_HOST_DEVICE inline uint32_t PaperRowBytes(uint32_t width_bits, uint32_t samples) {
  return (kPaperRowHeaderBits + width_bits * samples + 7) / 8;
}

L3_HOST_DEVICE inline uint32_t PaperRowWidthBits(const uint8_t* row) { return row[0] & 15u; }

// Of sample `column` of the row.
L3_HOST_DEVICE inline uint8_t PaperResidual(const uint8_t* row, uint32_t column) {
  const uint32_t width_bits = PaperRowWidthBits(row);
  const uint32_t base = LoadU16(row) >> 4 & 255u;
  const uint32_t bit = kPaperRowHeaderBits + column * width_bits;
  const uint32_t delta = LoadU16(row + bit / 8) >> bit % 8 & ((1u << width_bits) - 1);
  return static_cast<uint8_t>(base + delta);
}

// From the row above: `above[column]` is N.
L3_HOST_DEVICE inline uint8_t PaperPrediction(const uint8_t* above, uint32_t column,
                                              uint32_t width_px) {
  const int n = above[column];
  const int nw = column > 0 ? above[column - 1] : n;
  const int ne = column + 1 < width_px ? above[column + 1] : n;
  // Distances from NW + NE - N.
  const int from_nw = ne > n ? ne - n : n - ne;
  const int from_ne = nw > n ? nw - n : n - nw;
  const int bend = nw + ne - 2 * n;
  const int from_n = bend < 0 ? -bend : bend;
  if (from_nw <= from_n && from_nw <= from_ne) return static_cast<uint8_t>(nw);
  return static_cast<uint8_t>(from_n <= from_ne ? n : ne);
}

// An encoded image in host memory.
struct PaperFile {
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  std::vector<uint32_t> patch_begin;
  std::vector<uint8_t> payload;  // and a byte more

  // As the paper stores it: 13 bytes of header, 16 bits for each patch of a channel.
  uint64_t file_bytes() const { return 13 + 2 * patch_begin.size() + payload.size() - 1; }
};

inline void AppendPaperRow(const std::vector<uint8_t>& residuals, std::vector<uint8_t>* payload) {
  const auto as_signed = [](uint8_t residual) { return static_cast<int8_t>(residual); };
  int lowest = 127;
  int highest = -128;
  for (uint8_t residual : residuals) {
    lowest = std::min<int>(lowest, as_signed(residual));
    highest = std::max<int>(highest, as_signed(residual));
  }
  const uint32_t width_bits = BitLength(static_cast<uint32_t>(highest - lowest));
  const size_t begin = payload->size();
  payload->resize(begin + PaperRowBytes(width_bits, static_cast<uint32_t>(residuals.size())));
  uint32_t bit = 0;
  const auto append = [&](uint32_t value, uint32_t bits) {
    for (uint32_t i = 0; i < bits; ++i, ++bit) {
      (*payload)[begin + bit / 8] |= static_cast<uint8_t>((value >> i & 1) << bit % 8);
    }
  };
  append(width_bits, 4);
  append(static_cast<uint8_t>(lowest), 8);
  for (uint8_t residual : residuals) {
    append(static_cast<uint32_t>(as_signed(residual) - lowest), width_bits);
  }
}

inline PaperFile PackPaperLayout(const uint8_t* pixels, uint32_t width_px, uint32_t height_px,
                                 uint32_t channels) {
  PaperFile file = {width_px, height_px, channels, {}, {}};
  const PaperImage image = {width_px, height_px, channels, nullptr, nullptr, nullptr};
  for (uint32_t number = 0; number < image.patch_count(); ++number) {
    const PaperPatch patch = GetPaperPatch(image, number);
    for (uint32_t c = 0; c < channels; ++c) {
      file.patch_begin.push_back(static_cast<uint32_t>(file.payload.size()));
      std::vector<uint8_t> above(patch.width_px);
      std::vector<uint8_t> row(patch.width_px);
      std::vector<uint8_t> residuals(patch.width_px);
      for (uint32_t y = 0; y < patch.height_px; ++y) {
        for (uint32_t x = 0; x < patch.width_px; ++x) {
          row[x] = pixels[((size_t{patch.y_px} + y) * width_px + patch.x_px + x) * channels + c];
          const uint8_t prediction = y == 0 ? 0 : PaperPrediction(above.data(), x, patch.width_px);
          residuals[x] = static_cast<uint8_t>(row[x] - prediction);
        }
        AppendPaperRow(residuals, &file.payload);
        above.swap(row);
      }
    }
  }
  file.payload.push_back(0);
  return file;
}

// The kernel's work, one sample after the other.
inline std::vector<uint8_t> UnpackPaperLayout(const PaperFile& file) {
  std::vector<uint8_t> pixels(size_t{file.width_px} * file.height_px * file.channels);
  const PaperImage image = {file.width_px,           file.height_px,      file.channels,
                            file.patch_begin.data(), file.payload.data(), pixels.data()};
  for (uint32_t number = 0; number < image.patch_count(); ++number) {
    const PaperPatch patch = GetPaperPatch(image, number);
    for (uint32_t c = 0; c < image.channels; ++c) {
      const uint8_t* packed = image.payload + image.patch_begin[number * image.channels + c];
      std::vector<uint8_t> above(patch.width_px);
      std::vector<uint8_t> row(patch.width_px);
      for (uint32_t y = 0; y < patch.height_px; ++y) {
        for (uint32_t x = 0; x < patch.width_px; ++x) {
          const uint8_t prediction = y == 0 ? 0 : PaperPrediction(above.data(), x, patch.width_px);
          row[x] = static_cast<uint8_t>(prediction + PaperResidual(packed, x));
          image.pixels[((size_t{patch.y_px} + y) * image.width_px + patch.x_px + x) *
                           image.channels +
                       c] = row[x];
        }
        packed += PaperRowBytes(PaperRowWidthBits(packed), patch.width_px);
        above.swap(row);
      }
    }
  }
  return pixels;
}

}  // namespace l3
