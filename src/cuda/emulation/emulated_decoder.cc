#include "cuda/emulation/emulated_decoder.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include "cuda/emulation/emulated_warp.h"
#include "cuda/kernels/jpeg_pixel_kernel.cuh"
#include "cuda/kernels/jpeg_tile_kernel.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/tile_kernels.cuh"

namespace l3 {
namespace {

constexpr int kFresh = 0xCD;  // fills unwritten memory

// Calls run(warp) for each warp of a team. Between two SyncBlock() they run one after the other,
// from the last or from the first on by turns.
template <class Function>
void RunTeam(WarpEmulator (&team)[kTeamChannels], const Function& run) {
  std::function<void(EmulatedWarp&)> kernels[kTeamChannels];
  for (uint32_t channel = 0; channel < kTeamChannels; ++channel) {
    kernels[channel] = [&run, channel](EmulatedWarp& alone) {
      TeamWarp<EmulatedWarp> warp(alone, channel);
      run(warp);
    };
    team[channel].Begin(kernels[channel]);
  }
  uint32_t ended = 0;
  for (uint32_t round = 0; ended == 0; ++round) {
    for (uint32_t i = 0; i < kTeamChannels; ++i) {
      ended += team[round % 2 == 0 ? kTeamChannels - 1 - i : i].Advance() ? 1 : 0;
    }
  }
  if (ended != kTeamChannels) throw std::logic_error("warps differ in their calls of SyncBlock()");
}

// Returns how many times a tile was decoded.
template <TileKind kKind, StoreKind kStore, uint32_t kSampleBytes>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  using Samples = std::conditional_t<kSampleBytes == 1, ByteSamples, WordSamples>;
  static thread_local WarpEmulator team[kTeamChannels];  // stacks cost more than a small image
  WarpEmulator& emulator = team[0];
  constexpr bool kIsModel = kKind == TileKind::kModel;
  // Shared memory begins with anything.
  const auto lookup = std::make_unique<RansLookup>();
  if (kIsModel) std::memset(static_cast<void*>(lookup.get()), kFresh, sizeof(*lookup));
  uint64_t decoded_tiles = 0;
  for (uint64_t i = 0; i < batch.task_count; ++i) {
    const TileTask task = batch.tasks[i];
    const DeviceWindow& window = batch.windows[task.window];
    if (kIsModel && i % batch.warps_per_block == 0 && window.rans != nullptr) {
      emulator.Run([&](EmulatedWarp& warp) {
        BuildRansLookup<Samples>(warp, 0, 1, *window.rans, lookup.get());
      });
    }
    const std::unique_ptr<uint8_t[]> scratch(new uint8_t[batch.scratch_bytes]);
    if (task.payload_units != 0) ++decoded_tiles;
    const auto run = [&](auto& warp) {
      RunTask<kKind, kStore, kSampleBytes>(
          warp, batch, i, lookup.get(), scratch.get(),
          [](uint64_t* result, uint64_t bad) { *result = std::min(*result, bad); });
    };
    if constexpr (kKind == TileKind::kSimple && kSampleBytes == 1) {
      if (batch.in_teams != 0) {
        RunTeam(team, run);
        continue;
      }
    }
    emulator.Run(run);
  }
  return decoded_tiles;
}

template <TileKind kKind, uint32_t kSampleBytes>
uint64_t DecodeTilesWith(const TileBatch& batch) {
  return batch.store() == StoreKind::kStored
             ? DecodeTilesWith<kKind, StoreKind::kStored, kSampleBytes>(batch)
             : DecodeTilesWith<kKind, StoreKind::kPlans, kSampleBytes>(batch);
}

}  // namespace

uint64_t DecodeTilesEmulated(const TileBatch& batch) {
  if (batch.kind == TileKind::kModel) {
    return batch.sample_bytes == 1 ? DecodeTilesWith<TileKind::kModel, 1>(batch)
                                   : DecodeTilesWith<TileKind::kModel, 2>(batch);
  }
  return batch.sample_bytes == 1 ? DecodeTilesWith<TileKind::kSimple, 1>(batch)
                                 : DecodeTilesWith<TileKind::kSimple, 2>(batch);
}

uint64_t DecodeJpegEmulated(const JpegBatch& batch) {
  static thread_local WarpEmulator emulator;
  const auto lookup = std::make_unique<JpegLookup>();
  std::memset(static_cast<void*>(lookup.get()), kFresh, sizeof(*lookup));
  uint64_t decoded_tiles = 0;
  for (uint32_t i = 0; i < batch.tile_count; ++i) {
    const JpegTileTask& task = batch.tiles[i];
    if (i % batch.warps_per_block == 0) {
      emulator.Run([&](EmulatedWarp& warp) {
        BuildJpegLookup(warp, 0, 1, *batch.units[task.unit].image, lookup.get());
      });
    }
    const std::unique_ptr<uint8_t[]> scratch(new uint8_t[batch.scratch_bytes]);
    std::memset(scratch.get(), kFresh, batch.scratch_bytes);
    if (task.payload_units != 0) ++decoded_tiles;
    emulator.Run([&](EmulatedWarp& warp) {
      RunJpegTile(warp, batch, i, *lookup, scratch.get(),
                  [](uint64_t* result, uint64_t bad) { *result = std::min(*result, bad); });
    });
  }
  for (uint32_t i = 0; i < batch.pixel_count; ++i) {
    const auto scratch = std::make_unique<WarpScratch>();
    emulator.Run([&](EmulatedWarp& warp) { RunJpegPixels(warp, batch, i, scratch.get()); });
  }
  return decoded_tiles;
}

void JoinSamplesEmulated(const JoinTask* tasks, size_t count) {
  for (const JoinTask* task = tasks; task < tasks + count; ++task) {
    for (uint64_t i = 0; i < task->pixel_count(); ++i) JoinPixel(*task, i);
  }
}

std::vector<DecodeResult> DecodeBatchEmulated(const std::vector<WindowJob>& jobs,
                                              const GpuLimits& gpu, const ForEach& for_each,
                                              uint64_t* decoded_tiles) {
  std::vector<WindowJob> planned = jobs;
  BatchLayout layout;
  layout.Plan(&planned, gpu, for_each);
  // Of exactly this size, so that a sanitizer sees what reads or writes past it.
  const std::unique_ptr<uint8_t[]> buffer(new uint8_t[layout.total_bytes()]);
  std::memset(buffer.get(), kFresh, layout.total_bytes());
  const std::unique_ptr<uint8_t[]> scratch(new uint8_t[layout.jpeg_scratch_bytes()]);
  layout.SetJpegScratch(scratch.get());
  layout.WriteJoins(buffer.get(), buffer.get());
  RunForEach(for_each, layout.piece_count(),
             [&](size_t piece) { layout.WritePiece(piece, buffer.get(), buffer.get()); });

  uint64_t tiles = 0;
  for (size_t i = 0; i < layout.launch_count(); ++i) {
    tiles += DecodeTilesEmulated(layout.Batch(buffer.get(), i));
  }
  for (size_t i = 0; i < layout.round_count(); ++i) {
    tiles += DecodeJpegEmulated(layout.Round(buffer.get(), i));
  }
  JoinSamplesEmulated(layout.Joins(buffer.get()), layout.join_count());
  if (decoded_tiles != nullptr) *decoded_tiles = tiles;
  std::vector<DecodeResult> results;
  for (size_t i = 0; i < layout.window_count(); ++i) {
    uint64_t result;
    std::memcpy(&result, buffer.get() + i * sizeof(result), sizeof(result));
    results.push_back(UnpackResult(result));
  }
  return results;
}

uint64_t UploadedBytesEmulated(const std::vector<WindowJob>& jobs) {
  std::vector<WindowJob> planned = jobs;
  BatchLayout layout;
  layout.Plan(&planned, kLargeGpu);
  return layout.uploaded_bytes();
}

DecodeResult DecodeImageEmulated(const ImageView& view, const OutputPlan& plan,
                                 const GpuLimits& gpu, const ForEach& for_each) {
  const std::vector<GroupOutput> groups = {GroupOfView(view)};
  return DecodeBatchEmulated({{&view, &groups, &plan, 1}}, gpu, for_each)[0];
}

}  // namespace l3
