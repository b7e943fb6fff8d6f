#include "encoder/packed_encoder.h"

#include <algorithm>
#include <cstring>

#include "base/portable.h"

namespace l3 {
namespace {

constexpr uint32_t kSlackBytes = 16;
// GPU kernels decode a tile fastest if all of its channels are kDelta: with another layout a tile
// takes 1.6 times as long (H200). So a channel is sparse or absolute only below these shares of the
// bits.
constexpr uint64_t kSparsePercent = 93;    // of the dense layout
constexpr uint64_t kAbsolutePercent = 97;  // of the delta layout

// ---- The sparse layout -----------------------------------------------------

// Bit i set: residual i of a group is not 0.
uint32_t GroupMask(const uint8_t* group) {
  constexpr uint64_t kLow7 = 0x7F7F7F7F7F7F7F7Fu;
  uint64_t fields;
  std::memcpy(&fields, group, sizeof(fields));
  const uint64_t is_coded = (((fields & kLow7) + kLow7) | fields) & ~kLow7;
  return static_cast<uint32_t>(((is_coded >> 7) * 0x0102040810204080u) >> 56);
}
uint32_t GroupMask(const uint16_t* group) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kGroupSize; ++i) mask |= (group[i] != 0 ? 1u : 0u) << i;
  return mask;
}

bool IsZero(const WidthRow& widths) {
  uint64_t words[sizeof(widths.at) / 8];
  std::memcpy(words, widths.at, sizeof(words));
  return (words[0] | words[1] | words[2] | words[3]) == 0;
}

// Stops counting once `limit` is passed.
template <typename Value>
uint64_t SparseBits(const PackedTile<Value>& tile, uint32_t c, uint64_t limit) {
  const PackedKernels<Value>& kernels = GetPackedKernels<Value>();
  const PackedChannelParameters& channel = tile.channel[c];
  const uint32_t rows = tile.planes.height_px;
  uint64_t bytes = (rows + 7) / 8;
  for (uint32_t y = 0; y < rows && 8 * bytes < limit; ++y) {
    bytes += kernels.sparse_row_bytes(tile.planes, c, y, channel.predictor[y], channel.needed[y]);
  }
  return 8 * bytes;
}

// Bit y set: row y has residuals that are not 0.
uint8_t* WriteSparseRowFlags(const PackedChannelParameters& channel, uint32_t rows, uint8_t* out) {
  for (uint32_t y = 0; y < rows; ++y) {
    out[y >> 3] =
        static_cast<uint8_t>(out[y >> 3] | (IsZero(channel.needed[y]) ? 0u : 1u) << (y & 7));
  }
  return out + (rows + 7) / 8;
}

template <typename Value>
uint8_t* WriteSparseRow(const PackedTile<Value>& tile, uint32_t c, uint32_t y, uint8_t* out) {
  const PackedChannelParameters& channel = tile.channel[c];
  const WidthRow& widths = channel.needed[y];
  if (IsZero(widths)) return out;
  const uint32_t groups = tile.planes.groups();
  Value folded[kMaxPackedTileSide];
  GetPackedKernels<Value>().fold_row(tile.planes, c, y, channel.predictor[y], folded);
  uint8_t coded_groups[kMaxGroupsPerRow];
  uint32_t coded = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    if (widths.at[g] == 0) continue;
    out[g >> 3] = static_cast<uint8_t>(out[g >> 3] | 1u << (g & 7));
    coded_groups[coded++] = static_cast<uint8_t>(g);
  }
  out += (groups + 7) / 8;
  uint8_t* masks = out + (coded + 1) / 2;
  uint8_t* fields = masks + coded;
  uint64_t pending = 0;
  uint32_t pending_bits = 0;
  for (uint32_t k = 0; k < coded; ++k) {
    const uint32_t g = coded_groups[k];
    const uint32_t width = widths.at[g];
    out[k >> 1] = static_cast<uint8_t>(out[k >> 1] | (width - 1) << (4 * (k & 1)));
    uint32_t mask = GroupMask(folded + kGroupSize * g);
    masks[k] = static_cast<uint8_t>(mask);
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t i = static_cast<uint32_t>(__builtin_ctz(mask));
      pending |= uint64_t{folded[kGroupSize * g + i]} << pending_bits;
      pending_bits += width;
      if (pending_bits >= 32) {
        StoreU32(fields, static_cast<uint32_t>(pending));
        fields += 4;
        pending >>= 32;
        pending_bits -= 32;
      }
    }
  }
  const uint32_t left_bytes = (pending_bits + 7) / 8;
  std::memcpy(fields, &pending, left_bytes);
  return fields + left_bytes;
}

// ---- A channel -------------------------------------------------------------

template <typename Value>
void ChooseParameters(uint32_t c, PackedTile<Value>* tile) {
  const PackedKernels<Value>& kernels = GetPackedKernels<Value>();
  PackedPlanes<Value>& planes = tile->planes;
  PackedChannelParameters& channel = tile->channel[c];
  channel.base = *planes.Row(c, 0);
  channel.start_width = 0;
  if (kernels.is_constant(planes, c)) {
    channel.layout = ChannelLayout::kConstant;
    channel.bits = 0;
    return;
  }
  std::fill_n(planes.Row(c, -1) - 1, PackedPlanes<Value>::kStride + 1, *planes.Row(c, 0));
  kernels.choose_predictors(planes, c, &tile->lanes, channel.predictor, channel.needed);

  const uint64_t rows = planes.height_px;
  const uint64_t groups = planes.groups();
  const WidthSums sums = kernels.find_widths(channel.needed, planes.height_px, planes.groups(),
                                             planes.used_bits, channel.delta);
  channel.layout = ChannelLayout::kAbsolute;
  channel.bits = 8 * (sums.absolute + rows * ((groups + 1) / 2));
  const uint64_t delta_bits = 8 * (sums.delta + rows * ((groups + 3) / 4));
  if (delta_bits * kAbsolutePercent < channel.bits * 100) {
    channel.layout = ChannelLayout::kDelta;
    channel.bits = delta_bits;
  }
  if (4 * sums.zeros >= rows * groups) {  // otherwise sparse hardly ever wins
    const uint64_t sparse_bits = SparseBits(*tile, c, channel.bits);
    if (sparse_bits * 100 < channel.bits * kSparsePercent) {
      channel.layout = ChannelLayout::kSparse;
      channel.bits = sparse_bits;
    }
  }
  if (channel.layout == ChannelLayout::kDelta) channel.start_width = sums.start_width;
  if (channel.layout == ChannelLayout::kAbsolute && planes.used_bits > 15) {
    // Code 15 is of width 16.
    for (uint32_t y = 0; y < rows; ++y) {
      for (uint8_t& width : channel.needed[y].at) width = width == 15 ? 16 : width;
    }
  }
  channel.bits += 8 * ((rows + 1) / 2);
}

uint8_t* WritePredictors(const PackedChannelParameters& channel, uint32_t rows, uint8_t* out) {
  for (uint32_t y = 0; y < rows; ++y) {
    out[y >> 1] = static_cast<uint8_t>(out[y >> 1] | channel.predictor[y] << (4 * (y & 1)));
  }
  return out + (rows + 1) / 2;
}

}  // namespace

template <typename Value>
void AppendPackedPayload(PackedTile<Value>* tile, std::vector<uint8_t>* out) {
  const PackedKernels<Value>& kernels = GetPackedKernels<Value>();
  PackedPlanes<Value>& planes = tile->planes;
  ColorTransform transform = ColorTransform::kNone;
  if (planes.channels >= 3 && kernels.prefers_subtract_green(planes)) {
    transform = ColorTransform::kSubtractGreen;
    kernels.subtract_green(&planes);
  }
  const uint32_t rows = planes.height_px;
  const uint32_t groups = planes.groups();
  uint64_t bits = 0;
  for (uint32_t c = 0; c < planes.channels; ++c) {
    ChooseParameters(c, tile);
    bits += tile->channel[c].bits;
  }

  const size_t begin = out->size();
  const size_t size = kTileHeaderBytes + size_t{kChannelHeaderBytes} * planes.channels + bits / 8;
  out->resize(begin + size + kSlackBytes);  // zeros
  uint8_t* p = out->data() + begin;
  p[4] = static_cast<uint8_t>(TileCoding::kPacked);
  p[5] = static_cast<uint8_t>(transform);
  p += kTileHeaderBytes;
  for (uint32_t c = 0; c < planes.channels; ++c) {
    const PackedChannelParameters& channel = tile->channel[c];
    p[0] = static_cast<uint8_t>(channel.layout);
    p[1] = static_cast<uint8_t>(channel.start_width);
    StoreU16(p + 2, channel.base);
    p += kChannelHeaderBytes;
  }
  for (uint32_t c = 0; c < planes.channels; ++c) {
    const PackedChannelParameters& channel = tile->channel[c];
    if (channel.layout != ChannelLayout::kConstant) p = WritePredictors(channel, rows, p);
  }
  for (uint32_t c = 0; c < planes.channels; ++c) {
    const PackedChannelParameters& channel = tile->channel[c];
    switch (channel.layout) {
      case ChannelLayout::kConstant: break;
      case ChannelLayout::kAbsolute:
        p = kernels.write_absolute_codes(channel.needed, rows, groups, p);
        break;
      case ChannelLayout::kDelta:
        p = kernels.write_delta_codes(channel.delta, rows, groups, channel.start_width, p);
        break;
      case ChannelLayout::kSparse: p = WriteSparseRowFlags(channel, rows, p); break;
    }
  }
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t c = 0; c < planes.channels; ++c) {
      const PackedChannelParameters& channel = tile->channel[c];
      switch (channel.layout) {
        case ChannelLayout::kConstant: break;
        case ChannelLayout::kAbsolute:
        case ChannelLayout::kDelta:
          p = kernels.write_dense_row(planes, c, y, channel.predictor[y], channel.widths(y), p);
          break;
        case ChannelLayout::kSparse: p = WriteSparseRow(*tile, c, y, p); break;
      }
    }
  }
  out->resize(begin + size);
}

template void AppendPackedPayload(PackedTile<uint8_t>* tile, std::vector<uint8_t>* out);
template void AppendPackedPayload(PackedTile<uint16_t>* tile, std::vector<uint8_t>* out);

}  // namespace l3
