#include "encoder/image_encoder.h"

#include <algorithm>
#include <utility>

#include "encoder/channel_grouping.h"
#include "encoder/match_image.h"
#include "encoder/rans_image.h"
#include "encoder/tile_sizes.h"

namespace l3 {
namespace {

// A packed file below 1 / 8 of its samples gets tiles of the usual height.
constexpr uint64_t kLowTilesShare = 8;
// With several channel groups, a value table is kept only if it saves 1 / 100 of the file.
constexpr uint64_t kTableShare = 100;
// For a tiny image, a table is tried only if it takes up to 1 / 8 of the file.
constexpr uint64_t kTinyTableShare = 8;
// Images of more pixels are coded without match tiles, which would take too much memory.
constexpr uint64_t kMaxMatchPixels = 1u << 26;
// Below kWideTilesEffort, tiles without matches are encoded at this effort to compare sizes.
constexpr uint32_t kMatchComparingEffort = 2;
// Match tiles are kept only if they save 1 / 256 of the bytes.
constexpr uint64_t kMinSavedShare = 256;
// The image is not encoded a second time, without match tiles, if they save more than 1 KiB (which
// pays for their model) plus 1 / 8 of the file.
constexpr uint64_t kFarSmallerBytes = 1024;
constexpr uint64_t kFarSmallerShare = 8;

}  // namespace

EncodedFile ImageEncoder::EncodeCoded() {
  info_ = MakeInfo(pixels_, options_);
  groups_ = ChooseChannelGroups(pixels_, options_, /*predicts=*/true);
  ChooseCodedTiles(options_, groups_.size(), &info_);
  shifted_ = FindShiftedValues(pixels_, options_.threads);
  ranked_ = FindRankedValues(pixels_, shifted_, options_.threads);
  const bool is_rans = options_.coding == Coding::kRans;
  if (is_rans && info_.tile_count() == 1 && IsTinyImage(info_, options_.effort)) {
    return EncodeTiny();
  }
  MatchedFile matched = {};
  if (is_rans && options_.match_tiles && groups_.size() == 1) matched = EncodeMatched();
  EncodedFile file = std::move(matched.file);
  const bool is_settled = !file.head.empty() && options_.effort == 1;
  if (!is_settled && matched.saved_bytes <= kFarSmallerBytes + file.bytes / kFarSmallerShare) {
    EncodedFile other = EncodeUnmatched();
    if (file.head.empty() || other.bytes <= file.bytes) file = std::move(other);
  }
  const bool has_low_tiles =
      options_.tile_height_log2 == 0 && info_.tile_height_log2 < kPackedTileHeightLog2;
  if (has_low_tiles && file.bytes < info_.image_bytes() / kLowTilesShare) {
    info_.tile_height_log2 = kPackedTileHeightLog2;
    file = EncodeUnmatched();
  }
  return file;
}

EncodedFile ImageEncoder::EncodeStored() const {
  ImageInfo info = MakeInfo(pixels_, options_);
  const std::vector<ChannelGroup> groups =
      ChooseChannelGroups(pixels_, options_, /*predicts=*/false);
  ChooseStoredTiles(options_, groups[0].channels, &info);
  if (samples_ != nullptr && samples_->holding != Holding::kAsTheyAre) {
    info.tile_width_log2 = std::min<uint8_t>(info.tile_width_log2, kMaxPackedTileLog2);
    info.tile_height_log2 = std::min<uint8_t>(info.tile_height_log2, kMaxPackedTileLog2);
  }
  ValueCoding as_is;
  as_is.used_bits = info.sample_bits();
  as_is.offset = info.is_signed() ? 1u << (info.sample_bits() - 1) : 0;
  return MakeFile(info, groups, as_is, {},
                  EncodeTiles(pixels_, info, groups, as_is,
                              {Coding::kStored, options_.effort, options_.threads}));
}

EncodedFile ImageEncoder::MakeFile(ImageInfo info, const std::vector<ChannelGroup>& groups,
                                   const ValueCoding& values,
                                   const std::vector<uint8_t>& match_chunk,
                                   Payloads payloads) const {
  SetValues(values, &info);
  std::vector<uint8_t> list, table;
  uint32_t version = kVersion;
  std::vector<ChannelGroup> listed = groups;
  Bytes held;
  if (samples_ != nullptr) {
    version = kVersion2;
    info.sample_type = samples_->type;
    info.holding = samples_->holding;
    held = {samples_->chunk.data(), samples_->chunk.size()};
    if (info.holding == Holding::kHalves) {
      info.channels /= 2;
      for (ChannelGroup& group : listed) group.channels /= 2;  // high halves come first
    }
  }
  if (groups.size() > 1) list = SerializeChannelGroups(listed);
  if (!values.table.empty()) table = SerializeValueTable(values.table);
  const auto all = [](const std::vector<uint8_t>& v) { return Bytes{v.data(), v.size()}; };
  const std::pair<uint32_t, Bytes> parts[] = {{kChunkGroups, all(list)},
                                              {kChunkSamples, held},
                                              {kChunkValueTable, all(table)},
                                              {kChunkRansModel, all(payloads.rans_chunk)},
                                              {kChunkMatchModel, all(match_chunk)},
                                              {kChunkIcc, options_.icc},
                                              {kChunkExif, options_.exif},
                                              {kChunkPalette, options_.palette},
                                              {kChunkXmp, options_.xmp},
                                              {kChunkKeyValues, options_.metadata}};
  std::vector<uint8_t> chunks;
  for (const auto& [type, data] : parts) {
    if (data.size != 0) AppendChunk(type, data, &chunks);
  }
  chunks.insert(chunks.end(), options_.other_chunks.data,
                options_.other_chunks.data + options_.other_chunks.size);
  return AssembleFile(info, chunks, payloads.sizes, std::move(payloads.runs), version);
}

EncodedFile ImageEncoder::EncodeUnmatched() const {
  ImageInfo info = info_;
  ChooseUnmatchedTiles(options_, &info);
  const auto encode = [&](const ValueCoding& values) {
    return MakeFile(info, groups_, values, {},
                    EncodeTiles(pixels_, info, groups_, values, TilesAt(options_.effort)));
  };
  EncodedFile file = encode(shifted_);
  const bool few_values = !IsTinyImage(info, options_.effort) ||
                          (ranked_ && ranked_->table.size() <= file.bytes / kTinyTableShare);
  if (ranked_ && few_values) {
    EncodedFile other = encode(*ranked_);
    // Decoders look each sample up, which takes longer than it saves reading where many channels
    // share a table that saves little.
    const uint64_t least_saved = groups_.size() == 1 ? 0 : file.bytes / kTableShare;
    if (other.bytes + least_saved < file.bytes) file = std::move(other);
  }
  return file;
}

ImageEncoder::MatchedFile ImageEncoder::EncodeMatched() const {
  if (uint64_t{pixels_.width_px} * pixels_.height_px > kMaxMatchPixels) return {};
  ImageInfo info = info_;
  SetValues(shifted_, &info);
  ChooseMatchTiles(options_, &info);
  const TileLoader loader(pixels_, info, groups_, shifted_);
  const uint32_t few_matches = MatchImage::Probe(info, options_.effort, options_.threads, loader);
  if (few_matches == 0) return {};

  // Which tiles are likely is the same for values and their ranks.
  std::optional<MatchImage> match;
  match.emplace(info, few_matches, options_.threads, loader);
  const std::vector<bool> unlikely = match->Unlikely();
  if (std::all_of(unlikely.begin(), unlikely.end(), [](bool is) { return is; })) return {};
  const uint32_t effort = options_.effort < kWideTilesEffort
                              ? std::min(options_.effort, kMatchComparingEffort)
                              : options_.effort;
  const ValueCoding* values = &shifted_;
  Payloads compared = EncodeTiles(pixels_, info, groups_, shifted_, TilesAt(effort), unlikely);
  if (ranked_) {
    Payloads other = EncodeTiles(pixels_, info, groups_, *ranked_, TilesAt(effort), unlikely);
    if (other.bytes() + SerializeValueTable(ranked_->table).size() < compared.bytes()) {
      values = &*ranked_;
      compared = std::move(other);
      SetValues(*values, &info);
      match.emplace(info, few_matches, options_.threads,
                    TileLoader(pixels_, info, groups_, *values));
    }
  }
  MatchedFile matched;
  const uint64_t least_saved = compared.bytes() / kMinSavedShare;
  matched.saved_bytes = match->Choose(compared.sizes, least_saved, /*is_tiny=*/false);
  if (matched.saved_bytes < least_saved) return {};
  Payloads payloads =
      EncodeTiles(pixels_, info, groups_, *values, TilesAt(options_.effort), match->chosen());
  AddMatchTiles(*match, options_.threads, &payloads);
  matched.file = MakeFile(info, groups_, *values, match->chunk(), std::move(payloads));
  return matched;
}

EncodedFile ImageEncoder::EncodeTiny() const {
  EncodedFile file = EncodeUnmatched();
  if (!options_.match_tiles || groups_.size() > 1) return file;
  ImageInfo info = info_;
  SetValues(shifted_, &info);
  const TileLoader loader(pixels_, info, groups_, shifted_);
  const uint32_t few_matches = MatchImage::Probe(info, options_.effort, 1, loader);
  if (few_matches == 0) return file;
  MatchImage match(info, few_matches, 1, loader);
  if (match.Unlikely()[0]) return file;
  const uint64_t bytes = file.bytes - file.head.size();
  match.Choose({static_cast<uint32_t>(bytes)}, bytes / kMinSavedShare, /*is_tiny=*/true);
  if (match.chunk().empty()) return file;
  Payloads payloads;
  payloads.sizes.resize(1);
  payloads.runs.resize(1);
  AddMatchTiles(match, 1, &payloads);
  EncodedFile matched = MakeFile(info, groups_, shifted_, match.chunk(), std::move(payloads));
  return matched.bytes < file.bytes ? std::move(matched) : std::move(file);
}

}  // namespace l3
