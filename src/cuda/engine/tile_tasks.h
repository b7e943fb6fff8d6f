// The tasks of a batch: which windows need each tile, which kernel decodes it, in which order.
// Those of jpeg tiles are planned in jpeg_tasks.h.
// Layer: cuda; plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/for_each.h"
#include "cuda/engine/batch_image.h"
#include "cuda/engine/gpu_device.h"
#include "cuda/engine/upload_layout.h"
#include "cuda/kernels/tile_batch.h"

namespace l3 {

class TileTasks {
 public:
  // Where tasks are written: pointers into staging memory.
  struct Places {
    uint8_t* results;
    uint8_t* tasks;
    uint8_t* lists;
    uint8_t* numbers;
  };

  // Finds the tiles of each image, the windows that need them and their kinds. `images` must
  // outlive the plan. Throws std::length_error for windows that need more than 2^32 - 1 tiles.
  void Find(const std::vector<BatchImage>& images, const ForEach& for_each);
  // Orders the tasks, and plans the launches of each part.
  void PlanLaunches(const std::vector<UploadPart>& parts, const GpuLimits& limits);

  StoreKind store() const { return store_; }
  // Whether there are plans, and numbers of windows: also for jpeg tiles in a batch that is stored
  // without.
  bool has_plans() const { return has_plans_; }
  uint64_t task_count() const { return task_count_; }
  uint64_t number_count() const { return numbers_.size(); }
  bool has_rans(size_t image) const { return tasks_[image].count[kModel] != 0; }

  // Launches of all parts, one after the other: of each part at most one for each kind of tiles and
  // size of samples. And where those of each part end.
  size_t launch_count() const { return launches_.size(); }
  const std::vector<size_t>& launch_ends() const { return launch_ends_; }
  // What a launch is: `tasks`, `lists` are those of the batch.
  TileBatch Batch(size_t launch, const TileTask* tasks, const WindowList* lists) const;

  // Writes an image's tasks, and what the results of its windows start from. Tiles without a sound
  // payload, or all if `status` is that of a damaged image, are no task of a kernel.
  void Write(size_t image, Status status, const UploadLayout& uploads, const Places& to) const;

  // The windows that need a tile of an image's span.
  WindowList WindowsOf(size_t image, uint32_t row, uint32_t column) const;
  // Lowers the results of windows to that of a bad tile.
  void Note(const WindowList& windows, uint64_t bad_tile, uint8_t* results) const;

 private:
  static constexpr size_t kModel = static_cast<size_t>(TileKind::kModel);
  static constexpr size_t kSimple = static_cast<size_t>(TileKind::kSimple);

  struct ImageTasks {
    uint64_t count[kTileKinds];  // by TileKind, in whole blocks
    uint64_t first[kTileKinds];
    size_t first_tile;  // in kinds_, and in number_ends_
    // In numbers_. An image with one window has one number, for all of its tiles.
    size_t first_number;
    uint64_t number_count;
  };
  struct Launch {
    TileKind kind;
    uint32_t sample_bytes;
    uint64_t first_task, task_count;
    bool in_teams;
  };

  void ListWindows(size_t image);
  void FindKinds(size_t image);
  void PlanBlocks(const std::vector<UploadPart>& parts, const GpuLimits& limits);
  template <class Function>
  void ForEachTile(size_t image, const Function& function) const;

  const std::vector<BatchImage>* images_ = nullptr;
  std::vector<ImageTasks> tasks_;  // of each image
  // The windows that need each tile of an image's span, tile after tile, and where those of each
  // end, counted from the image's first.
  std::vector<uint32_t> numbers_;
  std::vector<uint32_t> number_ends_;
  std::vector<TileKind> kinds_;  // of these tiles
  bool has_plans_ = false;
  StoreKind store_ = StoreKind::kStored;
  std::vector<uint64_t> rans_counts_;  // of each image, for PlanRans()
  std::vector<size_t> part_ends_;
  std::vector<size_t> order_;  // of the images of a part
  std::vector<Launch> launches_;
  std::vector<size_t> launch_ends_;
  uint64_t task_count_ = 0;
  // Of launches of rans tiles, by the bytes of samples less one.
  uint32_t warps_per_block_[2] = {1, 1};
  uint32_t scratch_bytes_[2] = {0, 0};
};

}  // namespace l3
