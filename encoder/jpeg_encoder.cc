#include "encoder/jpeg_encoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "encoder/container_writer.h"
#include "encoder/fixed_log.h"
#include "encoder/jpeg_model.h"
#include "encoder/jpeg_symbols.h"
#include "encoder/rans_statistics.h"

namespace l3 {
namespace {

// Tiles get larger until they have so many bytes of the JPEG file on average, up to the largest:
// each costs a header, states and an entry of the index.
constexpr uint64_t kMinJpegBytesPerTile = 8 << 10;
// Sides of tiles, of which the smallest that suffice are taken.
constexpr uint8_t kTileSides[][2] = {{7, 7}, {8, 7}, {8, 8}};

void ChooseJpegTiles(const EncodeOptions& options, uint64_t jpeg_bytes, ImageInfo* info) {
  for (const auto& [width_log2, height_log2] : kTileSides) {
    info->tile_width_log2 =
        options.tile_width_log2 != 0 ? static_cast<uint8_t>(options.tile_width_log2) : width_log2;
    info->tile_height_log2 = options.tile_height_log2 != 0
                                 ? static_cast<uint8_t>(options.tile_height_log2)
                                 : height_log2;
    if (jpeg_bytes >= kMinJpegBytesPerTile * info->tile_count()) break;
  }
}

// The chunk up to the model.
std::vector<uint8_t> SerializeJpegInfo(const JpegInfo& jpeg) {
  std::vector<uint8_t> data = {
      static_cast<uint8_t>(jpeg.color),
      static_cast<uint8_t>(jpeg.chroma_x_shift | jpeg.chroma_y_shift << 1)};
  uint32_t tables = 0;
  uint8_t table_of[kMaxJpegComponents];
  for (uint32_t c = 0; c < jpeg.components; ++c) {
    uint32_t same = 0;
    while (same < c && !std::equal(jpeg.quantizers[c], jpeg.quantizers[c] + kJpegBlockSamples,
                                   jpeg.quantizers[same])) {
      ++same;
    }
    table_of[c] = static_cast<uint8_t>(same < c ? table_of[same] : tables++);
    data.push_back(table_of[c]);
    if (same < c) continue;
    for (const uint8_t place : kJpegNaturalOrder) AppendBase128(jpeg.quantizers[c][place], &data);
  }
  return data;
}

}  // namespace

Status EncodeJpeg(const JpegImage& image, uint64_t jpeg_bytes, Bytes restore_data,
                  const EncodeOptions& options, const AllocateFile& allocate) {
  const JpegInfo& jpeg = image.info;
  const PixelView pixels = {
      nullptr,         jpeg.width_px,      jpeg.height_px,
      jpeg.components, SampleType::kUint8, uint64_t{jpeg.width_px} * jpeg.components};
  if (!IsValid(pixels, options) || !options.groups.empty()) return Status::kInvalidArgument;
  ImageInfo info = MakeInfo(pixels, options);
  info.used_bits = 8;
  ChooseJpegTiles(options, jpeg_bytes, &info);
  if (info.tile_height_log2 < kMinTileHeightLog2 + jpeg.chroma_y_shift) {
    return Status::kInvalidArgument;
  }

  const uint64_t tiles = info.tile_count();
  std::vector<JpegTileSymbols> symbols(tiles);
  constexpr unsigned kMostTasks = 16;  // each has counts of its own
  const uint64_t tasks = std::min<uint64_t>(
      tiles, options.threads == 0 ? kMostTasks : std::min(options.threads, kMostTasks));
  std::vector<JpegCounts> counts_of(tasks);
  std::vector<uint8_t> is_sound(tiles);
  ParallelFor(tasks, options.threads, [&](uint64_t task) {
    for (uint64_t tile = task; tile < tiles; tile += tasks) {
      is_sound[tile] = FindJpegSymbols(info, image, static_cast<uint32_t>(tile), &symbols[tile],
                                       &counts_of[task]);
    }
  });
  if (std::find(is_sound.begin(), is_sound.end(), 0) != is_sound.end()) {
    return Status::kInvalidArgument;
  }
  for (uint64_t task = 1; task < tasks; ++task) counts_of[0].Add(counts_of[task]);
  const JpegCounts& counts = counts_of[0];

  JpegModel model;
  std::vector<uint8_t> own = MakeJpegModel(counts, jpeg.components > 1, &model);
  const uint64_t own_cost =
      JpegCostByModel(counts, model) + (uint64_t{own.size()} << (kCostBits + 3));
  const JpegModel built_in = BuiltInJpegModel();
  if (JpegCostByModel(counts, built_in) <= own_cost) {
    model = built_in;
    own.clear();
  }
  const JpegPayloadWriter writer(model);
  std::vector<std::vector<uint8_t>> payloads(tiles);
  std::vector<uint32_t> sizes(tiles);
  ParallelFor(tiles, options.threads, [&](uint64_t tile) {
    writer.Append(symbols[tile], &payloads[tile]);
    FinishPayload(0, &payloads[tile]);
    sizes[tile] = static_cast<uint32_t>(payloads[tile].size());
    symbols[tile] = {};
  });

  std::vector<uint8_t> chunk = SerializeJpegInfo(jpeg);
  chunk.insert(chunk.end(), own.begin(), own.end());
  const std::pair<uint32_t, Bytes> parts[] = {{kChunkJpeg, {chunk.data(), chunk.size()}},
                                              {kChunkIcc, options.icc},
                                              {kChunkExif, options.exif},
                                              {kChunkXmp, options.xmp},
                                              {kChunkKeyValues, options.metadata},
                                              {kChunkJpegRest, restore_data}};
  std::vector<uint8_t> chunks;
  for (const auto& [type, data] : parts) {
    if (data.size != 0) AppendChunk(type, data, &chunks);
  }
  if (options.other_chunks.size != 0) {
    chunks.insert(chunks.end(), options.other_chunks.data,
                  options.other_chunks.data + options.other_chunks.size);
  }
  return WriteFile(AssembleFile(info, chunks, sizes, std::move(payloads), kVersion2),
                   options.threads, allocate);
}

}  // namespace l3
