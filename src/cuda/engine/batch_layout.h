// Lays out the one buffer that a batch is uploaded to, and writes what is staged in pieces.
// Layer: cuda; plain C++, without streams or allocators.
//
//   results | windows | plans | tile tasks | window lists | tables, models | jpeg | joins |
//   payloads
//
// `jpeg` has the models, units and tasks of images of jpeg tiles. Behind the payloads lies scratch
// memory for their samples, which does not go up. `joins` has the tasks and tables of samples of 32
// bits. Their planes lie behind the payloads, and do not go up either.
//
// Payloads come last (upload_layout.h), so that the buffer can go up in chunks and a part can be
// decoded when it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/for_each.h"
#include "cuda/engine/batch_image.h"
#include "cuda/engine/jpeg_tasks.h"
#include "cuda/engine/sample_joins.h"
#include "cuda/engine/tile_tasks.h"
#include "cuda/engine/upload_layout.h"
#include "output/window_job.h"

namespace l3 {

class BatchLayout {
 public:
  // Plans a batch, and replaces jobs of samples of 32 bits by those of what tiles hold. The jobs,
  // what they point at and the encoded bytes must outlive the calls of WritePiece. The outputs of
  // plans are in the kernels' memory, and may lie at any address that a value of their type may
  // have. Storage of the plan before is reused. Throws std::length_error for windows that need more
  // than 2^32 - 1 tiles.
  void Plan(std::vector<WindowJob>* jobs, const GpuLimits& limits,
            const ForEach& for_each = nullptr, const UploadPolicy& policy = {});

  const std::vector<BatchImage>& images() const { return images_; }
  const UploadLayout& uploads() const { return uploads_; }

  // Size of the buffer, which must be 16-byte aligned, of what of it goes up, and of its start,
  // which is staged.
  uint64_t total_bytes() const { return uploads_.total_bytes() + joins_.planes_bytes(); }
  uint64_t uploaded_bytes() const { return uploads_.total_bytes(); }
  uint64_t staged_bytes() const { return uploads_.staged_bytes(); }
  // Memory of the device besides the buffer, for samples of jpeg tiles; aligned to 16 bytes, and
  // known before pieces are written.
  uint64_t jpeg_scratch_bytes() const { return jpegs_.scratch_bytes(); }
  void SetJpegScratch(uint8_t* memory) { jpeg_scratch_ = memory; }
  // The results come first: one uint64_t for each window of each image.
  size_t window_count() const { return images_.empty() ? 0 : images_.back().window_end; }
  uint64_t results_bytes() const { return 8 * uint64_t{window_count()}; }

  // A piece for each image, then the staging copies. They can be written in any order and in
  // parallel. `staging` is the buffer to fill, `device` the address at which kernels will see it.
  size_t piece_count() const { return images_.size() + uploads_.staging_count(); }
  void WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const;
  // Before the pieces.
  void WriteJoins(uint8_t* staging, uint8_t* device);
  // Bytes from the start of the buffer that are complete once its first `pieces` pieces
  // are written.
  uint64_t BytesOfPieces(size_t pieces) const {
    return pieces < images_.size() ? 0 : uploads_.BytesOfStaging(pieces - images_.size());
  }
  // The pieces and launches of a part end there.
  size_t PieceEnd(size_t part) const { return images_.size() + uploads_.parts()[part].staging_end; }
  size_t LaunchEnd(size_t part) const { return tasks_.launch_ends()[part]; }

  // The launches of all parts, one after the other, in a buffer at `device`.
  size_t launch_count() const { return tasks_.launch_count(); }
  TileBatch Batch(uint8_t* device, size_t launch) const;
  // The same of images of jpeg tiles: rounds.
  size_t RoundEnd(size_t part) const { return jpegs_.round_ends()[part]; }
  size_t round_count() const { return jpegs_.round_count(); }
  JpegBatch Round(uint8_t* device, size_t round) const;
  // The tasks of a last launch.
  size_t join_count() const { return joins_.task_count(); }
  const JoinTask* Joins(const uint8_t* device) const {
    return reinterpret_cast<const JoinTask*>(device + joins_offset_);
  }

 private:
  struct Tables {
    uint64_t values_offset;
    uint64_t rans_offset;
    uint64_t colors_offset;
  };

  uint64_t PlaceTables(uint64_t offset);
  uint64_t PlaceJpegs(uint64_t offset);
  void WriteImage(size_t image, uint8_t* staging, uint8_t* device) const;
  void WriteWindow(size_t image, size_t window, uint8_t* staging, uint8_t* device) const;

  std::vector<BatchImage> images_;
  UploadLayout uploads_;
  TileTasks tasks_;
  JpegTasks jpegs_;
  SampleJoins joins_;
  std::vector<Tables> tables_;  // of each image
  uint64_t windows_offset_ = 0;
  uint64_t plans_offset_ = 0;
  uint64_t tasks_offset_ = 0;
  uint64_t lists_offset_ = 0;
  uint64_t numbers_offset_ = 0;
  uint64_t jpegs_offset_ = 0;
  uint64_t units_offset_ = 0;
  uint64_t jpeg_tiles_offset_ = 0;
  uint64_t jpeg_pixels_offset_ = 0;
  uint64_t joins_offset_ = 0;
  uint8_t* jpeg_scratch_ = nullptr;
};

}  // namespace l3
