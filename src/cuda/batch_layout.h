// Plans the one buffer that a batch is uploaded in, and writes it in pieces.
// Layer: cuda; plain C++, knows nothing of streams or allocators.
//
//   results | descriptors | plans | tile tasks | value tables, rans models | part | part | ...
//
// A part is the payloads of some samples, those of the tiles that windows touch, and padding.
// All else is written before, so that the buffer can go up in chunks and a part can be decoded
// when it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/output.h"
#include "cuda/tile_batch.h"
#include "format/image_view.h"

namespace l3 {

struct CachedImage;

// One image of a batch: a validated file in host memory, and what becomes of its samples.
// The plan's output is in the kernel's memory. Frameworks pack the outputs of a batch
// tightly: expect no more alignment than a sample needs.
struct CudaSample {
  ImageView view;
  OutputPlan plan;
  // Not null: the payloads are there, in device memory, and `view` is the cached one.
  const CachedImage* cached = nullptr;
  // Not null: the cache shall keep the image under this name, so all payloads go up.
  const std::string* cache_key = nullptr;
};

// Calls task(i) for i in [0, count), in any order, maybe in parallel.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& task)>;

// The same on this thread where `for_each` is null.
void RunForEach(const ForEach& for_each, size_t count, const std::function<void(size_t)>& task);

// Warps of a kernel for rans tiles.
struct WarpLimits {
  uint32_t per_multiprocessor;  // as many as have registers
  uint32_t per_block;
};

// How many multiprocessors there are, and what each has room for.
struct GpuLimits {
  uint32_t multiprocessors;
  uint32_t shared_bytes;            // of shared memory
  uint32_t shared_bytes_per_block;  // at most
  uint32_t reserved_bytes;          // of it that a block takes besides its own
  WarpLimits compact_rans;          // of the kernels with these tables
  WarpLimits wide_rans;
  WarpLimits rans_plans;            // of the one where samples follow plans
};

// How the rans tiles of a batch are decoded.
struct RansPlan {
  RansLookupKind lookup;
  uint32_t warps_per_block;
  uint32_t blocks_per_multiprocessor;
};

// The plan of the least predicted time for images of so many tasks, launched in parts that
// end before the images `part_ends`, when a warp needs `scratch_bytes` of shared memory.
// Where samples follow plans, tables are compact.
RansPlan PlanRans(const std::vector<uint64_t>& task_counts, const std::vector<size_t>& part_ends,
                  uint32_t scratch_bytes, bool has_plans, const GpuLimits& limits);

class BatchLayout {
 public:
  // Plans a batch, cut where `part_bytes` of payloads are before the cut and behind it. `samples`
  // and the encoded bytes must outlive the calls of WritePiece. Storage of the plan before is
  // reused.
  void Plan(const std::vector<CudaSample>& samples, const GpuLimits& limits,
            const ForEach& for_each = nullptr, uint64_t part_bytes = ~uint64_t{0});

  // Size of the buffer. It must be 16-byte aligned.
  uint64_t total_bytes() const { return total_bytes_; }
  // The results come first: one uint64_t for each sample.
  uint64_t results_bytes() const { return 8 * uint64_t{samples_->size()}; }

  // Pieces can be written in any order and in parallel. `staging` is the
  // buffer to fill, `device` the address at which kernels will see it.
  size_t piece_count() const { return samples_->size() + pieces_.size(); }
  // The first pieces, which have all that the parts up to this one need.
  size_t PieceEnd(size_t part) const { return places_[part_ends_[part] - 1].piece_end; }
  void WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const;
  // Bytes from the start of the buffer that are complete once its first `pieces` pieces
  // are written.
  uint64_t BytesOfPieces(size_t pieces) const;

  size_t part_count() const { return part_ends_.size(); }
  // The batch as kernels see it, in a buffer at `device`: the tasks of one part, or all.
  TileBatch Batch(uint8_t* device, size_t part) const;
  TileBatch Batch(uint8_t* device) const;
  // A sample's payloads there.
  const uint8_t* Payloads(size_t sample, const uint8_t* device) const {
    return device + places_[sample].payloads_offset;
  }
  // Whether one of the tiles that a sample decodes, or keeps, is a rans tile.
  bool has_rans(size_t sample) const { return places_[sample].has_rans; }

 private:
  struct Place {
    TileSpan span;  // the tiles to decode
    uint64_t border_tasks;
    uint64_t first_task;
    uint64_t table_offset;
    bool has_rans;
    uint64_t rans_offset;
    uint64_t payloads_offset;
    uint64_t payloads_bytes;  // to upload
    size_t first_run;  // a run for each row of the span
    size_t piece_end;  // of the sample's pieces, if its part ends with it
  };
  // The payloads of a row of tiles, in the file and behind payloads_offset.
  struct Run {
    uint64_t begin;
    uint64_t bytes;
    uint64_t offset;
  };
  // Some of a sample's payload bytes.
  struct Piece {
    size_t sample;
    uint64_t begin;   // in the file's payloads
    uint64_t offset;  // in the buffer
    uint64_t bytes;
    uint64_t padding_bytes;  // zeros behind, at the end of a part
  };

  void PlanRuns(size_t sample);
  void PlanParts(uint64_t part_bytes);
  void PlanOrder();
  void PlanPieces(size_t sample);
  void AppendPieces(size_t sample, const Run& run, size_t first_piece);

  void WriteSample(size_t sample, uint8_t* staging, uint8_t* device) const;
  void WriteTasks(size_t sample, uint8_t* staging) const;
  void WriteDescriptor(size_t sample, uint8_t* staging, uint8_t* device) const;

  const std::vector<CudaSample>* samples_ = nullptr;
  std::vector<Place> places_;
  std::vector<Run> runs_;
  std::vector<Piece> pieces_;          // behind a piece for each sample
  std::vector<uint64_t> task_counts_;  // of each sample, in whole blocks
  std::vector<size_t> part_ends_;      // the sample behind each part
  std::vector<size_t> order_;          // of the samples' tasks
  uint64_t samples_offset_ = 0;
  bool has_plans_ = false;
  uint64_t plans_offset_ = 0;
  uint64_t tasks_offset_ = 0;
  uint64_t task_count_ = 0;
  RansPlan rans_ = {};
  uint32_t scratch_bytes_ = 0;
  uint64_t payloads_offset_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace l3
