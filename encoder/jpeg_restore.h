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

// Collects it while a file is read.
class JpegRestoreBuilder {
 public:
  explicit JpegRestoreBuilder(Bytes file) : file_(file) {}

  // After `stream` has read the segment. EOI and what follows are no segments.
  void AddSegment(const JpegSegment& segment, const JpegStream& stream);
  // After the blocks of a scan. `has_zeros`: padding bits are zeros.
  void EndScan(const RestoredScan& scan, bool has_zeros) {
    scans_.push_back(scan);
    has_zeros_ |= has_zeros;
  }
  // After the last scan: sets the metadata, and `restore_data` if RestoreJpeg() gives the same
  // bytes.
  void Finish(const JpegStream& stream, JpegFile* jpeg);

 private:
  struct Segment {
    JpegSegment segment;
    size_t scan;  // number of the first scan from here on
  };

  // What stands for a segment; empty where its bytes have to be stored.
  std::vector<uint8_t> MakePart(const Segment& segment, JpegFile* jpeg) const;
  std::vector<uint8_t> MakeCodesPart(const Segment& segment) const;

  Bytes file_;
  std::vector<Segment> segments_;
  std::vector<RestoredScan> scans_;
  bool has_zeros_ = false;
  bool has_padding_[kMaxJpegComponents] = {};
};

}  // namespace l3
