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
template <class Lookup, StoreKind kStore>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  static thread_local WarpEmulator emulator;  // its stacks cost more than a small image
  constexpr bool kRans = !std::is_void_v<Lookup>;
  // Shared memory begins with anything.
  const auto shared = std::make_unique<std::conditional_t<kRans, Lookup, char>>();
  std::memset(static_cast<void*>(shared.get()), kFresh, sizeof(*shared));
  Lookup* lookup = nullptr;
  if constexpr (kRans) lookup = shared.get();
  uint64_t decoded_tiles = 0;
  for (uint64_t i = 0; i < batch.task_count; ++i) {
    const TileTask task = batch.tasks[i];
    const DecodeSample& sample = batch.samples[task.sample];
    if constexpr (kRans) {
      if (i % batch.warps_per_block == 0 && sample.rans != nullptr) {
        emulator.Run([&](EmulatedWarp& warp) {
          BuildRansLookup(warp, 0, 1, *sample.rans, sample.info.used_bits, lookup);
        });
      }
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
      const Status status = DecodeTileWarp<Lookup>(
          warp, sample, OutputOfTask<kStore>(batch, sample, i), task, lookup, scratch.get());
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

template <class Lookup>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  switch (batch.store()) {
    case StoreKind::kPlan: return DecodeTilesWith<Lookup, StoreKind::kPlan>(batch);
    case StoreKind::kPlans: return DecodeTilesWith<Lookup, StoreKind::kPlans>(batch);
    case StoreKind::kStored: break;
  }
  return DecodeTilesWith<Lookup, StoreKind::kStored>(batch);
}

}  // namespace

uint64_t DecodeTilesEmulated(const TileBatch& batch) {
  switch (batch.lookup) {
    case RansLookupKind::kNone: return DecodeTilesWith<void>(batch);
    case RansLookupKind::kCompact: return DecodeTilesWith<CompactRansLookup>(batch);
    case RansLookupKind::kWide: break;
  }
  return DecodeTilesWith<WideRansLookup, StoreKind::kStored>(batch);
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

  const TileBatch batch = layout.Batch(buffer.get());
  const uint64_t tiles = DecodeTilesEmulated(batch);
  if (decoded_tiles != nullptr) *decoded_tiles = tiles;
  std::vector<DecodeResult> results;
  for (size_t i = 0; i < samples.size(); ++i) results.push_back(UnpackResult(batch.results[i]));
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
