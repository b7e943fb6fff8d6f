#include "encoder/channel_grouping.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/parallel.h"
#include "encoder/fixed_log.h"

namespace l3 {
namespace {

// The sample of pixels: up to kMaxBlocks blocks of kBlockPixels in a row, spread over the image.
constexpr uint32_t kBlockPixels = 16;
constexpr uint32_t kMaxBlocks = 128;
// The most products of samples that are added up for all channels: about 0.1 s.
constexpr uint64_t kMaxProducts = uint64_t{1} << 27;
// The most pairs of free channels that rounds of FindTriples() look at: about 0.4 s. Two rounds of
// 4,096 channels; all that 670 can take.
constexpr uint64_t kMaxLooks = uint64_t{1} << 25;
// How many other channels each channel is tried with.
constexpr uint32_t kPartners = 8;
// Three channels are a group if the determinant of their correlations is below this. 1 means that
// no channel predicts another; then each is decoded alone. Small samples correlate by chance, so
// the threshold is lower by kChance / sqrt(pixels of the sample).
constexpr double kMaxDeterminant = 0.8;
constexpr double kChance = 4;
// Consecutive channels are often read together. They stay together if that costs at most this much
// a sample: 0.04 bits, about half a percent. In 1 / 2^kCostBits bit.
constexpr int64_t kNearlyEqualCost = 164;

// Residuals of a sample of the pixels, by channel: twice a pixel less its west and north ones.
class Residuals {
 public:
  explicit Residuals(const PixelView& pixels) : channels_(pixels.channels) {
    if (pixels.width_px < 2 || pixels.height_px < 2) return;
    const uint32_t columns = pixels.width_px - 1;
    const uint32_t rows = pixels.height_px - 1;
    const uint32_t width = std::min(columns, kBlockPixels);
    const uint64_t spots = uint64_t{rows} * ((columns + width - 1) / width);
    const uint64_t blocks = std::min<uint64_t>(spots, kMaxBlocks);
    for (uint64_t i = 0; i < blocks; ++i) {
      // Rows are evenly spaced. Columns follow the golden ratio, so that they spread evenly too.
      const uint32_t y = static_cast<uint32_t>((2 * i + 1) * rows / (2 * blocks)) + 1;
      const uint64_t spread = (i * 0x9E3779B1u) & 0xFFFFFFFF;
      const uint32_t x = static_cast<uint32_t>(spread * (columns - width + 1) >> 32) + 1;
      places_.push_back({x, y, width});
    }
    count_ = blocks * width;
    values_.resize(count_ * channels_);
    switch (pixels.sample_type) {
      case SampleType::kUint8: Fill<uint8_t>(pixels); break;
      case SampleType::kUint16: Fill<uint16_t>(pixels); break;
      case SampleType::kInt8: Fill<int8_t>(pixels); break;
      case SampleType::kInt16: Fill<int16_t>(pixels); break;
      default: break;  // no tile holds others
    }
    for (uint32_t c = 0; c < channels_; ++c) Limit(c);
  }

  uint64_t count() const { return count_; }

  int64_t SumOfProducts(uint32_t a, uint32_t b) const {
    const int32_t* of_a = values_.data() + a * count_;
    const int32_t* of_b = values_.data() + b * count_;
    int64_t sum = 0;
    for (uint64_t i = 0; i < count_; ++i) sum += int64_t{of_a[i]} * of_b[i];
    return sum;
  }

 private:
  struct Block {
    uint32_t x, y, width;
  };

  template <typename Sample>
  void Fill(const PixelView& pixels) {
    uint64_t next = 0;
    const auto at = [&](const uint8_t* row, uint64_t i) {
      Sample sample;
      std::memcpy(&sample, row + i * sizeof(Sample), sizeof(Sample));
      return int32_t{sample};
    };
    for (const Block& block : places_) {
      const uint8_t* row = pixels.data + block.y * pixels.row_stride_bytes;
      const uint8_t* above = row - pixels.row_stride_bytes;
      for (uint32_t x = block.x; x < block.x + block.width; ++x, ++next) {
        const uint64_t i = uint64_t{x} * channels_;
        for (uint64_t c = 0; c < channels_; ++c) {
          values_[c * count_ + next] =
              2 * at(row, i + c) - at(row, i + c - channels_) - at(above, i + c);
        }
      }
    }
  }

  // Without limits, a few strong edges would decide the correlations.
  void Limit(uint32_t channel) {
    int32_t* values = values_.data() + channel * count_;
    int64_t sum = 0;
    for (uint64_t i = 0; i < count_; ++i) sum += std::abs(values[i]);
    const int32_t most = static_cast<int32_t>(4 * sum / static_cast<int64_t>(count_)) + 1;
    for (uint64_t i = 0; i < count_; ++i) values[i] = std::clamp(values[i], -most, most);
  }

  const uint32_t channels_;
  uint64_t count_ = 0;
  std::vector<Block> places_;
  std::vector<int32_t> values_;  // channel after channel
};

// Correlations of each channel with those near it.
class Correlations {
 public:
  Correlations(const Residuals& residuals, uint32_t channels) {
    const uint64_t pairs = kMaxProducts / std::max<uint64_t>(1, residuals.count());
    reach_ = static_cast<uint32_t>(
        std::clamp<uint64_t>(pairs / channels, kPartners, std::max(channels - 1, kPartners)));
    power_.resize(channels);
    for (uint32_t c = 0; c < channels; ++c) {
      power_[c] = static_cast<double>(residuals.SumOfProducts(c, c));
    }
    values_.resize(uint64_t{channels} * reach_);
    for (uint32_t a = 0; a < channels; ++a) {
      for (uint32_t b = a + 1; b < std::min(channels, a + 1 + reach_); ++b) {
        const double both = power_[a] * power_[b];
        const double product = static_cast<double>(residuals.SumOfProducts(a, b));
        values_[uint64_t{a} * reach_ + (b - a - 1)] = both > 0 ? product / std::sqrt(both) : 0;
      }
    }
  }

  // 0 for channels that are far apart.
  double operator()(uint32_t a, uint32_t b) const {
    if (a > b) std::swap(a, b);
    return b - a > reach_ ? 0 : values_[uint64_t{a} * reach_ + (b - a - 1)];
  }

  double Power(uint32_t channel) const { return power_[channel]; }
  // The power of the difference of two channels.
  double PowerOfDifference(uint32_t a, uint32_t b) const {
    return power_[a] + power_[b] - 2 * (*this)(a, b) * std::sqrt(power_[a] * power_[b]);
  }

 private:
  uint32_t reach_;
  std::vector<double> power_;
  std::vector<double> values_;
};

struct Triple {
  double determinant;  // of the correlations; a pixel saves -log2(determinant) / 2 bits, about
  std::array<uint32_t, 3> channel;

  bool operator<(const Triple& other) const {
    return determinant != other.determinant ? determinant < other.determinant
                                            : channel < other.channel;
  }
};

Triple MakeTriple(const Correlations& correlation, uint32_t a, uint32_t b, uint32_t c) {
  const double ab = correlation(a, b);
  const double ac = correlation(a, c);
  const double bc = correlation(b, c);
  Triple triple = {1 + 2 * (ab * ac * bc) - ab * ab - ac * ac - bc * bc, {a, b, c}};
  std::sort(triple.channel.begin(), triple.channel.end());
  return triple;
}

// The triples of each free channel and those that are most like it.
std::vector<Triple> FindTriples(const Correlations& correlation, double max_determinant,
                                const std::vector<uint32_t>& free) {
  std::vector<Triple> triples;
  for (const uint32_t a : free) {
    CheckInterrupt();
    std::vector<uint32_t> partners;
    for (const uint32_t b : free) {
      if (b != a && correlation(a, b) != 0) partners.push_back(b);
    }
    const auto end =
        partners.begin() + std::min<ptrdiff_t>(kPartners, partners.end() - partners.begin());
    std::partial_sort(partners.begin(), end, partners.end(), [&](uint32_t b, uint32_t c) {
      const double of_b = std::abs(correlation(a, b));
      const double of_c = std::abs(correlation(a, c));
      // Equal ones by their distance from `a`: else all would choose the same channels.
      return of_b != of_c ? of_b > of_c : b - a < c - a;
    });
    for (auto b = partners.begin(); b != end; ++b) {
      for (auto c = b + 1; c != end; ++c) {
        const Triple triple = MakeTriple(correlation, a, *b, *c);
        if (triple.determinant < max_determinant) triples.push_back(triple);
      }
    }
  }
  std::sort(triples.begin(), triples.end());
  return triples;
}

struct Grouping {
  std::vector<ChannelGroup> groups;
  int64_t saved_cost = 0;  // of a pixel, about, in 1 / 2^kCostBits bit

  void Add(const Triple& triple) {
    const auto [a, b, c] = triple.channel;
    groups.push_back(
        {3, {static_cast<uint16_t>(a), static_cast<uint16_t>(b), static_cast<uint16_t>(c)}});
    constexpr double kLeast = 1e-6;  // of equal channels, whose determinant is 0
    // In units of 2^-32, so that the logarithm is one of integers.
    const double scaled = std::max(triple.determinant, kLeast) * 0x1p32;
    const int64_t log = FixedLog2Of64(static_cast<uint64_t>(scaled));
    saved_cost += ((int64_t{32} << kCostBits) - log) / 2;
  }
  void Add(uint32_t channel) { groups.push_back({1, {static_cast<uint16_t>(channel)}}); }
};

std::vector<uint32_t> AllOf(uint32_t channels) {
  std::vector<uint32_t> all(channels);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

// Channels in their order, by threes.
void AddNeighbors(const Correlations& correlation, double max_determinant,
                  const std::vector<uint32_t>& channels, Grouping* grouping) {
  for (size_t i = 0; i < channels.size();) {
    if (i + 3 <= channels.size()) {
      const Triple triple = MakeTriple(correlation, channels[i], channels[i + 1], channels[i + 2]);
      if (triple.determinant < max_determinant) {
        grouping->Add(triple);
        i += 3;
        continue;
      }
    }
    grouping->Add(channels[i++]);
  }
}

// Takes the triples that save most first, then searches again among the channels that are left.
Grouping GroupBest(const Correlations& correlation, double max_determinant, uint32_t channels) {
  Grouping grouping;
  std::vector<uint32_t> free = AllOf(channels);
  std::vector<bool> is_free(channels, true);
  uint64_t looks = 0;
  for (size_t before = free.size() + 1; free.size() < before && free.size() >= 3;) {
    before = free.size();
    looks += before * before;
    if (looks > kMaxLooks) {
      AddNeighbors(correlation, max_determinant, free, &grouping);
      return grouping;
    }
    for (const Triple& triple : FindTriples(correlation, max_determinant, free)) {
      const auto [a, b, c] = triple.channel;
      if (!is_free[a] || !is_free[b] || !is_free[c]) continue;
      is_free[a] = is_free[b] = is_free[c] = false;
      grouping.Add(triple);
    }
    free.erase(std::remove_if(free.begin(), free.end(), [&](uint32_t c) { return !is_free[c]; }),
               free.end());
  }
  for (const uint32_t c : free) grouping.Add(c);
  return grouping;
}

// Puts second, as green is, the channel from which the other two differ least. Packed tiles hold
// the other two as they are or as differences from the second, whichever is smaller.
void ChooseGreen(const Correlations& correlation, ChannelGroup* group) {
  const auto cost = [&](uint32_t green) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < group->channels; ++i) {
      const uint32_t channel = group->channel[i];
      const double power = correlation.Power(channel);
      const bool is_green = channel == green;
      const double difference = is_green ? power : correlation.PowerOfDifference(channel, green);
      sum += FixedLog2Of64(static_cast<uint64_t>(std::max(std::min(power, difference), 1.0)));
    }
    return sum;
  };
  uint32_t best = 1;
  for (const uint32_t i : {0u, 2u}) {
    if (cost(group->channel[i]) < cost(group->channel[best])) best = i;
  }
  std::swap(group->channel[1], group->channel[best]);
}

// Channels in their order, as many in a group as there may be.
std::vector<ChannelGroup> GroupsInOrder(uint32_t channels) {
  std::vector<ChannelGroup> groups;
  for (uint32_t first = 0; first < channels; first += kMaxChannels) {
    ChannelGroup group = {std::min(kMaxChannels, channels - first), {}};
    for (uint32_t i = 0; i < group.channels; ++i) {
      group.channel[i] = static_cast<uint16_t>(first + i);
    }
    groups.push_back(group);
  }
  return groups;
}

// Groups of three channels that predict one another in some blocks of pixels, and of one channel
// that none predicts.
std::vector<ChannelGroup> FindChannelGroups(const PixelView& pixels, Coding coding) {
  const uint32_t channels = pixels.channels;
  const Residuals residuals(pixels);
  const Correlations correlation(residuals, channels);
  const double pixel_count = static_cast<double>(std::max<uint64_t>(1, residuals.count()));
  const double max_determinant = kMaxDeterminant - kChance / std::sqrt(pixel_count);
  Grouping best = GroupBest(correlation, max_determinant, channels);
  Grouping neighbors;
  AddNeighbors(correlation, max_determinant, AllOf(channels), &neighbors);
  const bool takes_neighbors =
      neighbors.saved_cost >= best.saved_cost - kNearlyEqualCost * int64_t{channels};
  std::vector<ChannelGroup> groups = std::move(takes_neighbors ? neighbors : best).groups;
  std::sort(groups.begin(), groups.end(), [](const ChannelGroup& a, const ChannelGroup& b) {
    return a.channel[0] < b.channel[0];
  });
  for (ChannelGroup& group : groups) {
    if (coding == Coding::kPacked && group.channels == 3) ChooseGreen(correlation, &group);
  }
  return groups;
}

}  // namespace

std::vector<ChannelGroup> ChooseChannelGroups(const PixelView& pixels, const EncodeOptions& options,
                                              bool predicts) {
  if (options.groups.empty()) {
    return pixels.channels > kMaxChannels && predicts ? FindChannelGroups(pixels, options.coding)
                                                      : GroupsInOrder(pixels.channels);
  }
  std::vector<ChannelGroup> groups;
  for (const std::vector<uint32_t>& chosen : options.groups) {
    ChannelGroup& group = groups.emplace_back();
    group.channels = static_cast<uint32_t>(chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) group.channel[i] = static_cast<uint16_t>(chosen[i]);
  }
  return groups;
}

}  // namespace l3
