// Which payloads of a batch go up, from where, and where to: those of the tiles that windows touch,
// or all of an image that the cache keeps. Layer: cuda; plain C++.
//
//   staged part | staged part | ... | copied part | copied part | ...
//
// A part is the payloads of some images, and padding: staged ones, and ones that are copied from
// where they are, in pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/engine/batch_image.h"
#include "output/payload_ranges.h"

namespace l3 {

// How a batch goes up: as a whole and staged, unless the fields say otherwise.
struct UploadPolicy {
  // A batch is cut where so many bytes of payloads are before the cut and behind it.
  uint64_t part_bytes = ~uint64_t{0};
  // Fewer are staged together with others, rather than copied from where they are.
  uint64_t direct_bytes = ~uint64_t{0};
  // Fewer are staged by one thread: others take 0.3 ms to begin.
  uint64_t parallel_bytes = 0;
};

// Images of a batch that follow one another, and what they need beyond the parts before.
// Ends are those of the lists of images, staged and direct copies.
struct UploadPart {
  size_t image_end;
  size_t staging_end;
  size_t direct_end;
};

// The payloads of the images [image_begin, image_end), and what lies between them, that go up from
// where they are.
struct DirectCopy {
  const uint8_t* from;
  uint64_t bytes;
  size_t image_begin, image_end;
  uint64_t offset;  // in the buffer
};

// Where a tile's payload is, from those of its image that go up.
struct TilePlace {
  uint64_t offset;
  uint32_t bytes;
};

class UploadLayout {
 public:
  // Finds the payloads that are needed, and cuts the batch into parts. `images` must outlive the
  // plan.
  void PlanParts(const std::vector<BatchImage>& images, uint64_t part_bytes);
  // Places all of it behind the first `offset` bytes of the buffer.
  void Place(uint64_t offset, uint64_t direct_bytes);

  const std::vector<UploadPart>& parts() const { return parts_; }
  const std::vector<DirectCopy>& direct_copies() const { return direct_copies_; }
  // kPayloadPaddingBytes zeros among what is staged, to copy behind the last direct copy of a part.
  bool has_zeros() const { return !direct_copies_.empty(); }
  uint64_t zeros_offset() const { return zeros_offset_; }
  uint64_t staged_bytes() const { return staged_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }

  // Stages some of the payloads.
  size_t staging_count() const { return staging_copies_.size(); }
  void Stage(size_t copy, uint8_t* staging) const;
  // Bytes of the buffer up to the end of the first `copies` of them.
  uint64_t BytesOfStaging(size_t copies) const;

  // An image's payloads in the buffer.
  uint64_t payloads_offset(size_t image) const { return places_[image].payloads_offset; }
  // The same on the host, where they go up from.
  const uint8_t* HostPayloads(size_t image, const uint8_t* staging) const {
    return places_[image].is_direct ? Source(image) : staging + payloads_offset(image);
  }
  // Finds a tile's payload. Returns false if the index has changed since ParseImage().
  bool FindTile(size_t image, uint32_t row, uint32_t column, TilePlace* tile) const;

 private:
  struct ImagePlace {
    uint64_t payloads_offset;
    uint64_t payloads_bytes;  // to upload
    bool is_direct;  // they are not staged
    size_t first_range;
    size_t range_count;
  };
  // Payloads in the file, and where they begin behind the image's payloads_offset.
  struct PayloadRange {
    uint64_t begin;
    uint64_t bytes;
    uint64_t offset;
  };
  // Some of an image's payload bytes.
  struct PayloadCopy {
    size_t image;
    uint64_t begin;  // in the file's payloads
    uint64_t offset;  // in the buffer
    uint64_t bytes;
    uint64_t padding_bytes;  // zeros behind, at the end of a part
  };

  void PlanRanges(size_t image);
  bool CanBeDirect(size_t image) const;
  void PlanDirectCopies(size_t begin, size_t end, uint64_t direct_bytes);
  uint64_t PlaceStaged(uint64_t offset);
  uint64_t PlaceDirect(uint64_t offset);
  const uint8_t* Source(size_t image) const { return (*images_)[image].view.payloads; }
  void PlanCopies(size_t image, uint64_t offset);

  const std::vector<BatchImage>* images_ = nullptr;
  std::vector<ImagePlace> places_;  // of each image
  std::vector<ByteRange> found_;  // of an image
  std::vector<PayloadRange> ranges_;
  std::vector<UploadPart> parts_;
  std::vector<PayloadCopy> staging_copies_;
  std::vector<DirectCopy> direct_copies_;
  uint64_t zeros_offset_ = 0;
  uint64_t payloads_offset_ = 0;
  uint64_t staged_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace l3
