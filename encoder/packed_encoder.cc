#include "encoder/packed_encoder.h"

#include <algorithm>
#include <cstring>

#include "core/color.h"
#include "core/residual.h"
#include "encoder/packed_search.h"

namespace l3 {
namespace {

constexpr uint32_t kSlackBytes = 16;
constexpr uint32_t kSide = kMaxPackedTileSide;
constexpr uint32_t kLanes = kMaxGroupsPerRow;
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
  WidthRow width[kMaxChannels][kSide];  // as needed, then as coded
  WidthCosts costs[kSide];
};

namespace {

// ---- Widths ----------------------------------------------------------------

uint32_t Width(const WidthRow& row, uint32_t g) { return static_cast<uint32_t>(row.at[g]); }

uint32_t AbsoluteCode(uint32_t width) { return width < 15 ? width : 15; }
uint32_t AbsoluteWidth(uint32_t width, uint32_t used_bits) {
  return width < 15 ? width : std::min(16u, used_bits);
}

bool HasManyZeros(const WidthRow* widths, uint32_t rows, uint32_t groups) {
  uint32_t zeros = 0;
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t g = 0; g < groups; ++g) zeros += widths[y].at[g] == 0 ? 1 : 0;
  }
  return 4 * zeros >= rows * groups;
}

uint64_t AbsoluteBits(const WidthRow* widths, uint32_t rows, uint32_t groups, uint32_t used_bits) {
  uint64_t sum = 0;
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t g = 0; g < groups; ++g) sum += AbsoluteWidth(Width(widths[y], g), used_bits);
  }
  return 8 * (sum + uint64_t{rows} * ((groups + 1) / 2));
}

// The code, after a width `above`, that leads to the lowest cost. Without
// branches: which code wins is hard to predict.
uint32_t CheapestCode(const WidthCosts& costs, uint32_t above, uint32_t g) {
  constexpr int32_t kOrder[4] = {1, 0, 2, 3};  // no change, if it is as cheap
  int32_t best = INT32_MAX;
  for (uint32_t code = 0; code < 4; ++code) {
    best = std::min(best, costs.at[above + code][g] * 4 + kOrder[code]);
  }
  return static_cast<uint32_t>(kOrder[best & 3]);  // its own inverse
}

// Bits of a delta layout from the cheapest start width on.
uint64_t DeltaBits(const WidthCosts& first_row, uint32_t rows, uint32_t groups, uint32_t used_bits,
                   uint32_t* start_width) {
  uint64_t best_sum = ~uint64_t{0};
  for (uint32_t start = 0; start <= used_bits; ++start) {
    uint64_t sum = 0;
    bool reachable = true;
    for (uint32_t g = 0; g < groups; ++g) {
      const int16_t cost = first_row.at[start + CheapestCode(first_row, start, g)][g];
      sum += static_cast<uint64_t>(cost);
      reachable = reachable && cost < WidthCosts::kUnreachable;
    }
    if (reachable && sum < best_sum) {
      best_sum = sum;
      *start_width = start;
    }
  }
  return 8 * (best_sum + uint64_t{rows} * ((groups + 3) / 4));
}

uint32_t GroupMask(const FoldedRow& row, uint32_t g) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    const bool is_coded = row.at[i][g] != 0;  // apart: GCC 12's UBSan reads a wrong g in a shift
    mask |= uint32_t{is_coded} << i;
  }
  return mask;
}

// Stops counting once `limit` is passed.
uint64_t SparseBits(const FoldedRow* folded, const WidthRow* widths, uint32_t rows, uint32_t groups,
                    uint64_t limit) {
  uint64_t bytes = (rows + 7) / 8;
  for (uint32_t y = 0; y < rows && 8 * bytes < limit; ++y) {
    uint32_t coded = 0;
    uint32_t bits = 0;
    for (uint32_t g = 0; g < groups; ++g) {
      if (widths[y].at[g] == 0) continue;
      ++coded;
      bits +=
          Width(widths[y], g) * static_cast<uint32_t>(__builtin_popcount(GroupMask(folded[y], g)));
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
  const PackedSearch& search = GetPackedSearch();
  WidthRow* widths = work->width[c];
  search.choose_predictors(tile, c, plan.base, plan.predictor, work->folded[c], widths);
  const uint32_t rows = tile.height_px;
  const uint32_t groups = (tile.width_px + kGroupSize - 1) / kGroupSize;

  plan.layout = ChannelLayout::kAbsolute;
  plan.bits = AbsoluteBits(widths, rows, groups, tile.used_bits);
  uint32_t start_width = 0;
  search.accumulate_width_costs(widths, rows, tile.used_bits, work->costs);
  const uint64_t delta_bits = DeltaBits(work->costs[0], rows, groups, tile.used_bits, &start_width);
  if (delta_bits < plan.bits) {
    plan.layout = ChannelLayout::kDelta;
    plan.bits = delta_bits;
  }
  if (HasManyZeros(widths, rows, groups)) {  // otherwise sparse hardly ever wins
    const uint64_t sparse_bits = SparseBits(work->folded[c], widths, rows, groups, plan.bits);
    if (sparse_bits < plan.bits) {
      plan.layout = ChannelLayout::kSparse;
      plan.bits = sparse_bits;
    }
  }

  if (plan.layout == ChannelLayout::kDelta) {
    plan.start_width = start_width;
    uint32_t width[kLanes];
    std::fill_n(width, kLanes, start_width);
    for (uint32_t y = 0; y < rows; ++y) {
      for (uint32_t g = 0; g < groups; ++g) {
        width[g] += CheapestCode(work->costs[y], width[g], g) - 1;
        widths[y].at[g] = static_cast<int16_t>(width[g]);
      }
    }
  } else if (plan.layout == ChannelLayout::kAbsolute) {
    for (uint32_t y = 0; y < rows; ++y) {
      for (uint32_t g = 0; g < groups; ++g) {
        widths[y].at[g] = static_cast<int16_t>(AbsoluteWidth(Width(widths[y], g), tile.used_bits));
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
    for (uint32_t c = 0; c < 3; c += 2) {
      const uint16_t* now = tile.plane[c] + y * kSide + 1;
      const uint16_t* green_now = tile.plane[1] + y * kSide + 1;
      // In the first line, from column to column.
      const uint16_t* before = y == 0 ? now - 1 : now - kSide;
      const uint16_t* green_before = y == 0 ? green_now - 1 : green_now - kSide;
      uint32_t row_plain = 0;
      uint32_t row_subtracted = 0;
      for (uint32_t x = 0; x + 1 < tile.width_px; ++x) {
        const int32_t change = now[x] - before[x];
        const int32_t green = green_now[x] - green_before[x];
        row_plain += FoldResidual(change, tile.used_bits);
        row_subtracted += FoldResidual(change - green, tile.used_bits);
      }
      plain += row_plain;
      subtracted += row_subtracted;
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
  uint32_t above[kLanes];
  std::fill_n(above, kLanes, plan.start_width);
  switch (plan.layout) {
    case ChannelLayout::kConstant: break;
    case ChannelLayout::kAbsolute:
      for (uint32_t y = 0; y < rows; ++y) {
        for (uint32_t g = 0; g < groups; ++g) {
          codes[g] = static_cast<uint8_t>(AbsoluteCode(Width(work.width[c][y], g)));
        }
        WriteCodes4(codes, groups, out);
        out += (groups + 1) / 2;
      }
      break;
    case ChannelLayout::kDelta:
      for (uint32_t y = 0; y < rows; ++y) {
        for (uint32_t g = 0; g < groups; ++g) {
          const uint32_t width = Width(work.width[c][y], g);
          codes[g] = static_cast<uint8_t>(width + 1 - above[g]);
          above[g] = width;
        }
        WriteCodes2(codes, groups, out);
        out += (groups + 3) / 4;
      }
      break;
    case ChannelLayout::kSparse:
      for (uint32_t y = 0; y < rows; ++y) {
        const int16_t* widths = work.width[c][y].at;
        const bool coded = std::any_of(widths, widths + groups, [](int16_t w) { return w != 0; });
        out[y >> 3] = static_cast<uint8_t>(out[y >> 3] | (coded ? 1u : 0u) << (y & 7));
      }
      out += (rows + 7) / 8;
      break;
  }
  return out;
}

// Writes up to kSlackBytes of zeros behind the row.
uint8_t* WriteDenseRow(const FoldedRow& row, const WidthRow& widths, uint32_t groups,
                       uint8_t* out) {
  for (uint32_t g = 0; g < groups; ++g) {
    const uint32_t width = Width(widths, g);
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
    StoreU64(out, words[0]);
    StoreU64(out + 8, words[1]);
    out += width;
  }
  return out;
}

uint8_t* WriteSparseRow(const FoldedRow& row, const WidthRow& widths, uint32_t groups,
                        uint8_t* out) {
  uint8_t* flags = out;
  uint8_t width_codes[kLanes];
  uint8_t masks[kLanes];
  uint32_t coded = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    if (widths.at[g] == 0) continue;
    flags[g >> 3] = static_cast<uint8_t>(flags[g >> 3] | 1u << (g & 7));
    width_codes[coded] = static_cast<uint8_t>(widths.at[g] - 1);
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
      for (uint32_t k = 0; k < Width(widths, g); ++k, ++bit) {
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
  const size_t size = kTileHeaderBytes + size_t{kChannelHeaderBytes} * planes->channels + bits / 8;
  out->resize(begin + size + kSlackBytes);  // zeros
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
      const WidthRow& widths = workspace->width[c][y];
      switch (workspace->plan[c].layout) {
        case ChannelLayout::kConstant: break;
        case ChannelLayout::kAbsolute:
        case ChannelLayout::kDelta: p = WriteDenseRow(folded, widths, groups, p); break;
        case ChannelLayout::kSparse: p = WriteSparseRow(folded, widths, groups, p); break;
      }
    }
  }
  out->resize(begin + size);
}

}  // namespace l3
