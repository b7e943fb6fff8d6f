// Decodes images with the kernels of the CUDA engine on 32 emulated lanes, for
// tests and sanitizers. Layer: cuda; plain C++.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/engine/batch_layout.h"
#include "cuda/engine/sample_joins.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

// GPUs to lay a batch out for.
constexpr GpuLimits kLargeGpu = {
    132, 228 << 10, 227 << 10, 1 << 10, {{{20, 20}, {16, 16}}, {{20, 20}, {16, 16}}}, {1056, 660}};
constexpr GpuLimits kSmallGpu = {
    80,     100 << 10, 99 << 10, 1 << 10, {{{16, 16}, {12, 12}}, {{16, 16}, {12, 12}}},
    {0, 0}, {16, 16},  4 << 10};

// Runs the kernels of a batch that lies in host memory. Returns how many times a tile was decoded.
uint64_t DecodeTilesEmulated(const TileBatch& batch);
uint64_t DecodeJpegEmulated(const JpegBatch& batch);
// What a launch of joins does.
void JoinSamplesEmulated(const JoinTask* tasks, size_t count);

// Lays the batch out and decodes it as the GPU would, to outputs in host memory. Returns a result
// for each window of each group of each job. `decoded_tiles`, if not null, gets how many times a
// tile was decoded.
std::vector<DecodeResult> DecodeBatchEmulated(const std::vector<WindowJob>& jobs,
                                              const GpuLimits& gpu,
                                              const ForEach& for_each = nullptr,
                                              uint64_t* decoded_tiles = nullptr);

// Bytes that a batch takes to upload.
uint64_t UploadedBytesEmulated(const std::vector<WindowJob>& jobs);

// A batch of one image, whose view is that of a group.
DecodeResult DecodeImageEmulated(const ImageView& view, const OutputPlan& plan,
                                 const GpuLimits& gpu, const ForEach& for_each = nullptr);

}  // namespace l3
