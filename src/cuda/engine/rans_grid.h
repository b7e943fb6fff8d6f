// How many warps a block of rans tiles has: a prediction of what keeps a GPU busy. Layer: cuda;
// plain C++.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/engine/gpu_device.h"

namespace l3 {

struct RansGrid {
  uint32_t warps_per_block;
  uint32_t blocks_per_multiprocessor;
};

// The grid of the least predicted time for images of so many tasks, launched in parts that end at
// these images, when a block needs `table_bytes` of shared memory, each of its warps
// `scratch_bytes`, and a multiprocessor has so many `warps`. Used for jpeg tiles too.
RansGrid PlanRans(const std::vector<uint64_t>& task_counts, const std::vector<size_t>& part_ends,
                  uint32_t table_bytes, uint32_t scratch_bytes, const WarpLimits& warps,
                  const GpuLimits& limits);

}  // namespace l3
