#include "cuda/emulation/emulated_decoder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "cuda/emulation/emulated_warp.h"
#include "cuda/kernels/border_fill.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/tile_kernels.cuh"

namespace l3 {
namespace {

constexpr int kFresh = 0xCD;  // fills memory that nobody wrote

// Returns how many times a tile was decoded.
template <TileKind kKind, StoreKind kStore, uint32_t kSampleBytes>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  using Samples = std::conditional_t<kSampleBytes == 1, ByteSamples, WordSamples>;
  static thread_local WarpEmulator emulator;  // its stacks cost more than a small image
  constexpr bool kRans = kKind == TileKind::kRans;
  // Shared memory begins with anything.
  const auto lookup = std::make_unique<RansLookup>();
  if (kRans) std::memset(static_cast<void*>(lookup.get()), kFresh, sizeof(*lookup));
  uint64_t decoded_tiles = 0;
  for (uint64_t i = 0; i < batch.task_count; ++i) {
    const TileTask task = batch.tasks[i];
    const DecodeSample& sample = batch.samples[task.sample];
    if (kRans && i % batch.warps_per_block == 0 && sample.rans != nullptr) {
      emulator.Run([&](EmulatedWarp& warp) {
        BuildRansLookup<Samples>(warp, 0, 1, *sample.rans, lookup.get());
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
    ++decoded_tiles;
    emulator.Run([&](EmulatedWarp& warp) {
      const Status status = DecodeTileWarp<kKind, kSampleBytes>(
          warp, sample, OutputOfTask<kStore>(batch, sample, i), task, lookup.get(), scratch.get());
      if (status == Status::kOk || warp.lane() != 0) return;
      const auto note = [&](uint32_t number) {
        uint64_t& result = batch.results[number];
        result = std::min(result, BadTile(task.tile, status));
      };
      if constexpr (kStore == StoreKind::kPlans) {
        const TilePlans plans = PlansOfTask(batch, i);
        std::for_each(plans.takers, plans.takers + plans.count, note);
      } else {
        note(task.sample);
      }
    });
  }
  return decoded_tiles;
}

template <TileKind kKind, StoreKind kStore>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  return batch.sample_bytes == 1 ? DecodeTilesWith<kKind, kStore, 1>(batch)
                                 : DecodeTilesWith<kKind, kStore, 2>(batch);
}

template <TileKind kKind>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  return batch.store() == StoreKind::kStored ? DecodeTilesWith<kKind, StoreKind::kStored>(batch)
                                             : DecodeTilesWith<kKind, StoreKind::kPlans>(batch);
}

}  // namespace

uint64_t DecodeTilesEmulated(const TileBatch& batch) {
  return batch.kind == TileKind::kRans ? DecodeTilesWith<TileKind::kRans>(batch)
                                       : DecodeTilesWith<TileKind::kPacked>(batch);
}

std::vector<DecodeResult> DecodeBatchEmulated(const std::vector<CudaSample>& samples,
                                              const GpuLimits& gpu, const ForEach& for_each,
                                              uint64_t* decoded_tiles) {
  BatchLayout layout;
  layout.Plan(samples, gpu, for_each);
  // Of exactly this size, so that a sanitizer sees what reads or writes past it.
  const std::unique_ptr<uint8_t[]> buffer(new uint8_t[layout.total_bytes()]);
  std::memset(buffer.get(), kFresh, layout.total_bytes());
  RunForEach(for_each, layout.piece_count(),
             [&](size_t piece) { layout.WritePiece(piece, buffer.get(), buffer.get()); });

  uint64_t tiles = 0;
  for (size_t i = 0; i < layout.launch_count(); ++i) {
    tiles += DecodeTilesEmulated(layout.Batch(buffer.get(), i));
  }
  if (decoded_tiles != nullptr) *decoded_tiles = tiles;
  std::vector<DecodeResult> results;
  for (size_t i = 0; i < samples.size(); ++i) {
    uint64_t result;
    std::memcpy(&result, buffer.get() + i * sizeof(result), sizeof(result));
    results.push_back(UnpackResult(result));
  }
  return results;
}

uint64_t UploadedBytesEmulated(const CudaSample& sample) {
  const std::vector<CudaSample> batch = {sample};
  BatchLayout layout;
  layout.Plan(batch, kLargeGpu);
  return layout.total_bytes();
}

DecodeResult DecodeImageEmulated(const ImageView& view, const OutputPlan& plan,
                                 const GpuLimits& gpu, const ForEach& for_each) {
  return DecodeBatchEmulated({CudaSample{view, plan}}, gpu, for_each)[0];
}

}  // namespace l3
