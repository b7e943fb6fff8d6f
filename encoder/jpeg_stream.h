// The marker segments of a JPEG file (ITU-T T.81, annex B), and how its scans order blocks.
// Layer: encoder. The reader and the writer of JPEG files share it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

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

// The tables of T.81, annex K. `is_ac`, `table`: 0 or 1 each.
JpegCode StandardCode(uint32_t is_ac, uint32_t table);
// The code that libjpeg makes of frequencies (T.81, annex K.2).
JpegCode OptimalCode(const JpegFrequencies& frequencies);

struct JpegFrameComponent {
  uint8_t id;
  uint8_t h, v;  // as in the file
  uint8_t quantizer;
  uint32_t width_blocks, height_blocks;  // that hold samples of the picture
};

struct JpegFrame {
  uint8_t marker = 0;  // 0: no frame yet
  uint32_t width_px = 0;
  uint32_t height_px = 0;
  std::vector<JpegFrameComponent> components;
  uint32_t h_max = 1;
  uint32_t v_max = 1;
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
  size_t data;   // behind the length
  size_t end;
};

// Finds the marker at `pos` and its segment. Returns false if there is none that is whole.
bool FindSegment(Bytes file, size_t pos, JpegSegment* segment);

// What segments set. Errors are phrases as those of ReadJpeg().
class JpegStream {
 public:
  // Null, or why the file cannot be read. After SOS, `scan` is set. Other markers than those of
  // scans, frames, tables and metadata are errors.
  const char* Apply(const JpegSegment& segment, const uint8_t* data, size_t size);
  // Whether scans gave all coefficients.
  bool IsComplete() const;

  JpegFrame frame;
  JpegScan scan;
  JpegColor color = JpegColor::kGray;  // from the first scan on
  JpegCode codes[2][4];
  // Of components from their first scan on, in natural order; 0 before.
  uint16_t quantizers[3][64] = {};

 private:
  const char* ReadFrame(uint8_t marker, const uint8_t* data, size_t size);
  const char* ReadCodes(const uint8_t* data, size_t size);
  const char* ReadQuantizers(const uint8_t* data, size_t size);
  const char* ReadScan(const uint8_t* data, size_t size);
  // Sets `color` by libjpeg's rules; false where libjpeg would guess.
  bool SetColor();
  const char* ReadApp(uint8_t marker, const uint8_t* data, size_t size);

  uint16_t tables_[4][64] = {};
  bool is_table_set_[4] = {};
  uint32_t restart_interval_ = 0;
  bool is_started_ = false;
  bool has_jfif_ = false;
  bool has_adobe_ = false;
  uint32_t adobe_transform_ = 0;
  // Of each coefficient, the lowest bit that scans gave; kNoBit before the first.
  static constexpr uint8_t kNoBit = 255;
  uint8_t low_bit_[3][64];
};

// Blocks that fill the MCUs at the right and the bottom edge.
class JpegPadding {
 public:
  JpegPadding() = default;
  explicit JpegPadding(const JpegFrame& frame);

  uint32_t count(uint32_t component) const {
    return static_cast<uint32_t>(parts_[component].blocks.size() / 64);
  }
  int16_t* Block(uint32_t component, uint32_t number) {
    return parts_[component].blocks.data() + size_t{number} * 64;
  }
  // The number of the block at this place, which is outside of the picture.
  uint32_t Number(uint32_t component, uint32_t x, uint32_t y) const {
    const Part& part = parts_[component];
    return y < part.height
               ? y * part.columns + (x - part.width)
               : part.height * part.columns + (y - part.height) * (part.width + part.columns) + x;
  }
  // Sets the blocks of a component as libjpeg does: DC of the block before in the MCU, no AC.
  void SetUsual(const JpegFrame& frame, const JpegImage& image, uint32_t component);

 private:
  struct Part {
    uint32_t width = 0, height = 0, columns = 0;
    std::vector<int16_t> blocks;
  };
  Part parts_[3];
};

// Walks the blocks of a scan in coding order. `visitor` has
//   bool Restart(uint32_t number)        before the MCU of each restart interval but the first
//   bool Block(uint32_t i, int16_t* block)   i: number of the component in the scan
// which return false to end the walk, and so does this.
template <typename Image, typename Visitor>
bool WalkScan(const JpegFrame& frame, const JpegScan& scan, Image* image, JpegPadding* padding,
              Visitor* visitor) {
  const bool is_single = scan.count == 1;
  const JpegFrameComponent& first = frame.components[scan.component[0]];
  const uint32_t width = is_single ? first.width_blocks : frame.width_mcus;
  const uint32_t height = is_single ? first.height_blocks : frame.height_mcus;
  uint32_t left = scan.restart_interval;
  uint32_t restarts = 0;
  for (uint32_t mcu_y = 0; mcu_y < height; ++mcu_y) {
    for (uint32_t mcu_x = 0; mcu_x < width; ++mcu_x) {
      if (scan.restart_interval != 0 && left-- == 0) {
        if (!visitor->Restart(restarts++ % 8)) return false;
        left = scan.restart_interval - 1;
      }
      if (is_single) {
        if (!visitor->Block(0, image->components[scan.component[0]].Block(mcu_x, mcu_y))) {
          return false;
        }
        continue;
      }
      for (uint32_t i = 0; i < scan.count; ++i) {
        const uint32_t c = scan.component[i];
        const JpegFrameComponent& component = frame.components[c];
        for (uint32_t y = mcu_y * component.v; y < (mcu_y + 1) * component.v; ++y) {
          for (uint32_t x = mcu_x * component.h; x < (mcu_x + 1) * component.h; ++x) {
            const bool is_inside = x < component.width_blocks && y < component.height_blocks;
            if (!visitor->Block(i, is_inside ? image->components[c].Block(x, y)
                                             : padding->Block(c, padding->Number(c, x, y)))) {
              return false;
            }
          }
        }
      }
    }
  }
  return true;
}

}  // namespace l3
