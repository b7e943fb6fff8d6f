#include "encoder/match_image.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "core/match.h"
#include "cpu/parallel.h"
#include "encoder/fixed_log.h"
#include "encoder/rans_statistics.h"

namespace l3 {
namespace {

// Tables of match tiles. Rans tiles leave them as many.
constexpr uint32_t kMaxMatchTables = 16;
// Tiles where fewer pixels are like a neighbour are out of the question: one in so many.
constexpr uint32_t kFewMatches = 2;
constexpr uint32_t kChoices = 3;  // rounds in which tiles are chosen by the numbers of the last
// What a colour takes in the chunk, about.
constexpr uint64_t kColorCost = uint64_t{16} << kCostBits;

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

// The place of each key in the order in which they first came.
class KeyTable {
 public:
  explicit KeyTable(std::vector<uint64_t>* keys) : keys_(keys), slots_(kSlots, kFree) {}

  uint16_t Find(uint64_t key) {
    uint32_t slot = static_cast<uint32_t>(key * 0x9E3779B97F4A7C15u >> 47) % kSlots;
    while (slots_[slot] != kFree) {
      if ((*keys_)[slots_[slot]] == key) return static_cast<uint16_t>(slots_[slot]);
      slot = (slot + 1) % kSlots;
    }
    slots_[slot] = static_cast<uint32_t>(keys_->size());
    keys_->push_back(key);
    return static_cast<uint16_t>(slots_[slot]);
  }

 private:
  // More than a tile has pixels.
  static constexpr uint32_t kSlots = 1u << 17;
  static constexpr uint32_t kFree = ~0u;
  std::vector<uint64_t>* keys_;
  std::vector<uint32_t> slots_;
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
  const int32_t neighbor[kMatchNeighbors] = {at.w, at.n, at.ne, at.nw};
  uint16_t k = 0;
  while (k < kMatchNeighbors && neighbor[k] != color) ++k;
  return k;
}

// Whether more than `most` pixels are surely like no neighbour. Compares samples, so that
// photographs cost little; pixels at the edges count as alike.
bool HasFewMatches(const TilePlanes& planes, uint32_t most) {
  uint32_t others = 0;
  for (uint32_t y = 1; y < planes.height_px && others <= most; ++y) {
    uint16_t differs[kMatchNeighbors][kMaxPackedTileSide] = {};
    for (uint32_t c = 0; c < planes.channels; ++c) {
      const uint16_t* row = planes.plane[c] + y * kMaxPackedTileSide;
      const uint16_t* above = row - kMaxPackedTileSide;
      for (uint32_t x = 1; x + 1 < planes.width_px; ++x) {
        differs[0][x] |= row[x] ^ row[x - 1];
        differs[1][x] |= row[x] ^ above[x];
        differs[2][x] |= row[x] ^ above[x + 1];
        differs[3][x] |= row[x] ^ above[x - 1];
      }
    }
    for (uint32_t x = 1; x + 1 < planes.width_px; ++x) {
      others +=
          (differs[0][x] != 0) & (differs[1][x] != 0) & (differs[2][x] != 0) & (differs[3][x] != 0);
    }
  }
  return others > most;
}

// Leaves a tile without tokens that is out of the question. Constant tiles are, too.
MatchTile MakeTile(const TilePlanes& planes) {
  MatchTile tile;
  const uint32_t most = planes.width_px * planes.height_px / kFewMatches;
  if (IsConstant(planes) || HasFewMatches(planes, most)) return tile;
  const std::unique_ptr<Plane> plane(new Plane);
  plane->width = static_cast<int32_t>(planes.width_px);
  KeyTable table(&tile.colors);
  for (uint32_t y = 0; y < planes.height_px; ++y) {
    uint64_t before = 0;
    uint16_t place = 0;
    for (uint32_t x = 0; x < planes.width_px; ++x) {
      const uint64_t key = KeyOf(planes, x, y);
      if (x == 0 || key != before) place = table.Find(key);
      before = key;
      plane->at[y][x] = place;
    }
  }
  tile.base = plane->base = plane->at[0][0];

  const RansSchedule schedule = GetRansSchedule(planes.width_px, planes.height_px);
  RansTokens tokens;
  tokens.channels = 1;
  tokens.lanes = std::min(schedule.lanes, planes.height_px);
  const size_t places = size_t{schedule.steps} * tokens.lanes;
  tokens.folded.resize(places);
  tokens.level.resize(places, static_cast<uint8_t>(kIdleLevel));
  for (uint32_t y = 0; y < planes.height_px; ++y) {
    const uint32_t lane = y % schedule.lanes;
    for (uint32_t x = 0; x < planes.width_px; ++x) {
      const uint32_t step = y / schedule.lanes * schedule.period + 2 * lane + x;
      const size_t place = size_t{step} * tokens.lanes + lane;
      const RansNeighbors around =
          plane->NeighborsOf(static_cast<int32_t>(x), static_cast<int32_t>(y));
      tokens.level[place] = static_cast<uint8_t>(MatchContext(around));
      tokens.folded[place] = MatchOf(around, plane->at[y][x]);
      if (tokens.folded[place] < kMatchNeighbors) continue;
      tile.escapes.push_back(static_cast<uint32_t>(place));
      tile.escaped.push_back(plane->at[y][x]);
    }
    if (tile.escapes.size() > most) return MatchTile{};
  }
  tile.skips.resize(MatchSkipBytes(schedule.steps));
  for (uint32_t step = 0; step < schedule.steps; step += kMatchBlockSteps) {
    const auto begin = static_cast<ptrdiff_t>(size_t{step} * tokens.lanes);
    const uint32_t end_step = std::min(step + kMatchBlockSteps, schedule.steps);
    const auto end = static_cast<ptrdiff_t>(size_t{end_step} * tokens.lanes);
    // Idle lanes have 0, too.
    if (!std::all_of(tokens.folded.begin() + begin, tokens.folded.begin() + end,
                     [](uint16_t folded) { return folded == 0; })) {
      continue;
    }
    const uint32_t block = step / kMatchBlockSteps;
    tile.skips[block / 8] |= static_cast<uint8_t>(1u << block % 8);
    std::fill(tokens.level.begin() + begin, tokens.level.begin() + end,
              static_cast<uint8_t>(kIdleLevel));
  }
  tile.tokens = std::move(tokens);
  return tile;
}

}  // namespace

// The numbers of an image's colours, in the order of the ids.
struct MatchImage::Numbers {
  static constexpr uint32_t kNone = ~0u;
  std::vector<uint32_t> of_id;
  std::vector<uint32_t> tiles_of_id;  // chosen ones that have the colour
  std::vector<uint8_t> chunk;         // the count and the gaps
};

bool MatchImage::IsLikely(const ImageInfo& info, unsigned threads, const LoadTile& load) {
  if (info.channels * info.used_bits > kMaxMatchColorBits) return false;
  const uint32_t tiles = info.tile_count();
  const uint32_t probes = std::min(tiles, 4 + tiles / 16);
  std::vector<uint8_t> likely(probes);
  ParallelForWithState(
      probes, threads, [] { return std::unique_ptr<TilePlanes>(new TilePlanes); },
      [&](const std::unique_ptr<TilePlanes>& planes, uint64_t i) {
        load(static_cast<uint32_t>((2 * i + 1) * tiles / (2 * probes)), planes.get());
        likely[i] = MakeTile(*planes).tokens.lanes != 0;
      });
  return std::any_of(likely.begin(), likely.end(), [](uint8_t is) { return is != 0; });
}

MatchImage::MatchImage(const ImageInfo& info, unsigned threads, const LoadTile& load)
    : info_(info), tiles_(info.tile_count()), ids_(tiles_.size()), chosen_(tiles_.size()) {
  ParallelForWithState(
      tiles_.size(), threads, [] { return std::unique_ptr<TilePlanes>(new TilePlanes); },
      [&](const std::unique_ptr<TilePlanes>& planes, uint64_t i) {
        load(static_cast<uint32_t>(i), planes.get());
        tiles_[i] = MakeTile(*planes);
      });
  std::unordered_map<uint64_t, uint32_t> id_of;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const MatchTile& tile = tiles_[i];
    chosen_[i] = tile.tokens.lanes != 0;
    if (!chosen_[i]) continue;
    for (const uint64_t key : tile.colors) {
      const auto [at, is_new] = id_of.emplace(key, static_cast<uint32_t>(keys_.size()));
      if (is_new) keys_.push_back(key);
      ids_[i].push_back(at->second);
    }
  }
}

MatchImage::Numbers MatchImage::NumberColors(bool by_value) const {
  Numbers numbers;
  numbers.of_id.assign(keys_.size(), Numbers::kNone);
  numbers.tiles_of_id.assign(keys_.size(), 0);
  std::vector<uint64_t> times(keys_.size());
  for (size_t i = 0; i < tiles_.size(); ++i) {
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
    if (!chosen_[i]) continue;
    const RansTokens& tokens = tiles_[i].tokens;
    uint32_t of_tile[kIdleLevel + 1][kMatchNeighbors + 1] = {};
    for (size_t k = 0; k < tokens.folded.size(); ++k) ++of_tile[tokens.level[k]][tokens.folded[k]];
    for (uint32_t context = 0; context < kMatchContexts; ++context) {
      for (uint32_t k = 0; k < kMatchNeighbors; ++k) {
        counts->at[0][context][k] += of_tile[context][k];
      }
    }
    for (size_t k = 0; k < tiles_[i].escapes.size(); ++k) {
      const uint32_t number = numbers.of_id[ids_[i][tiles_[i].escaped[k]]];
      const uint32_t token = RansTokenOf(kMatchNeighbors + number);
      ++counts->at[0][tokens.level[tiles_[i].escapes[k]]][token];
    }
  }
}

// What a chosen tile takes, and its share of its colours, by the statistics of all.
uint64_t MatchImage::SizeOf(uint32_t i, const Numbers& numbers, const RansCounts& counts) const {
  const MatchTile& tile = tiles_[i];
  const RansTokens& tokens = tile.tokens;
  std::vector<uint32_t> log_total(kMatchContexts);
  for (uint32_t context = 0; context < kMatchContexts; ++context) {
    const uint32_t* at = counts.at[0][context];
    log_total[context] = FixedLog2(std::max(1u, std::accumulate(at, at + kRansTokens, 0u)));
  }
  const auto cost_of = [&](uint32_t context, uint32_t token) -> uint64_t {
    return log_total[context] -
           std::min(log_total[context], FixedLog2(std::max(1u, counts.at[0][context][token])));
  };
  uint64_t cost_of_match[kIdleLevel + 1][kMatchNeighbors + 1] = {};
  for (uint32_t context = 0; context < kMatchContexts; ++context) {
    for (uint32_t k = 0; k < kMatchNeighbors; ++k) cost_of_match[context][k] = cost_of(context, k);
  }
  uint64_t cost = 0;
  for (size_t k = 0; k < tokens.folded.size(); ++k) {
    cost += cost_of_match[tokens.level[k]][tokens.folded[k]];
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
    if (!chosen_[i]) continue;
    for (const uint32_t id : ids_[i]) colors += tiles_of_id[id]++ == 0 ? 1 : 0;
  }
  while (colors > kMaxMatchColors) {
    size_t worst = tiles_.size();
    for (size_t i = 0; i < tiles_.size(); ++i) {
      if (chosen_[i] && (worst == tiles_.size() || ids_[i].size() > ids_[worst].size())) worst = i;
    }
    chosen_[worst] = false;
    for (const uint32_t id : ids_[worst]) colors -= --tiles_of_id[id] == 0 ? 1 : 0;
  }
}

bool MatchImage::Choose(const std::vector<uint32_t>& other_bytes) {
  DropColors();
  const auto counts = std::make_unique<RansCounts>();
  for (uint32_t round = 0; round < kChoices; ++round) {
    const Numbers numbers = NumberColors(false);
    Count(numbers, counts.get());
    std::vector<bool> next = chosen_;
    for (uint32_t i = 0; i < tiles_.size(); ++i) {
      if (chosen_[i]) next[i] = SizeOf(i, numbers, *counts) < other_bytes[i];
    }
    if (next == chosen_) break;
    chosen_ = next;
  }
  if (std::none_of(chosen_.begin(), chosen_.end(), [](bool is) { return is; })) return false;

  Numbers numbers = NumberColors(false);
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
  const RansModel model = BuildRansModel(*counts, 1, settings, 0, kMaxMatchTables, kMatchContexts);
  chunk_ = SerializeMatchModel(model);
  chunk_.insert(chunk_.end(), numbers.chunk.begin(), numbers.chunk.end());
  symbols_.emplace_back(model);
  number_.assign(numbers.of_id.begin(), numbers.of_id.end());
  return true;
}

void MatchImage::AppendPayload(uint32_t i, std::vector<uint8_t>* out) const {
  if (!chosen_[i]) return;
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
