#include "cpu/cpu_decoder.h"

#include <algorithm>
#include <mutex>

#include "cpu/parallel.h"
#include "cpu/tile_x86.h"

namespace l3 {
namespace {

// What decodes a tile on `engine`, or null.
decltype(&DecodeTile) FindEngine(CpuEngine engine) {
  const bool any = engine == CpuEngine::kAuto;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vbmi") &&
                          __builtin_cpu_supports("avx512vbmi2") &&
                          __builtin_cpu_supports("avx512vnni");
  if (has_avx512 && (any || engine == CpuEngine::kAvx512)) return DecodeTileAvx512;
  if (has_avx2 && (any || engine == CpuEngine::kAvx2)) return DecodeTileAvx2;
#endif
  return any || engine == CpuEngine::kScalar ? DecodeTile : nullptr;
}

}  // namespace

bool IsAvailable(CpuEngine engine) { return FindEngine(engine) != nullptr; }

CpuDecoder::CpuDecoder(const ImageView& view, CpuEngine engine)
    : view_(view), decode_tile_(FindEngine(IsAvailable(engine) ? engine : CpuEngine::kScalar)) {
  map_ = SampleMap{nullptr, 1u << view.info.used_bits, view.info.shift};
  if (view.value_count != 0) {
    value_table_ = std::make_unique<uint16_t[]>(view.value_count);
    ReadValueTable(view, value_table_.get());
    map_.table = value_table_.get();
    map_.value_count = view.value_count;
  }
  if (HasRansTile(view)) {
    rans_ = std::make_unique<RansTables>();
    BuildRansTables(GetRansModel(view), view.info.used_bits, rans_.get());
  }
}

DecodeResult CpuDecoder::DecodeTiles(uint32_t begin, uint32_t end,
                                     const ImageOutput& output) const {
  DecodeResult result{Status::kOk, 0};
  for (uint32_t tile = begin; tile < end; ++tile) {
    const uint64_t payload = view_.PayloadBegin(tile);
    const uint64_t payload_end = view_.PayloadEnd(tile);
    // False only if somebody changed the index since ParseImage() judged it.
    const bool sound = payload < payload_end && payload_end <= view_.payloads_bytes;
    const Status status =
        sound ? decode_tile_(view_.info, map_, rans_.get(), tile, view_.payloads + payload,
                             static_cast<uint32_t>(payload_end - payload),
                             OutputOfTile(view_.info, output, GetTileRect(view_.info, tile)))
              : Status::kCorruptHeader;
    if (result.status == Status::kOk) result = {status, tile};
  }
  return result;
}

DecodeResult CpuDecoder::DecodeImage(const ImageOutput& output, unsigned threads) const {
  constexpr uint32_t kTilesPerTask = 4;
  const uint32_t tiles = view_.info.tile_count();
  const uint64_t tasks = CeilDiv(tiles, kTilesPerTask);
  DecodeResult first{Status::kOk, 0};
  std::mutex mutex;
  ParallelFor(tasks, threads, [&](uint64_t task) {
    const uint32_t begin = static_cast<uint32_t>(task) * kTilesPerTask;
    const uint32_t end = std::min(begin + kTilesPerTask, tiles);
    const DecodeResult result = DecodeTiles(begin, end, output);
    if (result.status == Status::kOk) return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (first.status == Status::kOk || result.tile < first.tile) first = result;
  });
  return first;
}

}  // namespace l3
