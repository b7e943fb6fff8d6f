// Plans the one buffer that a batch is uploaded to, and writes what is staged in pieces.
// Layer: cuda; plain C++, knows nothing of streams or allocators.
//
//   results | descriptors | plans | tile tasks | taker lists | value tables, rans models |
//     staged part | staged part | ... | copied part | copied part | ...
//
// A part is the payloads of some samples, those of the tiles that windows touch, and padding:
// staged ones, and ones that are copied from where they are, in pinned memory. All else comes
// first, so that the buffer can go up in chunks and a part can be decoded when it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/engine/gpu_device.h"
#include "cuda/kernels/tile_batch.h"
#include "format/image_view.h"
#include "output/output_plan.h"
#include "output/window_job.h"

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
  // The file is in pinned memory, and stays there until the batch is done.
  bool is_pinned = false;
  // Another window of the file of the sample before. Payloads and tables go up once, and a shared
  // tile is decoded once. Only the first sets cache_key and is_pinned; all have its `view` and
  // `cached`.
  bool shares_file = false;
  // Another group of channels of the image of the samples before: their value table goes up once.
  bool shares_tables = false;
};

// The samples of a group of a job, one for each window. Those of the groups before go before them.
void AppendSamples(const WindowJob& job, size_t group, std::vector<CudaSample>* samples);

// How a batch goes up: as a whole and staged, unless told otherwise.
struct UploadPolicy {
  // A batch is cut where so many bytes of payloads are before the cut and behind it.
  uint64_t part_bytes = ~uint64_t{0};
  // Fewer are staged together with others, rather than copied from where they are.
  uint64_t direct_bytes = ~uint64_t{0};
  // Fewer are staged by one thread: others take 0.3 ms to begin.
  uint64_t parallel_bytes = 0;
};

// Samples of a batch that follow one another, and what they need beyond the parts before.
// Ends are those of the lists of samples, pieces, copies and launches.
struct UploadPart {
  size_t sample_end;
  size_t piece_end;
  size_t copy_end;
  size_t launch_end;
};

// The payloads of the samples [sample_begin, sample_end), and what lies between them, that go
// up from where they are.
struct DirectCopy {
  const uint8_t* from;
  uint64_t bytes;
  size_t sample_begin, sample_end;
  uint64_t offset;  // in the buffer
};

// Calls task(i) for i in [0, count), in any order, maybe in parallel.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& task)>;

// The same on this thread where `for_each` is null.
void RunForEach(const ForEach& for_each, size_t count, const std::function<void(size_t)>& task);
inline const ForEach kOnThisThread;

// How the rans tiles of a batch are decoded.
struct RansGrid {
  uint32_t warps_per_block;
  uint32_t blocks_per_multiprocessor;
};

// The plan of the least predicted time for images of so many tasks, launched in parts, when a
// warp needs `scratch_bytes` of shared memory, and a multiprocessor has so many `warps`.
RansGrid PlanRans(const std::vector<uint64_t>& task_counts, const std::vector<UploadPart>& parts,
                  uint32_t scratch_bytes, const WarpLimits& warps, const GpuLimits& limits);

class BatchLayout {
 public:
  // Plans a batch. `samples` and the encoded bytes must outlive the calls of WritePiece.
  // Storage of the plan before is reused. Throws std::length_error for windows that take more than
  // 2^32 - 1 tiles.
  void Plan(const std::vector<CudaSample>& samples, const GpuLimits& limits,
            const ForEach& for_each = nullptr, const UploadPolicy& policy = {});

  // Size of the buffer, which must be 16-byte aligned, and of its start, which is staged.
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t staged_bytes() const { return staged_bytes_; }
  // The results come first: one uint64_t for each sample.
  uint64_t results_bytes() const { return 8 * uint64_t{samples_->size()}; }

  // Pieces can be written in any order and in parallel. `staging` is the
  // buffer to fill, `device` the address at which kernels will see it.
  size_t piece_count() const { return samples_->size() + pieces_.size(); }
  void WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const;
  // Bytes from the start of the buffer that are complete once its first `pieces` pieces
  // are written.
  uint64_t BytesOfPieces(size_t pieces) const;

  const std::vector<UploadPart>& parts() const { return parts_; }
  const std::vector<DirectCopy>& copies() const { return copies_; }
  // kPayloadPaddingBytes zeros among what is staged, to copy behind the last copy of a part.
  uint64_t zeros_offset() const { return zeros_offset_; }

  // The launches of all parts, one after the other: of each part at most one for each kind of tiles
  // and size of samples. And what they are, in a buffer at `device`.
  size_t launch_count() const { return launches_.size(); }
  TileBatch Batch(uint8_t* device, size_t launch) const;
  // A sample's payloads there.
  const uint8_t* Payloads(size_t sample, const uint8_t* device) const {
    return device + places_[sample].payloads_offset;
  }
  // The same on the host, where they go up from.
  const uint8_t* HostPayloads(size_t sample, const uint8_t* staging) const {
    return places_[sample].is_direct ? (*samples_)[sample].view.payloads
                                     : Payloads(sample, staging);
  }

 private:
  struct Place {
    TileSpan span;  // the tiles of the window
    uint64_t border_tasks;
    uint64_t table_offset;
    uint64_t rans_offset;
    uint64_t colors_offset;
    uint64_t payloads_offset;
    uint64_t payloads_bytes;  // to upload
    bool is_direct;           // they are not staged
    // Of the first sample of a file alone, for all its samples:
    size_t file_end;
    TileSpan file_span;  // all tiles of the windows, and what is between
    // By TileKind. Tasks are counted in whole blocks.
    uint64_t task_count[kTileKinds];
    uint64_t first_task[kTileKinds];
    size_t first_run;  // a run for each row of file_span; or for each tile, where groups of
    uint32_t row_runs;  // channels have payloads in turn
    size_t first_tile;  // in kinds_, and in taker_ends_
    // In takers_. A file with one sample has one taker, for all of its tiles.
    size_t first_taker;
    uint64_t taker_count;

    bool has_rans() const { return task_count[static_cast<size_t>(TileKind::kModel)] != 0; }
  };
  struct Launch {
    TileKind kind;
    uint32_t sample_bytes;
    uint64_t first_task, task_count;
    bool in_teams;
  };
  // The payloads of a row of tiles, or one, in the file and behind payloads_offset.
  struct Run {
    uint64_t begin;
    uint64_t bytes;
    uint64_t offset;
  };
  // Some of a sample's payload bytes.
  struct StagingCopy {
    size_t sample;
    uint64_t begin;  // in the file's payloads
    uint64_t offset;  // in the buffer
    uint64_t bytes;
    uint64_t padding_bytes;  // zeros behind, at the end of a part
  };

  void PlanFiles(const ForEach& for_each);
  void PlanTakers(size_t first);
  void FindKinds(size_t first);
  void PlanBlocks(const GpuLimits& limits);
  template <class Function>
  void ForEachTile(size_t first, const Function& function) const;
  void PlanRuns(size_t first);
  const Run& RunOfTile(const Place& file, uint32_t row, uint32_t column) const;
  void PlanParts(uint64_t part_bytes);
  void PlanOrder(const GpuLimits& limits);
  bool CanBeDirect(size_t sample) const;
  void PlanCopies(size_t begin, size_t end, uint64_t direct_bytes);
  uint64_t PlaceStaged(uint64_t offset);
  uint64_t PlaceCopies(uint64_t offset);
  void PlanPieces(size_t sample);
  void AppendPieces(size_t sample, const Run& run, size_t first_piece);

  void WriteFile(size_t first, uint8_t* staging, uint8_t* device) const;
  void WriteTasks(size_t first, bool is_sound, uint8_t* staging) const;
  void WriteDescriptor(size_t sample, bool has_rans, uint8_t* staging, uint8_t* device) const;

  const std::vector<CudaSample>* samples_ = nullptr;
  std::vector<Place> places_;
  std::vector<size_t> files_;  // the first sample of each
  // The samples that take each tile of a file's span, tile after tile, and where those of each end,
  // counted from the file's first.
  std::vector<uint32_t> takers_;
  std::vector<uint32_t> taker_ends_;
  std::vector<TileKind> kinds_;  // of these tiles
  std::vector<TileSpan> row_spans_;  // of a file: what is touched of each row
  std::vector<Run> runs_;
  std::vector<StagingCopy> pieces_;  // behind a piece for each sample
  std::vector<uint64_t> task_counts_;  // of the rans tiles of each sample, for PlanRans()
  std::vector<UploadPart> parts_;
  std::vector<DirectCopy> copies_;
  std::vector<size_t> order_;  // of the files' tasks
  std::vector<Launch> launches_;
  uint64_t samples_offset_ = 0;
  StoreKind store_ = StoreKind::kStored;
  uint64_t plans_offset_ = 0;
  uint64_t tasks_offset_ = 0;
  uint64_t lists_offset_ = 0;
  uint64_t takers_offset_ = 0;
  uint64_t task_count_ = 0;
  // Of launches of rans tiles, by the bytes of samples less one.
  uint32_t warps_per_block_[2] = {1, 1};
  uint32_t scratch_bytes_[2] = {0, 0};
  uint64_t zeros_offset_ = 0;
  uint64_t payloads_offset_ = 0;
  uint64_t staged_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace l3
