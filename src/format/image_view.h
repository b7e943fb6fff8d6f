// An L3 file, validated: the header's numbers and where each part lies.
// Layer: format. ParseImage() is the only validator of header, chunks and
// index. What it returns is consistent; only payloads are not validated yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/portable.h"
#include "format/constants.h"
#include "format/rans_model.h"
#include "format/status.h"

namespace l3 {

// 8, 16 or 32.
L3_HOST_DEVICE constexpr uint32_t SampleBits(SampleType type) {
  if (type == SampleType::kUint8 || type == SampleType::kInt8) return 8;
  return type < SampleType::kUint32 || type == SampleType::kFloat16 ? 16 : 32;
}
L3_HOST_DEVICE constexpr bool IsSigned(SampleType type) {
  return type == SampleType::kInt8 || type == SampleType::kInt16 || type == SampleType::kInt32;
}
L3_HOST_DEVICE constexpr bool IsFloat(SampleType type) {
  return type == SampleType::kFloat16 || type == SampleType::kFloat32;
}

// The fixed header (format.md 3). Shared by host and device code.
struct ImageInfo {
  uint32_t width_px;
  uint32_t height_px;
  uint32_t chunks_bytes;
  uint16_t channels;
  SampleType sample_type;
  uint8_t used_bits;
  uint8_t shift;
  uint8_t tile_width_log2;
  uint8_t tile_height_log2;
  Meaning meaning;
  Holding holding;  // not kAsTheyAre: tiles hold CodedInfo(), and used_bits and shift are theirs

  L3_HOST_DEVICE bool is_signed() const { return IsSigned(sample_type); }
  L3_HOST_DEVICE uint32_t sample_bits() const { return SampleBits(sample_type); }
  L3_HOST_DEVICE uint32_t sample_bytes() const { return sample_bits() / 8; }
  L3_HOST_DEVICE uint32_t pixel_bytes() const { return channels * sample_bytes(); }
  L3_HOST_DEVICE uint64_t row_bytes() const { return uint64_t{width_px} * pixel_bytes(); }
  // Of the decoded image, rows packed.
  L3_HOST_DEVICE uint64_t image_bytes() const { return row_bytes() * height_px; }
  L3_HOST_DEVICE uint32_t tile_columns() const {
    return static_cast<uint32_t>((uint64_t{width_px} + (1u << tile_width_log2) - 1) >>
                                 tile_width_log2);
  }
  L3_HOST_DEVICE uint32_t tile_rows() const {
    return static_cast<uint32_t>((uint64_t{height_px} + (1u << tile_height_log2) - 1) >>
                                 tile_height_log2);
  }
  L3_HOST_DEVICE uint32_t tile_count() const { return tile_columns() * tile_rows(); }
  // The most channels that decode together.
  L3_HOST_DEVICE uint32_t most_group_channels() const {
    return holding == Holding::kHalves ? kMaxHalvesChannels : kMaxChannels;
  }
  // Large tiles can only be stored (format.md 5).
  L3_HOST_DEVICE bool has_large_tiles() const {
    return tile_width_log2 > kMaxPackedTileLog2 || tile_height_log2 > kMaxPackedTileLog2;
  }
};

// What the tiles of an image hold, or of one of its groups: ranks, halves of samples, or the
// samples themselves, floats of 16 bits as their bits.
L3_HOST_DEVICE inline ImageInfo CodedInfo(ImageInfo info) {
  if (info.sample_type < SampleType::kUint32) return info;
  info.sample_type = info.holding == Holding::kRanks8 ? SampleType::kUint8 : SampleType::kUint16;
  if (info.holding == Holding::kHalves) info.channels = static_cast<uint16_t>(2 * info.channels);
  info.holding = Holding::kAsTheyAre;
  return info;
}

// Where a tile lies in the image, cut at the edges.
struct TileRect {
  uint32_t x_px, y_px, width_px, height_px;
};

L3_HOST_DEVICE inline TileRect GetTileRect(const ImageInfo& info, uint32_t tile) {
  const uint32_t columns = info.tile_columns();
  TileRect rect;
  rect.x_px = (tile % columns) << info.tile_width_log2;
  rect.y_px = (tile / columns) << info.tile_height_log2;
  const uint32_t tile_width = 1u << info.tile_width_log2;
  const uint32_t tile_height = 1u << info.tile_height_log2;
  const uint32_t right = info.width_px - rect.x_px;
  const uint32_t below = info.height_px - rect.y_px;
  rect.width_px = right < tile_width ? right : tile_width;
  rect.height_px = below < tile_height ? below : tile_height;
  return rect;
}

// Tiles of some columns and rows of tiles: [column_begin, column_end) of
// [row_begin, row_end). May be empty.
struct TileSpan {
  uint32_t column_begin, column_end, row_begin, row_end;

  L3_HOST_DEVICE uint32_t columns() const { return column_end - column_begin; }
  L3_HOST_DEVICE uint32_t rows() const { return row_end - row_begin; }
  L3_HOST_DEVICE uint32_t tile_count() const { return columns() * rows(); }
};

inline TileSpan AllTiles(const ImageInfo& info) {
  return {0, info.tile_columns(), 0, info.tile_rows()};
}

// The bytes of one chunk. `data` is null when the file has no such chunk.
struct ChunkView {
  const uint8_t* data = nullptr;
  uint32_t size = 0;
};

// A validated file. Points into the caller's buffer and owns nothing.
struct ImageView {
  ImageInfo info;
  uint8_t version;             // kVersion or kVersion2
  const uint8_t* chunks;       // info.chunks_bytes
  const uint8_t* tile_index;   // 4 * payload_count() bytes, unaligned
  const uint8_t* payloads;     // first tile's payload
  uint64_t payloads_bytes;     // of all tiles
  uint32_t value_count;        // of the value table; 0 without one
  ChunkView value_table;       // gaps only, behind the count
  ChunkView rans_model;        // null where the built-in model holds
  ChunkView match_model;       // null without match tiles
  uint32_t color_count;        // of match tiles; 0 where numbers are values
  uint8_t rans_positions;      // that the model has
  ChunkView samples;           // how samples are held; null where they are as they are
  ChunkView jpeg;              // null in images without jpeg tiles
  // Pixels beside a window, and above and below it, whose tiles are needed to decode it: 1 in
  // directions in which jpeg tiles have half the chroma.
  uint8_t halo_x_px, halo_y_px;
  // Images of more than most_group_channels() channels have groups of them. An engine takes the
  // view of one group (channel_groups.h), whose info.channels are the group's.
  uint16_t group_count;  // payloads of each tile: 1 without groups
  uint16_t group;  // whose payloads the functions below find; 0 in the image's view
  ChunkView groups;  // behind their number; null without groups

  // A group of all there is.
  bool is_group() const { return info.channels <= info.most_group_channels(); }
  uint64_t payload_count() const { return uint64_t{info.tile_count()} * group_count; }

  // As the index says now. Validate it again: it may have changed.
  uint64_t PayloadBegin(uint32_t tile) const {
    const uint64_t entry = uint64_t{tile} * group_count + group;
    return entry == 0 ? 0 : IndexEntry(entry - 1);
  }
  uint64_t PayloadEnd(uint32_t tile) const {
    return IndexEntry(uint64_t{tile} * group_count + group);
  }
  uint64_t IndexEntry(uint64_t entry) const {
    return uint64_t{ReadOnce(LoadU32(tile_index + 4 * entry))} * kPayloadAlignment;
  }
  // A tile's payload. Returns false if the index has changed since ParseImage() to one that
  // ParseImage() would refuse.
  bool FindPayload(uint32_t tile, uint64_t* begin, uint32_t* bytes) const {
    *begin = PayloadBegin(tile);
    const uint64_t end = PayloadEnd(tile);
    const bool sound = *begin < end && end - *begin <= kMaxPayloadBytes && end <= payloads_bytes;
    *bytes = sound ? static_cast<uint32_t>(end - *begin) : 0;
    return sound;
  }
};

// Where parts of the file end and begin, of a view from ParseIndex() or ParseImage(). Header,
// chunks and index end here: what ParseIndex() needs. After kTruncated a lower bound, unless
// group_count is 0.
inline uint64_t IndexEnd(const ImageView& view) {
  return kHeaderBytes + uint64_t{view.info.chunks_bytes} + 4 * view.payload_count() + 4;
}
inline uint64_t PayloadsOffset(const ImageView& view) {
  return CeilDiv(IndexEnd(view), kPayloadAlignment) * kPayloadAlignment;
}
inline uint64_t FileBytes(const ImageView& view) {
  return PayloadsOffset(view) + view.payloads_bytes;
}

// The most pixels of an image with these channels that a file of so many bytes can hold
// (format.md 7).
inline uint64_t MostPixels(uint64_t file_bytes, const ImageInfo& info) {
  constexpr uint64_t kLeastBytes = kHeaderBytes + 4;  // header and index CRC
  // Of each group the index entry and the shortest payload.
  const uint64_t tile_bytes =
      (4 + kPayloadAlignment) * CeilDiv(info.channels, info.most_group_channels());
  constexpr uint64_t kTilePixels = kMaxPackedTileSide * kMaxPackedTileSide;
  return file_bytes < kLeastBytes ? 0 : (file_bytes - kLeastBytes) / tile_bytes * kTilePixels;
}

// Reads the fixed header alone: cheap, for shapes. Needs the first 32 bytes;
// independent of the rest of the file.
Status ParseHeader(const uint8_t* data, size_t size, ImageInfo* info);

// Validates header, chunks and index. What lies behind them may be missing and is not validated.
// `view` gets no payloads, but their size. `data` must outlive it.
Status ParseIndex(const uint8_t* data, size_t size, ImageView* view);

// Validates what ParseIndex() did not: the size of the file, and the padding behind the index.
// `view`, which ParseIndex() gave, gets its payloads. The file may be a longer copy of that data.
Status FindPayloads(const uint8_t* data, size_t size, ImageView* view);

// Both: validates header, chunks, index and sizes.
Status ParseImage(const uint8_t* data, size_t size, ImageView* view);

// Chunks are read and validated again when they are needed: they may have changed.

// Writes the value_count samples of the value table of a view from ParseImage to `table`: those of
// a signed type as the bits they have in memory. Returns false, with zeros for samples that are
// missing, if the chunk breaks a rule now.
bool ReadValueTable(const ImageView& view, uint16_t* table);

// The model of rans and match tiles of a view from ParseImage: the file's own, or the built-in one.
// Returns false, with the built-in one, if a chunk breaks a rule now. `colors` are those of match
// tiles, empty without any; a null `colors` asks for none.
bool GetRansModel(const ImageView& view, RansModel* model, MatchColors* colors);

// Whether a tile is one to decode by a model: its payload's header names rans or match, and the
// image has no large tiles. `payloads` are those of the view, wherever they lie.
bool IsRansTile(const ImageView& view, const uint8_t* payloads, uint32_t tile);

// Finds a chunk of a validated file by its type (kChunkIcc, ...).
ChunkView FindChunk(const ImageView& view, uint32_t type);
// The same in `chunks_bytes` bytes that are not validated, up to the first chunk that is
// none.
ChunkView FindChunk(const uint8_t* chunks, uint32_t chunks_bytes, uint32_t type);
// Finds the next optional chunk of unknown type from `*pos` on and moves `*pos` behind it. `whole`
// gets its header, data and padding. Returns false at the end, or at bytes that are no chunk.
bool NextOtherChunk(const uint8_t* chunks, uint64_t chunks_bytes, uint64_t* pos, ChunkView* whole);

}  // namespace l3
