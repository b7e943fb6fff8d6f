// Which of many windows touch a tile. Layer: cpu.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/output.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

using PlanList = std::vector<const OutputPlan*>;

// Asked for tiles [begin, end) of a span in their order. Looks at each window once, at those of a
// row of tiles once more, then at none but those that touch a tile.
class WindowsOfTiles {
 public:
  WindowsOfTiles(const ImageInfo& info, const OutputPlan* plans, size_t count, const TileSpan& span,
                 uint32_t begin, uint32_t end)
      : info_(info) {
    if (begin == end) return;
    last_row_ = span.row_begin + (end - 1) / span.columns();
    last_column_ = span.column_begin + (end - 1) % span.columns();
    const uint32_t first_row = span.row_begin + begin / span.columns();
    for (const OutputPlan* plan = plans; plan < plans + count; ++plan) {
      const TileSpan tiles = TilesOfWindow(info, plan->window);
      if (tiles.row_begin <= last_row_ && tiles.row_end > first_row) plans_.push_back(plan);
    }
  }

  // The plans whose windows touch the tile.
  const PlanList& At(uint32_t tile) {
    const uint32_t row = tile / info_.tile_columns();
    const uint32_t column = tile % info_.tile_columns();
    if (row != row_) StartRow(row, column);
    const uint32_t x_px = column << info_.tile_width_log2;
    const uint32_t x_end_px = x_px + (1u << info_.tile_width_log2);
    for (; next_ < in_row_.size() && in_row_[next_]->window.x_px < x_end_px; ++next_) {
      here_.push_back(in_row_[next_]);
    }
    const auto is_over = [x_px](const OutputPlan* plan) {
      return plan->window.x_px + plan->window.width_px <= x_px;
    };
    here_.erase(std::remove_if(here_.begin(), here_.end(), is_over), here_.end());
    return here_;
  }

 private:
  void StartRow(uint32_t row, uint32_t column) {
    row_ = row;
    next_ = 0;
    in_row_.clear();
    here_.clear();
    for (const OutputPlan* plan : plans_) {
      const TileSpan tiles = TilesOfWindow(info_, plan->window);
      const bool begins = row < last_row_ || tiles.column_begin <= last_column_;
      if (tiles.row_begin <= row && tiles.row_end > row && tiles.column_end > column && begins) {
        in_row_.push_back(plan);
      }
    }
    std::sort(in_row_.begin(), in_row_.end(), [](const OutputPlan* a, const OutputPlan* b) {
      return a->window.x_px < b->window.x_px;
    });
  }

  const ImageInfo& info_;
  PlanList plans_;   // whose windows touch the rows that are asked for
  PlanList in_row_;  // of these, those of the row, from left to right
  PlanList here_;
  size_t next_ = 0;  // in the row
  uint32_t row_ = ~0u, last_row_ = 0, last_column_ = 0;
};

}  // namespace l3
