// A batch as kernels see it: plain data that the host writes and uploads.
// Layer: cuda. batch_layout.h lays it out.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/color.h"
#include "core/output.h"
#include "core/tile.h"
#include "format/image_view.h"
#include "format/rans_model.h"
#include "format/status.h"

namespace l3 {

// One image. Pointers are the kernel's.
struct DecodeSample {
  ImageInfo info;
  uint32_t padding;
  SampleMap map;
  ImageOutput output;       // unless there are plans
  const RansModel* rans;    // null if no tile needed it when the batch was planned
  const uint8_t* payloads;  // 16-byte aligned, readable kPayloadPaddingBytes past their end
};
static_assert(sizeof(DecodeSample) == 72 && std::is_trivially_copyable_v<DecodeSample>);

// One tile: the work of a warp. Tasks without a payload have no tile either: `tile` is
// then the number of a piece of the border, from 1 on, or 0 if the task only fills a block up, or
// stands for a tile that the host could not find.
struct TileTask {
  uint32_t sample;
  uint32_t tile;
  uint32_t payload_begin;  // in units of 16 bytes, from the sample's payloads
  uint32_t payload_units;
};
static_assert(sizeof(TileTask) == 16 && std::is_trivially_copyable_v<TileTask>);

// How kernels look the tokens of rans tiles up (rans_lookup.cuh).
enum class RansLookupKind : uint32_t { kNone, kCompact, kWide };

struct TileBatch {
  const DecodeSample* samples;
  // The tasks of a block follow one another, and are of one sample.
  const TileTask* tasks;
  uint64_t* results;  // one for each sample, kNoBadTile before the launch
  uint64_t task_count;
  uint32_t warps_per_block;  // 1 without rans tiles
  uint32_t shared_bytes;     // of shared memory that a block needs
  uint32_t scratch_bytes;    // of it each warp's, a multiple of 16
  RansLookupKind lookup;     // kNone without rans tiles; never kWide with plans
  // One for each sample, 16-byte aligned; null if all leave whole and as stored.
  const OutputPlan* plans;
};

// Kernels read up to this many bytes past a payload: whole words, and the words
// of a rans tile for some steps before they look where those end.
constexpr uint32_t kPayloadPaddingBytes = 4096 + 64;

// The result of a sample is the least of its bad tiles' numbers, or kNoBadTile.
constexpr uint64_t kNoBadTile = ~uint64_t{0};
L3_HOST_DEVICE constexpr uint64_t BadTile(uint32_t tile, Status status) {
  return uint64_t{tile} << 32 | static_cast<uint32_t>(status);
}
inline DecodeResult UnpackResult(uint64_t result) {
  if (result == kNoBadTile) return {Status::kOk, 0};
  return {static_cast<Status>(result), static_cast<uint32_t>(result >> 32)};
}

}  // namespace l3
