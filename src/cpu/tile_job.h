// What engines that decode some tiles in turn take, and how they share tiles out to the codings.
// Layer: cpu.
#pragma once

#include <cstdint>

#include "core/color.h"
#include "core/tile.h"
#include "cpu/group_part.h"
#include "cpu/rans_jobs.h"
#include "format/image_view.h"

namespace l3 {

// Where the rows of a tile will be stored once it is decoded: bytes to have in the cache by then.
struct RowsAhead {
  const uint8_t* data;
  int64_t row_stride_bytes;
  uint32_t row_bytes;

  void Prefetch(uint32_t y) const {
    const uint8_t* row = data + static_cast<int64_t>(y) * row_stride_bytes;
    for (uint32_t i = 0; i < row_bytes; i += 64) __builtin_prefetch(row + i, 1);
  }
};

// A tile to decode, and what became of it.
struct TileJob {
  uint32_t tile;
  const uint8_t* payload;
  uint32_t size;
  ImageOutput output;  // the tile's own
  Status status;
  // Whether it may leave as planes, as wide and high as the tile, kPlaneGapBytes apart in `output`;
  // and whether it has.
  bool takes_planes = false;
  bool has_planes = false;
  RowsAhead ahead = {};
};

constexpr uint32_t kMaxTileJobs = 4;

// The parts of an engine: they give what PayloadCheck, DecodeTile and DecodeRansTile of the core
// would; decode_rans does match tiles too, all of its jobs of one coding. The second gets tiles of
// other codings. The last, for packed tiles that leave as planes, may be null.
struct TileEngine {
  uint32_t (*payload_check)(const uint8_t* payload, uint32_t size);
  Status (*decode_other)(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                         const TilePayload& tile, const ImageOutput& output);
  void (*decode_rans)(const RansImage& image, RansTileJob* jobs, uint32_t count);
  Status (*decode_planes)(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                          const TilePayload& tile, const RowsAhead& ahead,
                          uint8_t* planes) = nullptr;
};

// Each of `count` jobs (0 to kMaxTileJobs) gets what DecodeTile would give it, but for those
// whose status is not kOk, which are left alone.
inline void DecodeTilesWith(const TileEngine& engine, const ImageInfo& info, const SampleMap& map,
                            const RansTables* rans, TileJob* jobs, uint32_t count) {
  RansTileJob rans_jobs[kMaxTileJobs];
  TileJob* rans_of[kMaxTileJobs];
  uint32_t rans_count = 0;
  for (TileJob* job = jobs; job < jobs + count; ++job) {
    if (job->status != Status::kOk) continue;
    if (engine.payload_check(job->payload, job->size) != LoadU32(job->payload)) {
      job->status = Status::kChecksumMismatch;
      continue;
    }
    TilePayload tile;
    job->status = ParseTilePayload(info, job->payload, job->size, &tile);
    if (job->status != Status::kOk) continue;
    const TileRect rect = GetTileRect(info, job->tile);
    if (job->takes_planes && tile.coding == TileCoding::kPacked &&
        engine.decode_planes != nullptr) {
      job->status = engine.decode_planes(info, map, rect, tile, job->ahead, job->output.data);
      job->has_planes = true;
      continue;
    }
    if (!HasModel(static_cast<uint8_t>(tile.coding))) {
      job->status = engine.decode_other(info, map, rect, tile, job->output);
      continue;
    }
    if (rans == nullptr) {
      job->status = Status::kCorruptTile;
      continue;
    }
    rans_jobs[rans_count] = {rect, tile, job->output, Status::kOk};
    rans_of[rans_count++] = job;
  }
  if (rans_count == 0) return;
  const RansImage image = {info, map, *rans};
  for (uint32_t begin = 0, end = 0; begin < rans_count; begin = end) {
    const TileCoding coding = rans_jobs[begin].tile.coding;
    while (end < rans_count && rans_jobs[end].tile.coding == coding) ++end;
    engine.decode_rans(image, rans_jobs + begin, end - begin);
  }
  for (uint32_t k = 0; k < rans_count; ++k) rans_of[k]->status = rans_jobs[k].status;
}

}  // namespace l3
