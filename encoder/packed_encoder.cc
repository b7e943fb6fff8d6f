// The search works on 32 groups of a row at once: position i of every group
// lies in one array of lanes, so that "the widest residual of a group" and the
// choice of widths are vertical operations that compilers vectorise.
#include "encoder/packed_encoder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/predictor.h"
#include "core/residual.h"

namespace l3 {
namespace {

constexpr uint32_t kSide = kMaxPackedTileSide;
constexpr uint32_t kLanes = kMaxGroupsPerRow;
constexpr uint32_t kMaxWidth = 16;
constexpr int16_t kUnreachable = 1 << 13;  // twice the largest sum of widths in a column

// One row, position-major: at[i + 1][g] is sample 8 * g + i, for i in [-1, 8].
template <typename Lane>
struct LaneRow {
  alignas(64) Lane at[kGroupSize + 2][kLanes];
};

// Folded residuals of one row, position-major.
struct FoldedRow {
  alignas(64) uint16_t at[kGroupSize][kLanes];
};

// What the search decides for one channel.
struct ChannelPlan {
  ChannelLayout layout;
  uint32_t start_width;
  uint32_t base;
  uint8_t predictor[kSide];
  uint64_t bits;  // of parts 2 to 4
};

}  // namespace

struct PackedWorkspace {
  ChannelPlan plan[kMaxChannels];
  FoldedRow folded[kMaxChannels][kSide];
  // Width of each group: needed, then as coded.
  alignas(64) uint8_t width[kMaxChannels][kSide][kLanes];
  // Delta search: code that leads from a width in row y-1 best through row y.
  alignas(64) uint8_t delta_code[kSide][kMaxWidth + 1][kLanes];
};

namespace {

// ---- Residuals -------------------------------------------------------------

// Spreads `width` samples to lanes; positions past the end repeat the last one.
template <typename Lane>
void SpreadRow(const uint16_t* samples, uint32_t width, uint32_t groups, LaneRow<Lane>* row) {
  const uint32_t whole = width / kGroupSize;
  for (uint32_t g = 0; g < whole; ++g) {
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      row->at[i + 1][g] = static_cast<Lane>(samples[kGroupSize * g + i]);
    }
  }
  const Lane last = static_cast<Lane>(samples[width - 1]);
  for (uint32_t g = whole; g < kLanes; ++g) {
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      const uint32_t x = kGroupSize * g + i;
      row->at[i + 1][g] = g < groups && x < width ? static_cast<Lane>(samples[x]) : last;
    }
  }
  for (uint32_t g = 0; g + 1 < kLanes; ++g) {
    row->at[0][g + 1] = row->at[kGroupSize][g];
    row->at[kGroupSize + 1][g] = row->at[1][g + 1];
  }
  row->at[kGroupSize + 1][kLanes - 1] = last;
  row->at[0][0] = row->at[1][0];
}

// Folded residuals of a whole row under predictor kPredictor, and the OR of each group's.
template <typename Lane, uint32_t kPredictor>
void PredictLanes(const LaneRow<Lane>& above, const LaneRow<Lane>& current, uint32_t used_bits,
                  FoldedRow* folded, uint16_t* group_or) {
  using Unsigned = std::make_unsigned_t<Lane>;
  constexpr int kLaneBits = 8 * sizeof(Lane);
  const int drop = kLaneBits - static_cast<int>(used_bits);
  const PredictorTaps taps = GetPredictorTaps(kPredictor);
  for (uint32_t g = 0; g < kLanes; ++g) group_or[g] = 0;
  for (uint32_t i = 1; i <= kGroupSize; ++i) {
    for (uint32_t g = 0; g < kLanes; ++g) {
      const Lane from_above = static_cast<Lane>(
          static_cast<Lane>(taps.nw * above.at[i - 1][g] + taps.n * above.at[i][g] +
                            taps.ne * above.at[i + 1][g] + taps.round) >>
          taps.shift);
      const Lane west = taps.adds_west ? current.at[i - 1][g] : Lane{0};
      const Lane difference = static_cast<Lane>(current.at[i][g] - from_above - west);
      // FoldResidual in the top bits of a lane.
      const Lane wrapped = static_cast<Lane>(static_cast<Unsigned>(difference) << drop);
      const Lane sign = static_cast<Lane>(wrapped >> (kLaneBits - 1));
      const uint16_t z = static_cast<uint16_t>(
          static_cast<Unsigned>(static_cast<Unsigned>(static_cast<Unsigned>(wrapped) << 1) ^
                                static_cast<Unsigned>(sign)) >> drop);
      folded->at[i - 1][g] = z;
      group_or[g] = static_cast<uint16_t>(group_or[g] | z);
    }
  }
}

template <typename Lane>
using PredictFunction = void (*)(const LaneRow<Lane>&, const LaneRow<Lane>&, uint32_t, FoldedRow*,
                                 uint16_t*);

// Positions past the end of the row need no bits.
void ClearPadding(uint32_t width, FoldedRow* folded, uint16_t* group_or) {
  const uint32_t groups = (width + kGroupSize - 1) / kGroupSize;
  for (uint32_t g = groups; g < kLanes; ++g) group_or[g] = 0;
  const uint32_t used = width % kGroupSize;
  if (used == 0) return;
  uint16_t bits = 0;
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    if (i >= used) folded->at[i][groups - 1] = 0;
    bits = static_cast<uint16_t>(bits | folded->at[i][groups - 1]);
  }
  group_or[groups - 1] = bits;
}

// Bit lengths of the ORs; returns their sum.
uint32_t GroupWidths(const uint16_t* group_or, uint32_t used_bits, uint8_t* widths) {
  uint16_t width[kLanes] = {};
  for (uint32_t bit = 0; bit < used_bits; ++bit) {
    const uint16_t below = static_cast<uint16_t>((1u << bit) - 1);
    for (uint32_t g = 0; g < kLanes; ++g) {
      width[g] = static_cast<uint16_t>(width[g] + (group_or[g] > below ? 1 : 0));
    }
  }
  uint32_t sum = 0;
  for (uint32_t g = 0; g < kLanes; ++g) {
    widths[g] = static_cast<uint8_t>(width[g]);
    sum += width[g];
  }
  return sum;
}

// Picks each row's predictor by the sum of its widths (the lowest number wins a tie).
template <typename Lane>
void ChoosePredictors(const TilePlanes& tile, const uint16_t* plane, uint32_t base,
                      uint8_t* predictor, FoldedRow* folded, uint8_t (*widths)[kLanes]) {
  static constexpr PredictFunction<Lane> kPredict[kNumPredictors] = {
      PredictLanes<Lane, 0>, PredictLanes<Lane, 1>, PredictLanes<Lane, 2>, PredictLanes<Lane, 3>,
      PredictLanes<Lane, 4>, PredictLanes<Lane, 5>, PredictLanes<Lane, 6>, PredictLanes<Lane, 7>};
  const uint32_t groups = (tile.width_px + kGroupSize - 1) / kGroupSize;
  LaneRow<Lane> rows[2];
  for (auto& lanes : rows[1].at) std::fill_n(lanes, kLanes, static_cast<Lane>(base));
  for (uint32_t y = 0; y < tile.height_px; ++y) {
    LaneRow<Lane>& current = rows[y & 1];
    const LaneRow<Lane>& above = rows[(y & 1) ^ 1];
    SpreadRow(plane + y * kSide, tile.width_px, groups, &current);
    current.at[0][0] = above.at[1][0];  // W of the first column
    uint32_t best_sum = ~0u;
    FoldedRow trial;
    for (uint32_t p = 0; p < kNumPredictors; ++p) {
      uint16_t group_or[kLanes];
      uint8_t trial_widths[kLanes];
      kPredict[p](above, current, tile.used_bits, &trial, group_or);
      ClearPadding(tile.width_px, &trial, group_or);
      const uint32_t sum = GroupWidths(group_or, tile.used_bits, trial_widths);
      if (sum < best_sum) {
        best_sum = sum;
        predictor[y] = static_cast<uint8_t>(p);
        folded[y] = trial;
        std::memcpy(widths[y], trial_widths, kLanes);
      }
      if (sum == 0) break;
    }
    current.at[0][0] = current.at[1][0];  // NW of the first column, for the next row
  }
}

// ---- Widths ----------------------------------------------------------------

uint32_t AbsoluteCode(uint32_t width) { return width < 15 ? width : 15; }
uint32_t AbsoluteWidth(uint32_t width, uint32_t used_bits) {
  return width < 15 ? width : std::min(16u, used_bits);
}

uint64_t AbsoluteBits(const uint8_t (*widths)[kLanes], uint32_t rows, uint32_t groups,
                      uint32_t used_bits) {
  uint64_t sum = 0;
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t g = 0; g < groups; ++g) sum += AbsoluteWidth(widths[y][g], used_bits);
  }
  return 8 * (sum + uint64_t{rows} * ((groups + 1) / 2));
}

// The cheapest widths that satisfy `need` with steps of -1, 0, +1 or +2 down each
// column of groups: dynamic programming from the last row up. cost[w] is the
// cheapest sum of widths of rows y.. when the width in row y is w.
uint64_t DeltaSearch(const uint8_t (*need)[kLanes], uint32_t rows, uint32_t groups,
                     uint32_t used_bits, uint8_t (*codes)[kMaxWidth + 1][kLanes],
                     uint32_t* start_width) {
  alignas(64) int16_t cost[kMaxWidth + 4][kLanes];  // [w + 1], unreachable around
  alignas(64) int16_t below[kMaxWidth + 4][kLanes];
  for (auto& lanes : cost) std::fill_n(lanes, kLanes, kUnreachable);
  for (auto& lanes : below) std::fill_n(lanes, kLanes, int16_t{0});
  int16_t from_start[kMaxWidth + 1][kLanes];
  for (uint32_t y = rows; y-- > 0;) {
    // cost[w + 1] of entering row y with width w.
    for (uint32_t w = 0; w <= used_bits; ++w) {
      const int16_t width = static_cast<int16_t>(w);
      for (uint32_t g = 0; g < kLanes; ++g) {
        const int16_t entered = static_cast<int16_t>(below[w + 1][g] + width);
        cost[w + 1][g] = need[y][g] <= width ? entered : kUnreachable;
      }
    }
    // Best code out of each width above.
    for (uint32_t w = 0; w <= used_bits; ++w) {
      for (uint32_t g = 0; g < kLanes; ++g) {
        int16_t best = cost[w + 1][g];
        uint8_t code = 1;
        const int16_t lower = cost[w][g];
        code = lower < best ? uint8_t{0} : code;
        best = std::min(lower, best);
        const int16_t higher = cost[w + 2][g];
        code = higher < best ? uint8_t{2} : code;
        best = std::min(higher, best);
        const int16_t highest = cost[w + 3][g];
        code = highest < best ? uint8_t{3} : code;
        best = std::min(highest, best);
        codes[y][w][g] = code;
        from_start[w][g] = best;
      }
    }
    for (uint32_t w = 0; w <= used_bits; ++w) {
      std::memcpy(below[w + 1], from_start[w], sizeof(from_start[w]));
    }
  }
  uint64_t best_sum = ~uint64_t{0};
  for (uint32_t w = 0; w <= used_bits; ++w) {
    uint64_t sum = 0;
    bool reachable = true;
    for (uint32_t g = 0; g < groups; ++g) {
      sum += static_cast<uint64_t>(from_start[w][g]);
      reachable = reachable && from_start[w][g] < kUnreachable;
    }
    if (reachable && sum < best_sum) {
      best_sum = sum;
      *start_width = w;
    }
  }
  return 8 * (best_sum + uint64_t{rows} * ((groups + 3) / 4));
}

uint32_t GroupMask(const FoldedRow& row, uint32_t g) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kGroupSize; ++i) mask |= (row.at[i][g] != 0 ? 1u : 0u) << i;
  return mask;
}

// Stops counting once `limit` is passed.
uint64_t SparseBits(const FoldedRow* folded, const uint8_t (*widths)[kLanes], uint32_t rows,
                    uint32_t groups, uint64_t limit) {
  uint64_t bytes = (rows + 7) / 8;
  for (uint32_t y = 0; y < rows && 8 * bytes < limit; ++y) {
    uint32_t coded = 0;
    uint32_t bits = 0;
    for (uint32_t g = 0; g < groups; ++g) {
      if (widths[y][g] == 0) continue;
      ++coded;
      bits += widths[y][g] *
              static_cast<uint32_t>(__builtin_popcount(GroupMask(folded[y], g)));
    }
    if (coded != 0) bytes += (groups + 7) / 8 + (coded + 1) / 2 + coded + (bits + 7) / 8;
  }
  return 8 * bytes;
}

// ---- A channel -------------------------------------------------------------

bool IsConstant(const TilePlanes& tile, const uint16_t* plane) {
  const uint16_t first = plane[0];
  for (uint32_t y = 0; y < tile.height_px; ++y) {
    const uint16_t* row = plane + y * kSide;
    uint32_t differs = 0;
    for (uint32_t x = 0; x < tile.width_px; ++x) differs |= static_cast<uint32_t>(row[x] ^ first);
    if (differs != 0) return false;
  }
  return true;
}

void PlanChannel(const TilePlanes& tile, uint32_t c, PackedWorkspace* work) {
  const uint16_t* plane = tile.plane[c];
  ChannelPlan& plan = work->plan[c];
  plan.base = plane[0];
  plan.start_width = 0;
  if (IsConstant(tile, plane)) {
    plan.layout = ChannelLayout::kConstant;
    plan.bits = 0;
    return;
  }
  // 16-bit lanes hold every prediction of values up to 13 bits.
  if (tile.used_bits <= 13) {
    ChoosePredictors<int16_t>(tile, plane, plan.base, plan.predictor, work->folded[c],
                              work->width[c]);
  } else {
    ChoosePredictors<int32_t>(tile, plane, plan.base, plan.predictor, work->folded[c],
                              work->width[c]);
  }
  const uint32_t rows = tile.height_px;
  const uint32_t groups = (tile.width_px + kGroupSize - 1) / kGroupSize;
  uint8_t(*widths)[kLanes] = work->width[c];

  plan.layout = ChannelLayout::kAbsolute;
  plan.bits = AbsoluteBits(widths, rows, groups, tile.used_bits);
  uint32_t start_width = 0;
  const uint64_t delta_bits =
      DeltaSearch(widths, rows, groups, tile.used_bits, work->delta_code, &start_width);
  if (delta_bits < plan.bits) {
    plan.layout = ChannelLayout::kDelta;
    plan.bits = delta_bits;
  }
  const uint64_t sparse_bits = SparseBits(work->folded[c], widths, rows, groups, plan.bits);
  if (sparse_bits < plan.bits) {
    plan.layout = ChannelLayout::kSparse;
    plan.bits = sparse_bits;
  }

  if (plan.layout == ChannelLayout::kDelta) {
    plan.start_width = start_width;
    uint8_t width[kLanes];
    std::fill_n(width, kLanes, static_cast<uint8_t>(start_width));
    for (uint32_t y = 0; y < rows; ++y) {
      for (uint32_t g = 0; g < groups; ++g) {
        width[g] = static_cast<uint8_t>(width[g] + work->delta_code[y][width[g]][g] - 1);
        widths[y][g] = width[g];
      }
    }
  } else if (plan.layout == ChannelLayout::kAbsolute) {
    for (uint32_t y = 0; y < rows; ++y) {
      for (uint32_t g = 0; g < groups; ++g) {
        widths[y][g] = static_cast<uint8_t>(AbsoluteWidth(widths[y][g], tile.used_bits));
      }
    }
  }
  plan.bits += 8 * ((rows + 1) / 2);
}

// ---- The colour transform --------------------------------------------------

// Whether red and blue are cheaper as differences from green, judged by how
// much they change from row to row in every fourth line.
bool PrefersSubtractGreen(const TilePlanes& tile) {
  uint64_t plain = 0;
  uint64_t subtracted = 0;
  for (uint32_t y = 0; y < tile.height_px; y += 4) {
    const uint32_t previous = y == 0 ? 0 : y - 1;
    for (uint32_t c = 0; c < 3; c += 2) {
      const uint16_t* now = tile.plane[c] + y * kSide;
      const uint16_t* before = tile.plane[c] + previous * kSide;
      const uint16_t* green_now = tile.plane[1] + y * kSide;
      const uint16_t* green_before = tile.plane[1] + previous * kSide;
      for (uint32_t x = 1; x < tile.width_px; ++x) {
        // In the first line, from column to column.
        const int32_t change = now[x] - (y == 0 ? now[x - 1] : before[x]);
        const int32_t green = green_now[x] - (y == 0 ? green_now[x - 1] : green_before[x]);
        plain += FoldResidual(change, tile.used_bits);
        subtracted += FoldResidual(change - green, tile.used_bits);
      }
    }
  }
  return subtracted <= plain;
}

void ApplySubtractGreen(TilePlanes* tile) {
  const uint32_t half = 1u << (tile->used_bits - 1);
  const uint32_t mask = (1u << tile->used_bits) - 1;
  for (uint32_t c = 0; c < 3; c += 2) {
    for (uint32_t y = 0; y < tile->height_px; ++y) {
      uint16_t* row = tile->plane[c] + y * kSide;
      const uint16_t* green = tile->plane[1] + y * kSide;
      for (uint32_t x = 0; x < tile->width_px; ++x) {
        row[x] = static_cast<uint16_t>(SubtractGreen(row[x], green[x], half, mask));
      }
    }
  }
}

// ---- Writing ---------------------------------------------------------------

void WriteCodes2(const uint8_t* codes, uint32_t count, uint8_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    out[i >> 2] = static_cast<uint8_t>(out[i >> 2] | codes[i] << (2 * (i & 3)));
  }
}
void WriteCodes4(const uint8_t* codes, uint32_t count, uint8_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    out[i >> 1] = static_cast<uint8_t>(out[i >> 1] | codes[i] << (4 * (i & 1)));
  }
}

uint8_t* WriteWidths(const PackedWorkspace& work, uint32_t c, uint32_t rows, uint32_t groups,
                     uint8_t* out) {
  const ChannelPlan& plan = work.plan[c];
  uint8_t codes[kLanes];
  uint8_t above[kLanes];
  std::fill_n(above, kLanes, static_cast<uint8_t>(plan.start_width));
  switch (plan.layout) {
    case ChannelLayout::kConstant: break;
    case ChannelLayout::kAbsolute:
      for (uint32_t y = 0; y < rows; ++y) {
        for (uint32_t g = 0; g < groups; ++g) {
          codes[g] = static_cast<uint8_t>(AbsoluteCode(work.width[c][y][g]));
        }
        WriteCodes4(codes, groups, out);
        out += (groups + 1) / 2;
      }
      break;
    case ChannelLayout::kDelta:
      for (uint32_t y = 0; y < rows; ++y) {
        for (uint32_t g = 0; g < groups; ++g) {
          codes[g] = static_cast<uint8_t>(work.width[c][y][g] + 1 - above[g]);
          above[g] = work.width[c][y][g];
        }
        WriteCodes2(codes, groups, out);
        out += (groups + 3) / 4;
      }
      break;
    case ChannelLayout::kSparse:
      for (uint32_t y = 0; y < rows; ++y) {
        const uint8_t* widths = work.width[c][y];
        const bool coded = std::any_of(widths, widths + groups, [](uint8_t w) { return w != 0; });
        out[y >> 3] = static_cast<uint8_t>(out[y >> 3] | (coded ? 1u : 0u) << (y & 7));
      }
      out += (rows + 7) / 8;
      break;
  }
  return out;
}

uint8_t* WriteDenseRow(const FoldedRow& row, const uint8_t* widths, uint32_t groups,
                       uint8_t* out) {
  for (uint32_t g = 0; g < groups; ++g) {
    const uint32_t width = widths[g];
    // 8 fields of up to 16 bits: the low four and the high four fit a word each.
    uint64_t low = 0;
    uint64_t high = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      low |= uint64_t{row.at[i][g]} << (i * width);
      high |= uint64_t{row.at[i + 4][g]} << (i * width);
    }
    const uint32_t shift = 4 * width;
    uint64_t words[2] = {low, 0};
    if (shift == 64) {
      words[1] = high;
    } else {
      words[0] |= high << shift;
      words[1] = shift == 0 ? 0 : high >> (64 - shift);
    }
    uint8_t bytes[16];
    for (uint32_t i = 0; i < 16; ++i) {
      bytes[i] = static_cast<uint8_t>(words[i >> 3] >> (8 * (i & 7)));
    }
    std::memcpy(out, bytes, width);
    out += width;
  }
  return out;
}

uint8_t* WriteSparseRow(const FoldedRow& row, const uint8_t* widths, uint32_t groups,
                        uint8_t* out) {
  uint8_t* flags = out;
  uint8_t width_codes[kLanes];
  uint8_t masks[kLanes];
  uint32_t coded = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    if (widths[g] == 0) continue;
    flags[g >> 3] = static_cast<uint8_t>(flags[g >> 3] | 1u << (g & 7));
    width_codes[coded] = static_cast<uint8_t>(widths[g] - 1);
    masks[coded] = static_cast<uint8_t>(GroupMask(row, g));
    ++coded;
  }
  if (coded == 0) return out;
  out += (groups + 7) / 8;
  WriteCodes4(width_codes, coded, out);
  out += (coded + 1) / 2;
  std::memcpy(out, masks, coded);
  out += coded;
  uint32_t bit = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      const uint32_t z = row.at[i][g];
      if (z == 0) continue;
      for (uint32_t k = 0; k < widths[g]; ++k, ++bit) {
        out[bit >> 3] = static_cast<uint8_t>(out[bit >> 3] | ((z >> k) & 1) << (bit & 7));
      }
    }
  }
  return out + (bit + 7) / 8;
}

}  // namespace

PackedWorkspacePtr MakePackedWorkspace() { return PackedWorkspacePtr(new PackedWorkspace); }
void PackedWorkspaceDeleter::operator()(PackedWorkspace* workspace) const { delete workspace; }

void AppendPackedPayload(TilePlanes* planes, PackedWorkspace* workspace,
                         std::vector<uint8_t>* out) {
  ColorTransform transform = ColorTransform::kNone;
  if (planes->channels >= 3 && PrefersSubtractGreen(*planes)) {
    transform = ColorTransform::kSubtractGreen;
    ApplySubtractGreen(planes);
  }
  const uint32_t rows = planes->height_px;
  const uint32_t groups = (planes->width_px + kGroupSize - 1) / kGroupSize;
  uint64_t bits = 0;
  for (uint32_t c = 0; c < planes->channels; ++c) {
    PlanChannel(*planes, c, workspace);
    bits += workspace->plan[c].bits;
  }

  const size_t begin = out->size();
  const size_t size =
      kTileHeaderBytes + size_t{kChannelHeaderBytes} * planes->channels + bits / 8;
  out->resize(begin + size);  // zeros
  uint8_t* p = out->data() + begin;
  p[4] = static_cast<uint8_t>(TileCoding::kPacked);
  p[5] = static_cast<uint8_t>(transform);
  p += kTileHeaderBytes;
  for (uint32_t c = 0; c < planes->channels; ++c) {
    const ChannelPlan& plan = workspace->plan[c];
    p[0] = static_cast<uint8_t>(plan.layout);
    p[1] = static_cast<uint8_t>(plan.start_width);
    StoreU16(p + 2, plan.base);
    p += kChannelHeaderBytes;
  }
  for (uint32_t c = 0; c < planes->channels; ++c) {
    if (workspace->plan[c].layout == ChannelLayout::kConstant) continue;
    WriteCodes4(workspace->plan[c].predictor, rows, p);
    p += (rows + 1) / 2;
  }
  for (uint32_t c = 0; c < planes->channels; ++c) p = WriteWidths(*workspace, c, rows, groups, p);
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t c = 0; c < planes->channels; ++c) {
      const FoldedRow& folded = workspace->folded[c][y];
      const uint8_t* widths = workspace->width[c][y];
      switch (workspace->plan[c].layout) {
        case ChannelLayout::kConstant: break;
        case ChannelLayout::kAbsolute:
        case ChannelLayout::kDelta: p = WriteDenseRow(folded, widths, groups, p); break;
        case ChannelLayout::kSparse: p = WriteSparseRow(folded, widths, groups, p); break;
      }
    }
  }
}

}  // namespace l3
