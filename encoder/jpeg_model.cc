#include "encoder/jpeg_model.h"

#include <algorithm>
#include <array>
#include <limits>

#include "encoder/fixed_log.h"

namespace l3 {
namespace {

// The most tables for coefficients, for the numbers of last ones, and for DC.
constexpr uint32_t kAcTables = 22;
constexpr uint32_t kLastTables = 6;
constexpr uint32_t kDcTables = 4;
static_assert(kAcTables + kLastTables + kDcTables == kMaxRansTables);
// A table is worth making for so many bytes of payload.
constexpr uint64_t kBytesPerTable = 150;
constexpr uint32_t kRounds = 6;
// What it costs to name a table: as the context above has it, as the one on the left, or another.
constexpr double kCostLikeAbove = 1u << kCostBits;
constexpr double kCostLikeLeft = 5u << (kCostBits - 1);
constexpr double kCostOther = 6u << kCostBits;

constexpr uint8_t kNoTable = 255;
using TokenCounts = std::array<uint64_t, kRansTokens>;

// A context that occurs.
struct Context {
  uint32_t place;
  uint64_t cost;  // by its own statistics
  uint64_t mean;  // of the logarithms of its tokens
  size_t begin, end;  // of its tokens
};

// Contexts [begin, end) in rows of `row` get tables of their own: at most `most`, appended to
// `tables`. `table_of` is that of each context.
void Cluster(const JpegCounts& counts, uint32_t begin, uint32_t end, uint32_t row, uint32_t most,
             std::vector<TokenCounts>* tables, uint8_t* table_of) {
  std::vector<Context> contexts;
  std::vector<JpegTokenCount> tokens;
  uint64_t total_cost = 0;
  for (uint32_t place = begin; place < end; ++place) {
    Context context{place, 0, 0, tokens.size(), 0};
    uint64_t count = 0;
    for (uint32_t t = 0; t < kRansTokens; ++t) {
      const uint32_t of_token = counts.at[place][t];
      if (of_token == 0) continue;
      tokens.push_back({t, of_token});
      count += of_token;
      context.mean += uint64_t{of_token} * FixedLog2(t + 1);
    }
    if (count == 0) continue;
    context.mean /= count;
    context.end = tokens.size();
    context.cost = EntropyCost(counts.at[place], kRansTokens) + (1u << kCostBits);
    total_cost += context.cost;
    contexts.push_back(std::move(context));
  }
  if (contexts.empty()) return;
  const uint32_t n = static_cast<uint32_t>(
      std::min<uint64_t>(most, total_cost / (kBytesPerTable << (kCostBits + 3)) + 1));

  // At first, contexts of like means share a table, each table with as much to code.
  std::vector<uint32_t> order(contexts.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return contexts[a].mean < contexts[b].mean; });
  std::vector<uint8_t> cluster_of(end - begin, kNoTable);
  uint64_t before = 0;
  for (const uint32_t i : order) {
    cluster_of[contexts[i].place - begin] = static_cast<uint8_t>(before * n / total_cost);
    before += contexts[i].cost;
  }
  std::vector<TokenCounts> sums(n);
  const auto add_up = [&] {
    for (TokenCounts& sum : sums) sum.fill(0);
    for (const Context& context : contexts) {
      TokenCounts& sum = sums[cluster_of[context.place - begin]];
      for (size_t i = context.begin; i < context.end; ++i) sum[tokens[i].token] += tokens[i].count;
    }
  };
  // By token and cluster. Sums are whole numbers that floats hold.
  double costs[kRansTokens][kJpegMostClusters] = {};
  static_assert(kAcTables <= kJpegMostClusters);
  for (uint32_t round = 0; round < kRounds; ++round) {
    add_up();
    for (uint32_t k = 0; k < n; ++k) {
      uint64_t count = 0;
      for (const uint64_t of_token : sums[k]) count += of_token;
      const uint32_t whole = FixedLog2Of64(20 * count + kRansTokens);
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        costs[t][k] = count == 0 ? 1u << 24 : whole - FixedLog2Of64(20 * sums[k][t] + 1);
      }
    }
    for (const Context& context : contexts) {
      const uint32_t i = context.place - begin;
      double cost[kJpegMostClusters];
      std::fill_n(cost, kJpegMostClusters, std::numeric_limits<double>::max());
      std::fill_n(cost, n, kCostOther);
      if (i % row != 0 && cluster_of[i - 1] != kNoTable) cost[cluster_of[i - 1]] = kCostLikeLeft;
      if (i >= row && cluster_of[i - row] != kNoTable) cost[cluster_of[i - row]] = kCostLikeAbove;
      cluster_of[i] = static_cast<uint8_t>(GetRansKernels().find_jpeg_cluster(
          tokens.data() + context.begin, context.end - context.begin, costs, cost));
    }
  }
  add_up();
  std::array<uint8_t, kAcTables> number{};
  for (uint32_t k = 0; k < n; ++k) {
    if (std::all_of(sums[k].begin(), sums[k].end(), [](uint64_t c) { return c == 0; })) continue;
    number[k] = static_cast<uint8_t>(tables->size());
    tables->push_back(sums[k]);
  }
  for (uint32_t i = 0; i < end - begin; ++i) {
    if (cluster_of[i] != kNoTable) table_of[begin + i] = number[cluster_of[i]];
  }
}

// Frequencies of four bits, as a chunk has them: readers give what lacks to the whole to the
// largest.
void SetFrequencies(const TokenCounts& counts, uint16_t* frequency) {
  constexpr uint32_t kKept = kJpegFrequencyBits + 1;
  constexpr uint64_t kMost = ((1u << kKept) - 1) << (kRansScaleBits - kKept);
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  for (uint64_t scale = kRansScale << 10;; scale = scale * 97 / 100) {
    uint64_t sum = 0;
    uint32_t largest = 0;
    for (uint32_t t = 0; t < kRansTokens; ++t) {
      uint64_t share = (counts[t] * (scale >> 4) / total + 32) >> 6;
      if (counts[t] != 0) share = std::max<uint64_t>(share, 1);
      const uint32_t bits = BitLength(static_cast<uint32_t>(share));
      if (bits > kKept) {
        const uint32_t drop = bits - kKept;
        share = std::min(((share + (1u << drop >> 1)) >> drop) << drop, kMost);
      }
      frequency[t] = static_cast<uint16_t>(share);
      sum += share;
      if (share > frequency[largest]) largest = t;
    }
    if (sum < kRansScale + frequency[largest]) return;
  }
}

class BitWriter {
 public:
  void Write(uint32_t value, uint32_t count) {
    bits_ |= uint64_t{value} << have_;
    for (have_ += count; have_ >= 8; have_ -= 8, bits_ >>= 8) {
      out_.push_back(static_cast<uint8_t>(bits_));
    }
  }
  void WriteUnary(uint32_t zeros) { Write(1u << zeros, zeros + 1); }
  std::vector<uint8_t> Finish() {
    if (have_ > 0) out_.push_back(static_cast<uint8_t>(bits_));
    return std::move(out_);
  }

 private:
  std::vector<uint8_t> out_;
  uint64_t bits_ = 0;
  uint32_t have_ = 0;
};

void WriteTablesOfRow(const uint8_t* row, const uint8_t* above, uint32_t count, BitWriter* out) {
  for (uint32_t i = 0; i < count; ++i) {
    if (above != nullptr) {
      uint32_t repeated = 0;
      while (i + repeated < count && row[i + repeated] == above[i + repeated]) ++repeated;
      out->WriteUnary(repeated);
      i += repeated;
      if (i == count) break;
    }
    const int32_t step = row[i] - (i == 0 ? 0 : row[i - 1]);
    out->WriteUnary(step == 0 ? 0 : step == 1 ? 1 : step == -1 ? 2 : 3);
    if (step < -1 || step > 1) out->Write(row[i], 5);
  }
}

void WriteFrequencies(const uint16_t* frequency, uint32_t* first_length, BitWriter* out) {
  uint32_t tokens = kRansTokens;
  while (tokens > 0 && frequency[tokens - 1] == 0) --tokens;
  out->Write(tokens, 6);
  uint32_t length = *first_length;
  for (uint32_t t = 0; t < tokens; ++t) {
    const uint32_t value = frequency[t];
    const int32_t down = static_cast<int32_t>(length) - static_cast<int32_t>(BitLength(value));
    length = BitLength(value);
    if (t == 0) *first_length = length;
    const uint32_t size = static_cast<uint32_t>(down < 0 ? -down : down);
    // A first step up is 3, then 5; a step down of 3 is 4, then 6.
    out->WriteUnary(down < 0 ? 2 * size + 1 : size < 3 ? size : 2 * size - 2);
    if (length < 2) continue;
    const uint32_t more = std::min(length - 1, kJpegFrequencyBits);
    out->Write(value >> (length - 1 - more) & ((1u << more) - 1), more);
  }
}

}  // namespace

uint64_t JpegCostByModel(const JpegCounts& counts, const JpegModel& model) {
  uint32_t costs[kMaxRansTables][kRansTokens];
  for (uint32_t t = 0; t < model.table_count; ++t) {
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      const uint32_t frequency = model.frequency[t][token];
      costs[t][token] =
          frequency == 0 ? UINT32_MAX : (kRansScaleBits << kCostBits) - FixedLog2(frequency);
    }
  }
  const uint8_t* const table_of[] = {model.ac[0][0], model.last[0], model.dc[0]};
  const uint32_t begins[] = {0, kJpegFirstLastContext, kJpegFirstDcContext, kJpegContexts};
  uint64_t cost = 0;
  bool is_held = true;
  for (uint32_t kind = 0; kind < 3; ++kind) {
    for (uint32_t i = begins[kind]; i < begins[kind + 1]; ++i) {
      const uint32_t* cost_of = costs[table_of[kind][i - begins[kind]]];
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        cost += uint64_t{counts.at[i][t]} * cost_of[t];
        is_held &= counts.at[i][t] == 0 || cost_of[t] != UINT32_MAX;
      }
    }
  }
  return is_held ? cost : std::numeric_limits<uint64_t>::max();
}

std::vector<uint8_t> MakeJpegModel(const JpegCounts& counts, bool has_chroma, JpegModel* model) {
  std::vector<TokenCounts> tables;
  uint8_t table_of[kJpegContexts];
  std::fill_n(table_of, kJpegContexts, kNoTable);
  Cluster(counts, 0, kJpegFirstLastContext, kJpegLevels, kAcTables, &tables, table_of);
  Cluster(counts, kJpegFirstLastContext, kJpegFirstDcContext, kJpegLastContexts, kLastTables,
          &tables, table_of);
  Cluster(counts, kJpegFirstDcContext, kJpegContexts, kJpegDcContexts, kDcTables, &tables,
          table_of);
  BitWriter writer;
  writer.Write(static_cast<uint32_t>(tables.size() - 1), 5);
  // Contexts that do not occur are like those above, else like those on the left.
  const auto write_row = [&](uint32_t begin, uint32_t count, const uint8_t* above) {
    uint8_t* row = table_of + begin;
    for (uint32_t i = 0; i < count; ++i) {
      if (row[i] == kNoTable) row[i] = above != nullptr ? above[i] : i > 0 ? row[i - 1] : 0;
    }
    WriteTablesOfRow(row, above, count, &writer);
  };
  const uint32_t classes = has_chroma ? 2 : 1;
  for (uint32_t i = 0; i < classes; ++i) {
    for (uint32_t k = 1; k < kJpegBlockSamples; ++k) {
      const uint32_t row = (i * kJpegBlockSamples + k) * kJpegLevels;
      const uint8_t* above = k > 1   ? table_of + row - kJpegLevels
                             : i > 0 ? table_of + k * kJpegLevels
                                     : nullptr;
      write_row(row, kJpegLevels, above);
    }
  }
  for (uint32_t c = 0; c < (has_chroma ? kMaxJpegComponents : 1); ++c) {
    const uint32_t row = kJpegFirstLastContext + c * kJpegLastContexts;
    write_row(row, kJpegLastContexts, c > 0 ? table_of + row - kJpegLastContexts : nullptr);
  }
  for (uint32_t i = 0; i < classes; ++i) {
    const uint32_t row = kJpegFirstDcContext + i * kJpegDcContexts;
    write_row(row, kJpegDcContexts, i > 0 ? table_of + row - kJpegDcContexts : nullptr);
  }
  uint32_t first_length = kJpegFirstLength;
  for (const TokenCounts& table : tables) {
    uint16_t frequency[kRansTokens];
    SetFrequencies(table, frequency);
    WriteFrequencies(frequency, &first_length, &writer);
  }
  std::vector<uint8_t> bytes = writer.Finish();
  ReadJpegModel(bytes.data(), static_cast<uint32_t>(bytes.size()), has_chroma, model);
  return bytes;
}

}  // namespace l3
