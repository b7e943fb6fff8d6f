// The launches of a batch: one for each kind of tiles and size of samples in it. Layer: cuda,
// engine.
#include "cuda/engine/launch.h"

#include <algorithm>
#include <climits>
#include <stdexcept>

#include "cuda/engine/resources.h"
#include "cuda/kernels/decode_tiles.h"
#include "cuda/kernels/join_samples.h"
#include "cuda/kernels/warp.h"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {
namespace {

const void* FindKernel(TileKind kind, uint32_t sample_bytes, StoreKind store) {
  if (kind == TileKind::kModel) {
    return sample_bytes == 1 ? DecodeTilesOf<TileKind::kModel, 1>(store)
                             : DecodeTilesOf<TileKind::kModel, 2>(store);
  }
  return sample_bytes == 1 ? DecodeTilesOf<TileKind::kSimple, 1>(store)
                           : DecodeTilesOf<TileKind::kSimple, 2>(store);
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
  GpuLimits limits = {number(cudaDevAttrMultiProcessorCount),
                      number(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
                      number(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                      number(cudaDevAttrReservedSharedMemoryPerBlock),
                      {},
                      {}};
  for (uint32_t bytes : {1, 2}) {
    for (StoreKind store : {StoreKind::kStored, StoreKind::kPlans}) {
      limits.RansWarps(bytes, store) = GetWarpLimits(FindKernel(TileKind::kModel, bytes, store));
    }
  }
  for (StoreKind store : {StoreKind::kStored, StoreKind::kPlans}) {
    int teams = 0;
    L3_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &teams, DecodeTilesInTeamsOf(store), kTeamChannels * kWarpLanes, sizeof(TeamScratch)));
    limits.team_tiles[static_cast<uint32_t>(store)] =
        limits.multiprocessors *
        std::min(static_cast<uint32_t>(teams), kTeamsPerSm[static_cast<uint32_t>(store)]);
  }
  limits.jpeg = GetWarpLimits(DecodeJpegTilesKernel());
  return limits;
}

void LaunchJoinSamples(const JoinTask* tasks, size_t count, CUstream_st* stream) {
  constexpr size_t kMostTasks = INT_MAX / kJoinBlocks;  // of a launch
  for (; count != 0; tasks += std::min(count, kMostTasks), count -= std::min(count, kMostTasks)) {
    void* arguments[] = {&tasks};
    const dim3 blocks(static_cast<unsigned>(std::min(count, kMostTasks)) * kJoinBlocks);
    L3_CUDA_CHECK(cudaLaunchKernel(JoinSamplesKernel(), blocks, dim3(256), arguments, 0, stream));
  }
}

void LaunchDecodeTiles(const TileBatch& batch, CUstream_st* stream) {
  if (batch.task_count == 0) return;
  if (batch.task_count > INT_MAX) {
    throw std::runtime_error("A batch has more than 2^31 - 1 tiles. Use smaller batches.");
  }
  TileBatch argument = batch;
  void* arguments[] = {&argument};
  const bool in_teams = batch.in_teams != 0;
  const void* kernel = in_teams ? DecodeTilesInTeamsOf(batch.store())
                                : FindKernel(batch.kind, batch.sample_bytes, batch.store());
  if (batch.kind == TileKind::kModel) {
    L3_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
  }
  L3_CUDA_CHECK(cudaLaunchKernel(
      kernel, dim3(static_cast<unsigned>(batch.task_count / batch.warps_per_block)),
      dim3(kWarpLanes, in_teams ? kTeamChannels : batch.warps_per_block), arguments,
      batch.shared_bytes, stream));
}

void LaunchDecodeJpeg(const JpegBatch& batch, CUstream_st* stream) {
  if (std::max(batch.tile_count, batch.pixel_count) > uint32_t{INT_MAX}) {
    throw std::runtime_error("A batch has more than 2^31 - 1 tiles. Use smaller batches.");
  }
  JpegBatch argument = batch;
  void* arguments[] = {&argument};
  const void* const decode = DecodeJpegTilesKernel();
  L3_CUDA_CHECK(cudaFuncSetAttribute(decode, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
  L3_CUDA_CHECK(cudaLaunchKernel(decode, dim3(batch.tile_count / batch.warps_per_block),
                                 dim3(kWarpLanes, batch.warps_per_block), arguments,
                                 batch.shared_bytes, stream));
  L3_CUDA_CHECK(cudaLaunchKernel(StoreJpegTilesKernel(), dim3(batch.pixel_count), dim3(kWarpLanes),
                                 arguments, sizeof(WarpScratch), stream));
}

}  // namespace l3
