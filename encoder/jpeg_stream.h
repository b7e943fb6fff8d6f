// The marker segments of a JPEG file (ITU-T T.81, annex B), and how its scans order blocks.
// Layer: encoder. The reader and the writer of JPEG files share it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "encoder/jpeg_file.h"

namespace l3 {

enum JpegMarker : uint8_t {
  kMarkerSof0 = 0xC0,  // baseline
  kMarkerSof1 = 0xC1,  // extended sequential
  kMarkerSof2 = 0xC2,  // progressive
  kMarkerDht = 0xC4,
  kMarkerRst0 = 0xD0,
  kMarkerSoi = 0xD8,
  kMarkerEoi = 0xD9,
  kMarkerSos = 0xDA,
  kMarkerDqt = 0xDB,
  kMarkerDri = 0xDD,
  kMarkerApp0 = 0xE0,
  kMarkerCom = 0xFE,
};

// A Huffman code as a DHT segment holds it. Without symbols: undefined.
struct JpegCode {
  uint8_t counts[16] = {};  // of codes of 1 to 16 bits
  uint8_t symbols[256] = {};

  uint32_t SymbolCount() const;
  // Whether codes of these lengths exist.
  bool IsSound() const;
  bool operator==(const JpegCode& other) const;
};

using JpegFrequencies = std::array<uint32_t, 256>;
// Of the symbols of a scan, by class and number of a code.
struct ScanFrequencies {
  JpegFrequencies of[2][4];
};

// The tables of T.81, annex K. `is_ac`, `table`: 0 or 1 each.
JpegCode StandardCode(uint32_t is_ac, uint32_t table);
// The code that libjpeg makes of frequencies (T.81, annex K.2).
JpegCode OptimalCode(const JpegFrequencies& frequencies);

struct JpegFrameComponent {
  uint8_t id;
  uint8_t h, v;  // sampling factors: 1, 2 or 4
  uint8_t quantizer;
};

struct JpegFrame {
  uint8_t marker = 0;  // 0: no frame yet
  JpegFrameComponent components[kMaxJpegComponents];
  uint32_t width_mcus = 0;  // of scans of several components
  uint32_t height_mcus = 0;

  bool is_progressive() const { return marker == kMarkerSof2; }
};

struct JpegScan {
  uint32_t count = 0;
  uint8_t component[3];  // rising
  uint8_t code[2][3];    // of DC, of AC
  uint8_t begin, end;    // of the spectrum, in zigzag order, both included
  uint8_t high, low;     // successive approximation
  uint32_t restart_interval = 0;  // in MCUs; 0: none

  bool HasDc() const { return begin == 0; }
  bool HasAc(const JpegFrame& frame) const { return !frame.is_progressive() || begin != 0; }
};

struct JpegSegment {
  uint8_t marker;
  size_t begin;  // of the marker's fill bytes
  Bytes data;    // behind the length
  size_t end;
};

// Finds the marker at `pos` and its segment. Returns false if there is none that is whole.
bool FindSegment(Bytes file, size_t pos, JpegSegment* segment);

// What segments set. Errors are phrases as those of ReadJpeg().
class JpegStream {
 public:
  // Null, or why the file cannot be read. After SOS, `scan` is set. Other markers than those of
  // scans, frames, tables and metadata are errors.
  const char* Apply(const JpegSegment& segment);
  // Whether scans gave all coefficients.
  bool IsComplete() const;

  // Width, height, components and shifts from the frame on, the colour from the first scan on, and
  // the quantizers of a component from its first scan on.
  JpegInfo info{};
  JpegFrame frame;
  JpegScan scan;
  JpegCode codes[2][4];

 private:
  const char* ReadFrame(uint8_t marker, const uint8_t* data, size_t size);
  const char* ReadCodes(const uint8_t* data, size_t size);
  const char* ReadQuantizers(const uint8_t* data, size_t size);
  const char* ReadScan(const uint8_t* data, size_t size);
  // Sets `color` by libjpeg's rules; false where libjpeg would guess.
  bool SetColor();
  const char* ReadApp(uint8_t marker, const uint8_t* data, size_t size);

  uint16_t tables_[4][64] = {};  // of quantizers; 0 before they are set
  uint32_t restart_interval_ = 0;
  bool is_started_ = false;
  bool has_jfif_ = false;
  bool has_adobe_ = false;
  uint32_t adobe_transform_ = 0;
  // Of each coefficient, the lowest bit that scans gave; kNoBit before the first.
  static constexpr uint8_t kNoBit = 255;
  uint8_t low_bit_[3][64];
};

// Walks the blocks of a scan in coding order. `visitor` has
//   bool Restart(uint32_t number)        before the MCU of each restart interval but the first
//   bool Block(uint32_t i, int16_t* block)   i: number of the component in the scan
// which return false to end the walk, and so does this.
template <typename Visitor>
bool WalkScan(const JpegStream& stream, const JpegImage& image, Visitor* visitor) {
  const JpegScan& scan = stream.scan;
  const bool is_single = scan.count == 1;
  const JpegBlockRect first = JpegBlocksOfImage(stream.info, scan.component[0]);
  const uint32_t width = is_single ? first.width : stream.frame.width_mcus;
  const uint32_t height = is_single ? first.height : stream.frame.height_mcus;
  uint32_t left = scan.restart_interval;
  uint32_t restarts = 0;
  for (uint32_t mcu_y = 0; mcu_y < height; ++mcu_y) {
    for (uint32_t mcu_x = 0; mcu_x < width; ++mcu_x) {
      if (scan.restart_interval != 0 && left-- == 0) {
        if (!visitor->Restart(restarts++ % 8)) return false;
        left = scan.restart_interval - 1;
      }
      for (uint32_t i = 0; i < scan.count; ++i) {
        const uint32_t c = scan.component[i];
        const uint32_t h = is_single ? 1 : stream.frame.components[c].h;
        const uint32_t v = is_single ? 1 : stream.frame.components[c].v;
        for (uint32_t y = 0; y < v; ++y) {
          int16_t* block = image.blocks.At(c, mcu_x * h, mcu_y * v + y);
          for (uint32_t x = 0; x < h; ++x, block += kJpegBlockSamples) {
            if (!visitor->Block(i, block)) return false;
          }
        }
      }
    }
  }
  return true;
}

// Calls visit(block, dc) for the blocks of a component that fill MCUs, row by row. `dc` is that of
// the last block of the picture before it in its MCU: libjpeg gives it to the block.
template <typename Visit>
void VisitPadding(const JpegStream& stream, const JpegImage& image, uint32_t c,
                  const Visit& visit) {
  const JpegBlockRect inside = JpegBlocksOfImage(stream.info, c);
  const uint32_t h = stream.frame.components[c].h;
  for (uint32_t y = 0; y < stream.frame.height_mcus * stream.frame.components[c].v; ++y) {
    const bool is_below = y >= inside.height;
    for (uint32_t x = is_below ? 0 : inside.width; x < stream.frame.width_mcus * h; ++x) {
      const uint32_t last_x = std::min(is_below ? x / h * h + h - 1 : x, inside.width - 1);
      visit(image.blocks.At(c, x, y), *image.blocks.At(c, last_x, std::min(y, inside.height - 1)));
    }
  }
}

}  // namespace l3
