#include "output/orientation.h"

namespace l3 {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;  // TIFF's 16-bit type
constexpr uint32_t kTiffHeaderBytes = 8;
constexpr uint32_t kEntryBytes = 12;

// Reads numbers of a TIFF block, in the order of bytes that its header names.
class TiffReader {
 public:
  explicit TiffReader(const ChunkView& block) : block_(block) {
    if (block.size < kTiffHeaderBytes) return;
    little_ = block.data[0] == 'I';
    valid_ = block.data[0] == block.data[1] && (little_ || block.data[0] == 'M') && U16(2) == 42;
  }

  bool valid() const { return valid_; }
  bool Has(uint64_t offset, uint64_t bytes) const { return offset + bytes <= block_.size; }

  // The bytes must be inside the block.
  uint32_t U16(uint64_t offset) const {
    const uint8_t* p = block_.data + offset;
    return ReadOnce(little_ ? LoadU16(p) : static_cast<uint32_t>(p[0]) << 8 | p[1]);
  }
  uint32_t U32(uint64_t offset) const {
    return ReadOnce(little_ ? LoadU32(block_.data + offset) : U16(offset) << 16 | U16(offset + 2));
  }

 private:
  ChunkView block_;
  bool little_ = false;
  bool valid_ = false;
};

// The value of the orientation tag in the first directory; 0 if it has none.
uint32_t FindOrientationTag(const ChunkView& exif) {
  const TiffReader tiff(exif);
  if (!tiff.valid()) return 0;
  const uint64_t directory = tiff.U32(4);
  if (!tiff.Has(directory, 2)) return 0;
  const uint32_t entries = tiff.U16(directory);
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + uint64_t{i} * kEntryBytes;
    if (!tiff.Has(entry, kEntryBytes)) return 0;
    if (tiff.U16(entry) != kOrientationTag) continue;
    return tiff.U16(entry + 2) == kShort && tiff.U32(entry + 4) == 1 ? tiff.U16(entry + 8) : 0;
  }
  return 0;
}

}  // namespace

Size ShownSize(const ImageInfo& info, const Orientation& orientation) {
  if (orientation.swap_xy) return {info.height_px, info.width_px};
  return {info.width_px, info.height_px};
}

Orientation ReadOrientation(const ChunkView& exif) {
  switch (FindOrientationTag(exif)) {
    case 2: return {false, true, false};
    case 3: return {false, true, true};
    case 4: return {false, false, true};
    case 5: return {true, false, false};
    case 6: return {true, false, true};
    case 7: return {true, true, true};
    case 8: return {true, true, false};
    default: return kAsStored;
  }
}

}  // namespace l3
