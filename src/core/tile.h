// A tile from payload to samples: the scalar truth that every engine must
// equal (format.md 5). Layer: core. No allocation, no I/O.
#pragma once

#include "core/check.h"
#include "core/color.h"
#include "core/match.h"
#include "core/packed.h"
#include "core/rans.h"
#include "format/image_view.h"

namespace l3 {

// Where the decoded samples of an image, or of a tile, go: rows of HWC samples as
// stored. Plain data.
struct ImageOutput {
  uint8_t* data;  // top left sample
  uint64_t row_stride_bytes;

  L3_HOST_DEVICE uint8_t* Row(uint32_t y) const { return data + y * row_stride_bytes; }
};

// The part of an image's output that a tile fills.
L3_HOST_DEVICE inline ImageOutput OutputOfTile(const ImageInfo& info, const ImageOutput& image,
                                               const TileRect& rect) {
  return {image.Row(rect.y_px) + uint64_t{rect.x_px} * info.pixel_bytes(), image.row_stride_bytes};
}

// The result of an image, or of a run of its tiles.
struct DecodeResult {
  Status status;
  uint32_t tile;  // the first bad one, if status is not kOk
};

// The first bad tile of two results; of one tile in both, the first result.
inline DecodeResult FirstBad(const DecodeResult& a, const DecodeResult& b) {
  if (b.status == Status::kOk) return a;
  return a.status == Status::kOk || b.tile < a.tile ? b : a;
}

// A payload whose header is known to be sound.
struct TilePayload {
  const uint8_t* data;
  uint32_t size;  // bytes, a multiple of 16
  TileCoding coding;
  ColorTransform transform;
};

// Validates the header of a payload. PayloadCheck validates its bytes, since engines share that
// work between lanes.
L3_HOST_DEVICE inline Status ParseTilePayload(const ImageInfo& info, const uint8_t* data,
                                              uint32_t size, TilePayload* tile) {
  const uint8_t coding = ReadOnce(data[4]);
  const uint8_t transform = ReadOnce(data[5]);
  if (coding > static_cast<uint8_t>(TileCoding::kMatch)) return Status::kUnsupportedFeature;
  if (transform > static_cast<uint8_t>(ColorTransform::kSubtractGreen)) {
    return Status::kUnsupportedFeature;
  }
  tile->data = data;
  tile->size = size;
  tile->coding = static_cast<TileCoding>(coding);
  tile->transform = static_cast<ColorTransform>(transform);
  if (LoadU16(data + 6) != 0) return Status::kCorruptTile;
  if (tile->transform != ColorTransform::kNone &&
      (info.channels < 3 || tile->coding != TileCoding::kPacked)) {
    return Status::kCorruptTile;
  }
  if (tile->coding != TileCoding::kStored && info.has_large_tiles()) return Status::kCorruptTile;
  return Status::kOk;
}

// The body must end in the last 16 bytes of the payload, zeros behind it.
L3_HOST_DEVICE inline Status CheckBodyEnd(const TilePayload& tile, uint64_t body_end) {
  if (body_end > tile.size || tile.size - body_end >= kPayloadAlignment) {
    return Status::kCorruptTile;
  }
  for (uint64_t i = body_end; i < tile.size; ++i) {
    if (tile.data[i] != 0) return Status::kCorruptTile;
  }
  return Status::kOk;
}

L3_HOST_DEVICE inline void StoreSample(uint8_t* out, uint32_t index, uint32_t sample,
                                       uint32_t sample_bits) {
  if (sample_bits == 8) {
    out[index] = static_cast<uint8_t>(sample);
  } else {
    reinterpret_cast<uint16_t*>(out)[index] = static_cast<uint16_t>(sample);
  }
}

L3_HOST_DEVICE inline Status DecodeConstantTile(const ImageInfo& info, const SampleMap& map,
                                                const TileRect& rect, const TilePayload& tile,
                                                const ImageOutput& output) {
  const Status status = CheckBodyEnd(tile, kTileHeaderBytes + 2 * kMaxChannels);
  if (status != Status::kOk) return status;
  uint32_t samples[kMaxChannels];
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    const uint32_t value = ReadOnce(LoadU16(tile.data + kTileHeaderBytes + 2 * c));
    if (value >= (c < info.channels ? map.value_count : 1)) return Status::kCorruptTile;
    samples[c] = c < info.channels ? map(value) : 0;
  }
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    uint8_t* out = output.Row(y);
    for (uint32_t x = 0; x < rect.width_px; ++x) {
      for (uint32_t c = 0; c < info.channels; ++c) {
        StoreSample(out, x * info.channels + c, samples[c], info.sample_bits());
      }
    }
  }
  return Status::kOk;
}

// `count` samples of a stored tile. Returns false if a value has none.
L3_HOST_DEVICE inline bool DecodeStoredSamples(const ImageInfo& info, const SampleMap& map,
                                               const uint8_t* in, uint32_t count, uint8_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t value =
        ReadOnce(info.sample_bits() == 8 ? in[i] : LoadU16(in + 2 * uint64_t{i}));
    if (value >= map.value_count) return false;
    StoreSample(out, i, map(value), info.sample_bits());
  }
  return true;
}

L3_HOST_DEVICE inline Status DecodeStoredTile(const ImageInfo& info, const SampleMap& map,
                                              const TileRect& rect, const TilePayload& tile,
                                              const ImageOutput& output) {
  const uint32_t row_samples = rect.width_px * info.channels;
  const uint64_t row_bytes = uint64_t{row_samples} * info.sample_bytes();
  const Status status = CheckBodyEnd(tile, kTileHeaderBytes + row_bytes * rect.height_px);
  if (status != Status::kOk) return status;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* in = tile.data + kTileHeaderBytes + row_bytes * y;
    if (!DecodeStoredSamples(info, map, in, row_samples, output.Row(y))) {
      return Status::kCorruptTile;
    }
  }
  return Status::kOk;
}

L3_HOST_DEVICE inline Status DecodePackedTile(const ImageInfo& info, const SampleMap& map,
                                              const TileRect& rect, const TilePayload& tile,
                                              const ImageOutput& output) {
  PackedBody body;
  Status status = ParsePackedBody(tile.data, tile.size, info.channels, info.used_bits,
                                  rect.width_px, rect.height_px, &body);
  if (status != Status::kOk) return status;

  const uint32_t groups = (rect.width_px + kGroupSize - 1) / kGroupSize;
  const uint32_t mask = (1u << info.used_bits) - 1;
  const uint32_t half = 1u << (info.used_bits - 1);
  uint16_t rows[2][kMaxChannels][kMaxPackedTileSide];
  uint16_t folded[kMaxPackedTileSide];
  uint8_t widths[kMaxChannels][kMaxGroupsPerRow];
  for (uint32_t c = 0; c < info.channels; ++c) {
    for (uint32_t x = 0; x < rect.width_px; ++x) {
      rows[0][c][x] = rows[1][c][x] = body.channel[c].base;
    }
    for (uint32_t g = 0; g < groups; ++g) widths[c][g] = body.channel[c].start_width;
  }

  uint32_t pos = body.residuals_offset;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    uint16_t (*above)[kMaxPackedTileSide] = rows[y & 1];
    uint16_t (*current)[kMaxPackedTileSide] = rows[(y & 1) ^ 1];
    for (uint32_t c = 0; c < info.channels; ++c) {
      const PackedChannel& channel = body.channel[c];
      if (channel.layout == ChannelLayout::kConstant) continue;
      uint32_t predictor;
      status = ReadPackedRow(tile.data, tile.size, channel, y, groups, info.used_bits, widths[c],
                             &pos, folded, &predictor);
      if (status != Status::kOk) return status;
      ReconstructRow(predictor, above[c], folded, rect.width_px, mask, current[c]);
    }

    uint8_t* out = output.Row(y);
    for (uint32_t x = 0; x < rect.width_px; ++x) {
      for (uint32_t c = 0; c < info.channels; ++c) {
        uint32_t value = current[c][x];
        if (tile.transform == ColorTransform::kSubtractGreen && (c == 0 || c == 2)) {
          value = AddGreen(value, current[1][x], half, mask);
        }
        if (value >= map.value_count) return Status::kCorruptTile;
        StoreSample(out, x * info.channels + c, map(value), info.sample_bits());
      }
    }
  }
  return CheckBodyEnd(tile, pos);
}

inline Status DecodeRansTile(const ImageInfo& info, const SampleMap& map, const RansTables& tables,
                             const TileRect& rect, const TilePayload& tile,
                             const ImageOutput& output) {
  uint32_t end = 0;
  const auto store = [&](uint32_t x, uint32_t y, const int32_t* values) {
    uint8_t* row = output.Row(y);
    for (uint32_t p = 0; p < info.channels; ++p) {
      const uint32_t value = static_cast<uint32_t>(values[p]);
      if (value >= map.value_count) return false;
      StoreSample(row, x * info.channels + RansChannel(info.channels, p), map(value),
                  info.sample_bits());
    }
    return true;
  };
  const Status status = DecodeRansPixels(tile.data, tile.size, info.channels, info.used_bits,
                                         tables, rect.width_px, rect.height_px, &end, store);
  return status == Status::kOk ? CheckBodyEnd(tile, end) : status;
}

inline Status DecodeMatchTile(const ImageInfo& info, const SampleMap& map, const RansTables& tables,
                              const TileRect& rect, const TilePayload& tile,
                              const ImageOutput& output) {
  uint32_t end = 0;
  const auto store = [&](uint32_t x, uint32_t y, uint32_t number) {
    uint8_t* row = output.Row(y);
    for (uint32_t c = 0; c < info.channels; ++c) {
      const uint32_t value = tables.colors.Value(number, c);
      if (value >= map.value_count) return false;
      StoreSample(row, x * info.channels + c, map(value), info.sample_bits());
    }
    return true;
  };
  const Status status =
      DecodeMatchPixels(tile.data, tile.size, tables, rect.width_px, rect.height_px, &end, store);
  return status == Status::kOk ? CheckBodyEnd(tile, end) : status;
}

// Decodes tile `tile` of the image from its payload of `size` bytes to `output`, which
// is the tile's own. Without `rans` a rans or match tile is kCorruptTile: the caller read another
// coding before, so the payload has changed. On an error the output holds unspecified samples.
inline Status DecodeTile(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                         uint32_t tile, const uint8_t* payload, uint32_t size,
                         const ImageOutput& output) {
  if (PayloadCheck(payload, size) != LoadU32(payload)) return Status::kChecksumMismatch;
  TilePayload parsed;
  const Status status = ParseTilePayload(info, payload, size, &parsed);
  if (status != Status::kOk) return status;
  const TileRect rect = GetTileRect(info, tile);
  switch (parsed.coding) {
    case TileCoding::kConstant: return DecodeConstantTile(info, map, rect, parsed, output);
    case TileCoding::kStored: return DecodeStoredTile(info, map, rect, parsed, output);
    case TileCoding::kPacked: return DecodePackedTile(info, map, rect, parsed, output);
    case TileCoding::kRans:
      if (rans == nullptr) return Status::kCorruptTile;
      return DecodeRansTile(info, map, *rans, rect, parsed, output);
    case TileCoding::kMatch:
      if (rans == nullptr || rans->model.match_table_count == 0) return Status::kCorruptTile;
      return DecodeMatchTile(info, map, *rans, rect, parsed, output);
  }
  return Status::kUnsupportedFeature;
}

}  // namespace l3
