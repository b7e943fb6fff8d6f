#include "format/image_view.h"

#include <algorithm>

#include "format/byte_reader.h"
#include "format/channel_groups.h"
#include "format/crc32c.h"
#include "format/jpeg_chunk.h"
#include "format/sample_chunk.h"

namespace l3 {
namespace {

struct Chunk {
  uint32_t type;
  const uint8_t* data;
  uint32_t size;         // without padding
  uint64_t total_bytes;  // header, data and padding
};

// The first chunk of `bytes` bytes at `p`.
Status ReadChunk(const uint8_t* p, uint64_t bytes, Chunk* chunk) {
  if (bytes < 8) return Status::kCorruptHeader;
  chunk->type = ReadOnce(LoadU32(p));
  chunk->size = ReadOnce(LoadU32(p + 4));
  chunk->data = p + 8;
  chunk->total_bytes = 8 + CeilDiv(chunk->size, 4) * 4;
  if (chunk->total_bytes > bytes) return Status::kCorruptHeader;
  for (int i = 0; i < 4; ++i) {
    const uint32_t c = chunk->type >> (8 * i) & 0xFF;
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    const bool digit = c >= '0' && c <= '9';
    if (!letter && !digit && c != ' ') return Status::kCorruptHeader;
  }
  for (uint64_t i = 8 + uint64_t{chunk->size}; i < chunk->total_bytes; ++i) {
    if (p[i] != 0) return Status::kCorruptHeader;
  }
  return Status::kOk;
}

bool IsRequired(uint32_t type) {
  const uint32_t first = type & 0xFF;
  return first >= 'A' && first <= 'Z';
}

constexpr uint32_t kKnown[] = {kChunkGroups,    kChunkValueTable, kChunkRansModel, kChunkMatchModel,
                               kChunkIcc,       kChunkExif,       kChunkPalette,   kChunkXmp,
                               kChunkKeyValues, kChunkJpeg,       kChunkJpegRest,  kChunkSamples};
constexpr int kKnownChunks = 12;
constexpr int kKnownChunksOfVersion1 = 9;

// Index of a chunk type that a version knows, or -1.
int KnownChunk(uint32_t type, uint32_t version) {
  const int known = version == kVersion ? kKnownChunksOfVersion1 : kKnownChunks;
  for (int i = 0; i < known; ++i) {
    if (kKnown[i] == type) return i;
  }
  return -1;
}

// Walks the gaps (format.md 4), calling visit(sample) for each entry.
// Returns false if they are not `count` numbers that fill `gaps` exactly.
template <typename Visit>
bool WalkValueTable(ChunkView gaps, uint32_t count, uint32_t sample_bits, Visit visit) {
  ByteReader reader(gaps.data, gaps.size);
  uint32_t next = 0;  // smallest value the entry can have
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t value = next + reader.ReadBase128(3);
    if (!reader.ok() || value >> sample_bits) return false;
    visit(value);
    next = value + 1;
  }
  return reader.at_end();
}

Status ParseValueTable(const Chunk& chunk, const ImageInfo& info, ImageView* view) {
  if (chunk.size < 4) return Status::kCorruptHeader;
  const uint32_t count = ReadOnce(LoadU32(chunk.data));
  if (count < 1 || count > (1u << info.sample_bits())) return Status::kCorruptHeader;
  const uint32_t bits = count == 1 ? 1 : BitLength(count - 1);
  if (info.used_bits != bits || info.shift != 0) return Status::kCorruptHeader;
  const ChunkView gaps{chunk.data + 4, chunk.size - 4};
  if (!WalkValueTable(gaps, count, info.sample_bits(), [](uint32_t) {})) {
    return Status::kCorruptHeader;
  }
  view->value_count = count;
  view->value_table = gaps;
  return Status::kOk;
}

Status ParseChunks(ImageView* view) {
  bool seen[kKnownChunks] = {};
  uint64_t pos = 0;
  while (pos < view->info.chunks_bytes) {
    Chunk chunk;
    Status status = ReadChunk(view->chunks + pos, view->info.chunks_bytes - pos, &chunk);
    if (status != Status::kOk) return status;
    const int known = KnownChunk(chunk.type, view->version);
    if (known < 0) {
      if (IsRequired(chunk.type)) return Status::kUnsupportedFeature;
    } else {
      if (seen[known]) return Status::kCorruptHeader;
      seen[known] = true;
    }
    if (chunk.type == kChunkGroups) {
      view->groups = {chunk.data + 2, chunk.size < 2 ? 0 : chunk.size - 2};
      if (view->is_group() || pos != 0 || ReadChannelGroups(*view).empty()) {
        return Status::kCorruptHeader;
      }
    }
    if (chunk.type == kChunkValueTable) {
      status = ParseValueTable(chunk, CodedInfo(view->info), view);
      if (status != Status::kOk) return status;
    }
    if (chunk.type == kChunkRansModel) {
      RansModel model;
      if (!ReadRansModel(chunk.data, chunk.size, view->rans_positions, view->info.used_bits,
                         &model)) {
        return Status::kCorruptHeader;
      }
      view->rans_model = {chunk.data, chunk.size};
    }
    if (chunk.type == kChunkMatchModel) {
      MatchColors colors;
      if (!ReadMatchModel(chunk.data, chunk.size, CodedInfo(view->info).channels,
                          view->info.used_bits, nullptr, &colors)) {
        return Status::kCorruptHeader;
      }
      view->match_model = {chunk.data, chunk.size};
      view->color_count = colors.count;
    }
    if (chunk.type == kChunkJpeg && known >= 0) {
      view->jpeg = {chunk.data, chunk.size};
      JpegInfo jpeg;
      JpegModel model;
      if (!ReadJpegChunk(*view, &jpeg, &model)) return Status::kCorruptHeader;
      view->halo_x_px = jpeg.chroma_x_shift;
      view->halo_y_px = jpeg.chroma_y_shift;
    }
    if (chunk.type == kChunkSamples && known >= 0) {
      view->samples = {chunk.data, chunk.size};
      if (!IsSampleChunk(*view)) return Status::kCorruptHeader;
    }
    pos += chunk.total_bytes;
  }
  if (view->info.sample_type >= SampleType::kUint32) {
    const bool is_held = view->info.holding != Holding::kAsTheyAre;
    if (view->jpeg.data != nullptr || is_held != (view->samples.data != nullptr)) {
      return Status::kCorruptHeader;
    }
  } else if (view->version != kVersion) {
    const bool has_others = view->value_table.data != nullptr || view->rans_model.data != nullptr ||
                            view->match_model.data != nullptr || view->samples.data != nullptr;
    return view->jpeg.data == nullptr || has_others ? Status::kCorruptHeader : Status::kOk;
  }
  if (view->match_model.data == nullptr) return Status::kOk;
  RansModel both;
  return GetRansModel(*view, &both, nullptr) ? Status::kOk : Status::kCorruptHeader;
}

// Bytes of the payload that stores so many channels of a tile.
uint64_t StoredPayloadBytes(const ImageInfo& info, uint32_t tile, uint32_t channels) {
  const TileRect rect = GetTileRect(info, tile);
  const uint64_t samples = uint64_t{rect.width_px} * rect.height_px * channels;
  return CeilDiv(kTileHeaderBytes + samples * info.sample_bytes(), kPayloadAlignment) *
         kPayloadAlignment;
}

// The number of groups. It says where the index ends, so it is used before the index CRC is
// validated.
Status ReadGroupCount(const uint8_t* data, size_t size, ImageView* view) {
  const uint32_t channels = view->info.channels;
  const uint64_t least = CeilDiv(channels, view->info.most_group_channels());
  view->group_count = static_cast<uint16_t>(least);
  if (view->is_group()) return Status::kOk;
  if (view->info.chunks_bytes < kGroupsHeadBytes) return Status::kCorruptHeader;
  if (size < kHeaderBytes + kGroupsHeadBytes) return Status::kTruncated;
  const uint8_t* chunk = data + kHeaderBytes;
  const uint32_t count = ReadOnce(LoadU16(chunk + 8));
  if (LoadU32(chunk) != kChunkGroups || count < least || count > channels) {
    return Status::kCorruptHeader;
  }
  view->group_count = static_cast<uint16_t>(count);
  return Status::kOk;
}

// Validates the index and finds where payloads end. A large tile must have all bytes of a stored
// one, so that a file is as long as the memory that it needs.
Status ReadIndex(ImageView* view) {
  const ImageInfo& info = view->info;
  const std::vector<ChannelGroup> groups =
      info.has_large_tiles() ? ReadChannelGroups(*view) : std::vector<ChannelGroup>();
  if (info.has_large_tiles() && groups.size() != view->group_count) return Status::kCorruptHeader;
  const uint64_t payload_count = view->payload_count();
  uint32_t begin = 0;
  for (uint64_t payload = 0; payload < payload_count; ++payload) {
    const uint32_t end = ReadOnce(LoadU32(view->tile_index + 4 * payload));
    if (end <= begin || end - begin > kMaxPayloadBytes / kPayloadAlignment) {
      return Status::kCorruptHeader;
    }
    if (info.has_large_tiles()) {
      const uint32_t tile = static_cast<uint32_t>(payload / view->group_count);
      const uint32_t channels = groups[payload % view->group_count].channels;
      const uint64_t bytes = uint64_t{end - begin} * kPayloadAlignment;
      if (bytes != StoredPayloadBytes(info, tile, channels)) return Status::kCorruptHeader;
    }
    begin = end;
  }
  view->payloads_bytes = uint64_t{begin} * kPayloadAlignment;
  return Status::kOk;
}

}  // namespace

Status ParseHeader(const uint8_t* data, size_t size, ImageInfo* info) {
  for (size_t i = 0; i < 8; ++i) {
    if (i == size) return Status::kTruncated;
    if (data[i] != kSignature[i]) return Status::kBadMagic;
  }
  if (size < kHeaderBytes) return Status::kTruncated;
  const uint8_t version = ReadOnce(data[8]);
  if (version != kVersion && version != kVersion2) return Status::kUnsupportedVersion;
  if (Crc32c(data, 28) != LoadU32(data + 28)) return Status::kChecksumMismatch;

  const uint8_t sample_type = ReadOnce(data[9]);
  const uint8_t tile_log2 = ReadOnce(data[14]);
  const uint8_t meaning = ReadOnce(data[15]);
  info->sample_type = static_cast<SampleType>(sample_type & ((1u << kHoldingShift) - 1));
  info->holding = static_cast<Holding>(sample_type >> kHoldingShift);
  info->channels = static_cast<uint16_t>(ReadOnce(LoadU16(data + 10)));
  info->used_bits = ReadOnce(data[12]);
  info->shift = ReadOnce(data[13]);
  info->tile_width_log2 = tile_log2 & 15;
  info->tile_height_log2 = tile_log2 >> 4;
  info->meaning = static_cast<Meaning>(meaning);
  info->width_px = ReadOnce(LoadU32(data + 16));
  info->height_px = ReadOnce(LoadU32(data + 20));
  info->chunks_bytes = ReadOnce(LoadU32(data + 24));

  const bool has_type =
      version == kVersion
          ? sample_type < kSampleTypesOfVersion1
          : sample_type >> kHoldingShift <= static_cast<uint8_t>(Holding::kHalves) &&
                (info->holding != Holding::kAsTheyAre) == (info->sample_bits() == 32);
  const uint32_t coded_bits = has_type ? CodedInfo(*info).sample_bits() : 0;
  const bool valid =
      has_type && info->channels >= 1 && info->channels <= kMaxImageChannels &&
      info->used_bits >= 1 && info->used_bits <= coded_bits &&
      info->shift <= coded_bits - info->used_bits && info->tile_width_log2 >= kMinTileWidthLog2 &&
      info->tile_width_log2 <= kMaxTileLog2 && info->tile_height_log2 >= kMinTileHeightLog2 &&
      info->tile_height_log2 <= kMaxTileLog2 &&
      (info->holding == Holding::kAsTheyAre || !info->has_large_tiles()) &&
      meaning <= static_cast<uint8_t>(Meaning::kLabels) && info->width_px >= 1 &&
      info->height_px >= 1 && uint64_t{info->width_px} * info->height_px <= kMaxPixels &&
      info->chunks_bytes % 4 == 0 && info->chunks_bytes <= kMaxChunksBytes;
  return valid ? Status::kOk : Status::kCorruptHeader;
}

Status ParseIndex(const uint8_t* data, size_t size, ImageView* view) {
  *view = ImageView{};
  Status status = ParseHeader(data, size, &view->info);
  if (status != Status::kOk) return status;

  view->version = ReadOnce(data[8]);
  status = ReadGroupCount(data, size, view);
  if (status != Status::kOk) return status;
  const ImageInfo& info = view->info;
  view->rans_positions =
      static_cast<uint8_t>(std::min<uint32_t>(CodedInfo(info).channels, kMaxChannels));
  const uint64_t checked_bytes = info.chunks_bytes + 4 * view->payload_count();
  const uint64_t index_end = IndexEnd(*view);
  if (size < index_end) return Status::kTruncated;
  view->chunks = data + kHeaderBytes;
  view->tile_index = view->chunks + info.chunks_bytes;
  if (Crc32c(view->chunks, checked_bytes) != LoadU32(data + index_end - 4)) {
    return Status::kChecksumMismatch;
  }
  status = ParseChunks(view);
  return status == Status::kOk ? ReadIndex(view) : status;
}

Status FindPayloads(const uint8_t* data, size_t size, ImageView* view) {
  if (size < FileBytes(*view)) return Status::kTruncated;
  for (uint64_t i = IndexEnd(*view); i < PayloadsOffset(*view); ++i) {
    if (data[i] != 0) return Status::kCorruptHeader;
  }
  if (size > FileBytes(*view)) return Status::kCorruptHeader;
  view->payloads = data + PayloadsOffset(*view);
  return Status::kOk;
}

Status ParseImage(const uint8_t* data, size_t size, ImageView* view) {
  const Status status = ParseIndex(data, size, view);
  return status == Status::kOk ? FindPayloads(data, size, view) : status;
}

bool ReadValueTable(const ImageView& view, uint16_t* table) {
  uint16_t* const end = table + view.value_count;
  const ImageInfo coded = CodedInfo(view.info);
  const uint32_t bits = coded.sample_bits();
  const uint32_t top_bit = coded.is_signed() ? 1u << (bits - 1) : 0;
  const bool sound = WalkValueTable(view.value_table, view.value_count, bits, [&](uint32_t sample) {
    *table++ = static_cast<uint16_t>(sample ^ top_bit);
  });
  std::fill(table, end, uint16_t{0});
  return sound;
}

bool GetRansModel(const ImageView& view, RansModel* model, MatchColors* colors) {
  const uint32_t positions = view.rans_positions;
  const uint32_t used_bits = view.info.used_bits;
  const ChunkView& rans = view.rans_model;
  const ChunkView& match = view.match_model;
  MatchColors unused;
  if (colors == nullptr) colors = &unused;
  *colors = MatchColors{};
  bool sound =
      rans.data == nullptr || ReadRansModel(rans.data, rans.size, positions, used_bits, model);
  if (rans.data == nullptr || !sound) *model = BuiltInRansModel(positions, used_bits);
  if (match.data != nullptr && sound) {
    sound = ReadMatchModel(match.data, match.size, CodedInfo(view.info).channels, used_bits, model,
                           colors) &&
            colors->count == view.color_count;
  }
  if (!sound) {
    *model = BuiltInRansModel(positions, used_bits);
    *colors = MatchColors{};
  }
  return sound;
}

bool IsRansTile(const ImageView& view, const uint8_t* payloads, uint32_t tile) {
  uint64_t begin;
  uint32_t bytes;
  return !view.info.has_large_tiles() && view.FindPayload(tile, &begin, &bytes) &&
         HasModel(payloads[begin + 4]);
}

ChunkView FindChunk(const ImageView& view, uint32_t type) {
  return FindChunk(view.chunks, view.info.chunks_bytes, type);
}

ChunkView FindChunk(const uint8_t* chunks, uint32_t chunks_bytes, uint32_t type) {
  uint64_t pos = 0;
  Chunk chunk;
  while (pos < chunks_bytes && ReadChunk(chunks + pos, chunks_bytes - pos, &chunk) == Status::kOk) {
    if (chunk.type == type) return ChunkView{chunk.data, chunk.size};
    pos += chunk.total_bytes;
  }
  return ChunkView{};
}

bool NextOtherChunk(const uint8_t* chunks, uint64_t chunks_bytes, uint64_t* pos, ChunkView* whole) {
  Chunk chunk;
  while (*pos < chunks_bytes &&
         ReadChunk(chunks + *pos, chunks_bytes - *pos, &chunk) == Status::kOk) {
    *whole = {chunks + *pos, static_cast<uint32_t>(chunk.total_bytes)};
    *pos += chunk.total_bytes;
    if (KnownChunk(chunk.type, kVersion2) < 0 && !IsRequired(chunk.type)) return true;
  }
  return false;
}

}  // namespace l3
