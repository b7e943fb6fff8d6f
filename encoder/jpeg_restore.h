// What it takes to write a JPEG file anew from coefficients and metadata (format.md 4.5).
// Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/jpeg_file.h"
#include "encoder/jpeg_stream.h"

namespace l3 {

// Frequencies of the symbols of a scan, by class and number of a code.
struct ScanFrequencies {
  JpegFrequencies of[2][4] = {};
};

// Collects it while a file is read.
class JpegRestoreBuilder {
 public:
  explicit JpegRestoreBuilder(Bytes file) : file_(file) {}

  // After `stream` has read the segment. EOI and what follows are no segments.
  void AddSegment(const JpegSegment& segment, const JpegStream& stream);
  // After the blocks of a scan, whose bytes end at `end`. `has_zeros`: padding bits are zeros.
  void EndScan(size_t end, bool has_zeros) {
    scan_ends_.push_back(end);
    has_zeros_ |= has_zeros;
  }

  // Moves the metadata out.
  void TakeMetadata(JpegMetadata* metadata);
  // After TakeMetadata(). `padding`: the blocks as read; overwritten.
  std::vector<uint8_t> Finish(const JpegImage& image, const JpegFrame& frame, JpegPadding* padding);

 private:
  struct Segment {
    JpegSegment segment;
    std::vector<uint8_t> part;  // that stands for it; empty: its bytes do
    size_t scan;                // number of the first scan from here on
  };

  // Empty where the bytes of the segment have to be stored.
  std::vector<uint8_t> MakeCodesPart(const Segment& segment, const JpegImage& image,
                                     const JpegFrame& frame, JpegPadding* padding);
  std::vector<uint8_t> MakeQuantizersPart(const JpegSegment& segment, const JpegImage& image) const;

  Bytes file_;
  std::vector<Segment> segments_;
  std::vector<JpegScan> scans_;
  std::vector<size_t> scan_ends_;
  ScanFrequencies frequencies_;  // of scan `counted_scan_`
  size_t counted_scan_ = SIZE_MAX;
  JpegMetadata metadata_;
  uint32_t icc_count_ = 0;
  uint32_t icc_number_ = 0;
  bool is_icc_damaged_ = false;
  bool has_zeros_ = false;
  bool has_padding_[3] = {};  // by component
};

}  // namespace l3
