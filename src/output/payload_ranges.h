// Which bytes of a file an engine reads. Layer: output.
#pragma once

#include <cstdint>
#include <vector>

#include "output/window_job.h"

namespace l3 {

// The bytes [begin, end) of a file.
struct ByteRange {
  uint64_t begin, end;
};

// The bytes of the file that decoding a job reads: all before the first payload, and the payloads
// of the tiles and channel groups that its windows need. Sorted, and apart: ranges with at most
// `max_gap_bytes` between them are joined. The view needs no payloads, and the plans no memory.
// Empty if the index has changed since it was validated.
std::vector<ByteRange> FindPayloadRanges(const WindowJob& job, uint64_t max_gap_bytes);

}  // namespace l3
