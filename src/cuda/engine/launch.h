// The kernel launch by itself, for callers that manage memory themselves.
// Layer: cuda.
#pragma once

#include "cuda/engine/gpu_device.h"
#include "cuda/kernels/tile_batch.h"

struct CUstream_st;

namespace l3 {

// Of the current device. Throws std::runtime_error if CUDA fails.
GpuLimits GetGpuLimits();

// Queues the decoding of a batch that lies in device memory. Throws
// std::runtime_error if CUDA refuses the launch.
void LaunchDecodeTiles(const TileBatch& batch, CUstream_st* stream);
// The same for images of jpeg tiles: decodes, then stores.
void LaunchDecodeJpeg(const JpegBatch& batch, CUstream_st* stream);
// Queues the joining of samples, by tasks in memory of the device.
void LaunchJoinSamples(const JoinTask* tasks, size_t count, CUstream_st* stream);

}  // namespace l3
