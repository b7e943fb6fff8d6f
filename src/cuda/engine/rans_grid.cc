#include "cuda/engine/rans_grid.h"

#include <algorithm>
#include <cmath>

namespace l3 {
namespace {

// Predicted time of a launch for the images [begin, end), in units of what a warp adds to the
// time of a multiprocessor whose schedulers are busy, 54 cycles a step (docs/dev/notes/kernels.md).
double PredictRansTime(const std::vector<uint64_t>& task_counts, size_t begin, size_t end,
                       const RansGrid& grid, uint32_t multiprocessors) {
  const double alone = 20;  // one warp, no other
  const double fill = 4;    // tables, by one warp
  const uint32_t warps = grid.warps_per_block;
  uint64_t blocks = 0;
  for (size_t i = begin; i < end; ++i) blocks += CeilDiv(task_counts[i], warps);
  const auto round = [&](uint64_t blocks_per_multiprocessor) {
    const double warps_at_once = static_cast<double>(blocks_per_multiprocessor * warps);
    // std::hypot would need a newer glibc than anything else here.
    return std::sqrt(alone * alone + warps_at_once * warps_at_once) + fill / warps;
  };
  const uint64_t blocks_per_round = uint64_t{grid.blocks_per_multiprocessor} * multiprocessors;
  const uint64_t rest = blocks % blocks_per_round;
  double time =
      static_cast<double>(blocks / blocks_per_round) * round(grid.blocks_per_multiprocessor);
  if (rest != 0) time += round(CeilDiv(rest, multiprocessors));
  return time;
}

}  // namespace

RansGrid PlanRans(const std::vector<uint64_t>& task_counts, const std::vector<size_t>& part_ends,
                  uint32_t table_bytes, uint32_t scratch_bytes, const WarpLimits& warps,
                  const GpuLimits& limits) {
  RansGrid best = {};
  double best_time = 0;
  for (uint32_t per_block = 1; per_block <= warps.per_block; ++per_block) {
    const uint32_t bytes = table_bytes + per_block * scratch_bytes;
    // The smallest is planned even if it does not fit: launching it fails with CUDA's error.
    if (bytes > limits.shared_bytes_per_block && per_block > 1) break;
    const RansGrid grid = {
        per_block, std::max(1u, std::min(limits.shared_bytes / (bytes + limits.reserved_bytes),
                                         warps.per_multiprocessor / per_block))};
    double time = 0;
    size_t begin = 0;
    for (const size_t end : part_ends) {
      time += PredictRansTime(task_counts, begin, end, grid, limits.multiprocessors);
      begin = end;
    }
    if (per_block == 1 || time < best_time) {
      best = grid;
      best_time = time;
    }
  }
  return best;
}

}  // namespace l3
