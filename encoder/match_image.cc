#include "encoder/match_image.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "base/parallel.h"
#include "core/match.h"
#include "encoder/fixed_log.h"
#include "encoder/rans_statistics.h"

namespace l3 {
namespace {

// The most tables of match tiles. Rans tiles of the same image have as many (kFewRansTables in
// tile_payloads.cc), and a file has 32.
constexpr uint32_t kMaxMatchTables = 16;
// A tile is rejected if over 1 / 2 of its pixels match no neighbour. At effort 1 it is rejected
// from 1 / 4 on, so that photographs cost less time, and from 1 / 8 on if the image looks like one.
constexpr uint32_t kFewMatches = 2;
constexpr uint32_t kFewMatchesQuickly = 4;
constexpr uint32_t kFewMatchesOfPhotographs = 8;
// A tile of more colours is rejected too: each colour costs bytes.
constexpr uint32_t kMaxTileColors = 4096;
constexpr uint32_t kChoices = 3;  // rounds of choosing tiles by the statistics of those chosen last
// About what a colour takes in the chunk.
constexpr uint64_t kColorCost = uint64_t{16} << kCostBits;
// How far apart contexts of a tiny image share tables: to try them all takes too long.
constexpr uint32_t kTinyReach = 4;
// The chunk's header, the runs of 64 contexts and one table of two tokens.
constexpr uint64_t kLeastModelBytes = 8 + 1 + 8 + 3;

uint64_t KeyMask(uint32_t used_bits) { return (uint64_t{1} << used_bits) - 1; }

// The key of a pixel (format.md 5.5).
uint64_t KeyOf(const TilePlanes& planes, uint32_t x, uint32_t y) {
  const uint32_t bits = planes.used_bits;
  const auto value = [&](uint32_t c) -> uint64_t {
    return planes.plane[c][y * kMaxPackedTileSide + x];
  };
  if (planes.channels == 1) return value(0);
  if (planes.channels == 2) return value(1) << bits | value(0);
  const uint64_t green = value(1);
  const uint64_t red = (value(0) - green) & KeyMask(bits);
  const uint64_t blue = (value(2) - green) & KeyMask(bits);
  const uint64_t alpha = planes.channels == 4 ? value(3) : 0;
  return ((alpha << bits | green) << bits | red) << bits | blue;
}

// A random factor of hashes, so that no image can have colours chosen for equal hashes. Output does
// not depend on it. (Multiply-shift: M. Dietzfelbinger and others, A Reliable Randomized Algorithm
// for the Closest-Pair Problem, 1997.)
uint64_t HashFactor() {
  static const uint64_t factor = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random() | 1;
  }();
  return factor;
}

// The place of each key in the order in which they first came.
class KeyTable {
 public:
  const std::vector<uint64_t>& keys() const { return keys_; }

  uint32_t Find(uint64_t key) {
    if (2 * keys_.size() >= slots_.size()) Grow();
    uint32_t& slot = SlotOf(key);
    if (slot == kFree) {
      slot = static_cast<uint32_t>(keys_.size());
      keys_.push_back(key);
    }
    return slot;
  }

  void Clear() {
    for (; !keys_.empty(); keys_.pop_back()) SlotOf(keys_.back()) = kFree;
  }

 private:
  static constexpr uint32_t kFree = ~0u;

  // Where a key is, or will be.
  uint32_t& SlotOf(uint64_t key) {
    size_t at = key * factor_ >> (64 - log2_);
    while (slots_[at] != kFree && keys_[slots_[at]] != key) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  void Grow() {
    slots_.assign(size_t{1} << ++log2_, kFree);
    for (uint32_t place = 0; place < keys_.size(); ++place) {
      if (place % (1u << 16) == 0) CheckInterrupt();
      SlotOf(keys_[place]) = place;
    }
  }

  uint64_t factor_ = HashFactor();
  uint32_t log2_ = 10;
  std::vector<uint32_t> slots_;
  std::vector<uint64_t> keys_;
};

// The colours of a tile's pixels, by place in `tile->colors`.
struct Plane {
  uint16_t at[kMaxPackedTileSide][kMaxPackedTileSide];
  int32_t width;
  uint16_t base;

  int32_t At(int32_t x, int32_t y) const {
    if (x >= width) x = width - 1;
    for (; y < 0; ++y) x -= 2;
    if (x < 0) {
      if (y == 0) return base;
      x = 0;
      --y;
    }
    return at[y][x];
  }
  RansNeighbors NeighborsOf(int32_t x, int32_t y) const {
    if (x >= 2 && y >= 2 && x + 1 < width) {
      const uint16_t* above = at[y - 1] + x;
      return {above[1],     above[0],     above[-1],        at[y][x - 1],
              at[y - 2][x], at[y][x - 2], at[y - 2][x + 1], above[-2]};
    }
    return {At(x + 1, y - 1), At(x, y - 1), At(x - 1, y - 1), At(x - 1, y),
            At(x, y - 2),     At(x - 2, y), At(x + 1, y - 2), At(x - 2, y - 1)};
  }
};

// The token of a neighbour of the same colour; kMatchNeighbors if there is none.
uint16_t MatchOf(const RansNeighbors& at, int32_t color) {
  return at.w == color    ? 0
         : at.n == color  ? 1
         : at.ne == color ? 2
         : at.nw == color ? 3
                          : kMatchNeighbors;
}

// Which pixels of a row differ from a neighbour: not 0 there.
struct RowDifferences {
  uint16_t w[kMaxPackedTileSide], n[kMaxPackedTileSide];
  uint16_t ne[kMaxPackedTileSide], nw[kMaxPackedTileSide];
};

// The same for the pixels of row y >= 1 that are not at an edge.
void CompareRow(const TilePlanes& planes, uint32_t y, RowDifferences* differ) {
  *differ = RowDifferences{};
  for (uint32_t c = 0; c < planes.channels; ++c) {
    const uint16_t* row = planes.plane[c] + y * kMaxPackedTileSide;
    const uint16_t* above = row - kMaxPackedTileSide;
    for (uint32_t x = 1; x + 1 < planes.width_px; ++x) {
      differ->w[x] |= row[x] ^ row[x - 1];
      differ->n[x] |= row[x] ^ above[x];
      differ->ne[x] |= row[x] ^ above[x + 1];
      differ->nw[x] |= row[x] ^ above[x - 1];
    }
  }
}

// How many pixels certainly match no neighbour; some number above `most` if more do. Compares
// samples, so that photographs cost little; pixels at the edges count as matches.
uint32_t CountOthers(const TilePlanes& planes, uint32_t most) {
  uint32_t others = 0;
  RowDifferences differ;
  for (uint32_t y = 1; y < planes.height_px && others <= most; ++y) {
    CompareRow(planes, y, &differ);
    for (uint32_t x = 1; x + 1 < planes.width_px; ++x) {
      others += (differ.w[x] != 0) & (differ.n[x] != 0) & (differ.ne[x] != 0) & (differ.nw[x] != 0);
    }
  }
  return others;
}

// Working memory of one thread.
struct Workspace {
  TilePlanes planes;
  Plane colors;
  KeyTable keys;
};
// Not zeroed: that would take longer than a small image.
std::unique_ptr<Workspace> NewWorkspace() { return std::unique_ptr<Workspace>(new Workspace); }

// Finds a place for each colour of a tile. Returns false if there are more of them than fit.
bool FindColors(Workspace* work) {
  const TilePlanes& planes = work->planes;
  Plane* colors = &work->colors;
  colors->width = static_cast<int32_t>(planes.width_px);
  work->keys.Clear();
  RowDifferences differ;
  for (uint32_t y = 0; y < planes.height_px; ++y) {
    if (work->keys.keys().size() > kMaxTileColors - kMaxPackedTileSide) return false;
    uint16_t* row = colors->at[y];
    if (y != 0) CompareRow(planes, y, &differ);
    for (uint32_t x = 0; x < planes.width_px; ++x) {
      const bool is_inner = y != 0 && x != 0 && x + 1 < planes.width_px;
      if (is_inner && differ.w[x] == 0) {
        row[x] = row[x - 1];
      } else if (is_inner && differ.n[x] == 0) {
        row[x] = colors->at[y - 1][x];
      } else {
        row[x] = static_cast<uint16_t>(work->keys.Find(KeyOf(planes, x, y)));
      }
    }
  }
  colors->base = colors->at[0][0];
  return true;
}

// Contexts and tokens of a row.
struct RowTokens {
  uint16_t context[kMaxPackedTileSide];
  uint16_t token[kMaxPackedTileSide];
};

// The same for pixels that are not at an edge, a vector of them at a time.
void FindInnerTokens(const uint16_t* __restrict row, const uint16_t* __restrict above,
                     const uint16_t* __restrict above_2, uint32_t begin, uint32_t end,
                     uint16_t* __restrict context, uint16_t* __restrict token) {
  for (uint32_t x = begin; x < end; ++x) {
    const RansNeighbors around = {above[x + 1], above[x],   above[x - 1],   row[x - 1],
                                  above_2[x],   row[x - 2], above_2[x + 1], above[x - 2]};
    context[x] = static_cast<uint16_t>(MatchContext(around));
    token[x] = MatchOf(around, row[x]);
  }
}

void FindTokens(const Plane& colors, uint32_t y, RowTokens* tokens) {
  const uint16_t* row = colors.at[y];
  const uint32_t width = static_cast<uint32_t>(colors.width);
  const auto find_at_edge = [&](uint32_t x) {
    const RansNeighbors around =
        colors.NeighborsOf(static_cast<int32_t>(x), static_cast<int32_t>(y));
    tokens->context[x] = static_cast<uint16_t>(MatchContext(around));
    tokens->token[x] = MatchOf(around, row[x]);
  };
  const uint32_t begin = y < 2 ? width : std::min(2u, width);
  const uint32_t end = std::max(begin, width - 1);
  for (uint32_t x = 0; x < begin; ++x) find_at_edge(x);
  if (begin < end) {
    FindInnerTokens(row, colors.at[y - 1], colors.at[y - 2], begin, end, tokens->context,
                    tokens->token);
  }
  for (uint32_t x = end; x < width; ++x) find_at_edge(x);
}

// Adds the tokens of neighbours at some places. Most equal the previous token.
void CountTokens(const RansTokens& tokens, size_t begin, size_t end, uint32_t* counts) {
  while (begin < end) {
    const uint32_t context = tokens.level[begin];
    const uint32_t token = tokens.folded[begin];
    size_t run = begin + 1;
    while (run < end && tokens.level[run] == context && tokens.folded[run] == token) ++run;
    if (context < kMatchContexts && token < kMatchNeighbors) {
      counts[context * kMatchNeighbors + token] += static_cast<uint32_t>(run - begin);
    }
    begin = run;
  }
}

// A rejected tile is left without tokens. Constant tiles are rejected.
MatchTile MakeTile(uint32_t few_matches, Workspace* work) {
  const TilePlanes& planes = work->planes;
  const uint32_t most = planes.width_px * planes.height_px / few_matches;
  if (IsConstant(planes) || CountOthers(planes, most) > most || !FindColors(work)) return {};

  MatchTile tile;
  const Plane& colors = work->colors;
  const RansSchedule schedule = GetRansSchedule(planes.width_px, planes.height_px);
  RansTokens& tokens = tile.tokens;
  tokens.channels = 1;
  tokens.lanes = std::min(schedule.lanes, planes.height_px);
  const size_t places = size_t{schedule.steps} * tokens.lanes;
  tokens.folded.resize(places);
  tokens.level.resize(places, static_cast<uint8_t>(kIdleLevel));
  std::vector<bool> is_needed(schedule.steps / kMatchBlockSteps + 1);
  RowTokens of_row;
  for (uint32_t y = 0; y < planes.height_px; ++y) {
    FindTokens(colors, y, &of_row);
    const uint32_t lane = y % schedule.lanes;
    const uint32_t first_step = y / schedule.lanes * schedule.period + 2 * lane;
    for (uint32_t x = 0; x < planes.width_px; ++x) {
      const size_t place = size_t{first_step + x} * tokens.lanes + lane;
      tokens.level[place] = static_cast<uint8_t>(of_row.context[x]);
      if (of_row.token[x] == 0) continue;
      tokens.folded[place] = of_row.token[x];
      is_needed[(first_step + x) / kMatchBlockSteps] = true;
      if (of_row.token[x] < kMatchNeighbors) continue;
      tile.escapes.push_back(static_cast<uint32_t>(place));
      tile.escaped.push_back(colors.at[y][x]);
    }
    if (tile.escapes.size() > most) return {};
  }
  tile.skips.resize(MatchSkipBytes(schedule.steps));
  tile.counts.resize(kMatchContexts * kMatchNeighbors);
  for (uint32_t step = 0; step < schedule.steps; step += kMatchBlockSteps) {
    const size_t begin = size_t{step} * tokens.lanes;
    const size_t end = size_t{std::min(step + kMatchBlockSteps, schedule.steps)} * tokens.lanes;
    const uint32_t block = step / kMatchBlockSteps;
    if (is_needed[block]) {
      CountTokens(tokens, begin, end, tile.counts.data());
    } else {
      tile.skips[block / 8] |= static_cast<uint8_t>(1u << block % 8);
      std::fill(tokens.level.begin() + static_cast<ptrdiff_t>(begin),
                tokens.level.begin() + static_cast<ptrdiff_t>(end),
                static_cast<uint8_t>(kIdleLevel));
    }
  }
  tile.base = colors.base;
  tile.colors = work->keys.keys();
  return tile;
}

}  // namespace

// The numbers of an image's colours, in the order of the ids.
struct MatchImage::Numbers {
  static constexpr uint32_t kNone = ~0u;
  std::vector<uint32_t> of_id;
  std::vector<uint32_t> tiles_of_id;  // chosen ones that have the colour
  std::vector<uint8_t> chunk;  // the count and the gaps
};

uint32_t MatchImage::Probe(const ImageInfo& info, uint32_t effort, unsigned threads,
                           const TileLoader& loader) {
  if (info.channels * info.used_bits > kMaxMatchColorBits) return 0;
  const uint32_t tiles = info.tile_count();
  const uint32_t usual = effort == 1 ? kFewMatchesQuickly : kFewMatches;
  if (tiles == 1) return usual;  // the class does the same, and keeps it
  const uint32_t probes = std::min(tiles, 4 + tiles / 16);
  std::atomic<uint32_t> likely = 0;
  std::atomic<uint32_t> drawn = 0;
  ParallelForWithState(
      probes, threads, NewWorkspace, [&](const std::unique_ptr<Workspace>& work, uint64_t i) {
        if (effort > 1 && likely > 0) return;
        const TilePlanes& planes = work->planes;
        loader.Load(static_cast<uint32_t>((2 * i + 1) * tiles / (2 * probes)), &work->planes);
        if (effort > 1) {
          if (MakeTile(usual, work.get()).tokens.lanes != 0) ++likely;
          return;
        }
        const uint32_t pixels = planes.width_px * planes.height_px;
        const uint32_t others = CountOthers(planes, pixels / usual);
        if (others > pixels / usual || IsConstant(planes)) return;
        ++likely;
        if (others <= pixels / kFewMatchesOfPhotographs) ++drawn;
      });
  if (likely == 0) return 0;
  const bool is_photograph = effort == 1 && likely < probes && 2 * drawn < likely;
  return is_photograph ? kFewMatchesOfPhotographs : usual;
}

MatchImage::MatchImage(const ImageInfo& info, uint32_t few_matches, unsigned threads,
                       const TileLoader& loader)
    : info_(info), tiles_(info.tile_count()), ids_(tiles_.size()), chosen_(tiles_.size()) {
  ParallelForWithState(tiles_.size(), threads, NewWorkspace,
                       [&](const std::unique_ptr<Workspace>& work, uint64_t i) {
                         loader.Load(static_cast<uint32_t>(i), &work->planes);
                         tiles_[i] = MakeTile(few_matches, work.get());
                       });
  KeyTable ids;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    CheckInterrupt();
    const MatchTile& tile = tiles_[i];
    chosen_[i] = tile.tokens.lanes != 0;
    if (!chosen_[i]) continue;
    for (const uint64_t key : tile.colors) ids_[i].push_back(ids.Find(key));
  }
  keys_ = ids.keys();
}

MatchImage::Numbers MatchImage::NumberColors(bool by_value) const {
  Numbers numbers;
  numbers.of_id.assign(keys_.size(), Numbers::kNone);
  numbers.tiles_of_id.assign(keys_.size(), 0);
  std::vector<uint64_t> times(keys_.size());
  for (size_t i = 0; i < tiles_.size(); ++i) {
    CheckInterrupt();
    if (!chosen_[i]) continue;
    for (const uint32_t id : ids_[i]) ++numbers.tiles_of_id[id];
    for (const uint16_t place : tiles_[i].escaped) ++times[ids_[i][place]];
  }
  if (by_value) {
    for (size_t id = 0; id < keys_.size(); ++id) {
      numbers.of_id[id] = static_cast<uint32_t>(keys_[id]);
    }
    numbers.chunk = {0, 0};
    return numbers;
  }
  std::vector<uint32_t> order;
  for (uint32_t id = 0; id < keys_.size(); ++id) {
    if (numbers.tiles_of_id[id] != 0) order.push_back(id);
  }
  const auto by_key = [&](uint32_t a, uint32_t b) { return keys_[a] < keys_[b]; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return times[a] != times[b] ? times[a] > times[b] : by_key(a, b);
  });
  numbers.chunk = {static_cast<uint8_t>(order.size()), static_cast<uint8_t>(order.size() >> 8)};
  for (size_t begin = 0; begin < order.size();) {
    const size_t end = std::min(order.size(), std::max(begin * 2, size_t{kMinMatchColorBlock}));
    std::sort(order.begin() + static_cast<ptrdiff_t>(begin),
              order.begin() + static_cast<ptrdiff_t>(end), by_key);
    uint64_t next = 0;
    for (size_t i = begin; i < end; ++i) {
      AppendBase128(keys_[order[i]] - next, &numbers.chunk);
      next = keys_[order[i]] + 1;
      numbers.of_id[order[i]] = static_cast<uint32_t>(i);
    }
    begin = end;
  }
  return numbers;
}

void MatchImage::Count(const Numbers& numbers, RansCounts* counts) const {
  *counts = RansCounts{};
  for (size_t i = 0; i < tiles_.size(); ++i) {
    CheckInterrupt();
    if (!chosen_[i]) continue;
    const RansTokens& tokens = tiles_[i].tokens;
    for (uint32_t context = 0; context < kMatchContexts; ++context) {
      for (uint32_t k = 0; k < kMatchNeighbors; ++k) {
        counts->at[0][context][k] += tiles_[i].counts[context * kMatchNeighbors + k];
      }
    }
    for (size_t k = 0; k < tiles_[i].escapes.size(); ++k) {
      const uint32_t number = numbers.of_id[ids_[i][tiles_[i].escaped[k]]];
      const uint32_t token = RansTokenOf(kMatchNeighbors + number);
      ++counts->at[0][tokens.level[tiles_[i].escapes[k]]][token];
    }
  }
}

// What a token of each context costs, by the statistics of all tiles.
std::vector<uint32_t> CostsOf(const RansCounts& counts) {
  std::vector<uint32_t> costs;
  for (uint32_t context = 0; context < kMatchContexts; ++context) {
    const uint32_t* at = counts.at[0][context];
    const uint32_t log_total = FixedLog2(std::max(1u, std::accumulate(at, at + kRansTokens, 0u)));
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      costs.push_back(log_total - std::min(log_total, FixedLog2(std::max(1u, at[token]))));
    }
  }
  return costs;
}

// What a chosen tile takes, and its share of its colours.
uint64_t MatchImage::SizeOf(uint32_t i, const Numbers& numbers,
                            const std::vector<uint32_t>& costs) const {
  const MatchTile& tile = tiles_[i];
  const RansTokens& tokens = tile.tokens;
  const auto cost_of = [&](uint32_t context, uint32_t token) {
    return uint64_t{costs[context * kRansTokens + token]};
  };
  uint64_t cost = 0;
  for (uint32_t context = 0; context < kMatchContexts; ++context) {
    for (uint32_t k = 0; k < kMatchNeighbors; ++k) {
      const uint64_t times = tile.counts[context * kMatchNeighbors + k];
      if (times != 0) cost += times * cost_of(context, k);
    }
  }
  for (size_t k = 0; k < tile.escapes.size(); ++k) {
    const uint32_t token = RansTokenOf(kMatchNeighbors + numbers.of_id[ids_[i][tile.escaped[k]]]);
    cost += cost_of(tokens.level[tile.escapes[k]], token);
    cost += uint64_t{GetRansToken(token).raw_bits} << kCostBits;
  }
  if (numbers.chunk.size() > 2) {
    for (const uint32_t id : ids_[i]) cost += kColorCost / std::max(1u, numbers.tiles_of_id[id]);
  }
  // Half of each state carries tokens.
  return (cost >> (kCostBits + 3)) + kMatchSkipsOffset + tile.skips.size() + 2 * tokens.lanes;
}

// Drops the tiles with most colours until the rest can be numbered.
void MatchImage::DropColors() {
  std::vector<uint32_t> tiles_of_id(keys_.size());
  size_t colors = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    CheckInterrupt();
    if (!chosen_[i]) continue;
    for (const uint32_t id : ids_[i]) colors += tiles_of_id[id]++ == 0 ? 1 : 0;
  }
  if (colors <= kMaxMatchColors) return;
  std::vector<uint32_t> order(tiles_.size());  // those not chosen have no colours
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return ids_[a].size() > ids_[b].size(); });
  for (auto worst = order.begin(); colors > kMaxMatchColors; ++worst) {
    chosen_[*worst] = false;
    for (const uint32_t id : ids_[*worst]) colors -= --tiles_of_id[id] == 0 ? 1 : 0;
  }
}

std::vector<bool> MatchImage::Unlikely() const {
  std::vector<bool> unlikely(tiles_.size());
  for (size_t i = 0; i < tiles_.size(); ++i) unlikely[i] = tiles_[i].tokens.lanes == 0;
  return unlikely;
}

uint64_t MatchImage::Choose(const std::vector<uint32_t>& other_bytes, uint64_t least_saved,
                            bool is_tiny) {
  DropColors();
  const auto counts = std::make_unique<RansCounts>();
  uint64_t saved = 0;
  for (uint32_t round = 0; round < kChoices; ++round) {
    const Numbers numbers = NumberColors(false);
    Count(numbers, counts.get());
    const std::vector<uint32_t> costs = CostsOf(*counts);
    std::vector<bool> next = chosen_;
    saved = 0;
    for (uint32_t i = 0; i < tiles_.size(); ++i) {
      CheckInterrupt();
      if (!chosen_[i]) continue;
      const uint64_t bytes = SizeOf(i, numbers, costs);
      next[i] = bytes < other_bytes[i];
      if (next[i]) saved += other_bytes[i] - bytes;
    }
    if (next == chosen_) break;
    chosen_ = next;
  }
  if (std::none_of(chosen_.begin(), chosen_.end(), [](bool is) { return is; })) return 0;

  Numbers numbers = NumberColors(false);
  // What `saved` has of the chunk already.
  const uint64_t color_bytes =
      (numbers.chunk.size() > 2 ? 1 : 0) * (kColorCost >> (kCostBits + 3)) *
      static_cast<uint64_t>(std::count_if(numbers.tiles_of_id.begin(), numbers.tiles_of_id.end(),
                                          [](uint32_t tiles) { return tiles != 0; }));
  if (is_tiny && saved + color_bytes < kLeastModelBytes + numbers.chunk.size()) return 0;
  if (saved < least_saved) return 0;
  Count(numbers, counts.get());
  const auto cost_of = [&](const RansCounts& of, const Numbers& by) {
    uint64_t raw_bits = 0;
    for (const auto& context : of.at[0]) {
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        raw_bits += uint64_t{context[t]} * GetRansToken(t).raw_bits;
      }
    }
    return EntropyOfLevels(of, 1) + ((raw_bits + 8 * by.chunk.size()) << kCostBits);
  };
  const bool may_be_values =
      info_.channels == 1 &&
      std::all_of(keys_.begin(), keys_.end(), [](uint64_t key) { return key < kMaxMatchColors; });
  if (may_be_values) {
    const auto other = std::make_unique<RansCounts>();
    const Numbers values = NumberColors(true);
    Count(values, other.get());
    if (cost_of(*other, values) <= cost_of(*counts, numbers)) {
      *counts = *other;
      numbers = values;
    }
  }
  const RansSettings settings{5, 0, {}};
  const RansModel model = BuildRansModel(*counts, 1, settings, 0, kMaxMatchTables,
                                         is_tiny ? kTinyReach : kMatchContexts);
  chunk_ = SerializeMatchModel(model);
  chunk_.insert(chunk_.end(), numbers.chunk.begin(), numbers.chunk.end());
  if (is_tiny && saved + color_bytes < chunk_.size()) {
    chunk_.clear();
    return 0;
  }
  symbols_.emplace_back(model);
  number_.assign(numbers.of_id.begin(), numbers.of_id.end());
  return saved;
}

void MatchImage::AppendPayload(uint32_t i, std::vector<uint8_t>* out) const {
  const MatchTile& tile = tiles_[i];
  RansTokens tokens = tile.tokens;
  for (size_t k = 0; k < tile.escapes.size(); ++k) {
    tokens.folded[tile.escapes[k]] =
        static_cast<uint16_t>(kMatchNeighbors + number_[ids_[i][tile.escaped[k]]]);
  }
  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, static_cast<uint8_t>(TileCoding::kMatch)};
  out->insert(out->end(), header, header + kTileHeaderBytes);
  const uint16_t base = number_[ids_[i][tile.base]];
  out->push_back(static_cast<uint8_t>(base));
  out->push_back(static_cast<uint8_t>(base >> 8));
  out->insert(out->end(), tile.skips.begin(), tile.skips.end());
  AppendRansTokens(tokens, symbols_[0], /*long_raw=*/true, out);
}

}  // namespace l3
