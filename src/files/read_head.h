// The loop that reads the head of an L3 file: all before its first payload. Layer: files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "format/image_view.h"

namespace l3 {

// Validates the head of a file of `file_bytes` bytes, as ParseIndex() does, and reads no more than
// it needs. `read(known, end)` reads bytes [known, end) behind the ones that it read before, and
// returns where all of them lie; null if it fails, and that ends the loop. Its first call asks for
// `first_bytes`, or the whole file if that has fewer.
template <typename Read>
Status ReadHead(uint64_t file_bytes, uint64_t first_bytes, const Read& read, ImageView* view) {
  Status status = Status::kTruncated;
  uint64_t known = 0;
  for (uint64_t needed = first_bytes; known < std::min(needed, file_bytes);) {
    const uint64_t end = std::min(needed, file_bytes);
    const uint8_t* const data = read(known, end);
    if (data == nullptr) return Status::kTruncated;
    known = end;
    status = ParseIndex(data, known, view);
    if (status != Status::kOk && status != Status::kTruncated) return status;
    needed = PayloadsOffset(*view);
  }
  return status;
}

}  // namespace l3
