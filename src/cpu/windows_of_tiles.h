// Which of many windows need a tile: those that touch it, with their halos. Layer: cpu.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tile.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

// The number of the tile that is the i-th of a span, counted row by row.
inline uint32_t TileOfSpan(const ImageInfo& info, const TileSpan& span, uint32_t i) {
  return (span.row_begin + i / span.columns()) * info.tile_columns() + span.column_begin +
         i % span.columns();
}

// The smallest span with all tiles that the windows of `count` plans touch.
inline TileSpan TilesOfWindows(const ImageView& view, const OutputPlan* plans, size_t count) {
  TileSpan all = {0, 0, 0, 0};
  for (const OutputPlan* plan = plans; plan < plans + count; ++plan) {
    const TileSpan tiles = TilesOfWindow(view, plan->window);
    if (tiles.tile_count() == 0) continue;
    if (all.tile_count() == 0) all = tiles;
    all = {std::min(all.column_begin, tiles.column_begin),
           std::max(all.column_end, tiles.column_end), std::min(all.row_begin, tiles.row_begin),
           std::max(all.row_end, tiles.row_end)};
  }
  return all;
}

using PlanList = std::vector<const OutputPlan*>;

// Which of some plans' windows touch rows, or columns, that are asked for in their order.
template <uint32_t Window::* kBegin, uint32_t Window::* kSize>
class WindowSweep {
 public:
  void Start(const PlanList& plans) {
    plans_ = plans;
    std::sort(plans_.begin(), plans_.end(), [](const OutputPlan* a, const OutputPlan* b) {
      return a->window.*kBegin < b->window.*kBegin;
    });
    here_.clear();
    next_ = 0;
  }

  const PlanList& At(uint32_t begin_px, uint32_t size_px) {
    for (; next_ < plans_.size() && plans_[next_]->window.*kBegin < begin_px + size_px; ++next_) {
      here_.push_back(plans_[next_]);
    }
    const auto is_over = [begin_px](const OutputPlan* plan) {
      return plan->window.*kBegin + plan->window.*kSize <= begin_px;
    };
    here_.erase(std::remove_if(here_.begin(), here_.end(), is_over), here_.end());
    return here_;
  }

  const PlanList& plans() const { return plans_; }

 private:
  PlanList plans_, here_;
  size_t next_ = 0;
};

using RowSweep = WindowSweep<&Window::y_px, &Window::height_px>;
using ColumnSweep = WindowSweep<&Window::x_px, &Window::width_px>;

// Asked for tiles [begin, end) of a span in their order. Looks at each window once, then at those
// of a row of tiles alone, then at those that touch a tile.
class WindowsOfTiles {
 public:
  WindowsOfTiles(const ImageView& view, const OutputPlan* plans, size_t count, const TileSpan& span,
                 uint32_t begin, uint32_t end)
      : view_(view) {
    if (begin == end) return;
    const uint32_t first_row = span.row_begin + begin / span.columns();
    const uint32_t first_column = span.column_begin + begin % span.columns();
    const uint32_t last_row = span.row_begin + (end - 1) / span.columns();
    const uint32_t last_column = span.column_begin + (end - 1) % span.columns();
    PlanList touching;
    for (const OutputPlan* plan = plans; plan < plans + count; ++plan) {
      const TileSpan tiles = TilesOfWindow(view, plan->window);
      const uint32_t row_begin = std::max(tiles.row_begin, first_row);
      const uint32_t row_end = std::min(tiles.row_end, last_row + 1);
      if (row_begin < row_end && (row_end > first_row + 1 || tiles.column_end > first_column) &&
          (row_begin < last_row || tiles.column_begin <= last_column)) {
        touching.push_back(plan);
      }
    }
    rows_.Start(touching);
  }

  // The plans whose windows touch any of the tiles, and maybe others of their rows.
  const PlanList& plans() const { return rows_.plans(); }

  // The plans whose windows need the tile.
  const PlanList& At(uint32_t tile) {
    const uint32_t row = tile / view_.info.tile_columns();
    const uint32_t column = tile % view_.info.tile_columns();
    if (row != row_) {
      row_ = row;
      columns_.Start(At(row, view_.info.tile_height_log2, view_.halo_y_px, &rows_));
    }
    return At(column, view_.info.tile_width_log2, view_.halo_x_px, &columns_);
  }

 private:
  // A window with its halo touches a tile if the window touches the tile with as much around it.
  template <typename Sweep>
  static const PlanList& At(uint32_t number, uint32_t size_log2, uint32_t halo_px, Sweep* sweep) {
    const uint32_t begin = number << size_log2;
    const uint32_t before = number == 0 ? 0 : halo_px;
    return sweep->At(begin - before, (1u << size_log2) + before + halo_px);
  }

  const ImageView& view_;
  RowSweep rows_;
  ColumnSweep columns_;  // of the windows of a row
  uint32_t row_ = ~0u;
};

}  // namespace l3
