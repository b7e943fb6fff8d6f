#include "cuda/engine/batch_decoder.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "core/check.h"

namespace l3 {
namespace {

// Bytes staged before their upload is queued. Of a batch, only the first chunk is staged
// while nothing goes up. 8 MiB take some 150 us over PCIe 5 (55 GB/s), much more than the
// calls that queue them, and keep 16 threads busy with pieces of half a MiB.
constexpr uint64_t kChunkBytes = 8 << 20;

// Whether all tiles of an image, also those that are not decoded, pass their checks.
bool IsIntact(const ImageView& view, const uint8_t* payloads) {
  for (uint32_t tile = 0; tile < view.info.tile_count(); ++tile) {
    uint64_t begin;
    uint32_t bytes;
    if (!view.FindPayload(tile, &begin, &bytes) ||
        PayloadCheck(payloads + begin, bytes) != LoadU32(payloads + begin)) {
      return false;
    }
  }
  return true;
}

// About so many bytes of payloads are read for a job, other than those that are all begun at once.
uint64_t BytesToRead(const WindowJob& job) {
  if (job.source == nullptr || job.cached != nullptr || job.source->traits().is_remote) return 0;
  uint64_t tiles = 0;
  for (size_t i = 0; i < job.plan_count; ++i) {
    tiles += TilesOfWindow(*job.view, job.plans[i].window).tile_count();
  }
  const uint64_t all = job.view->info.tile_count();
  return job.view->payloads_bytes / all * std::min(tiles, all);
}

}  // namespace

BatchDecoder::BatchDecoder(std::unique_ptr<GpuDevice> device, std::shared_ptr<EncodedCache> cache,
                           const UploadPolicy& upload)
    : device_(std::move(device)),
      cache_(std::move(cache)),
      upload_(upload),
      limits_(device_->limits()),
      upload_stream_(device_->MakeStream()),
      second_stream_(device_->MakeStream()),
      forked_(device_->MakeEvent()),
      joined_(device_->MakeEvent()) {
  for (Slot& slot : slots_) {
    slot.uploaded = device_->MakeEvent();
    slot.done = device_->MakeEvent();
  }
}

BatchDecoder::~BatchDecoder() {
  for (Slot& slot : slots_) {
    try {
      slot.uploaded->Synchronize();
      slot.done->Synchronize();
    } catch (const std::exception&) {
      // The device is lost, and its work with it.
    }
  }
}

void BatchDecoder::Reserve(size_t device_bytes, size_t pinned_bytes) {
  for (Slot& slot : slots_) {
    Grow(&slot.device, device_bytes, 0, slot.done.get(), &GpuDevice::AllocateDevice);
    Grow(&slot.pinned, pinned_bytes, 0, slot.uploaded.get(), &GpuDevice::AllocatePinned);
  }
}

// Makes room in a buffer that queued work may use until `in_use`; for some spare bytes, too, if
// there is memory for them. The buffer is released first, and stays empty if there is no memory.
void BatchDecoder::Grow(Buffer* buffer, size_t bytes, size_t spare, GpuEvent* in_use,
                        Allocate allocate) {
  if (buffer->bytes >= bytes) return;
  in_use->Synchronize();
  *buffer = {};
  try {
    *buffer = {(*device_.*allocate)(bytes + spare), bytes + spare};
  } catch (const std::bad_alloc&) {
    if (spare == 0) throw;
    *buffer = {(*device_.*allocate)(bytes), bytes};
  }
}

void BatchDecoder::MakeRoom(Slot* slot) {
  const auto grow = [&](Buffer* buffer, size_t bytes, GpuEvent* in_use, Allocate allocate) {
    Grow(buffer, bytes, bytes / 4, in_use, allocate);  // as batches vary
  };
  grow(&slot->device, layout_.total_bytes(), slot->done.get(), &GpuDevice::AllocateDevice);
  grow(&slot->pinned, layout_.staged_bytes(), slot->uploaded.get(), &GpuDevice::AllocatePinned);
  if (jpeg_scratch_.bytes < layout_.jpeg_scratch_bytes()) {
    for (const Slot& other : slots_) other.done->Synchronize();
    Grow(&jpeg_scratch_, layout_.jpeg_scratch_bytes(), 0, slot->done.get(),
         &GpuDevice::AllocateDevice);
  }
  layout_.SetJpegScratch(jpeg_scratch_.data());
  grow(&slot->pinned_results, layout_.results_bytes(), slot->done.get(),
       &GpuDevice::AllocatePinned);
}

// Stages pieces and queues their upload, in chunks.
void BatchDecoder::StageAndUpload(const Slot& slot, size_t piece_begin, size_t piece_end,
                                  const ForEach& for_each) {
  struct Chunk {
    const BatchLayout& layout;
    const Slot& slot;
    size_t begin, end;  // of the pieces
  } chunk = {layout_, slot, piece_begin, piece_begin};
  uint64_t uploaded = layout_.BytesOfPieces(piece_begin);
  const uint64_t all = layout_.BytesOfPieces(piece_end);
  while (chunk.begin < piece_end) {
    const uint64_t left = all - uploaded;
    // A rest that is hardly a chunk goes along.
    const uint64_t goal = uploaded + (left < 2 * kChunkBytes ? left : kChunkBytes);
    while (chunk.end < piece_end && layout_.BytesOfPieces(chunk.end) < goal) ++chunk.end;
    const uint64_t staged = layout_.BytesOfPieces(chunk.end);
    const bool is_long = staged - uploaded >= upload_.parallel_bytes;
    RunForEach(is_long ? for_each : kOnThisThread, chunk.end - chunk.begin, [&chunk](size_t i) {
      chunk.layout.WritePiece(chunk.begin + i, chunk.slot.pinned.data(), chunk.slot.device.data());
    });
    device_->Copy(slot.device.data() + uploaded, slot.pinned.data() + uploaded, staged - uploaded,
                  upload_stream_.get());
    uploaded = staged;
    chunk.begin = chunk.end;
  }
}

// Queues the upload of all that a part has more than the one before it.
void BatchDecoder::Upload(const Slot& slot, size_t part, const ForEach& for_each) {
  CUstream_st* stream = upload_stream_.get();
  const UploadLayout& uploads = layout_.uploads();
  // First what need not be staged, so that it goes up meanwhile.
  uint64_t copied = 0;
  size_t i = part == 0 ? 0 : uploads.parts()[part - 1].direct_end;
  for (; i < uploads.parts()[part].direct_end; ++i) {
    const DirectCopy& copy = uploads.direct_copies()[i];
    device_->Copy(slot.device.data() + copy.offset, copy.from, copy.bytes, stream);
    copied = copy.offset + copy.bytes;
  }
  StageAndUpload(slot, part == 0 ? 0 : layout_.PieceEnd(part - 1), layout_.PieceEnd(part),
                 for_each);
  if (copied != 0) {
    device_->Copy(slot.device.data() + copied, slot.pinned.data() + uploads.zeros_offset(),
                  kPayloadPaddingBytes, stream);
  }
  slot.uploaded->Record(stream);
}

void BatchDecoder::LaunchParts(const Slot& slot, CUstream_st* stream, const ForEach& for_each) {
  CUstream_st* const second = second_stream_.get();
  const size_t parts = layout_.uploads().parts().size();
  const bool is_mixed = layout_.launch_count() > parts;
  if (is_mixed) {
    forked_->Record(stream);
    forked_->MakeWait(second);
  }
  if (layout_.round_count() != 0) {
    // The batch before may be on another stream, and uses the same scratch memory.
    for (const Slot& other : slots_) other.done->MakeWait(stream);
  }
  size_t launch = 0;
  size_t round = 0;
  for (size_t part = 0; part < parts; ++part) {
    Upload(slot, part, for_each);
    slot.uploaded->MakeWait(stream);
    if (is_mixed) {
      slot.uploaded->MakeWait(second);
    }
    for (bool is_second = false; launch < layout_.LaunchEnd(part); ++launch) {
      device_->Launch(layout_.Batch(slot.device.data(), launch), is_second ? second : stream);
      is_second = is_mixed && !is_second;
    }
    // Rounds share scratch memory, so they stay on one stream.
    for (; round < layout_.RoundEnd(part); ++round) {
      device_->LaunchJpeg(layout_.Round(slot.device.data(), round), stream);
    }
  }
  if (is_mixed) JoinStreams(stream);
}

void BatchDecoder::JoinStreams(CUstream_st* stream) {
  joined_->Record(second_stream_.get());
  joined_->MakeWait(stream);
}

// Reads what jobs need of files, to pinned memory, where it goes up from.
void BatchDecoder::ReadFiles(Slot* slot, const ForEach& for_each) {
  const auto is_read = [](const WindowJob& job) {
    return job.source != nullptr && job.cached == nullptr;
  };
  if (std::none_of(jobs_.begin(), jobs_.end(), is_read)) return;
  needed_.resize(std::max(needed_.size(), jobs_.size()));
  RunForEach(for_each, jobs_.size(), [&](size_t i) {
    if (is_read(jobs_[i])) needed_[i].Find(jobs_[i]);
  });
  uint64_t bytes = 0;
  for (size_t i = 0; i < jobs_.size(); ++i) bytes += is_read(jobs_[i]) ? needed_[i].bytes() : 0;
  slot->uploaded->Synchronize();
  Grow(&slot->read, bytes, bytes / 4, slot->uploaded.get(), &GpuDevice::AllocatePinned);
  reads_.clear();
  uint8_t* memory = slot->read.data();
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (!is_read(jobs_[i])) continue;
    jobs_[i].view = needed_[i].Place(memory, &reads_);
    jobs_[i].is_pinned = true;
    memory += needed_[i].bytes();
  }
  ReadPayloads(reads_, for_each);
  for (WindowJob& job : jobs_) job.is_lost = is_read(job) && !job.source->Wait();
}

void BatchDecoder::Launch(const std::vector<WindowJob>& jobs, CUstream_st* stream,
                          const ForEach& for_each) {
  first_results_.clear();
  size_t windows = 0;
  for (const WindowJob& job : jobs) {
    first_results_.push_back(windows);
    windows += job.plan_count;
  }
  Launch(jobs, first_results_, stream, for_each);
}

void BatchDecoder::Launch(const std::vector<WindowJob>& jobs,
                          const std::vector<size_t>& first_results, CUstream_st* stream,
                          const ForEach& for_each) {
  Slot& slot = slots_[launched_ % slots_.size()];
  if (launched_ - waited_ == slots_.size()) ++waited_;
  uploaded_bytes_ = 0;
  jobs_ = jobs;
  ReadFiles(&slot, for_each);
  layout_.Plan(&jobs_, limits_, for_each, upload_);
  slot.uploaded->Synchronize();
  MakeRoom(&slot);
  layout_.WriteJoins(slot.pinned.data(), slot.device.data());
  slot.result_of.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (size_t g = jobs[i].group_begin; g < jobs[i].end_of_groups(); ++g) {
      for (size_t w = 0; w < jobs[i].plan_count; ++w) {
        slot.result_of.push_back(first_results[i] + w);
      }
    }
  }
  slot.done->MakeWait(upload_stream_.get());
  const bool any_cached = std::any_of(jobs.begin(), jobs.end(),
                                      [](const WindowJob& job) { return job.cached != nullptr; });
  if (any_cached) cache_->WaitForFills(stream);
  try {
    LaunchParts(slot, stream, for_each);
    if (layout_.join_count() != 0) {
      device_->LaunchJoins(layout_.Joins(slot.device.data()), layout_.join_count(), stream);
    }
    device_->Copy(slot.pinned_results.data(), slot.device.data(), layout_.results_bytes(), stream);
    slot.done->Record(stream);
    if (cache_ != nullptr) FillCache(slot, for_each);
  } catch (...) {
    // What was queued reads and writes the caller's memory.
    slot.uploaded->Record(upload_stream_.get());
    JoinStreams(stream);
    slot.done->Record(stream);
    slot.uploaded->Synchronize();
    slot.done->Synchronize();
    throw;
  }
  uploaded_bytes_ = layout_.uploaded_bytes();
  ++launched_;
}

void BatchDecoder::FillCache(const Slot& slot, const ForEach& for_each) {
  const std::vector<BatchImage>& images = layout_.images();
  const bool any = std::any_of(images.begin(), images.end(), [](const BatchImage& image) {
    return image.job->cache_key != nullptr;
  });
  if (!any) return;
  const UploadLayout& uploads = layout_.uploads();
  is_intact_.assign(images.size(), 0);
  RunForEach(for_each, images.size(), [&](size_t i) {
    if (images[i].job->cache_key == nullptr || images[i].job->is_lost) return;
    is_intact_[i] = IsIntact(images[i].view, uploads.HostPayloads(i, slot.pinned.data())) ? 1 : 0;
  });
  candidates_.clear();
  for (size_t i = 0; i < images.size(); ++i) {
    if (is_intact_[i] == 0) continue;
    candidates_.push_back({images[i].job->cache_key, images[i].job->view,
                           uploads.HostPayloads(i, slot.pinned.data()),
                           slot.device.data() + uploads.payloads_offset(i)});
  }
  try {
    cache_->Add(candidates_, upload_stream_.get());
  } catch (const std::bad_alloc&) {
    // The host has no memory for what it remembers of each image: none is kept.
  }
  slot.uploaded->Record(upload_stream_.get());
}

const std::vector<DecodeResult>& BatchDecoder::Wait() {
  if (waited_ == launched_) return results_;
  const std::vector<size_t>& result_of = slots_[waited_ % slots_.size()].result_of;
  const size_t count = result_of.empty() ? 0 : result_of.back() + 1;
  results_.assign(count, DecodeResult{Status::kOk, 0});
  WaitFor(&results_);
  return results_;
}

void BatchDecoder::WaitFor(std::vector<DecodeResult>* results) {
  const Slot& slot = slots_[waited_ % slots_.size()];
  slot.done->Synchronize();
  ++waited_;
  for (size_t i = 0; i < slot.result_of.size(); ++i) {
    uint64_t result;
    std::memcpy(&result, slot.pinned_results.data() + i * sizeof(result), sizeof(result));
    DecodeResult& window = (*results)[slot.result_of[i]];
    window = FirstBad(window, UnpackResult(result));
  }
}

std::vector<DecodeResult> BatchDecoder::Decode(const std::vector<WindowJob>& jobs,
                                               CUstream_st* stream, const ForEach& for_each) {
  std::vector<DecodeResult> results;
  // Of the next launch. Two launches are in flight.
  std::vector<WindowJob> part;
  std::vector<size_t> first_results;
  size_t windows = 0;       // of all groups
  uint64_t read_bytes = 0;  // about
  const auto launch = [&] {
    Launch(part, first_results, stream, for_each);
    if (launched_ - waited_ == slots_.size()) WaitFor(&results);
    part.clear();
    first_results.clear();
    windows = 0;
    read_bytes = 0;
  };
  waited_ = launched_;
  try {
    for (WindowJob job : jobs) {
      const size_t first = results.size();
      results.resize(first + job.plan_count, DecodeResult{Status::kOk, 0});
      const size_t groups = job.end_of_groups();
      for (job.group_end = job.group_begin; job.plan_count != 0 && job.group_begin < groups;
           job.group_begin = job.group_end) {
        const bool is_full = windows + job.plan_count > kMostWindows;
        if (windows != 0 && (is_full || read_bytes >= upload_.part_bytes)) launch();
        const size_t room = kMostWindows - std::min(windows, kMostWindows);
        job.group_end =
            std::min(groups, job.group_begin + std::max<size_t>(1, room / job.plan_count));
        if (job.is_merged()) job.group_end = groups;
        windows += (job.group_end - job.group_begin) * job.plan_count;
        read_bytes += BytesToRead(job);
        part.push_back(job);
        first_results.push_back(first);
      }
    }
    if (windows != 0) launch();
  } catch (...) {
    while (waited_ != launched_) WaitFor(&results);  // they write the caller's memory
    throw;
  }
  while (waited_ != launched_) WaitFor(&results);
  return results;
}

}  // namespace l3
