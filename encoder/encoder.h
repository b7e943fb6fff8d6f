// Encodes an image: searches parameters and writes the bytes of format.md.
// Layer: encoder. Deterministic: the same pixels and options give the same
// bytes, whatever the number of threads or the machine.
//
// Another thread may write to the pixels during the call. Then each pass sees other samples and the
// file may not decode, but the encoder touches no memory but its own. All reads of pixels copy them
// (TileLoader and the like); what a pass keeps fits whatever a later pass reads:
//
//   pass                     keeps                 why it fits later samples
//   ChooseChannelGroups      groups                made of the numbers of channels alone
//   FindShiftedValues        shift, used_bits      any value is masked to be below 2^used_bits
//   FindRankedValues         value table, ranks    every possible sample has a rank, which is
//                                                  below 2^used_bits
//   MatchImage               colours, tokens       payloads are made of these, not of pixels
//   RansCoder: Probe,        parameters, model,    any parameters model any values; RansSymbols has
//     FindParameters,        tiles as modelled     a frequency above 0 for every token; a tile that
//     Refine                                       was not kept is modelled anew
//   TileEncoder: a payload   the smallest          each is made of a copy of its own
//     as rans, packed, stored
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/encode_options.h"
#include "encoder/pixel_view.h"
#include "format/status.h"

namespace l3 {

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
