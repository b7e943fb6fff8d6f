// What it takes to write a JPEG file anew from coefficients and metadata (format.md 4.5).
// Layer: encoder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "encoder/jpeg_file.h"
#include "encoder/jpeg_stream.h"

namespace l3 {

// Frequencies of the symbols of a scan, by class and number of a code.
struct ScanFrequencies {
  JpegFrequencies of[2][4] = {};

  bool operator==(const ScanFrequencies& other) const {
    return std::equal(of[0], of[0] + 8, other.of[0]);
  }
};

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

  // Moves the metadata out.
  void TakeMetadata(JpegMetadata* metadata);
  // After TakeMetadata(). `padding`: the blocks as read; overwritten.
  std::vector<uint8_t> Finish(const JpegImage& image, const JpegFrame& frame, JpegPadding* padding);
  // Whether RestoreJpeg() gives the same bytes.
  bool Restores(const JpegImage& image, const JpegMetadata& metadata,
                const std::vector<uint8_t>& restore_data) const;

 private:
  struct Segment {
    JpegSegment segment;
    std::vector<uint8_t> part;  // that stands for it; empty: its bytes do
    size_t scan;                // number of the first scan from here on
  };

  // Empty where the bytes of the segment have to be stored.
  std::vector<uint8_t> MakeCodesPart(const Segment& segment) const;
  std::vector<uint8_t> MakeQuantizersPart(const JpegSegment& segment, const JpegImage& image) const;

  Bytes file_;
  std::vector<Segment> segments_;
  std::vector<RestoredScan> scans_;
  JpegMetadata metadata_;
  uint32_t icc_count_ = 0;
  uint32_t icc_number_ = 0;
  bool is_icc_damaged_ = false;
  bool has_zeros_ = false;
  bool has_padding_[3] = {};  // by component
};

}  // namespace l3
