// Encodes an image: searches parameters and writes the bytes of format.md.
// Layer: encoder. Deterministic: the same pixels and options give the same
// bytes, whatever the number of threads or the machine.
//
// Another thread may write to the pixels during the call. Then each pass sees other samples and the
// file may not decode, but the encoder touches no memory but its own. All reads of pixels copy them
// (LoadTile and the like); what a pass keeps fits whatever a later pass reads:
//
//   pass                     keeps                 why it fits later samples
//   FindChannelGroups        groups                made of the numbers of channels alone
//   FindShiftedValues        shift, used_bits      any value is masked to be below 2^used_bits, but
//                                                  for packed tiles, which work modulo 2^used_bits
//   FindRankedValues         value table, ranks    every possible sample has a rank, which is
//                                                  below 2^used_bits
//   MatchImage               colours, tokens       payloads are made of these, not of pixels
//   RansCoder: Probe,        plans, model, tiles   any plan models any values; RansSymbols has a
//     Plan, Refine           as modelled           frequency above 0 for every token; a tile that
//                                                  was not kept is modelled anew
//   EncodeTiles: a payload   the smallest          each is made of a copy of its own
//     as rans, packed
//     and stored
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/pixel_view.h"
#include "format/constants.h"
#include "format/status.h"

namespace l3 {

struct EncodeOptions {
  Coding coding = Coding::kRans;
  // 1 (fast) to 9 (small). With rans 2 and 3 give the same bytes, so do 4 and 5; in the
  // other codings all do.
  uint32_t effort = 5;
  unsigned threads = 1;  // 0: all the machine has
  uint32_t tile_width_log2 = 0;  // 0: chosen by the encoder; else 5 to 8
  uint32_t tile_height_log2 = 0;  // 0: chosen by the encoder; else 3 to 8
  bool match_tiles = true;  // with rans; without them for comparisons
  Meaning meaning = Meaning::kColor;
  Bytes icc, exif, palette;  // chunks; none when empty
  // Of more than four channels those that decode together, 1 to 4 in each; none: the encoder
  // chooses.
  std::vector<std::vector<uint32_t>> groups;
  Bytes xmp, metadata;  // likewise
  // Optional chunks of types that this version does not know, back to back as in a file.
  Bytes other_chunks;
};

// Of all that EncodeOptions keeps beside the pixels: leaves room for the colours of match
// tiles (up to 65,532 of 8 bytes), the largest value table, models and the headers of chunks.
constexpr uint64_t kMaxMetadataBytes = kMaxChunksBytes - (1u << 20);

// Writes to `bytes` a size that no file of EncodeImage() exceeds. Returns what it does of the same
// arguments, but for memory; does not read the pixels, which may be null.
Status BoundFile(const PixelView& pixels, const EncodeOptions& options, uint64_t* bytes);

// Returns kInvalidArgument for pixels or options the format cannot hold, and kOutputTooSmall where
// `allocate` returns null.
// Throws std::bad_alloc, and what `allocate` throws.
Status EncodeImage(const PixelView& pixels, const EncodeOptions& options,
                   const AllocateFile& allocate);
Status EncodeImage(const PixelView& pixels, const EncodeOptions& options,
                   std::vector<uint8_t>* encoded);

}  // namespace l3
