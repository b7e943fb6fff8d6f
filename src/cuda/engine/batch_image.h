// The images of a batch: a group of channels of a job is decoded as one. Layer: cuda; plain C++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "format/image_view.h"
#include "output/output_plan.h"
#include "output/window_job.h"

namespace l3 {

struct BatchImage {
  const WindowJob* job;
  size_t group;          // of the job's
  ImageView view;        // of this group
  bool shares_table;     // its value table is that of the image before
  size_t window_begin;   // its windows among the batch's: [window_begin, window_end)
  size_t window_end;
  TileSpan tiles;        // of all its windows, and those between

  size_t window_count() const { return window_end - window_begin; }
  // What all groups have in common of a window's plan: above all where it is.
  const OutputPlan& SharedPlanOf(size_t window) const { return job->plans[window - window_begin]; }
  OutputPlan PlanOf(size_t window) const { return job->PlanOf(group, window - window_begin); }
  TileSpan TilesOf(size_t window) const { return TilesOfWindow(view, SharedPlanOf(window).window); }
};

// The smallest span that has both.
inline TileSpan Join(const TileSpan& a, const TileSpan& b) {
  if (a.tile_count() == 0) return b;
  if (b.tile_count() == 0) return a;
  return {std::min(a.column_begin, b.column_begin), std::max(a.column_end, b.column_end),
          std::min(a.row_begin, b.row_begin), std::max(a.row_end, b.row_end)};
}

inline void ListImages(const std::vector<WindowJob>& jobs, std::vector<BatchImage>* images) {
  images->clear();
  size_t windows = 0;
  for (const WindowJob& job : jobs) {
    if (job.plan_count == 0) continue;
    for (size_t g = job.group_begin; g < job.end_of_groups(); ++g) {
      BatchImage image = {&job,
                          g,
                          (*job.groups)[g].ViewOf(*job.view),
                          g != job.group_begin,
                          windows,
                          windows + job.plan_count,
                          {0, 0, 0, 0}};
      image.view.info = CodedInfo(image.view.info);
      windows = image.window_end;
      for (size_t w = image.window_begin; w < image.window_end; ++w) {
        image.tiles = Join(image.tiles, image.TilesOf(w));
      }
      images->push_back(image);
    }
  }
}

}  // namespace l3
