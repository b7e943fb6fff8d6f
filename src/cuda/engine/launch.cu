#include <algorithm>
#include <climits>
#include <stdexcept>
#include <type_traits>

#include "cuda/engine/launch.h"
#include "cuda/engine/resources.h"
#include "cuda/kernels/border_fill.cuh"
#include "cuda/kernels/tile_kernels.cuh"

namespace l3 {
namespace {

// Warps that an SM shall hold at once: as many as need no register spilled,
// or as many blocks as it takes. Rans tiles need more registers. A build that compares bounds
// names its own.
#ifdef L3_WARPS_PER_SM
constexpr int kWarpsPerSm = L3_WARPS_PER_SM;
#elif __CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870
constexpr int kWarpsPerSm = 16;
#elif __CUDA_ARCH__ < 900
constexpr int kWarpsPerSm = 20;
#else
constexpr int kWarpsPerSm = 22;
#endif
#ifdef L3_RANS_WARPS_PER_SM
constexpr int kRansWarpsPerSm = L3_RANS_WARPS_PER_SM;
#elif __CUDA_ARCH__ == 900
constexpr int kRansWarpsPerSm = 20;
#elif __CUDA_ARCH__ >= 1200
constexpr int kRansWarpsPerSm = 12;
#else
constexpr int kRansWarpsPerSm = 16;
#endif
// Plans take registers too.
#if __CUDA_ARCH__ >= 1200
constexpr int kPlanWarpsPerSm = 12;
#else
constexpr int kPlanWarpsPerSm = 16;
#endif
// On sm_90 16 spilled 154 bytes (ptxas of CUDA 13.0).
constexpr int kRansPlanWarpsPerSm = 12;
template <bool kRans, StoreKind kStore>
constexpr int kWarpsAtOnce =
    kStore != StoreKind::kStored ? (kRans ? kRansPlanWarpsPerSm : kPlanWarpsPerSm)
                                 : (kRans ? kRansWarpsPerSm : kWarpsPerSm);

// Block -> tile: a block is one warp, so that the compiler knows the task to be
// the same on all lanes, and a finished warp makes room at once. With rans tiles,
// for which Lookup is not void, block -> some tiles of an image, a row of threads ->
// tile; the shared memory has the image's tables, then each warp's scratch.
// Where samples follow plans, some tasks fill borders.
template <class Lookup, StoreKind kStore, bool kRans = !std::is_void_v<Lookup>>
__global__ void __launch_bounds__(kWarpLanes*(kRans ? kWarpsAtOnce<kRans, kStore> : 1),
                                  kRans ? 1 : kWarpsAtOnce<kRans, kStore>)
    DecodeTiles(TileBatch batch) {
  extern __shared__ uint4 shared[];
  uint8_t* scratch = reinterpret_cast<uint8_t*>(shared);
  Lookup* lookup = nullptr;
  uint32_t task_number = blockIdx.x;
  DeviceWarp warp;
  if constexpr (kRans) {
    lookup = reinterpret_cast<Lookup*>(scratch);
    const uint32_t warp_index = warp.Shuffle(threadIdx.y, 0);
    scratch += sizeof(Lookup) + warp_index * batch.scratch_bytes;
    task_number = blockIdx.x * batch.warps_per_block + warp_index;
    const DecodeSample& sample = batch.samples[batch.tasks[task_number].sample];
    if (sample.rans != nullptr) {
      BuildRansLookup(warp, warp_index, batch.warps_per_block, *sample.rans, sample.info.used_bits,
                      lookup);
    }
    __syncthreads();
  }
  const TileTask task = batch.tasks[task_number];
  if constexpr (kStore != StoreKind::kStored) {
    if (task.payload_units == 0 && task.tile != 0) {
      FillBorderWarp(warp, batch.plans[task.sample], task.tile - 1);
    }
  }
  if (task.payload_units == 0) return;
  const DecodeSample sample = batch.samples[task.sample];
  const Status status = DecodeTileWarp<Lookup>(
      warp, sample, OutputOfTask<kStore>(batch, sample, task_number), task, lookup, scratch);
  if (status == Status::kOk) return;
  const auto note = [&](uint32_t number) {
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicMin(reinterpret_cast<unsigned long long*>(&batch.results[number]),
              BadTile(task.tile, status));
  };
  if constexpr (kStore == StoreKind::kPlans) {
    const TilePlans plans = PlansOfTask(batch, task_number);
    for (uint32_t i = warp.lane(); i < plans.count; i += kWarpLanes) note(plans.takers[i]);
  } else if (warp.lane() == 0) {
    note(task.sample);
  }
}

template <class Lookup>
const void* FindKernel(StoreKind store) {
  switch (store) {
    case StoreKind::kPlan:
      return reinterpret_cast<const void*>(&DecodeTiles<Lookup, StoreKind::kPlan>);
    case StoreKind::kPlans:
      return reinterpret_cast<const void*>(&DecodeTiles<Lookup, StoreKind::kPlans>);
    case StoreKind::kStored: break;
  }
  return reinterpret_cast<const void*>(&DecodeTiles<Lookup, StoreKind::kStored>);
}
// There are no plans with wide tables (docs/notes/kernels-history.md, "The rans kernel").
const void* FindKernel(RansLookupKind lookup, StoreKind store) {
  switch (lookup) {
    case RansLookupKind::kNone: return FindKernel<void>(store);
    case RansLookupKind::kCompact: return FindKernel<CompactRansLookup>(store);
    case RansLookupKind::kWide: break;
  }
  return reinterpret_cast<const void*>(&DecodeTiles<WideRansLookup, StoreKind::kStored>);
}

int DeviceAttribute(cudaDeviceAttr attribute) {
  int value = 0;
  L3_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, GetCudaDevice()));
  return value;
}

WarpLimits GetWarpLimits(const void* kernel) {
  constexpr int kWarps = 4;  // registers are handed out to as many warps at a time
  int blocks = 0;
  L3_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kWarps * kWarpLanes, 0));
  cudaFuncAttributes attributes;
  L3_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  const int warps = blocks * kWarps;
  const int warps_per_block = std::min(warps, attributes.maxThreadsPerBlock / int{kWarpLanes});
  return {static_cast<uint32_t>(warps), static_cast<uint32_t>(warps_per_block)};
}

}  // namespace

GpuLimits GetGpuLimits() {
  const auto number = [](cudaDeviceAttr attribute) {
    return static_cast<uint32_t>(DeviceAttribute(attribute));
  };
  return {number(cudaDevAttrMultiProcessorCount),
          number(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
          number(cudaDevAttrMaxSharedMemoryPerBlockOptin),
          number(cudaDevAttrReservedSharedMemoryPerBlock),
          GetWarpLimits(FindKernel(RansLookupKind::kCompact, StoreKind::kStored)),
          GetWarpLimits(FindKernel(RansLookupKind::kWide, StoreKind::kStored)),
          GetWarpLimits(FindKernel(RansLookupKind::kCompact, StoreKind::kPlan)),
          GetWarpLimits(FindKernel(RansLookupKind::kCompact, StoreKind::kPlans))};
}

void LaunchDecodeTiles(const TileBatch& batch, CUstream_st* stream) {
  if (batch.task_count == 0) return;
  if (batch.task_count > INT_MAX) {
    throw std::runtime_error("A batch has more than 2^31 - 1 tiles. Use smaller batches.");
  }
  TileBatch argument = batch;
  void* arguments[] = {&argument};
  const void* kernel = FindKernel(batch.lookup, batch.store());
  if (batch.lookup != RansLookupKind::kNone) {
    L3_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
  }
  L3_CUDA_CHECK(cudaLaunchKernel(
      kernel, dim3(static_cast<unsigned>(batch.task_count / batch.warps_per_block)),
      dim3(kWarpLanes, batch.warps_per_block), arguments, batch.shared_bytes, stream));
}

}  // namespace l3
