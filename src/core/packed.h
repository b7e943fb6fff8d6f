// The packed coding (format.md 5.3): where the parts of a body lie, and the
// decoding of one row of residuals. Layer: core; the scalar truth.
#pragma once

#include "base/portable.h"
#include "core/bits.h"
#include "core/predictor.h"
#include "core/residual.h"
#include "format/constants.h"
#include "format/status.h"

namespace l3 {

L3_HOST_DEVICE inline uint32_t WidthOfCode(uint32_t code, uint32_t used_bits) {
  const uint32_t width = code == 15 ? 16 : code;
  return width < used_bits ? width : used_bits;
}

L3_HOST_DEVICE inline uint32_t NextDeltaWidth(uint32_t width, uint32_t code, uint32_t used_bits) {
  const uint32_t raised = width + code;  // one too many
  const uint32_t next = (raised > 1 ? raised : 1) - 1;
  return next < used_bits ? next : used_bits;
}

struct PackedChannel {
  ChannelLayout layout;
  uint8_t start_width;
  uint16_t base;
  uint32_t predictors_offset;  // parts 2 and 3, from the start of the payload
  uint32_t widths_offset;
  uint32_t width_row_bytes;    // one row of width codes; 0 for sparse
};

// Parts of one packed payload.
struct PackedBody {
  PackedChannel channel[kMaxChannels];
  uint32_t residuals_offset;  // part 4
};

// Reads part 1 and places the others. `size` is the payload's, at least 16.
L3_HOST_DEVICE inline Status ParsePackedBody(const uint8_t* payload, uint32_t size,
                                             uint32_t channels, uint32_t used_bits, uint32_t width,
                                             uint32_t height, PackedBody* body) {
  const uint32_t groups = (width + kGroupSize - 1) / kGroupSize;
  uint32_t pos = kTileHeaderBytes + kChannelHeaderBytes * channels;
  if (pos > size) return Status::kCorruptTile;
  for (uint32_t c = 0; c < channels; ++c) {
    const uint8_t* header = payload + kTileHeaderBytes + kChannelHeaderBytes * c;
    PackedChannel& channel = body->channel[c];
    const uint8_t layout = ReadOnce(header[0]);
    if (layout > static_cast<uint8_t>(ChannelLayout::kSparse)) return Status::kCorruptTile;
    channel.layout = static_cast<ChannelLayout>(layout);
    channel.start_width = ReadOnce(header[1]);
    channel.base = static_cast<uint16_t>(ReadOnce(LoadU16(header + 2)));
    const uint32_t max_start = channel.layout == ChannelLayout::kDelta ? used_bits : 0;
    if (channel.start_width > max_start || channel.base >> used_bits) return Status::kCorruptTile;
    channel.predictors_offset = pos;
    if (channel.layout != ChannelLayout::kConstant) pos += (height + 1) / 2;
  }
  for (uint32_t c = 0; c < channels; ++c) {
    PackedChannel& channel = body->channel[c];
    channel.widths_offset = pos;
    channel.width_row_bytes = 0;
    switch (channel.layout) {
      case ChannelLayout::kConstant: break;
      case ChannelLayout::kAbsolute: channel.width_row_bytes = (groups + 1) / 2; break;
      case ChannelLayout::kDelta: channel.width_row_bytes = (groups + 3) / 4; break;
      case ChannelLayout::kSparse: pos += (height + 7) / 8; break;
    }
    pos += height * channel.width_row_bytes;
  }
  body->residuals_offset = pos;
  return pos <= size ? Status::kOk : Status::kCorruptTile;
}

// Folded residuals of one row of an absolute or delta channel, given its
// widths. Advances *pos. `folded` has 8 * groups places.
L3_HOST_DEVICE inline Status ReadDenseRow(const uint8_t* payload, uint32_t size,
                                          const uint8_t* widths, uint32_t groups, uint32_t* pos,
                                          uint16_t* folded) {
  for (uint32_t g = 0; g < groups; ++g) {
    const uint32_t width = widths[g];
    if (size - *pos < width) return Status::kCorruptTile;
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      folded[kGroupSize * g + i] =
          static_cast<uint16_t>(ReadBits(payload + *pos, uint64_t{i} * width, width));
    }
    *pos += width;
  }
  return Status::kOk;
}

// The same for a sparse channel, whose row carries its own widths.
L3_HOST_DEVICE inline Status ReadSparseRow(const uint8_t* payload, uint32_t size, bool row_coded,
                                           uint32_t groups, uint32_t used_bits, uint32_t* pos,
                                           uint16_t* folded) {
  for (uint32_t i = 0; i < kGroupSize * groups; ++i) folded[i] = 0;
  if (!row_coded) return Status::kOk;

  const uint32_t flag_bytes = (groups + 7) / 8;
  if (size - *pos < flag_bytes) return Status::kCorruptTile;
  uint32_t flags = 0;  // read once: they decide how many widths and masks there are
  for (uint32_t i = 0; i < flag_bytes; ++i) flags |= uint32_t{payload[*pos + i]} << (8 * i);
  flags = ReadOnce(flags & (0xFFFFFFFFu >> (kMaxGroupsPerRow - groups)));
  uint32_t coded_groups = 0;
  for (uint32_t g = 0; g < groups; ++g) coded_groups += flags >> g & 1;
  const uint32_t width_bytes = (coded_groups + 1) / 2;
  if (size - *pos < flag_bytes + width_bytes + coded_groups) return Status::kCorruptTile;
  const uint8_t* widths = payload + *pos + flag_bytes;
  const uint8_t* masks = widths + width_bytes;
  const uint8_t* fields = masks + coded_groups;
  const uint32_t field_bytes = static_cast<uint32_t>(payload + size - fields);

  uint32_t bit = 0;
  uint32_t k = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    if ((flags >> g & 1) == 0) continue;
    const uint32_t code = ReadOnce(ReadCode4(widths, k)) + 1;
    const uint32_t width = code < used_bits ? code : used_bits;
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      if (!ReadBit(masks + k, i)) continue;
      if ((bit + width + 7) / 8 > field_bytes) return Status::kCorruptTile;
      folded[kGroupSize * g + i] = static_cast<uint16_t>(ReadBits(fields, bit, width));
      bit += width;
    }
    ++k;
  }
  *pos = static_cast<uint32_t>(fields - payload) + (bit + 7) / 8;
  return Status::kOk;
}

// A row of a channel that is not constant: its folded residuals and its predictor. `widths` are
// those of the row above, and become the row's own. kReadDense is ReadDenseRow(), or what does the
// same.
template <auto kReadDense = ReadDenseRow>
L3_HOST_DEVICE inline Status ReadPackedRow(const uint8_t* payload, uint32_t size,
                                           const PackedChannel& channel, uint32_t y,
                                           uint32_t groups, uint32_t used_bits, uint8_t* widths,
                                           uint32_t* pos, uint16_t* folded, uint32_t* predictor) {
  const uint8_t* codes = payload + channel.widths_offset + y * channel.width_row_bytes;
  Status status;
  if (channel.layout == ChannelLayout::kSparse) {
    const bool row_coded = ReadBit(payload + channel.widths_offset, y) != 0;
    status = ReadSparseRow(payload, size, row_coded, groups, used_bits, pos, folded);
  } else {
    for (uint32_t g = 0; g < groups; ++g) {
      widths[g] =
          static_cast<uint8_t>(channel.layout == ChannelLayout::kDelta
                                   ? NextDeltaWidth(widths[g], ReadCode2(codes, g), used_bits)
                                   : WidthOfCode(ReadCode4(codes, g), used_bits));
    }
    status = kReadDense(payload, size, widths, groups, pos, folded);
  }
  if (status != Status::kOk) return status;
  *predictor = ReadOnce(ReadCode4(payload + channel.predictors_offset, y));
  return *predictor < kNumPredictors ? Status::kOk : Status::kCorruptTile;
}

// Makes a row from folded residuals and the row above, `width` samples each.
L3_HOST_DEVICE inline void ReconstructRow(uint32_t predictor, const uint16_t* above,
                                          const uint16_t* folded, uint32_t width, uint32_t mask,
                                          uint16_t* row) {
  const PredictorTaps taps = GetPredictorTaps(predictor);
  for (uint32_t x = 0; x < width; ++x) {
    const int32_t n = above[x];
    const int32_t nw = above[x > 0 ? x - 1 : 0];
    const int32_t ne = above[x + 1 < width ? x + 1 : x];
    const int32_t w = x > 0 ? row[x - 1] : above[0];
    const int32_t prediction = PredictFromAbove(taps, nw, n, ne) + (taps.adds_west ? w : 0);
    row[x] =
        static_cast<uint16_t>(static_cast<uint32_t>(prediction + UnfoldResidual(folded[x])) & mask);
  }
}

}  // namespace l3
