// What it takes to write a JPEG file anew from coefficients and metadata (format.md 4.5).
// Layer: encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "encoder/jpeg_file.h"
#include "encoder/jpeg_stream.h"

namespace l3 {

struct RestoredScan {
  size_t end;  // of its bytes in the file
  ScanFrequencies frequencies;
};

// The parts of a file that is read.
struct JpegParts {
  struct Segment {
    JpegSegment segment;
    size_t scan;  // number of the first scan from here on
  };

  std::vector<Segment> segments;  // without EOI and what follows
  std::vector<RestoredScan> scans;
  bool has_zeros = false;                        // as padding bits
  bool has_padding[kMaxJpegComponents] = {};     // scans have blocks that fill MCUs
};

// Sets the metadata, and `restore_data` if RestoreJpeg() gives the same bytes.
void MakeRestoreData(Bytes file, const JpegStream& stream, const JpegParts& parts, JpegFile* jpeg);

}  // namespace l3
