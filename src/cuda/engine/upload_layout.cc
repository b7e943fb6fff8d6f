#include "cuda/engine/upload_layout.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cuda/kernels/tile_batch.h"
#include "files/file_handle.h"

namespace l3 {
namespace {

// Large enough for one memcpy to run at full speed, small enough to share.
constexpr uint64_t kCopyBytes = 512 << 10;

// Heads of files that go up since their payloads are on both sides: some hundred bytes, 4 a tile.
// Longer ones are not worth it.
constexpr uint64_t kMaxGapBytes = 16 << 10;

}  // namespace

void UploadLayout::PlanParts(const std::vector<BatchImage>& images, uint64_t part_bytes) {
  images_ = &images;
  places_.resize(images.size());
  ranges_.clear();
  reads_.clear();
  read_bytes_ = 0;
  uint64_t left = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    PlanRanges(i);
    places_[i].status = Status::kOk;
    left += places_[i].payloads_bytes;
    if (!is_read(i)) continue;
    places_[i].read_offset = read_bytes_;
    PlanCopies(i, read_bytes_, &reads_);
    read_bytes_ += places_[i].payloads_bytes;
  }
  // A part is large enough for a launch, and so is the rest.
  parts_.clear();
  uint64_t bytes = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    bytes += places_[i].payloads_bytes;
    left -= places_[i].payloads_bytes;
    const bool is_part = bytes >= part_bytes && left >= part_bytes;
    if (i + 1 != images.size() && !is_part) continue;
    parts_.push_back({i + 1, 0, 0});
    bytes = 0;
  }
}

// Finds the payloads that the windows of an image need: of each row of tiles those from the first
// that one of them touches to the last, or each by itself.
void UploadLayout::PlanRanges(size_t i) {
  const BatchImage& image = (*images_)[i];
  const ImageView& view = image.view;
  const bool has_all = image.job->cached != nullptr || image.job->cache_key != nullptr;
  const TileSpan& all = image.tiles;
  row_spans_.assign(all.rows(), {0, 0, 0, 0});
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    const TileSpan span = image.TilesOf(w);
    for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
      TileSpan& touched = row_spans_[row - all.row_begin];
      touched = Join(touched, {span.column_begin, span.column_end, row, row + 1});
    }
  }
  ImagePlace& place = places_[i];
  place.first_range = ranges_.size();
  place.row_ranges = view.group_count == 1 ? 1 : all.columns();
  uint64_t bytes = 0;
  uint64_t last_end = 0;
  const auto add_range = [&](uint32_t row, uint32_t column_begin, uint32_t column_end) {
    const uint32_t tiles = row * view.info.tile_columns();
    const uint64_t begin = view.PayloadBegin(tiles + column_begin);
    const uint64_t end = view.PayloadEnd(tiles + column_end - 1);
    // False only if a caller changed the index since ParseImage() validated it. Ranges that do not
    // overlap never add up to more than the file has.
    const bool sound = last_end <= begin && begin < end && end <= view.payloads_bytes;
    if (sound) last_end = end;
    ranges_.push_back({begin, sound ? end - begin : 0, has_all ? begin : bytes});
    bytes += ranges_.back().bytes;
  };
  for (const TileSpan& touched : row_spans_) {
    if (place.row_ranges == 1 && touched.tile_count() != 0) {
      add_range(touched.row_begin, touched.column_begin, touched.column_end);
      continue;
    }
    for (uint32_t column = all.column_begin; column < all.column_begin + place.row_ranges;
         ++column) {
      if (touched.column_begin <= column && column < touched.column_end) {
        add_range(touched.row_begin, column, column + 1);
      } else {
        ranges_.push_back({0, 0, bytes});
      }
    }
  }
  place.payloads_bytes = image.job->cached != nullptr ? 0 : has_all ? view.payloads_bytes : bytes;
}

void UploadLayout::Read(uint8_t* memory, const ForEach& for_each) {
  read_memory_ = memory;
  // Files are closed as soon as they can be: a process may have few descriptors.
  const auto job_of = [this](size_t image) {
    return static_cast<size_t>((*images_)[image].job - images_->front().job);
  };
  std::vector<std::atomic<size_t>> left(job_of(images_->size() - 1) + 1);  // reads of each job
  for (const PayloadCopy& read : reads_) ++left[job_of(read.image)];
  RunForEach(for_each, reads_.size(), [&](size_t i) {
    const PayloadCopy& read = reads_[i];
    PayloadReader* const reader = (*images_)[read.image].job->reader;
    reader->Read(read.begin, read.bytes, memory + read.offset);
    if (--left[job_of(read.image)] == 0) reader->Close();
  });
  for (size_t i = 0; i < images_->size(); ++i) {
    const bool is_lost = is_read(i) && !(*images_)[i].job->reader->error().empty();
    if (is_lost) places_[i].status = Status::kTruncated;
  }
}

bool UploadLayout::FindTile(size_t image, uint32_t row, uint32_t column, TilePlace* tile) const {
  const ImagePlace& place = places_[image];
  const ImageView& view = (*images_)[image].view;
  const TileSpan& tiles = (*images_)[image].tiles;
  const size_t in_row = place.row_ranges == 1 ? 0 : column - tiles.column_begin;
  const PayloadRange& range =
      ranges_[place.first_range + size_t{row - tiles.row_begin} * place.row_ranges + in_row];
  uint64_t begin;
  if (!view.FindPayload(row * view.info.tile_columns() + column, &begin, &tile->bytes) ||
      begin < range.begin || begin + tile->bytes > range.begin + range.bytes) {
    return false;
  }
  tile->offset = range.offset + (begin - range.begin);
  return true;
}

void UploadLayout::Place(uint64_t offset, uint64_t direct_bytes) {
  staging_copies_.clear();
  direct_copies_.clear();
  size_t begin = 0;
  for (UploadPart& part : parts_) {
    PlanDirectCopies(begin, part.image_end, direct_bytes);
    part.direct_end = direct_copies_.size();
    begin = part.image_end;
  }
  zeros_offset_ = offset;
  if (has_zeros()) offset += kPayloadPaddingBytes;
  payloads_offset_ = offset;
  staged_bytes_ = PlaceStaged(offset);
  total_bytes_ = PlaceDirect(staged_bytes_);
}

// Whether an image's payloads can go up from where they are: they were read there, or the image
// needs all of them.
bool UploadLayout::CanBeDirect(size_t image) const {
  const uint64_t bytes = places_[image].payloads_bytes;
  return bytes != 0 && (is_read(image) || ((*images_)[image].job->is_pinned &&
                                           bytes == (*images_)[image].view.payloads_bytes));
}

// Finds which of the images [begin, end) need not be staged. Files that follow one another
// without a gap go up in one copy, with the heads between their payloads.
void UploadLayout::PlanDirectCopies(size_t begin, size_t end, uint64_t direct_bytes) {
  for (size_t first = begin; first < end;) {
    size_t next = first + 1;
    if (!CanBeDirect(first)) {
      places_[first].is_direct = false;
      first = next;
      continue;
    }
    uint64_t bytes = places_[first].payloads_bytes;
    for (; next < end && CanBeDirect(next) && is_read(next) == is_read(first); ++next) {
      const uint64_t gap_bytes = is_read(next) ? 0 : PayloadsOffset((*images_)[next].view);
      // As numbers: the files may be parts of different arrays.
      const auto address = [](const uint8_t* p) { return reinterpret_cast<uintptr_t>(p); };
      const bool follows = address(Source(first)) + bytes + gap_bytes == address(Source(next));
      if (!follows || gap_bytes > kMaxGapBytes) break;
      bytes += gap_bytes + places_[next].payloads_bytes;
    }
    const bool is_direct = is_read(first) || bytes >= direct_bytes;
    if (is_direct) direct_copies_.push_back({Source(first), bytes, first, next, 0});
    for (; first < next; ++first) places_[first].is_direct = is_direct;
  }
}

// Lays what is staged from `offset` on; returns where it ends.
uint64_t UploadLayout::PlaceStaged(uint64_t offset) {
  size_t image = 0;
  for (UploadPart& part : parts_) {
    const size_t first_copy = staging_copies_.size();
    for (; image < part.image_end; ++image) {
      if (places_[image].is_direct) continue;
      places_[image].payloads_offset = offset;
      PlanCopies(image, offset, &staging_copies_);
      offset += places_[image].payloads_bytes;
    }
    if (staging_copies_.size() > first_copy) {
      staging_copies_.back().padding_bytes = kPayloadPaddingBytes;
      offset += kPayloadPaddingBytes;
    }
    part.staging_end = staging_copies_.size();
  }
  return offset;
}

// The same for what is copied from where it is.
uint64_t UploadLayout::PlaceDirect(uint64_t offset) {
  size_t next = 0;
  for (const UploadPart& part : parts_) {
    if (next == part.direct_end) continue;
    for (; next < part.direct_end; ++next) {
      DirectCopy& copy = direct_copies_[next];
      copy.offset = offset;
      for (size_t i = copy.image_begin; i < copy.image_end; ++i) {
        const auto from_start = Source(i) - copy.from;
        places_[i].payloads_offset = offset + static_cast<uint64_t>(from_start);
      }
      offset += copy.bytes;
    }
    offset += kPayloadPaddingBytes;
  }
  return offset;
}

// Cuts an image's payloads into copies to `offset` and behind. Ranges that follow one another in
// the file share copies.
void UploadLayout::PlanCopies(size_t i, uint64_t offset, std::vector<PayloadCopy>* copies) {
  const BatchImage& image = (*images_)[i];
  const ImagePlace& place = places_[i];
  const size_t first_copy = copies->size();
  const auto append = [&](const PayloadRange& range) {
    for (uint64_t done = 0; done < range.bytes;) {
      PayloadCopy* last = copies->size() > first_copy ? &copies->back() : nullptr;
      const bool extends = last != nullptr && last->bytes < kCopyBytes &&
                           last->begin + last->bytes == range.begin + done;
      if (!extends) {
        copies->push_back({i, range.begin + done, offset + range.offset + done, 0, 0});
        last = &copies->back();
      }
      const uint64_t bytes = std::min(range.bytes - done, kCopyBytes - last->bytes);
      last->bytes += bytes;
      done += bytes;
    }
  };
  if (image.job->cached != nullptr) return;
  if (image.job->cache_key != nullptr) return append({0, place.payloads_bytes, 0});
  for (size_t k = 0; k < size_t{image.tiles.rows()} * place.row_ranges; ++k) {
    append(ranges_[place.first_range + k]);
  }
}

void UploadLayout::Stage(size_t copy, uint8_t* staging) const {
  const PayloadCopy& c = staging_copies_[copy];
  std::memcpy(staging + c.offset, (*images_)[c.image].view.payloads + c.begin, c.bytes);
  std::memset(staging + c.offset + c.bytes, 0, c.padding_bytes);
}

uint64_t UploadLayout::BytesOfStaging(size_t copies) const {
  if (copies == 0) return payloads_offset_;
  const PayloadCopy& last = staging_copies_[copies - 1];
  return last.offset + last.bytes + last.padding_bytes;
}

}  // namespace l3
