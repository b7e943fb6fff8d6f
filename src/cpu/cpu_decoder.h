// Decodes images on the CPU. Layer: cpu. Every engine gives the scalar core's
// samples and Status; they differ in speed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/color.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

enum class CpuEngine {
  kAuto,    // the fastest this machine has
  kScalar,  // the core itself
  kAvx2,
  kAvx512,  // with VBMI, VBMI2 and VNNI
};

// Whether this build and this machine can run `engine`.
bool IsAvailable(CpuEngine engine);

// An image ready to decode: the validated file and its expanded value table.
// The encoded bytes must outlive it. Immutable, so threads may share it.
class CpuDecoder {
 public:
  // Allocates the value table if the file has one, and the tables of rans if a
  // tile needs them (at most 128 KiB each, and little more). Where
  // `engine` is not available, kScalar takes its place.
  explicit CpuDecoder(const ImageView& view, CpuEngine engine = CpuEngine::kAuto);

  const ImageInfo& info() const { return view_.info; }

  // Decodes tiles [begin, end), those behind a bad one too. 16-bit output must
  // be 2-byte aligned.
  DecodeResult DecodeTiles(uint32_t begin, uint32_t end, const ImageOutput& output) const;

  // Decodes the image on up to `threads` threads (0: all the machine has).
  DecodeResult DecodeImage(const ImageOutput& output, unsigned threads) const;

 private:
  ImageView view_;
  decltype(&DecodeTile) decode_tile_;
  std::unique_ptr<uint16_t[]> value_table_;
  SampleMap map_;
  std::unique_ptr<RansTables> rans_;  // null if no tile needs it
};

}  // namespace l3
