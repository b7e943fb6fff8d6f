// The jpeg coding (format.md 5.6): from a payload to the coefficients of a tile. Layer: core; the
// scalar truth.
#pragma once

#include "core/check.h"
#include "core/jpeg_layout.h"
#include "core/rans_model.h"
#include "format/image_view.h"
#include "format/jpeg_chunk.h"
#include "format/status.h"

namespace l3 {

// A model, ready to decode. The slots are those of RansTables: 10 bits number of the slot among
// those of its token, 11 bits token, 11 bits frequency.
struct JpegTables {
  JpegModel model;
  uint32_t slot[kMaxRansTables][kRansScale];
};

void BuildJpegTables(const JpegModel& model, JpegTables* tables);

// Decodes the coefficients of tile `tile` from its payload of `size` bytes, all rules of the tile
// included. `output` is the tile's own: block (0, 0) is the first of the tile. On an error it holds
// unspecified numbers.
Status DecodeJpegTile(const ImageInfo& info, const JpegInfo& jpeg, const JpegTables& tables,
                      uint32_t tile, const uint8_t* payload, uint32_t size,
                      const JpegBlocks<int16_t>& output);

}  // namespace l3
