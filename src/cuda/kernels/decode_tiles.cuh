// The kernel, for the units that compile it: packed_8.cu and others. Layer: cuda.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/decode_tiles.h"
#include "cuda/kernels/tile_kernels.cuh"

namespace l3 {

// Warps that an SM shall hold at once: as many as need no register spilled,
// or as many blocks as it takes. A build that compares bounds names its own.
#ifdef L3_WARPS_PER_SM
constexpr int kWarpsPerSm = L3_WARPS_PER_SM;
#elif __CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870
constexpr int kWarpsPerSm = 16;
#elif __CUDA_ARCH__ < 900
constexpr int kWarpsPerSm = 20;
#elif __CUDA_ARCH__ == 900
constexpr int kWarpsPerSm = 32;  // 12 bytes spill; faster than 24 and 28, which spill none
#else
constexpr int kWarpsPerSm = 22;
#endif
// Of rans tiles, as many as have shared memory. Those of two-byte samples take more of it.
#ifdef L3_RANS_WARPS_PER_SM
constexpr int kRansWarpsPerSm[] = {L3_RANS_WARPS_PER_SM, L3_RANS_WARPS_PER_SM};
#elif __CUDA_ARCH__ == 900
constexpr int kRansWarpsPerSm[] = {32, 20};
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 1000
constexpr int kRansWarpsPerSm[] = {24, 16};
#elif __CUDA_ARCH__ >= 1200
constexpr int kRansWarpsPerSm[] = {12, 12};
#else
constexpr int kRansWarpsPerSm[] = {16, 16};
#endif
// Plans take registers too.
#if __CUDA_ARCH__ >= 1200
constexpr int kPlanWarpsPerSm = 12;
#else
constexpr int kPlanWarpsPerSm = 16;
#endif
// With 16, rans tiles of two-byte samples spilled 152 bytes on sm_90 (ptxas of CUDA 13.0).
constexpr int kRans16PlanWarpsPerSm = 12;
constexpr int WarpsAtOnce(TileKind kind, StoreKind store, uint32_t sample_bytes) {
  const bool is_rans = kind == TileKind::kModel;
  if (store == StoreKind::kStored) return is_rans ? kRansWarpsPerSm[sample_bytes - 1] : kWarpsPerSm;
  return is_rans && sample_bytes == 2 ? kRans16PlanWarpsPerSm : kPlanWarpsPerSm;
}

// Block -> tile: a block is one warp, so that the compiler knows the task to be
// the same on all lanes, and a finished warp makes room at once. With rans tiles,
// block -> some tiles of an image, a row of threads -> tile; the shared memory has
// the image's tables, then each warp's scratch. Where there are plans, some tasks of
// packed tiles fill borders.
template <TileKind kKind, StoreKind kStore, uint32_t kSampleBytes>
__global__ void __launch_bounds__(
    kWarpLanes*(kKind == TileKind::kModel ? WarpsAtOnce(kKind, kStore, kSampleBytes) : 1),
    kKind == TileKind::kModel ? 1 : WarpsAtOnce(kKind, kStore, kSampleBytes))
    DecodeTiles(TileBatch batch) {
  extern __shared__ uint4 shared[];
  uint8_t* scratch = reinterpret_cast<uint8_t*>(shared);
  RansLookup* lookup = nullptr;
  uint32_t task_number = blockIdx.x;
  DeviceWarp warp;
  if constexpr (kKind == TileKind::kModel) {
    using Samples = std::conditional_t<kSampleBytes == 1, ByteSamples, WordSamples>;
    lookup = reinterpret_cast<RansLookup*>(scratch);
    const uint32_t warp_index = warp.Shuffle(threadIdx.y, 0);
    scratch += sizeof(RansLookup) + warp_index * batch.scratch_bytes;
    task_number = blockIdx.x * batch.warps_per_block + warp_index;
    const DeviceWindow& window = batch.windows[batch.tasks[task_number].window];
    if (window.rans != nullptr) {
      BuildRansLookup<Samples>(warp, warp_index, batch.warps_per_block, *window.rans, lookup);
    }
    __syncthreads();
  }
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  RunTask<kKind, kStore, kSampleBytes>(
      warp, batch, task_number, lookup, scratch, [](uint64_t* result, uint64_t bad) {
        atomicMin(reinterpret_cast<unsigned long long*>(result), bad);
      });
}

// Block -> tile, a row of threads -> channel: for launches that have too few tiles to keep a GPU
// busy.
template <StoreKind kStore>
__global__ void __launch_bounds__(kWarpLanes* kTeamChannels,
                                  kTeamsPerSm[static_cast<uint32_t>(kStore)])
    DecodeTilesInTeams(TileBatch batch) {
  extern __shared__ uint4 shared[];
  const DeviceWarp alone;
  TeamWarp<DeviceWarp> warp(alone, alone.Shuffle(threadIdx.y, 0));
  RunTask<TileKind::kSimple, kStore, 1>(
      warp, batch, blockIdx.x, nullptr, reinterpret_cast<uint8_t*>(shared),
      [](uint64_t* result, uint64_t bad) {
        atomicMin(reinterpret_cast<unsigned long long*>(result), bad);
      });
}

template <TileKind kKind, uint32_t kSampleBytes>
const void* DecodeTilesOf(StoreKind store) {
  return store == StoreKind::kPlans
             ? reinterpret_cast<const void*>(&DecodeTiles<kKind, StoreKind::kPlans, kSampleBytes>)
             : reinterpret_cast<const void*>(&DecodeTiles<kKind, StoreKind::kStored, kSampleBytes>);
}

}  // namespace l3
