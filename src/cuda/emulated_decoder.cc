#include "cuda/emulated_decoder.h"

#include <algorithm>
#include <memory>

#include "cuda/border_fill.cuh"
#include "cuda/emulated_warp.h"
#include "cuda/rans_lookup.cuh"
#include "cuda/tile_kernels.cuh"

namespace l3 {

void DecodeTilesEmulated(const TileBatch& batch) {
  WarpEmulator emulator;
  const auto lookup = std::make_unique<RansLookup>();
  for (uint64_t i = 0; i < batch.task_count; ++i) {
    const TileTask task = batch.tasks[i];
    const DecodeSample& sample = batch.samples[task.sample];
    if (i % batch.warps_per_block == 0 && sample.rans != nullptr) {
      emulator.Run([&](EmulatedWarp& warp) {
        BuildRansLookup(warp, 0, 1, *sample.rans, sample.info.used_bits, lookup.get());
      });
    }
    if (task.payload_units == 0) {
      if (task.tile == 0) continue;
      emulator.Run([&](EmulatedWarp& warp) {
        FillBorderWarp(warp, batch.plans[task.sample], task.tile - 1);
      });
      continue;
    }
    const std::unique_ptr<uint8_t[]> scratch(new uint8_t[batch.scratch_bytes]);
    emulator.Run([&](EmulatedWarp& warp) {
      const Status status =
          batch.plans != nullptr
              ? DecodeTileWarp<true>(warp, sample, batch.plans[task.sample], task, lookup.get(),
                                     scratch.get())
              : DecodeTileWarp<true>(warp, sample, sample.output, task, lookup.get(),
                                     scratch.get());
      if (status == Status::kOk || warp.lane() != 0) return;
      uint64_t& result = batch.results[task.sample];
      result = std::min(result, BadTile(task.tile, status));
    });
  }
}

std::vector<DecodeResult> DecodeBatchEmulated(const std::vector<CudaSample>& samples) {
  BatchLayout layout;
  layout.Plan(samples, kEmulatedGpuLimits);
  // Of exactly this size, so that a sanitizer sees what reads or writes past it.
  const std::unique_ptr<uint8_t[]> buffer(new uint8_t[layout.total_bytes()]);
  for (size_t piece = 0; piece < layout.piece_count(); ++piece) {
    layout.WritePiece(piece, buffer.get(), buffer.get());
  }

  const TileBatch batch = layout.Batch(buffer.get());
  DecodeTilesEmulated(batch);
  std::vector<DecodeResult> results;
  for (size_t i = 0; i < samples.size(); ++i) results.push_back(UnpackResult(batch.results[i]));
  return results;
}

uint64_t UploadedBytesEmulated(const CudaSample& sample) {
  const std::vector<CudaSample> batch = {sample};
  BatchLayout layout;
  layout.Plan(batch, kEmulatedGpuLimits);
  return layout.total_bytes();
}

DecodeResult DecodeImageEmulated(const ImageView& view, const OutputPlan& plan) {
  return DecodeBatchEmulated({CudaSample{view, plan}})[0];
}

}  // namespace l3
