// Images of jpeg tiles in a batch: how much of them lies in scratch memory at a time, and the tasks
// of their launches. Layer: cuda; plain C++.
//
// A unit is some tiles of an image, and the tiles around them that their pixels need. A round is
// some units whose samples fit into the scratch memory of a batch. Its two launches follow those of
// the round before on one stream, so rounds share that memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/engine/batch_image.h"
#include "cuda/engine/gpu_device.h"
#include "cuda/engine/tile_tasks.h"
#include "cuda/engine/upload_layout.h"
#include "cuda/kernels/jpeg_batch.h"

namespace l3 {

class JpegTasks {
 public:
  // Where tables of the device lie: in staging memory, and as kernels will see them.
  struct Places {
    uint8_t* results;
    uint8_t* images;
    uint8_t* units;
    uint8_t* tiles;
    uint8_t* pixels;
    const uint8_t* images_dev;
    uint8_t* scratch_dev;
  };

  // Plans units and rounds. `images` and `windows` must outlive the plan. Throws std::length_error
  // for more than 2^32 - 1 tasks.
  void Plan(const std::vector<BatchImage>& images, const TileTasks& windows,
            const std::vector<UploadPart>& parts, const GpuLimits& limits);

  uint64_t image_count() const { return image_count_; }
  uint64_t unit_count() const { return units_.size(); }
  uint64_t tile_count() const { return tile_count_; }
  uint64_t pixel_count() const { return pixel_count_; }
  uint64_t scratch_bytes() const { return scratch_bytes_; }

  // Rounds of all parts, one after the other, and where those of each part end.
  size_t round_count() const { return rounds_.size(); }
  const std::vector<size_t>& round_ends() const { return round_ends_; }
  // What a round is: the tables are those of the batch.
  JpegBatch Batch(size_t round, const JpegUnit* units, const JpegTileTask* tiles,
                  const JpegPixelTask* pixels) const;

  // Writes what an image of jpeg tiles has in these tables, behind TileTasks::Write(): tiles
  // without a sound payload, or all if `status` is that of a damaged image, lower the results of
  // their windows.
  void Write(size_t image, Status status, const UploadLayout& uploads, const Places& to) const;

 private:
  // An image of the batch that has jpeg tiles.
  struct Image {
    uint64_t number;  // among those
    JpegInfo jpeg;  // as its chunk was when the batch was planned
    bool is_sound;  // and fitted the view
    size_t unit_begin, unit_end;
  };
  struct Unit {
    size_t image;
    TileSpan tiles;  // whose pixels are stored
    TileSpan decoded;  // with those around
    uint64_t planes_offset;  // in scratch memory
    uint64_t first_tile, first_pixel;  // tasks
    uint64_t tile_count, pixel_count;  // tiles in whole blocks
  };
  struct Round {
    size_t unit_begin, unit_end;
    uint32_t warps_per_block, scratch_bytes;
  };

  void AddUnits(size_t image, uint64_t scratch_bytes);
  void PlanBlocks(size_t unit_begin, const GpuLimits& limits);
  uint64_t PlaneBytes(const Unit& unit) const;
  TileRect RectOf(const Unit& unit) const;
  void WriteUnit(size_t number, Status status, const UploadLayout& uploads, const Places& to) const;
  template <class Function>
  void ForEachTile(const Unit& unit, const Function& function) const;
  template <class Function>
  void ForEachPixelTask(const Unit& unit, const Function& function) const;

  const std::vector<BatchImage>* images_ = nullptr;
  const TileTasks* windows_ = nullptr;
  std::vector<Image> jpegs_;  // of each image; others have no units
  std::vector<Unit> units_;
  std::vector<Round> rounds_;
  std::vector<size_t> round_ends_;
  uint64_t image_count_ = 0;
  uint64_t tile_count_ = 0;
  uint64_t pixel_count_ = 0;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace l3
