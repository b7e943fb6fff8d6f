// Which bytes of a file an engine reads. Layer: output.
#pragma once

#include <cstdint>
#include <vector>

#include "output/window_job.h"

namespace l3 {

// The bytes [begin, end) of ImageView::payloads, or of a file.
struct ByteRange {
  uint64_t begin, end;
};

// Appends the payloads that decoding a job reads: those of the tiles and channel groups that its
// windows need. They are sorted, and apart: ranges with at most `max_gap_bytes` between them are
// joined. The view needs no payloads, and the plans no memory. Returns false, and appends nothing,
// if the index has changed since it was validated.
//
// All engines and faces ask here which tiles a window needs.
bool FindPayloadRanges(const WindowJob& job, uint64_t max_gap_bytes,
                       std::vector<ByteRange>* ranges);

// The same as bytes of the file, with all before its first payload. Empty if the index has changed.
std::vector<ByteRange> FindFileRanges(const WindowJob& job, uint64_t max_gap_bytes);

}  // namespace l3
