// The loop that reads the head of an L3 file: all before its first payload. Layer: files.
#pragma once

#include <cstdint>

#include "format/image_view.h"

namespace l3 {

// The first bytes of a file.
struct FileStart {
  const uint8_t* data;  // null if reading failed
  uint64_t bytes;
};

// Validates the head of a file, as ParseIndex() does, and reads no more than it needs:
// `read(bytes)` gives so many of its first bytes, or all if it has fewer. The first call asks for
// `first_bytes`. kTruncated if reading fails.
template <typename Read>
Status ReadHead(uint64_t first_bytes, const Read& read, ImageView* view) {
  for (uint64_t needed = first_bytes;;) {
    const FileStart start = read(needed);
    if (start.data == nullptr) return Status::kTruncated;
    const Status status = ParseIndex(start.data, start.bytes, view);
    const bool has_all = start.bytes < needed;
    needed = PayloadsOffset(*view);
    const bool is_short = status == Status::kOk || status == Status::kTruncated;
    if (!is_short || has_all || needed <= start.bytes) return status;
  }
}

}  // namespace l3
