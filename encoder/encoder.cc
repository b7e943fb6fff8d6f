#include "encoder/encoder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/parallel.h"
#include "encoder/channel_grouping.h"
#include "encoder/container_writer.h"
#include "encoder/match_image.h"
#include "encoder/packed_encoder.h"
#include "encoder/rans_image.h"
#include "encoder/tile_planes.h"
#include "encoder/value_coding.h"

namespace l3 {
namespace {

constexpr uint32_t kPackedTileWidthLog2 = 8;
constexpr uint32_t kPackedTileHeightLog2 = 6;
// A GPU decodes the rows of a tile one after the other. So images of few tiles get lower ones: a
// launch then ends sooner. Files below 1 / 8 of the samples would grow by over 2 %.
constexpr uint64_t kFewPackedTiles = 32;
constexpr uint32_t kLowPackedTileHeightLog2 = 5;
constexpr uint32_t kMinLowTileWidth = 128;
constexpr uint64_t kLowTilesShare = 8;
// Sides of rans tiles. A tile needs this many samples to pay for its states and coefficients.
constexpr uint32_t kRansTileLog2 = 7;
constexpr uint32_t kRansGrayTileLog2 = 8;  // of up to two channels, or groups of them
// From this effort on, rans tiles are twice as wide: that halves the cost of states and
// coefficients.
constexpr uint32_t kWideTilesEffort = 7;
// Images with fewer columns or rows get tiles that are longer the other way. From 16 on, such tiles
// would have the 4096 pixels for which several sets of coefficients are fitted: that is up to a
// third slower, saves 1.5 % at most, and makes noise larger.
constexpr uint32_t kNarrowPixels = 16;
// With several channel groups, a value table is kept only if it saves 1 / 100 of the file.
constexpr uint64_t kTableShare = 100;
// A tile of a tiny image that takes from 1 / 2 to 7 / 8 of its samples is not tried as packed: such
// ones are photographs, and what is larger is noise.
constexpr uint64_t kPhotographEighths[] = {4, 7};
// Of a tiny image, a table is tried only if it takes up to 1 / 8 of the file.
constexpr uint64_t kTinyTableShare = 8;
// Tiles of up to this many pixels may be smaller as packed, which has no states.
constexpr uint32_t kTinyTilePixels = 1u << 10;
// Stored tiles have at least this many bytes, so that their headers cost less than 0.1 %.
constexpr uint64_t kMinStoredTileBytes = 32768;
// The index addresses fewer than 2^36 bytes of payloads. They take up to twice the bytes of the
// samples (16 for 8 rows of one column), and up to 16 more in each channel of 4,096.
constexpr uint64_t kMaxRawBytes = (uint64_t{1} << 35) - (1 << 16);
// Columns of tiles with the coding kStored. No more, since a window reads whole tiles.
constexpr uint32_t kStoredTileWidthLog2 = 8;

const uint8_t* RowOf(const PixelView& pixels, uint32_t y) {
  return pixels.data + uint64_t{y} * pixels.row_stride_bytes;
}

template <typename Sample>
uint32_t SampleAt(const uint8_t* row, uint64_t i) {
  Sample sample;
  std::memcpy(&sample, row + i * sizeof(Sample), sizeof(Sample));
  return sample;
}

// Values of `count` samples.
template <typename Sample, typename Value>
void MapSamples(const ValueCoding& coding, const Sample* samples, uint32_t count, Value* values) {
  if (coding.table.empty()) {
    for (uint32_t x = 0; x < count; ++x) {
      values[x] = static_cast<Value>(coding.ShiftedValue(samples[x]));
    }
  } else {
    const uint16_t* rank = coding.rank.data();
    for (uint32_t x = 0; x < count; ++x) values[x] = static_cast<Value>(rank[samples[x]]);
  }
}

template <typename Sample>
void LoadTile(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
              TilePlanes* planes) {
  planes->width_px = rect.width_px;
  planes->height_px = rect.height_px;
  planes->channels = pixels.channels;
  planes->used_bits = coding.used_bits;
  const auto split_pixels = GetPackedKernels<Sample>().split_pixels;
  const bool as_is = coding.keeps_samples();
  // Samples that changed since they were scanned may have more bits.
  const Sample mask = static_cast<Sample>(as_is ? coding.mask() : ~0u);
  Sample samples[kMaxChannels][kMaxPackedTileSide];
  Sample* const rows[kMaxChannels] = {samples[0], samples[1], samples[2], samples[3]};
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* row =
        RowOf(pixels, rect.y_px + y) + uint64_t{rect.x_px} * pixels.channels * sizeof(Sample);
    split_pixels(row, pixels.channels, rect.width_px, mask, rows);
    for (uint32_t c = 0; c < pixels.channels; ++c) {
      uint16_t* values = planes->plane[c] + y * kMaxPackedTileSide;
      if (as_is) {
        std::copy(rows[c], rows[c] + rect.width_px, values);
      } else {
        MapSamples(coding, rows[c], rect.width_px, values);
      }
    }
  }
}

// The same for some of many channels.
template <typename Sample>
void LoadGroup(const PixelView& pixels, const ChannelGroup& group, const ValueCoding& coding,
               const TileRect& rect, TilePlanes* planes) {
  planes->width_px = rect.width_px;
  planes->height_px = rect.height_px;
  planes->channels = group.channels;
  planes->used_bits = coding.used_bits;
  const uint64_t channels = pixels.channels;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* row = RowOf(pixels, rect.y_px + y) + rect.x_px * channels * sizeof(Sample);
    for (uint32_t c = 0; c < group.channels; ++c) {
      uint16_t* values = planes->plane[c] + y * kMaxPackedTileSide;
      for (uint32_t x = 0; x < rect.width_px; ++x) {
        values[x] = coding.Value(SampleAt<Sample>(row, x * channels + group.channel[c]));
      }
    }
  }
}

// Copies the samples of a group that a tile has, one pixel after the other.
template <typename Sample>
void GatherGroup(const PixelView& pixels, const ChannelGroup& group, const TileRect& rect,
                 uint8_t* out) {
  const uint64_t channels = pixels.channels;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* pixel = RowOf(pixels, rect.y_px + y) + rect.x_px * channels * sizeof(Sample);
    for (uint32_t x = 0; x < rect.width_px; ++x, pixel += channels * sizeof(Sample)) {
      for (uint32_t c = 0; c < group.channels; ++c, out += sizeof(Sample)) {
        std::memcpy(out, pixel + group.channel[c] * sizeof(Sample), sizeof(Sample));
      }
    }
  }
}

// A tile as an image of a group's channels, in `memory`.
PixelView TileOfGroup(const PixelView& pixels, const ChannelGroup& group, const TileRect& rect,
                      std::vector<uint8_t>* memory) {
  PixelView tile = pixels;
  tile.width_px = rect.width_px;
  tile.height_px = rect.height_px;
  tile.channels = group.channels;
  tile.row_stride_bytes = uint64_t{rect.width_px} * group.channels * (pixels.sample_bits() / 8);
  memory->resize(tile.row_stride_bytes * rect.height_px);
  tile.data = memory->data();
  if (pixels.sample_bits() == 8) {
    GatherGroup<uint8_t>(pixels, group, rect, memory->data());
  } else {
    GatherGroup<uint16_t>(pixels, group, rect, memory->data());
  }
  return tile;
}

// Loads a tile for the packed encoder, rows padded. Values have no more bits than Value.
template <typename Sample, typename Value>
void LoadTile(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
              PackedPlanes<Value>* planes) {
  planes->width_px = rect.width_px;
  planes->height_px = rect.height_px;
  planes->channels = pixels.channels;
  planes->used_bits = coding.used_bits;
  const auto split_pixels = GetPackedKernels<Sample>().split_pixels;
  const bool as_is = coding.keeps_samples();
  // Needs no mask: the packed encoder works modulo 2^used_bits, and takes no value as an index.
  constexpr Sample kAllBits = static_cast<Sample>(~0u);
  Sample samples[kMaxChannels][kMaxPackedTileSide];
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* row =
        RowOf(pixels, rect.y_px + y) + uint64_t{rect.x_px} * pixels.channels * sizeof(Sample);
    Value* rows[kMaxChannels];
    for (uint32_t c = 0; c < kMaxChannels; ++c) rows[c] = planes->Row(c, static_cast<int32_t>(y));
    if constexpr (std::is_same_v<Sample, Value>) {
      if (as_is) split_pixels(row, pixels.channels, rect.width_px, kAllBits, rows);
    }
    if (!as_is || !std::is_same_v<Sample, Value>) {
      Sample* const sample_rows[kMaxChannels] = {samples[0], samples[1], samples[2], samples[3]};
      split_pixels(row, pixels.channels, rect.width_px, kAllBits, sample_rows);
      for (uint32_t c = 0; c < pixels.channels; ++c) {
        MapSamples(coding, samples[c], rect.width_px, rows[c]);
      }
    }
    for (uint32_t c = 0; c < pixels.channels; ++c) {
      std::fill(rows[c] + rect.width_px, rows[c] + PackedPlanes<Value>::kStride,
                rows[c][rect.width_px - 1]);
    }
  }
}

void AppendTileHeader(TileCoding coding, std::vector<uint8_t>* out) {
  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, static_cast<uint8_t>(coding)};
  out->insert(out->end(), header, header + kTileHeaderBytes);
}

template <typename Sample>
void AppendStoredPayload(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
                         std::vector<uint8_t>* out) {
  AppendTileHeader(TileCoding::kStored, out);
  const uint64_t row_bytes = uint64_t{rect.width_px} * pixels.channels * sizeof(Sample);
  size_t pos = out->size();
  out->resize(pos + row_bytes * rect.height_px);
  const bool as_is = coding.keeps_samples();
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* row =
        RowOf(pixels, rect.y_px + y) + uint64_t{rect.x_px} * pixels.channels * sizeof(Sample);
    uint8_t* stored = out->data() + pos + y * row_bytes;
    if (as_is) {
      std::memcpy(stored, row, row_bytes);
      continue;
    }
    for (uint64_t i = 0; i < row_bytes; i += sizeof(Sample)) {
      const Sample value = static_cast<Sample>(coding.Value(SampleAt<Sample>(row + i, 0)));
      std::memcpy(stored + i, &value, sizeof(value));
    }
  }
}

// `value` has those of the first pixel.
void AppendConstantPayload(const uint32_t value[kMaxChannels], uint32_t channels,
                           std::vector<uint8_t>* out) {
  AppendTileHeader(TileCoding::kConstant, out);
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    const uint32_t stored = c < channels ? value[c] : 0;
    out->push_back(static_cast<uint8_t>(stored));
    out->push_back(static_cast<uint8_t>(stored >> 8));
  }
}

// Working memory of one thread, made when it is needed.
struct TileWorkspace {
  std::unique_ptr<PackedTile<uint8_t>> bytes;
  std::unique_ptr<PackedTile<uint16_t>> words;
  std::unique_ptr<TilePlanes> planes;    // of rans
  std::unique_ptr<RansSamples> samples;  // of rans
  std::vector<uint8_t> other;            // another coding of the same tile
  std::vector<uint8_t> gathered;         // a tile of one of many channels' groups
  std::vector<uint8_t> run;              // payloads of a task
};

void LoadTile(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
              TilePlanes* planes) {
  if (pixels.sample_bits() == 8) {
    LoadTile<uint8_t>(pixels, coding, rect, planes);
  } else {
    LoadTile<uint16_t>(pixels, coding, rect, planes);
  }
}

void AppendStoredPayload(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
                         std::vector<uint8_t>* out) {
  if (pixels.sample_bits() == 8) {
    AppendStoredPayload<uint8_t>(pixels, coding, rect, out);
  } else {
    AppendStoredPayload<uint16_t>(pixels, coding, rect, out);
  }
}

// Constant or packed.
template <typename Value>
void AppendPackedTile(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
                      std::unique_ptr<PackedTile<Value>>* work, std::vector<uint8_t>* out) {
  if (*work == nullptr) work->reset(new PackedTile<Value>);
  PackedPlanes<Value>& planes = (*work)->planes;
  if (pixels.sample_bits() == 8) {
    LoadTile<uint8_t>(pixels, coding, rect, &planes);
  } else {
    LoadTile<uint16_t>(pixels, coding, rect, &planes);
  }
  uint32_t first[kMaxChannels] = {};
  bool is_constant = true;
  for (uint32_t c = 0; c < pixels.channels; ++c) {
    first[c] = *planes.Row(c, 0);
    is_constant = is_constant && GetPackedKernels<Value>().is_constant(planes, c);
  }
  if (is_constant) return AppendConstantPayload(first, pixels.channels, out);
  AppendPackedPayload(work->get(), out);
}

void AppendPackedTile(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
                      TileWorkspace* work, std::vector<uint8_t>* out) {
  if (coding.used_bits <= 8) {
    AppendPackedTile(pixels, coding, rect, &work->bytes, out);
  } else {
    AppendPackedTile(pixels, coding, rect, &work->words, out);
  }
}

// Constant, or the smaller of rans and packed.
void AppendRansTile(const PixelView& pixels, const ValueCoding& coding, const TileRect& rect,
                    const RansCoder& rans, uint32_t payload, uint64_t stored_bytes,
                    TileWorkspace* work, std::vector<uint8_t>* out) {
  LoadTile(pixels, coding, rect, work->planes.get());
  if (IsConstant(*work->planes)) {
    uint32_t first[kMaxChannels] = {};
    for (uint32_t c = 0; c < pixels.channels; ++c) first[c] = work->planes->plane[c][0];
    return AppendConstantPayload(first, pixels.channels, out);
  }
  const size_t begin = out->size();
  rans.AppendPayload(payload, *work->planes, work->samples.get(), out);
  const size_t rans_bytes = out->size() - begin;
  const bool tiny = rect.width_px * rect.height_px <= kTinyTilePixels;
  // Packed wins only where there is next to nothing to code.
  if (!tiny && rans_bytes >= stored_bytes / 16) return;
  if (rans.is_tiny_image() && rans_bytes >= stored_bytes * kPhotographEighths[0] / 8 &&
      rans_bytes < stored_bytes * kPhotographEighths[1] / 8) {
    return;
  }
  work->other.clear();
  AppendPackedTile(pixels, coding, rect, work, &work->other);
  if (work->other.size() >= rans_bytes) return;
  out->resize(begin);
  out->insert(out->end(), work->other.begin(), work->other.end());
}

// A tile of an image with up to four channels, or of a group. With `only_stored` no other coding is
// tried.
void AppendTile(const PixelView& pixels, const TileRect& rect, const ValueCoding& coding,
                const RansCoder* rans, bool only_stored, uint32_t payload, TileWorkspace* work,
                std::vector<uint8_t>* out) {
  const size_t begin = out->size();
  const uint64_t samples = uint64_t{rect.width_px} * rect.height_px * pixels.channels;
  const uint64_t stored_bytes = kTileHeaderBytes + samples * (pixels.sample_bits() / 8);
  if (rans != nullptr) {
    AppendRansTile(pixels, coding, rect, *rans, payload, stored_bytes, work, out);
  } else if (!only_stored) {
    AppendPackedTile(pixels, coding, rect, work, out);
  }
  if (only_stored || out->size() - begin > stored_bytes) {
    out->resize(begin);
    AppendStoredPayload(pixels, coding, rect, out);
  }
  FinishPayload(begin, out);
}

// Tables of rans tiles beside match tiles.
constexpr uint32_t kFewRansTables = 16;
// Images of more pixels are coded without match tiles, which would take too much memory.
constexpr uint64_t kMaxMatchPixels = 1u << 26;
// Below kWideTilesEffort, tiles without matches are encoded at this effort to compare sizes.
constexpr uint32_t kMatchJudgingEffort = 2;
// Match tiles are kept only if they save 1 / 256 of the bytes.
constexpr uint64_t kMinSavedShare = 256;
// The image is not encoded a second time, without match tiles, if they save more than 1 KiB (which
// pays for their model) plus 1 / 8 of the file.
constexpr uint64_t kFarSmallerBytes = 1024;
constexpr uint64_t kFarSmallerShare = 8;

// A task is a run of payloads: small enough to share among threads, long enough that there are few
// buffers.
constexpr uint32_t kPayloadsPerTask = 4;

// The payloads of an image: those of tile after tile, in each group after group.
struct Payloads {
  std::vector<uint32_t> sizes;             // 0 where one was left out
  std::vector<std::vector<uint8_t>> runs;  // of kPayloadsPerTask each
  std::vector<uint8_t> rans_chunk;         // empty where none, or the built-in model, is used

  uint64_t bytes() const {
    return std::accumulate(sizes.begin(), sizes.end(), uint64_t{rans_chunk.size()});
  }
};

void SetValues(const ValueCoding& coding, ImageInfo* info) {
  info->used_bits = static_cast<uint8_t>(coding.used_bits);
  info->shift = static_cast<uint8_t>(coding.shift);
}

// Encodes all tiles but those that are `left_out` for match tiles; it may be empty. With
// `only_stored` tiles may be larger than packed ones.
Payloads EncodeTiles(const PixelView& pixels, ImageInfo info,
                     const std::vector<ChannelGroup>& groups, const ValueCoding& coding,
                     const EncodeOptions& options, bool only_stored,
                     const std::vector<bool>& left_out) {
  SetValues(coding, &info);
  const uint32_t group_count = static_cast<uint32_t>(groups.size());
  const uint64_t payloads = uint64_t{info.tile_count()} * group_count;
  const uint64_t tasks = CeilDiv(payloads, kPayloadsPerTask);
  Payloads encoded;
  encoded.sizes.resize(payloads);
  encoded.runs.resize(tasks);
  const auto is_left_out = [&](uint32_t tile) { return !left_out.empty() && left_out[tile]; };
  std::optional<RansCoder> rans;
  if (options.coding == Coding::kRans && !only_stored) {
    std::vector<uint32_t> tiles;
    for (uint32_t tile = 0; tile < info.tile_count(); ++tile) {
      if (!is_left_out(tile)) tiles.push_back(tile);
    }
    if (tiles.empty()) return encoded;
    const auto load = [&](uint32_t payload, TilePlanes* planes) {
      const TileRect rect = GetTileRect(info, payload / group_count);
      if (group_count == 1) return LoadTile(pixels, coding, rect, planes);
      const ChannelGroup& group = groups[payload % group_count];
      pixels.sample_bits() == 8 ? LoadGroup<uint8_t>(pixels, group, coding, rect, planes)
                                : LoadGroup<uint16_t>(pixels, group, coding, rect, planes);
    };
    const uint32_t max_tables = left_out.empty() ? kMaxRansTables : kFewRansTables;
    rans.emplace(info, groups, tiles, options.effort, max_tables, options.threads, load);
    encoded.rans_chunk = rans->chunk();
  }
  const auto make_workspace = [&] {
    TileWorkspace work;
    if (rans) {
      work.planes.reset(new TilePlanes);
      work.samples = std::make_unique<RansSamples>();
    }
    return work;
  };
  std::vector<uint8_t> any_rans(tasks);
  const auto encode = [&](TileWorkspace& work, uint64_t task) {
    std::vector<uint8_t>& run = work.run;
    run.clear();
    const uint64_t begin = task * kPayloadsPerTask;
    for (uint64_t i = begin; i < std::min(begin + kPayloadsPerTask, payloads); ++i) {
      const uint32_t tile = static_cast<uint32_t>(i / group_count);
      if (is_left_out(tile)) continue;
      const size_t before = run.size();
      PixelView of_tile = pixels;
      TileRect rect = GetTileRect(info, tile);
      if (group_count > 1) {
        of_tile = TileOfGroup(pixels, groups[i % group_count], rect, &work.gathered);
        rect.x_px = rect.y_px = 0;
      }
      AppendTile(of_tile, rect, coding, rans ? &*rans : nullptr, only_stored,
                 static_cast<uint32_t>(i), &work, &run);
      encoded.sizes[i] = static_cast<uint32_t>(run.size() - before);
      if (run[before + 4] == static_cast<uint8_t>(TileCoding::kRans)) any_rans[task] = 1;
    }
    encoded.runs[task].assign(run.begin(), run.end());
  };
  ParallelForWithState(tasks, options.threads, make_workspace, encode);
  if (std::none_of(any_rans.begin(), any_rans.end(), [](uint8_t any) { return any != 0; })) {
    encoded.rans_chunk.clear();
  }
  return encoded;
}

// `match_chunk` may be empty: there are no match tiles.
EncodedFile MakeFile(ImageInfo info, const std::vector<ChannelGroup>& groups,
                     const ValueCoding& coding, const EncodeOptions& options,
                     const std::vector<uint8_t>& match_chunk, Payloads payloads) {
  SetValues(coding, &info);
  std::vector<uint8_t> chunks;
  if (groups.size() > 1) {
    const std::vector<uint8_t> list = SerializeChannelGroups(groups);
    AppendChunk(kChunkGroups, {list.data(), list.size()}, &chunks);
  }
  if (!coding.table.empty()) {
    const std::vector<uint8_t> table = SerializeValueTable(coding.table);
    AppendChunk(kChunkValueTable, {table.data(), table.size()}, &chunks);
  }
  if (!payloads.rans_chunk.empty()) {
    AppendChunk(kChunkRansModel, {payloads.rans_chunk.data(), payloads.rans_chunk.size()}, &chunks);
  }
  if (!match_chunk.empty()) {
    AppendChunk(kChunkMatchModel, {match_chunk.data(), match_chunk.size()}, &chunks);
  }
  if (options.icc.size != 0) AppendChunk(kChunkIcc, options.icc, &chunks);
  if (options.exif.size != 0) AppendChunk(kChunkExif, options.exif, &chunks);
  if (options.palette.size != 0) AppendChunk(kChunkPalette, options.palette, &chunks);
  if (options.xmp.size != 0) AppendChunk(kChunkXmp, options.xmp, &chunks);
  if (options.metadata.size != 0) AppendChunk(kChunkKeyValues, options.metadata, &chunks);
  chunks.insert(chunks.end(), options.other_chunks.data,
                options.other_chunks.data + options.other_chunks.size);
  return AssembleFile(info, chunks, payloads.sizes, std::move(payloads.runs));
}

// All tiles but stored ones only, without match tiles.
EncodedFile EncodeUnmatched(const PixelView& pixels, ImageInfo info,
                            const std::vector<ChannelGroup>& groups, const ValueCoding& shifted,
                            const std::optional<ValueCoding>& ranked,
                            const EncodeOptions& options) {
  if (options.coding == Coding::kRans && options.effort >= kWideTilesEffort &&
      options.tile_width_log2 == 0 && options.tile_height_log2 == 0 &&
      info.tile_width_log2 < kMaxPackedTileLog2 && pixels.width_px > 1u << info.tile_width_log2) {
    ++info.tile_width_log2;
  }
  const auto encode = [&](const ValueCoding& coding) {
    return MakeFile(info, groups, coding, options, {},
                    EncodeTiles(pixels, info, groups, coding, options, false, {}));
  };
  EncodedFile file = encode(shifted);
  const bool few_values = !IsTinyImage(info, options.effort) ||
                          (ranked && ranked->table.size() <= file.bytes / kTinyTableShare);
  if (ranked && few_values) {
    EncodedFile other = encode(*ranked);
    // Decoders look each sample up, which takes longer than it saves reading where many channels
    // share a table that saves little.
    const uint64_t least_saved = groups.size() == 1 ? 0 : file.bytes / kTableShare;
    if (other.bytes + least_saved < file.bytes) file = std::move(other);
  }
  return file;
}

// Puts match tiles into the places that were left for them.
void AddMatchTiles(const MatchImage& match, unsigned threads, Payloads* payloads) {
  ParallelFor(payloads->runs.size(), threads, [&](uint64_t task) {
    const std::vector<uint8_t> others = std::move(payloads->runs[task]);
    std::vector<uint8_t>& run = payloads->runs[task];
    run.clear();
    auto other = others.begin();
    const size_t begin = task * kPayloadsPerTask;
    const size_t end = std::min(begin + kPayloadsPerTask, payloads->sizes.size());
    for (size_t tile = begin; tile < end; ++tile) {
      uint32_t& size = payloads->sizes[tile];
      run.insert(run.end(), other, other + size);
      other += size;
      if (size != 0) continue;
      const size_t before = run.size();
      match.AppendPayload(static_cast<uint32_t>(tile), &run);
      FinishPayload(before, &run);
      size = static_cast<uint32_t>(run.size() - before);
    }
  });
}

struct MatchedFile {
  EncodedFile file;         // empty if match tiles would not pay
  uint64_t saved_bytes = 0;  // by match tiles, about
};

// The image, of one group, with match tiles, in tiles of their usual size. A low effort judges what
// a tile would take as another coding.
MatchedFile EncodeMatched(const PixelView& pixels, ImageInfo info,
                          const std::vector<ChannelGroup>& groups, const ValueCoding& shifted,
                          const std::optional<ValueCoding>& ranked, const EncodeOptions& options) {
  if (uint64_t{pixels.width_px} * pixels.height_px > kMaxMatchPixels) return {};
  SetValues(shifted, &info);
  if (options.tile_width_log2 == 0) info.tile_width_log2 = kRansGrayTileLog2;
  if (options.tile_height_log2 == 0) info.tile_height_log2 = kRansGrayTileLog2;
  const auto load_as = [&](const ValueCoding& coding) {
    return [&](uint32_t tile, TilePlanes* planes) {
      LoadTile(pixels, coding, GetTileRect(info, tile), planes);
    };
  };
  const uint32_t few_matches =
      MatchImage::Probe(info, options.effort, options.threads, load_as(shifted));
  if (few_matches == 0) return {};

  // Which tiles are likely is the same for values and their ranks.
  std::optional<MatchImage> match;
  match.emplace(info, few_matches, options.threads, load_as(shifted));
  EncodeOptions quick = options;
  if (options.effort < kWideTilesEffort) {
    quick.effort = std::min(options.effort, kMatchJudgingEffort);
  }
  const std::vector<bool> unlikely = match->Unlikely();
  if (std::all_of(unlikely.begin(), unlikely.end(), [](bool is) { return is; })) return {};
  const ValueCoding* coding = &shifted;
  Payloads judged = EncodeTiles(pixels, info, groups, shifted, quick, false, unlikely);
  if (ranked) {
    Payloads other = EncodeTiles(pixels, info, groups, *ranked, quick, false, unlikely);
    if (other.bytes() + SerializeValueTable(ranked->table).size() < judged.bytes()) {
      coding = &*ranked;
      judged = std::move(other);
      SetValues(*coding, &info);
      match.emplace(info, few_matches, options.threads, load_as(*coding));
    }
  }
  MatchedFile matched;
  const uint64_t least_saved = judged.bytes() / kMinSavedShare;
  matched.saved_bytes = match->Choose(judged.sizes, least_saved, /*is_tiny=*/false);
  if (matched.saved_bytes < least_saved) return {};
  Payloads payloads = EncodeTiles(pixels, info, groups, *coding, options, false, match->chosen());
  AddMatchTiles(*match, options.threads, &payloads);
  matched.file = MakeFile(info, groups, *coding, options, match->chunk(), std::move(payloads));
  return matched;
}

// A tiny image of one tile, with rans.
EncodedFile EncodeTiny(const PixelView& pixels, ImageInfo info,
                       const std::vector<ChannelGroup>& groups, const ValueCoding& shifted,
                       const std::optional<ValueCoding>& ranked, const EncodeOptions& options) {
  EncodedFile file = EncodeUnmatched(pixels, info, groups, shifted, ranked, options);
  if (!options.match_tiles || groups.size() > 1) return file;
  SetValues(shifted, &info);
  const auto load = [&](uint32_t tile, TilePlanes* planes) {
    LoadTile(pixels, shifted, GetTileRect(info, tile), planes);
  };
  const uint32_t few_matches = MatchImage::Probe(info, options.effort, 1, load);
  if (few_matches == 0) return file;
  MatchImage match(info, few_matches, 1, load);
  if (match.Unlikely()[0]) return file;
  const uint64_t bytes = file.bytes - file.head.size();
  match.Choose({static_cast<uint32_t>(bytes)}, bytes / kMinSavedShare, /*is_tiny=*/true);
  if (match.chunk().empty()) return file;
  Payloads payloads;
  payloads.sizes.resize(1);
  payloads.runs.resize(1);
  AddMatchTiles(match, 1, &payloads);
  EncodedFile matched =
      MakeFile(info, groups, shifted, options, match.chunk(), std::move(payloads));
  return matched.bytes < file.bytes ? std::move(matched) : std::move(file);
}

// Log2 of the smallest power of two that is not below `v`.
uint32_t CeilLog2(uint64_t v) { return v <= 1 ? 0 : BitLength(static_cast<uint32_t>(v - 1)); }

// Channels that most payloads have.
uint32_t PayloadChannels(const std::vector<ChannelGroup>& groups) { return groups[0].channels; }

// The groups that the options name. Without any: those that predict best if the coding predicts,
// else channels in their order.
std::vector<ChannelGroup> MakeGroups(const PixelView& pixels, const EncodeOptions& options,
                                     bool predicts) {
  if (!options.groups.empty()) {
    std::vector<ChannelGroup> groups;
    for (const std::vector<uint32_t>& chosen : options.groups) {
      ChannelGroup& group = groups.emplace_back();
      group.channels = static_cast<uint32_t>(chosen.size());
      for (size_t i = 0; i < chosen.size(); ++i) {
        group.channel[i] = static_cast<uint16_t>(chosen[i]);
      }
    }
    return groups;
  }
  if (pixels.channels > kMaxChannels && predicts) return FindChannelGroups(pixels, options.coding);
  return GroupsInOrder(pixels.channels);
}

// Sides of tiles where all are stored: those that were asked for in the stored coding, or chosen.
void ChooseStoredTiles(const PixelView& pixels, const std::vector<ChannelGroup>& groups,
                       const EncodeOptions& options, ImageInfo* info) {
  const bool is_asked_for = options.coding == Coding::kStored;
  info->tile_width_log2 = static_cast<uint8_t>(is_asked_for ? options.tile_width_log2 : 0);
  info->tile_height_log2 = static_cast<uint8_t>(is_asked_for ? options.tile_height_log2 : 0);
  const uint64_t pixel_bytes = PayloadChannels(groups) * info->sample_bytes();
  if (info->tile_width_log2 == 0) {
    // Where tiles of the usual width would be small, as an image has few rows, they are wider.
    const bool is_low =
        (uint64_t{pixels.height_px} << kStoredTileWidthLog2) * pixel_bytes < kMinStoredTileBytes;
    const uint32_t most = is_asked_for && !is_low ? kStoredTileWidthLog2 : kMaxTileLog2;
    info->tile_width_log2 =
        static_cast<uint8_t>(std::clamp(CeilLog2(pixels.width_px), kMinTileWidthLog2, most));
  }
  if (info->tile_height_log2 == 0) {
    const uint64_t line_bytes =
        std::min(uint64_t{pixels.width_px}, uint64_t{1} << info->tile_width_log2) * pixel_bytes;
    const uint64_t lines = CeilDiv(kMinStoredTileBytes, line_bytes);
    info->tile_height_log2 =
        static_cast<uint8_t>(std::clamp(CeilLog2(lines), kMinTileHeightLog2, kMaxTileLog2));
  }
}

// All samples as they are.
EncodedFile EncodeStored(const PixelView& pixels, ImageInfo info, const EncodeOptions& options) {
  const std::vector<ChannelGroup> groups = MakeGroups(pixels, options, false);
  ChooseStoredTiles(pixels, groups, options, &info);
  ValueCoding as_is;
  as_is.used_bits = info.sample_bits();
  as_is.offset = info.is_signed() ? 1u << (info.sample_bits() - 1) : 0;
  return MakeFile(info, groups, as_is, options, {},
                  EncodeTiles(pixels, info, groups, as_is, options, /*only_stored=*/true, {}));
}

// Whether they have each channel once, or there are none.
bool AreGroups(const std::vector<std::vector<uint32_t>>& groups, uint32_t channels) {
  if (groups.empty()) return true;
  std::vector<bool> seen(channels);
  uint32_t count = 0;
  for (const std::vector<uint32_t>& group : groups) {
    if (group.empty() || group.size() > kMaxChannels) return false;
    for (const uint32_t channel : group) {
      if (channel >= channels || seen[channel]) return false;
      seen[channel] = true;
      ++count;
    }
  }
  return channels > kMaxChannels && count == channels;
}

// Log2 of the rows of packed tiles. Label maps are too small a file for low tiles.
uint32_t PackedTileHeightLog2(const PixelView& pixels, const EncodeOptions& options,
                              uint64_t groups) {
  const uint64_t columns = CeilDiv(uint64_t{pixels.width_px}, 1u << kPackedTileWidthLog2);
  const uint64_t rows = CeilDiv(uint64_t{pixels.height_px}, 1u << kPackedTileHeightLog2);
  const bool is_low = options.meaning != Meaning::kLabels && pixels.width_px >= kMinLowTileWidth &&
                      groups * columns * rows < kFewPackedTiles;
  return is_low ? kLowPackedTileHeightLog2 : kPackedTileHeightLog2;
}

// Of all that is kept beside the pixels, headers of chunks not counted.
uint64_t MetadataBytes(const EncodeOptions& options) {
  uint64_t bytes = 0;
  for (const Bytes& part : {options.icc, options.exif, options.palette, options.xmp,
                            options.metadata, options.other_chunks}) {
    bytes += part.size;
  }
  return bytes;
}

// Whether all of `chunks` are optional chunks of unknown types.
bool AreOtherChunks(Bytes chunks) {
  uint64_t pos = 0;
  for (uint64_t end = 0; end < chunks.size; end = pos) {
    ChunkView whole;
    if (!NextOtherChunk(chunks.data, chunks.size, &pos, &whole)) return false;
    if (whole.data != chunks.data + end) return false;  // it passed over a known one
  }
  return true;
}

bool IsValid(const PixelView& pixels, const EncodeOptions& options) {
  const bool tile_width_ok =
      options.tile_width_log2 == 0 || (options.tile_width_log2 >= kMinTileWidthLog2 &&
                                       options.tile_width_log2 <= kMaxPackedTileLog2);
  const bool tile_height_ok =
      options.tile_height_log2 == 0 || (options.tile_height_log2 >= kMinTileHeightLog2 &&
                                        options.tile_height_log2 <= kMaxPackedTileLog2);
  const uint64_t pixel_bytes = uint64_t{pixels.channels} * (pixels.sample_bits() / 8);
  return uint64_t{pixels.width_px} * pixels.height_px <=
             kMaxRawBytes / std::max<uint64_t>(1, pixel_bytes) &&
         pixels.width_px >= 1 && pixels.height_px >= 1 &&
         uint64_t{pixels.width_px} * pixels.height_px <= kMaxPixels && pixels.channels >= 1 &&
         pixels.channels <= kMaxImageChannels && AreGroups(options.groups, pixels.channels) &&
         static_cast<uint32_t>(pixels.sample_type) < kSampleTypes &&
         pixels.row_stride_bytes >=
             uint64_t{pixels.width_px} * pixels.channels * pixels.sample_bits() / 8 &&
         MetadataBytes(options) <= kMaxMetadataBytes && options.palette.size % 4 == 0 &&
         options.palette.size <= 1024 && AreOtherChunks(options.other_chunks) && tile_width_ok &&
         tile_height_ok && options.effort >= 1 && options.effort <= 9;
}

ImageInfo MakeInfo(const PixelView& pixels, const EncodeOptions& options) {
  ImageInfo info{};
  info.width_px = pixels.width_px;
  info.height_px = pixels.height_px;
  info.channels = static_cast<uint16_t>(pixels.channels);
  info.sample_type = pixels.sample_type;
  info.meaning = options.meaning;
  return info;
}

// Where coded tiles make a larger file, stored ones are tried.
uint64_t CodedBytesLimit(const ImageInfo& info, const EncodeOptions& options) {
  const uint64_t raw_bytes = info.image_bytes();
  return raw_bytes + raw_bytes / 1000 + 128 + MetadataBytes(options);
}

// No file of stored tiles has more.
uint64_t StoredBytesLimit(const PixelView& pixels, ImageInfo info, const EncodeOptions& options) {
  const std::vector<ChannelGroup> groups = MakeGroups(pixels, options, false);
  ChooseStoredTiles(pixels, groups, options, &info);
  constexpr uint64_t kChunkFrame = 8 + 3;  // header and padding
  const uint64_t groups_bytes = groups.size() > 1 ? 2 + groups.size() + 2 * info.channels : 0;
  const uint64_t chunks = groups_bytes + MetadataBytes(options) + 6 * kChunkFrame;
  const uint64_t payloads = uint64_t{info.tile_count()} * groups.size();
  return kHeaderBytes + chunks + 4 + kPayloadAlignment + info.image_bytes() +
         payloads * (4 + kTileHeaderBytes + kPayloadAlignment);
}

}  // namespace

bool IsConstant(const TilePlanes& planes) {
  for (uint32_t c = 0; c < planes.channels; ++c) {
    const uint16_t first = planes.plane[c][0];
    for (uint32_t y = 0; y < planes.height_px; ++y) {
      const uint16_t* row = planes.plane[c] + y * kMaxPackedTileSide;
      if (!std::all_of(row, row + planes.width_px, [first](uint16_t v) { return v == first; })) {
        return false;
      }
    }
  }
  return true;
}

Status BoundFile(const PixelView& pixels, const EncodeOptions& options, uint64_t* bytes) {
  if (!IsValid(pixels, options)) return Status::kInvalidArgument;
  const ImageInfo info = MakeInfo(pixels, options);
  *bytes = StoredBytesLimit(pixels, info, options);
  if (options.coding != Coding::kStored) *bytes = std::max(*bytes, CodedBytesLimit(info, options));
  return Status::kOk;
}

Status EncodeImage(const PixelView& pixels, const EncodeOptions& options,
                   const AllocateFile& allocate) {
  if (pixels.data == nullptr || !IsValid(pixels, options)) return Status::kInvalidArgument;
  ImageInfo info = MakeInfo(pixels, options);
  if (options.coding == Coding::kStored) {
    return WriteFile(EncodeStored(pixels, info, options), options.threads, allocate);
  }
  const bool packed = options.coding == Coding::kPacked;
  const std::vector<ChannelGroup> groups = MakeGroups(pixels, options, true);
  const bool is_color = pixels.channels == 3 || pixels.channels == 4;
  const uint32_t rans_log2 = is_color ? kRansTileLog2 : kRansGrayTileLog2;
  // Where one side of tiles is short, the other is long, for as many samples a tile.
  const uint32_t tall_log2 = pixels.width_px < kNarrowPixels ? kRansGrayTileLog2 : rans_log2;
  const uint32_t wide_log2 = pixels.height_px < kNarrowPixels ? kRansGrayTileLog2 : rans_log2;
  const uint32_t width_log2 = packed ? kPackedTileWidthLog2 : wide_log2;
  const uint32_t height_log2 =
      packed ? PackedTileHeightLog2(pixels, options, groups.size()) : tall_log2;
  info.tile_width_log2 =
      static_cast<uint8_t>(options.tile_width_log2 != 0 ? options.tile_width_log2 : width_log2);
  info.tile_height_log2 =
      static_cast<uint8_t>(options.tile_height_log2 != 0 ? options.tile_height_log2 : height_log2);

  const ValueCoding shifted = FindShiftedValues(pixels, options.threads);
  const std::optional<ValueCoding> ranked = FindRankedValues(pixels, shifted, options.threads);
  const bool tiny = !packed && info.tile_count() == 1 && IsTinyImage(info, options.effort);
  MatchedFile matched = {};
  if (!packed && !tiny && options.match_tiles && groups.size() == 1) {
    matched = EncodeMatched(pixels, info, groups, shifted, ranked, options);
  }
  EncodedFile file = std::move(matched.file);
  const bool is_settled = !file.head.empty() && options.effort == 1;
  if (!is_settled && matched.saved_bytes <= kFarSmallerBytes + file.bytes / kFarSmallerShare) {
    const auto encode = tiny ? EncodeTiny : EncodeUnmatched;
    EncodedFile other = encode(pixels, info, groups, shifted, ranked, options);
    if (file.head.empty() || other.bytes <= file.bytes) file = std::move(other);
  }
  const bool has_low_tiles = options.tile_height_log2 == 0 && height_log2 < kPackedTileHeightLog2;
  if (has_low_tiles && file.bytes < info.image_bytes() / kLowTilesShare) {
    info.tile_height_log2 = kPackedTileHeightLog2;
    file = EncodeUnmatched(pixels, info, groups, shifted, ranked, options);
  }

  if (file.bytes > CodedBytesLimit(info, options)) {
    EncodedFile other = EncodeStored(pixels, info, options);
    if (other.bytes < file.bytes) file = std::move(other);
  }
  return WriteFile(std::move(file), options.threads, allocate);
}

Status EncodeImage(const PixelView& pixels, const EncodeOptions& options,
                   std::vector<uint8_t>* encoded) {
  return EncodeImage(pixels, options, [encoded](size_t bytes) {
    encoded->resize(bytes);
    return encoded->data();
  });
}

}  // namespace l3
