#include "encoder/sample_holding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

namespace l3 {
namespace {

constexpr uint32_t kMostRanks = 1u << 16;
constexpr uint32_t kFewRanks = 1u << 8;
// Where samples occur so often in the mean, halves are not tried: they were never smaller.
constexpr uint64_t kManyUses = 16;
constexpr uint32_t kTableWidth = 256;  // of the image of a table

// Copies rows: another thread may change the pixels (encoder.h).
std::vector<uint32_t> CopySamples(const PixelView& pixels) {
  const size_t row = size_t{pixels.width_px} * pixels.channels;
  std::vector<uint32_t> samples(row * pixels.height_px);
  for (uint32_t y = 0; y < pixels.height_px; ++y) {
    std::memcpy(samples.data() + y * row, pixels.data + y * pixels.row_stride_bytes, 4 * row);
  }
  return samples;
}

// A number for each sample, in the order of their values. Decoders do not know it.
uint32_t OrderOf(uint32_t sample, SampleType type) {
  constexpr uint32_t kTop = 1u << 31;
  if (type == SampleType::kUint32) return sample;
  return type == SampleType::kFloat32 && sample >= kTop ? ~sample : sample ^ kTop;
}

// The distinct samples of an image, if they are at most kMostRanks, and their ranks.
class RankTable {
 public:
  RankTable(const std::vector<uint32_t>& samples, SampleType type) : slots_(kSlots, kNone) {
    for (const uint32_t sample : samples) {
      uint32_t& slot = Find(sample);
      if (slot != kNone) continue;
      if (sorted_.size() == kMostRanks) {
        fits_ = false;
        return;
      }
      slot = static_cast<uint32_t>(sorted_.size());
      sorted_.push_back(sample);
    }
    by_number_ = sorted_;
    std::sort(sorted_.begin(), sorted_.end(),
              [type](uint32_t a, uint32_t b) { return OrderOf(a, type) < OrderOf(b, type); });
    std::vector<uint32_t> rank_of(sorted_.size());
    for (uint32_t rank = 0; rank < sorted_.size(); ++rank) rank_of[Find(sorted_[rank])] = rank;
    rank_of_ = std::move(rank_of);
  }

  bool fits() const { return fits_; }
  const std::vector<uint32_t>& sorted() const { return sorted_; }
  uint32_t RankOf(uint32_t sample) { return rank_of_[Find(sample)]; }

 private:
  static constexpr uint32_t kSlots = 1u << 18;
  static constexpr uint32_t kNone = ~0u;

  // The slot of a sample: the number of its first occurrence, or kNone.
  uint32_t& Find(uint32_t sample) {
    uint32_t at = (sample * 0x9E3779B1u) >> 14;
    const std::vector<uint32_t>& known = by_number_.empty() ? sorted_ : by_number_;
    while (slots_[at] != kNone && known[slots_[at]] != sample) at = (at + 1) % kSlots;
    return slots_[at];
  }

  std::vector<uint32_t> slots_;
  std::vector<uint32_t> sorted_;     // in their first order while they are found
  std::vector<uint32_t> by_number_;  // in their first order
  std::vector<uint32_t> rank_of_;    // by number
  bool fits_ = true;
};

// The image of the gaps between samples that follow one another, modulo 2^32.
std::vector<uint8_t> EncodeTable(const std::vector<uint32_t>& samples, Coding coding) {
  const uint32_t count = static_cast<uint32_t>(samples.size());
  const uint32_t width = std::min(count, kTableWidth);
  const uint32_t height = static_cast<uint32_t>(CeilDiv(count, width));
  std::vector<uint16_t> gaps(size_t{2} * width * height);
  uint32_t before = 0;
  uint32_t gap = 0;
  for (uint32_t i = 0; i < width * height; ++i) {
    if (i < count) gap = samples[i] - before;  // the last row is filled with its last gap
    if (i < count) before = samples[i];
    gaps[2 * i] = static_cast<uint16_t>(gap);
    gaps[2 * i + 1] = static_cast<uint16_t>(gap >> 16);
  }
  EncodeOptions options;
  options.coding = coding == Coding::kStored ? Coding::kPacked : coding;
  options.match_tiles = false;
  options.tile_width_log2 = options.tile_height_log2 = kMaxPackedTileLog2;
  const PixelView pixels = {reinterpret_cast<const uint8_t*>(gaps.data()),
                            width,
                            height,
                            2,
                            SampleType::kUint16,
                            uint64_t{width} * 4};
  std::vector<uint8_t> file;
  EncodedFile encoded = ImageEncoder(pixels, options).EncodeCoded();
  WriteFile(std::move(encoded), 1, [&file](uint64_t bytes) {
    file.resize(bytes);
    return file.data();
  });
  return file;
}

// Pixels in memory of the encoder.
template <typename Value>
PixelView ViewOf(const std::vector<Value>& values, const PixelView& pixels, uint32_t channels) {
  return {reinterpret_cast<const uint8_t*>(values.data()),
          pixels.width_px,
          pixels.height_px,
          channels,
          sizeof(Value) == 1 ? SampleType::kUint8 : SampleType::kUint16,
          uint64_t{pixels.width_px} * channels * sizeof(Value)};
}

template <typename Rank>
EncodedFile EncodeRanks(const std::vector<uint32_t>& samples, RankTable* table,
                        const PixelView& pixels, const EncodeOptions& options) {
  const SampleHolding holding = {pixels.sample_type,
                                 sizeof(Rank) == 1 ? Holding::kRanks8 : Holding::kRanks16,
                                 EncodeTable(table->sorted(), options.coding)};
  std::vector<Rank> ranks(samples.size());
  std::transform(samples.begin(), samples.end(), ranks.begin(),
                 [&](uint32_t sample) { return static_cast<Rank>(table->RankOf(sample)); });
  return EncodeBest(ViewOf(ranks, pixels, pixels.channels), options, &holding);
}

// Groups of up to two channels: of those that the options name, or of neighbours.
std::vector<std::vector<uint32_t>> GroupsOfHalves(uint32_t channels, const EncodeOptions& options) {
  std::vector<std::vector<uint32_t>> chosen = options.groups;
  if (chosen.empty()) {
    chosen.emplace_back(channels);
    std::iota(chosen[0].begin(), chosen[0].end(), 0u);
  }
  std::vector<std::vector<uint32_t>> groups;
  for (const std::vector<uint32_t>& of_one : chosen) {
    for (size_t i = 0; i < of_one.size(); i += kMaxHalvesChannels) {
      const size_t end = std::min<size_t>(i + kMaxHalvesChannels, of_one.size());
      std::vector<uint32_t>& group = groups.emplace_back(of_one.begin() + i, of_one.begin() + end);
      const size_t count = group.size();
      for (size_t k = 0; k < count; ++k) group.push_back(group[k] + channels);
    }
  }
  return groups;
}

// High halves of all channels of a pixel, then the low ones.
EncodedFile EncodeHalves(const std::vector<uint32_t>& samples, const PixelView& pixels,
                         const EncodeOptions& options) {
  // Of bits, in floats: that of values would not save more.
  const SampleType order =
      pixels.sample_type == SampleType::kInt32 ? SampleType::kInt32 : SampleType::kUint32;
  const uint32_t minimum = *std::min_element(
      samples.begin(), samples.end(),
      [order](uint32_t a, uint32_t b) { return OrderOf(a, order) < OrderOf(b, order); });
  uint32_t seen = 0;
  for (const uint32_t sample : samples) seen |= sample - minimum;
  uint8_t zeros = 0;
  while (zeros < 31 && (seen >> zeros & 1) == 0) ++zeros;
  const uint32_t channels = pixels.channels;
  std::vector<uint16_t> halves(2 * samples.size());
  for (size_t i = 0; i < samples.size(); i += channels) {
    for (uint32_t c = 0; c < channels; ++c) {
      const uint32_t number = (samples[i + c] - minimum) >> zeros;
      halves[2 * i + c] = static_cast<uint16_t>(number >> 16);
      halves[2 * i + channels + c] = static_cast<uint16_t>(number);
    }
  }
  SampleHolding holding = {pixels.sample_type, Holding::kHalves, std::vector<uint8_t>(5)};
  StoreU32(holding.chunk.data(), minimum);
  holding.chunk[4] = zeros;
  EncodeOptions of_halves = options;
  of_halves.groups.clear();
  if (channels > kMaxHalvesChannels) of_halves.groups = GroupsOfHalves(channels, options);
  return EncodeBest(ViewOf(halves, pixels, 2 * channels), of_halves, &holding);
}

}  // namespace

EncodedFile EncodeHeld(const PixelView& pixels, const EncodeOptions& options) {
  if (pixels.sample_type == SampleType::kFloat16) {
    PixelView bits = pixels;
    bits.sample_type = SampleType::kUint16;
    const SampleHolding as_is = {pixels.sample_type, Holding::kAsTheyAre, {}};
    return EncodeBest(bits, options, &as_is);
  }
  const std::vector<uint32_t> samples = CopySamples(pixels);
  RankTable table(samples, pixels.sample_type);
  std::optional<EncodedFile> ranks;
  if (table.fits()) {
    const size_t count = table.sorted().size();
    ranks = count <= kFewRanks ? EncodeRanks<uint8_t>(samples, &table, pixels, options)
                               : EncodeRanks<uint16_t>(samples, &table, pixels, options);
    if (count <= samples.size() / kManyUses) {
      return std::move(*ranks);
    }
  }
  EncodedFile halves = EncodeHalves(samples, pixels, options);
  return ranks && ranks->bytes <= halves.bytes ? std::move(*ranks) : std::move(halves);
}

uint64_t HeldBytesLimit(const PixelView& pixels, const EncodeOptions& options) {
  // Stored, in tiles of at least 32 x 8 pixels or the whole image, of groups of one channel.
  const uint64_t tiles = CeilDiv(pixels.width_px, 1u << kMinTileWidthLog2) *
                         CeilDiv(pixels.height_px, 1u << kMinTileHeightLog2);
  const uint64_t payload_bytes = 4 + kTileHeaderBytes + 2 * kPayloadAlignment;
  const uint64_t raw_bytes = MakeInfo(pixels, options).image_bytes();
  return raw_bytes + raw_bytes / 8 + tiles * pixels.channels * payload_bytes +
         4 * uint64_t{pixels.channels} + MetadataBytes(options) + (1 << 12);
}

}  // namespace l3
