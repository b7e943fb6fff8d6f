// Windows of an image of jpeg tiles: a row of tiles at a time becomes blocks of samples, then rows
// of samples, then pixels. So memory does not grow with the height of the picture. Layer: cpu.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/parallel.h"
#include "core/jpeg_tile.h"
#include "cpu/cpu_engine.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

// Rows of samples at the edge between two calls of DecodeJpegWindows(): the pixels there need both.
class JpegSeams {
 public:
  // Keeps the rows of one side of the edge above a row of tiles, until the other side comes. Then
  // returns true, and `rows` gets those of the side that came first.
  bool Meet(uint32_t tile_row, std::vector<uint8_t>* rows);

 private:
#if !defined(L3_ONE_THREAD)
  std::mutex mutex_;
#endif
  std::map<uint32_t, std::vector<uint8_t>> waiting_;
};

// What the calls for an image share.
struct JpegSource {
  const ImageView& view;
  const JpegInfo& jpeg;
  const JpegTables& tables;
  const EngineFunctions& engine;
};

// CpuDecoder::DecodeWindows() of rows of tiles: those from `row_begin` on, of the span's. Calls for
// parts of the span share `seams`, which is null if there is one call. A pixel at an edge between
// calls is stored by the later one.
DecodeResult DecodeJpegWindows(const JpegSource& source, const OutputPlan* plans, size_t count,
                               const TileSpan& span, uint32_t row_begin, uint32_t row_end,
                               JpegSeams* seams);

}  // namespace l3
