// A batch as kernels see it: plain data that the host writes and uploads.
// Layer: cuda. batch_layout.h lays it out.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/color.h"
#include "core/rans_model.h"
#include "core/tile.h"
#include "format/image_view.h"
#include "format/rans_model.h"
#include "format/status.h"
#include "output/output_plan.h"

namespace l3 {

// By which code the plan of a window is carried out (store_path.h).
enum class StorePath : uint8_t {
  kStored,  // rows as they are stored
  kHalves,  // normalized CHW float16, as the inputs of networks have it
  kEight,   // eight values at a time
  kOne,     // eight values, converted one at a time: they may be NaN
};

// How the values of a channel lie in a row of the output.
enum class RowOrder : uint8_t { kForwards, kBackwards, kScattered };

// A window of an image, as kernels read it. Pointers are the kernel's.
struct DeviceWindow {
  ImageInfo info;  // of the image
  StorePath path;  // of its plan, as are the next two
  RowOrder row_order;
  uint16_t top_bit;  // of a signed sample; 0 for unsigned ones
  SampleMap map;
  ImageOutput output;       // unless there are plans
  const RansModel* rans;    // null if no tile needed it when the batch was planned
  ColorTable colors;        // of match tiles
  const uint8_t* payloads;  // 16-byte aligned, readable kPayloadPaddingBytes past their end
};
static_assert(sizeof(DeviceWindow) == 96 && std::is_trivially_copyable_v<DeviceWindow>);

// One tile: the work of a warp. Tasks without a payload have no tile either: `tile` is
// then the number of a piece of the border, from 1 on, or 0 if the task only fills a block up, or
// stands for a tile that the host could not find.
struct TileTask {
  uint32_t window;  // the first that needs the tile
  uint32_t tile;
  uint32_t payload_begin;  // in units of 16 bytes, from the window's payloads
  uint32_t payload_units;
};
static_assert(sizeof(TileTask) == 16 && std::is_trivially_copyable_v<TileTask>);

// The windows of one image that need a tile.
struct WindowList {
  uint32_t begin;  // in TileBatch::window_numbers
  uint32_t count;  // at most kMaxTileWindows; 0 for a task without a tile
};

// A tile that more windows need is the work of several warps, which all decode it, so that no warp
// is left behind with thousands of windows. Then storing costs far more than decoding.
constexpr uint32_t kMaxTileWindows = 64;

// A kernel decodes tiles of one kind, with samples of one size, that leave in one way.
// kModel: rans and match tiles. kSimple: packed, constant and stored tiles, and borders.
enum class TileKind : uint32_t { kModel, kSimple };
constexpr uint32_t kTileKinds = 2;
// All images leave whole and as stored, or tiles are stored by the plans of all windows that need
// them.
enum class StoreKind : uint32_t { kStored, kPlans };
constexpr uint32_t kStoreKinds = 2;

// Teams (warp_scratch.cuh) that an SM holds at once, by StoreKind. With more than 8 tiles it is
// busy without teams; plans take more registers.
constexpr uint32_t kTeamsPerSm[kStoreKinds] = {8, 5};

// The work of one launch.
struct TileBatch {
  const DeviceWindow* windows;
  // The tasks of a block follow one another, and are of one image.
  const TileTask* tasks;
  uint64_t* results;  // one for each window, kNoBadTile before the launch
  uint64_t task_count;
  TileKind kind;
  uint32_t sample_bytes;     // of all images with tasks here
  uint32_t warps_per_block;  // with a task each; 1 without rans tiles
  uint32_t shared_bytes;     // of shared memory that a block needs
  uint32_t scratch_bytes;    // of it each task's, a multiple of 16
  uint32_t in_teams;         // not 0: a block is a team for one tile (TeamScratch)
  // One for each window, 16-byte aligned; null if all leave whole and as stored.
  const OutputPlan* plans;
  // With plans: one for each task, and what they list. A task's window is the first of them.
  const WindowList* window_lists;
  const uint32_t* window_numbers;

  L3_HOST_DEVICE StoreKind store() const {
    return plans == nullptr ? StoreKind::kStored : StoreKind::kPlans;
  }
};

// What a tile is stored by where there are plans.
struct TilePlans {
  const OutputPlan* plans;
  const DeviceWindow* windows;
  const uint32_t* numbers;  // of those that need the tile
  uint32_t count;
};
L3_HOST_DEVICE inline TilePlans PlansOfTask(const TileBatch& batch, uint64_t task) {
  const WindowList& list = batch.window_lists[task];
  return {batch.plans, batch.windows, batch.window_numbers + list.begin, list.count};
}

// Kernels read up to this many bytes past a payload: whole words, and the words
// of a rans tile for some steps before they look where those end.
constexpr uint32_t kPayloadPaddingBytes = 4096 + 64;

// The result of a window is the least of its bad tiles' numbers, or kNoBadTile.
constexpr uint64_t kNoBadTile = ~uint64_t{0};
L3_HOST_DEVICE constexpr uint64_t BadTile(uint32_t tile, Status status) {
  return uint64_t{tile} << 32 | static_cast<uint32_t>(status);
}
inline DecodeResult UnpackResult(uint64_t result) {
  if (result == kNoBadTile) return {Status::kOk, 0};
  return {static_cast<Status>(result), static_cast<uint32_t>(result >> 32)};
}

}  // namespace l3
