#include "encoder/rans_statistics.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "encoder/fixed_log.h"

namespace l3 {
namespace {

using TokenCounts = std::array<uint32_t, kRansTokens>;

// Cost of the tokens by their own statistics, and of the table itself: about a
// byte a token that occurs.
uint64_t ClusterCost(const TokenCounts& counts) {
  uint32_t tokens = 1;
  for (const uint32_t count : counts) tokens += count != 0 ? 1 : 0;
  return EntropyCost(counts.data(), kRansTokens) + (uint64_t{tokens} << (kCostBits + 3));
}

struct Cluster {
  TokenCounts counts;
  uint64_t cost;
  bool alive = true;
};

uint64_t Sum(const TokenCounts& counts) {
  uint64_t sum = 0;
  for (const uint32_t count : counts) sum += count;
  return sum;
}

// What it costs to merge two clusters; negative where that saves.
int64_t MergeCost(const Cluster& a, const Cluster& b) {
  TokenCounts merged;
  for (uint32_t t = 0; t < kRansTokens; ++t) merged[t] = a.counts[t] + b.counts[t];
  return static_cast<int64_t>(ClusterCost(merged)) - static_cast<int64_t>(a.cost + b.cost);
}

// Tokens count as many times as they are large.
uint64_t MeanToken(const TokenCounts& counts) {
  uint64_t sum = 0;
  for (uint32_t t = 0; t < kRansTokens; ++t) sum += uint64_t{counts[t]} * t;
  return (sum << 16) / Sum(counts);
}

// Merges clusters, the cheapest pair first, until no merge saves and at most
// `max_clusters` are left. Clusters merge only with those up to `reach` places away
// in the order of their means. Returns the cluster that each went into.
constexpr uint32_t kMaxReach = kMatchContexts;
std::vector<uint32_t> Merge(std::vector<Cluster>* clusters, uint32_t max_clusters, uint32_t reach) {
  const uint32_t n = static_cast<uint32_t>(clusters->size());
  std::vector<uint32_t> into(n);
  std::vector<uint32_t> order(n);  // of the clusters that are left
  std::vector<uint64_t> mean(n);
  for (uint32_t i = 0; i < n; ++i) {
    into[i] = order[i] = i;
    mean[i] = MeanToken((*clusters)[i].counts);
  }
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return mean[a] != mean[b] ? mean[a] < mean[b] : a < b; });
  // cost[i][k] is that of merging place i of the order with place i + 1 + k.
  std::vector<std::array<int64_t, kMaxReach>> cost(n);
  const auto find_cost = [&](size_t i, size_t j) {
    cost[i][j - i - 1] = MergeCost((*clusters)[order[i]], (*clusters)[order[j]]);
  };
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < std::min(order.size(), i + 1 + reach); ++j) find_cost(i, j);
  }
  while (order.size() > 1) {
    int64_t best = std::numeric_limits<int64_t>::max();
    size_t kept = 0;
    size_t gone = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      for (size_t j = i + 1; j < std::min(order.size(), i + 1 + reach); ++j) {
        if (cost[i][j - i - 1] >= best) continue;
        best = cost[i][j - i - 1];
        kept = i;
        gone = j;
      }
    }
    if (order.size() <= max_clusters && best >= 0) break;
    Cluster& target = (*clusters)[order[kept]];
    Cluster& source = (*clusters)[order[gone]];
    for (uint32_t t = 0; t < kRansTokens; ++t) target.counts[t] += source.counts[t];
    target.cost = ClusterCost(target.counts);
    source.alive = false;
    for (uint32_t& to : into) {
      if (to == order[gone]) to = order[kept];
    }
    order.erase(order.begin() + static_cast<ptrdiff_t>(gone));
    cost.erase(cost.begin() + static_cast<ptrdiff_t>(gone));
    // The costs of new pairs, and of pairs that one more cluster now reaches.
    const size_t first = gone < reach ? 0 : gone - reach;
    const size_t kept_first = kept < reach ? 0 : kept - reach;
    for (size_t i = std::min(first, kept_first); i < std::min(order.size(), gone + 1); ++i) {
      for (size_t j = i + 1; j < std::min(order.size(), i + 1 + reach); ++j) {
        if (i == kept || j == kept || j >= gone) find_cost(i, j);
      }
    }
  }
  return into;
}

// Frequencies in proportion to the counts, at least 1 for a token that occurs
// or is spare.
void Normalize(const TokenCounts& counts, uint32_t spare_tokens, uint16_t* frequency) {
  const uint64_t total = Sum(counts);
  int32_t missing = static_cast<int32_t>(kRansScale);
  for (uint32_t t = 0; t < kRansTokens; ++t) {
    const uint64_t share = (uint64_t{counts[t]} * kRansScale + total / 2) / total;
    const bool coded = counts[t] != 0 || t < spare_tokens;
    frequency[t] = static_cast<uint16_t>(coded ? std::max<uint64_t>(share, 1) : 0);
    missing -= frequency[t];
  }
  // One step at a time, where it costs least or gains most.
  while (missing != 0) {
    const int32_t step = missing > 0 ? 1 : -1;
    int64_t best = std::numeric_limits<int64_t>::max();
    uint32_t at = 0;
    for (uint32_t t = 0; t < kRansTokens; ++t) {
      const int32_t next = frequency[t] + step;
      if (frequency[t] == 0 || next < 1) continue;
      const int64_t change = static_cast<int64_t>(FixedLog2(frequency[t])) -
                             static_cast<int64_t>(FixedLog2(static_cast<uint32_t>(next)));
      const int64_t cost = change * counts[t];
      if (cost < best) {
        best = cost;
        at = t;
      }
    }
    frequency[at] = static_cast<uint16_t>(frequency[at] + step);
    missing -= step;
  }
}

void CountChannel(const RansSamples& samples, uint32_t position, uint32_t (*counts)[kRansTokens]) {
  const RansKernels& kernels = GetRansKernels();
  // Several in turn: neighbours often count alike, and would wait for one another. A channel of a
  // tile has at most 2^16 samples.
  constexpr uint32_t kTurns = 4;
  uint16_t turn[kTurns][kRansLevels * kRansTokens] = {};
  for (uint32_t number = 0; number < samples.wave_count(); ++number) {
    const RansSamples::Wave wave = samples.GetWave(number);
    uint16_t kind[kMaxRansRun];
    kernels.find_kinds(samples.folded(position, wave), samples.levels(position, wave), wave.count,
                       kind);
    uint32_t i = 0;
    for (; i + kTurns <= wave.count; i += kTurns) {
      for (uint32_t k = 0; k < kTurns; ++k) ++turn[k][kind[i + k]];
    }
    for (uint32_t k = 0; i < wave.count; ++i, ++k) ++turn[k][kind[i]];
  }
  for (uint32_t i = 0; i < kRansLevels * kRansTokens; ++i) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < kTurns; ++k) sum += turn[k][i];
    counts[i / kRansTokens][i % kRansTokens] += sum;
  }
}

// The tables of all levels, in runs.
void AppendRuns(const uint8_t* table, std::vector<uint8_t>* out) {
  for (uint32_t level = 0; level < kRansLevels;) {
    uint32_t run = 1;
    while (run < 8 && level + run < kRansLevels && table[level + run] == table[level]) ++run;
    out->push_back(static_cast<uint8_t>((run - 1) << 5 | table[level]));
    level += run;
  }
}

void AppendTables(const RansModel& model, std::vector<uint8_t>* out) {
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t tokens = kRansTokens;
    while (tokens > 0 && model.frequency[t][tokens - 1] == 0) --tokens;
    out->push_back(static_cast<uint8_t>(tokens));
    for (uint32_t token = 0; token < tokens; ++token) {
      AppendBase128(model.frequency[t][token], out);
    }
  }
}

}  // namespace

void RansCounts::Add(const RansCounts& other, uint32_t shift) {
  const uint32_t up = (1u << shift) - 1;
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        at[p][level][t] += (other.at[p][level][t] + up) >> shift;
      }
    }
  }
}

void CountRansTokens(const RansSamples& samples, RansCounts* counts) {
  for (uint32_t p = 0; p < samples.channels(); ++p) CountChannel(samples, p, counts->at[p]);
}

void ChooseRansSets(const RansCounts& counts, RansSettings* settings) {
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    uint64_t of_level[kRansLevels] = {};
    uint64_t total = 0;
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      for (const uint32_t count : counts.at[p][level]) of_level[level] += count;
      total += of_level[level];
    }
    uint64_t before = 0;
    uint32_t level = 0;
    for (uint32_t i = 0; i + 1 < kMaxRansSets; ++i) {
      // 40 % of the samples, then another 40 %.
      while (level < kRansLevels && before * 10 < total * 4 * (i + 1)) before += of_level[level++];
      settings->set_begin[p][i] = static_cast<uint8_t>(level);
    }
  }
}

RansModel BuildRansModel(const RansCounts& counts, uint32_t channels, const RansSettings& settings,
                         uint32_t spare_tokens, uint32_t max_tables, uint32_t reach) {
  RansModel model{};
  model.gradient_weight = settings.gradient_weight;
  std::vector<Cluster> clusters;
  std::vector<uint32_t> first_of[kMaxChannels];  // cluster that a level begins in
  for (uint32_t p = 0; p < channels; ++p) {
    std::copy_n(settings.set_begin[p], kMaxRansSets - 1, model.set_begin[p]);
    first_of[p].resize(kRansLevels, 0);
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      const uint32_t* at = counts.at[p][level];
      Cluster cluster{};
      std::copy_n(at, kRansTokens, cluster.counts.begin());
      // Levels that do not occur are like the level below.
      if (Sum(cluster.counts) == 0) {
        first_of[p][level] = level == 0 ? 0 : first_of[p][level - 1];
        continue;
      }
      cluster.cost = ClusterCost(cluster.counts);
      first_of[p][level] = static_cast<uint32_t>(clusters.size());
      clusters.push_back(std::move(cluster));
    }
  }
  if (clusters.empty()) return model;
  const std::vector<uint32_t> into = Merge(&clusters, max_tables, reach);
  std::vector<uint8_t> table_of_cluster(clusters.size());
  for (uint32_t i = 0; i < clusters.size(); ++i) {
    if (!clusters[i].alive) continue;
    table_of_cluster[i] = model.table_count;
    Normalize(clusters[i].counts, spare_tokens, model.frequency[model.table_count]);
    ++model.table_count;
  }
  for (uint32_t p = 0; p < channels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      model.table_of_level[p][level] = table_of_cluster[into[first_of[p][level]]];
    }
  }
  return model;
}

uint64_t EntropyOfLevels(const RansCounts& counts, uint32_t channels) {
  uint64_t cost = 0;
  for (uint32_t p = 0; p < channels; ++p) {
    for (const auto& tokens : counts.at[p]) cost += EntropyCost(tokens, kRansTokens);
  }
  return cost;
}

uint64_t CostByModel(const RansCounts& counts, uint32_t channels, const RansModel& model) {
  uint64_t cost = 0;
  for (uint32_t p = 0; p < channels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      const uint16_t* frequency = model.frequency[model.table_of_level[p][level]];
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        if (counts.at[p][level][t] == 0) continue;
        const uint32_t bits = (kRansScaleBits << kCostBits) - FixedLog2(frequency[t]);
        cost += uint64_t{counts.at[p][level][t]} * bits;
      }
    }
  }
  return cost;
}

void AppendBase128(uint64_t value, std::vector<uint8_t>* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<uint8_t>(value | 0x80));
  out->push_back(static_cast<uint8_t>(value));
}

std::vector<uint8_t> SerializeRansModel(const RansModel& model, uint32_t channels) {
  std::vector<uint8_t> out = {model.table_count, model.gradient_weight};
  for (uint32_t p = 0; p < channels; ++p) {
    out.insert(out.end(), model.set_begin[p], model.set_begin[p] + (kMaxRansSets - 1));
    AppendRuns(model.table_of_level[p], &out);
  }
  AppendTables(model, &out);
  return out;
}

std::vector<uint8_t> SerializeMatchModel(const RansModel& model) {
  std::vector<uint8_t> out = {model.table_count};
  AppendRuns(model.table_of_level[0], &out);
  AppendTables(model, &out);
  return out;
}

}  // namespace l3
