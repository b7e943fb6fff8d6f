#include "encoder/rans_statistics.h"

#include <algorithm>
#include <limits>

#include "encoder/fixed_log.h"

namespace l3 {
namespace {

using TokenCounts = std::vector<uint32_t>;  // kRansTokens

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
  TokenCounts merged(kRansTokens);
  for (uint32_t t = 0; t < kRansTokens; ++t) merged[t] = a.counts[t] + b.counts[t];
  return static_cast<int64_t>(ClusterCost(merged)) - static_cast<int64_t>(a.cost + b.cost);
}

// Merges clusters, the cheapest pair first, until no merge saves and at most
// `max_clusters` are left. Returns the cluster that each went into.
std::vector<uint32_t> Merge(std::vector<Cluster>* clusters, uint32_t max_clusters) {
  const uint32_t n = static_cast<uint32_t>(clusters->size());
  std::vector<uint32_t> into(n);
  for (uint32_t i = 0; i < n; ++i) into[i] = i;
  std::vector<int64_t> cost(size_t{n} * n);  // of merging i with j < i
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < i; ++j) cost[size_t{i} * n + j] = MergeCost((*clusters)[i], (*clusters)[j]);
  }
  for (uint32_t live = n; live > 1; --live) {
    int64_t best = std::numeric_limits<int64_t>::max();
    uint32_t gone = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; ++i) {
      if (!(*clusters)[i].alive) continue;
      for (uint32_t j = 0; j < i; ++j) {
        if ((*clusters)[j].alive && cost[size_t{i} * n + j] < best) {
          best = cost[size_t{i} * n + j];
          gone = i;
          kept = j;
        }
      }
    }
    if (live <= max_clusters && best >= 0) break;
    Cluster& target = (*clusters)[kept];
    for (uint32_t t = 0; t < kRansTokens; ++t) target.counts[t] += (*clusters)[gone].counts[t];
    target.cost = ClusterCost(target.counts);
    (*clusters)[gone].alive = false;
    for (uint32_t& to : into) {
      if (to == gone) to = kept;
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (i == kept || !(*clusters)[i].alive) continue;
      cost[size_t{std::max(i, kept)} * n + std::min(i, kept)] = MergeCost((*clusters)[i], target);
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

void AppendBase128(uint32_t value, std::vector<uint8_t>* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<uint8_t>(value | 0x80));
  out->push_back(static_cast<uint8_t>(value));
}

}  // namespace

void RansCounts::Add(const RansCounts& other) {
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      for (uint32_t t = 0; t < kRansTokens; ++t) at[p][level][t] += other.at[p][level][t];
    }
  }
}

void CountRansTokens(const RansSamples& samples, RansCounts* counts) {
  for (uint32_t p = 0; p < samples.channels; ++p) {
    for (uint32_t y = 0; y < samples.height_px; ++y) {
      const uint16_t* folded = samples.folded[p] + y * kMaxPackedTileSide;
      const uint8_t* level = samples.level[p] + y * kMaxPackedTileSide;
      for (uint32_t x = 0; x < samples.width_px; ++x) {
        ++counts->at[p][level[x]][RansTokenOf(folded[x])];
      }
    }
  }
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

RansModel BuildRansModel(const RansCounts& counts, uint32_t channels,
                         const RansSettings& settings, uint32_t spare_tokens) {
  RansModel model{};
  model.gradient_weight = settings.gradient_weight;
  std::vector<Cluster> clusters;
  std::vector<uint32_t> first_of[kMaxChannels];  // cluster that a level begins in
  for (uint32_t p = 0; p < channels; ++p) {
    std::copy_n(settings.set_begin[p], kMaxRansSets - 1, model.set_begin[p]);
    first_of[p].resize(kRansLevels, 0);
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      const uint32_t* at = counts.at[p][level];
      Cluster cluster{TokenCounts(at, at + kRansTokens), 0};
      // Levels that do not occur are like the one below.
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
  const std::vector<uint32_t> into = Merge(&clusters, kMaxRansTables);
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

std::vector<uint8_t> SerializeRansModel(const RansModel& model, uint32_t channels) {
  std::vector<uint8_t> out = {model.table_count, model.gradient_weight};
  for (uint32_t p = 0; p < channels; ++p) {
    out.insert(out.end(), model.set_begin[p], model.set_begin[p] + (kMaxRansSets - 1));
    const uint8_t* table = model.table_of_level[p];
    for (uint32_t level = 0; level < kRansLevels;) {
      uint32_t run = 1;
      while (run < 8 && level + run < kRansLevels && table[level + run] == table[level]) ++run;
      out.push_back(static_cast<uint8_t>((run - 1) << 5 | table[level]));
      level += run;
    }
  }
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t tokens = kRansTokens;
    while (tokens > 0 && model.frequency[t][tokens - 1] == 0) --tokens;
    out.push_back(static_cast<uint8_t>(tokens));
    for (uint32_t token = 0; token < tokens; ++token) {
      AppendBase128(model.frequency[t][token], &out);
    }
  }
  return out;
}

}  // namespace l3
