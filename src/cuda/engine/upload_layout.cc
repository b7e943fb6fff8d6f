#include "cuda/engine/upload_layout.h"

#include <algorithm>
#include <cstring>

#include "cuda/kernels/tile_batch.h"

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
  uint64_t left = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    PlanRanges(i);
    left += places_[i].payloads_bytes;
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

// Finds the payloads of an image that go up: all if the cache keeps it, else those that its windows
// need.
void UploadLayout::PlanRanges(size_t i) {
  const BatchImage& image = (*images_)[i];
  ImagePlace& place = places_[i];
  found_.clear();
  if (image.job->cached != nullptr || image.job->cache_key != nullptr) {
    found_.push_back({0, image.view.payloads_bytes});
  } else {
    WindowJob of_group = *image.job;
    of_group.group_begin = image.group;
    of_group.group_end = image.group + 1;
    FindPayloadRanges(of_group, 0, &found_);
  }
  place.first_range = ranges_.size();
  place.range_count = found_.size();
  uint64_t bytes = 0;
  for (const ByteRange& range : found_) {
    ranges_.push_back({range.begin, range.end - range.begin, bytes});
    bytes += range.end - range.begin;
  }
  place.payloads_bytes = image.job->cached != nullptr ? 0 : bytes;
}

bool UploadLayout::FindTile(size_t image, uint32_t row, uint32_t column, TilePlace* tile) const {
  const ImagePlace& place = places_[image];
  const ImageView& view = (*images_)[image].view;
  uint64_t begin;
  if (!view.FindPayload(row * view.info.tile_columns() + column, &begin, &tile->bytes)) {
    return false;
  }
  const auto first = ranges_.begin() + static_cast<std::ptrdiff_t>(place.first_range);
  const auto last = first + static_cast<std::ptrdiff_t>(place.range_count);
  const auto after = std::upper_bound(
      first, last, begin,
      [](uint64_t offset, const PayloadRange& range) { return offset < range.begin; });
  if (after == first) return false;
  const PayloadRange& range = after[-1];
  if (begin + tile->bytes > range.begin + range.bytes) return false;
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

// Whether an image's payloads can go up from where they are: the image needs all of them.
bool UploadLayout::CanBeDirect(size_t image) const {
  const uint64_t bytes = places_[image].payloads_bytes;
  return bytes != 0 && (*images_)[image].job->is_pinned &&
         bytes == (*images_)[image].view.payloads_bytes;
}

// Finds which of the images [begin, end) need not be staged. Files that follow one another
// without a gap go up in one copy, with the heads between their payloads if they have heads there.
void UploadLayout::PlanDirectCopies(size_t begin, size_t end, uint64_t direct_bytes) {
  for (size_t first = begin; first < end;) {
    size_t next = first + 1;
    if (!CanBeDirect(first)) {
      places_[first].is_direct = false;
      first = next;
      continue;
    }
    uint64_t bytes = places_[first].payloads_bytes;
    for (; next < end && CanBeDirect(next); ++next) {
      const WindowJob& job = *(*images_)[next].job;
      const uint64_t gap_bytes = job.source != nullptr ? 0 : PayloadsOffset(*job.view);
      // As numbers: the files may be parts of different arrays.
      const auto address = [](const uint8_t* p) { return reinterpret_cast<uintptr_t>(p); };
      const bool follows = address(Source(first)) + bytes + gap_bytes == address(Source(next));
      if (!follows || gap_bytes > kMaxGapBytes) break;
      bytes += gap_bytes + places_[next].payloads_bytes;
    }
    const bool is_direct = bytes >= direct_bytes;
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
      PlanCopies(image, offset);
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

// Cuts an image's payloads into copies to `offset` and behind.
void UploadLayout::PlanCopies(size_t i, uint64_t offset) {
  const ImagePlace& place = places_[i];
  if (place.payloads_bytes == 0) return;
  for (size_t k = place.first_range; k < place.first_range + place.range_count; ++k) {
    const PayloadRange& range = ranges_[k];
    for (uint64_t done = 0; done < range.bytes; done += kCopyBytes) {
      const uint64_t bytes = std::min(range.bytes - done, kCopyBytes);
      staging_copies_.push_back({i, range.begin + done, offset + range.offset + done, bytes, 0});
    }
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
