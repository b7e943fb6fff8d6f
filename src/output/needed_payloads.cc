#include "output/needed_payloads.h"

#include <algorithm>
#include <atomic>

namespace l3 {

void ReadPayloads(const std::vector<PayloadRead>& reads, const ForEach& for_each) {
  if (reads.empty()) return;
  // Sources are closed as soon as they can be: a process may have few descriptors.
  std::vector<size_t> source_of;  // each read's, by its number
  size_t sources = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    sources += i == 0 || reads[i].source != reads[i - 1].source ? 1 : 0;
    source_of.push_back(sources - 1);
  }
  std::vector<std::atomic<size_t>> left(sources);
  for (const size_t source : source_of) ++left[source];
  RunForEach(for_each, reads.size(), [&](size_t i) {
    reads[i].source->Read(reads[i].begin, reads[i].bytes, reads[i].to);
    if (--left[source_of[i]] == 0) reads[i].source->Close();
  });
}

void NeededPayloads::Find(const WindowJob& job) {
  const ImageView& view = *job.view;
  source_ = job.source;
  ranges_.clear();
  FindPayloadRanges(job, source_->traits().max_gap_bytes, &ranges_);
  index_.resize(4 * view.payload_count());
  uint64_t bytes = 0;
  uint64_t entry = 0;
  const auto set_entry = [&](uint64_t end) {
    StoreU32(index_.data() + 4 * entry++, static_cast<uint32_t>(end / kPayloadAlignment));
  };
  for (const ByteRange& range : ranges_) {
    while (entry < view.payload_count() && view.IndexEntry(entry) <= range.end) {
      set_entry(bytes + std::max(view.IndexEntry(entry), range.begin) - range.begin);
    }
    bytes += range.end - range.begin;
  }
  while (entry < view.payload_count()) set_entry(bytes);
  view_ = view;
  view_.tile_index = index_.data();
  view_.payloads_bytes = bytes;
}

const ImageView* NeededPayloads::Place(uint8_t* memory, std::vector<PayloadRead>* reads) {
  const uint64_t most = source_->traits().max_read_bytes;
  view_.payloads = memory;
  for (const ByteRange& range : ranges_) {
    for (uint64_t begin = range.begin; begin < range.end; begin += most) {
      const uint64_t bytes = std::min(most, range.end - begin);
      reads->push_back({source_, begin, static_cast<size_t>(bytes), memory});
      memory += bytes;
    }
  }
  return &view_;
}

}  // namespace l3
