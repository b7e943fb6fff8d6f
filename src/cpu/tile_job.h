// The jobs of engines that decode some tiles in turn, and how codings share them out.
// Layer: cpu.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/color.h"
#include "core/tile.h"
#include "cpu/group_part.h"
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

// A tile to decode, and its result.
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
  uint32_t rows = ~0u;  // that are wanted, from the first on: others may be left undecoded
};

constexpr uint32_t kMaxTileJobs = 4;

// What the rans tiles of an image share.
struct RansImage {
  const ImageInfo& info;
  const SampleMap& map;
  const RansTables& tables;
};

// A tile to decode, and its result.
struct RansTileJob {
  TileRect rect;
  TilePayload tile;
  ImageOutput output;  // the tile's own
  Status status;
};

// DecodeTilesFunction from the parts of an engine: `kDecodeModelTiles` for rans or match tiles, all
// of its jobs of one coding; `kDecodeSimpleTile` for the other codings; and `kDecodePlanes` for
// packed tiles that may leave as planes.
template <auto kPayloadCheck, auto kDecodeSimpleTile, auto kDecodeModelTiles,
          auto kDecodePlanes = nullptr>
void DecodeTilesBy(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                   TileJob* jobs, uint32_t count) {
  RansTileJob rans_jobs[kMaxTileJobs];
  TileJob* rans_of[kMaxTileJobs];
  uint32_t rans_count = 0;
  for (TileJob* job = jobs; job < jobs + count; ++job) {
    if (job->status != Status::kOk) continue;
    if (kPayloadCheck(job->payload, job->size) != LoadU32(job->payload)) {
      job->status = Status::kChecksumMismatch;
      continue;
    }
    TilePayload tile;
    job->status = ParseTilePayload(info, job->payload, job->size, &tile);
    if (job->status != Status::kOk) continue;
    const TileRect rect = GetTileRect(info, job->tile);
    if constexpr (!std::is_null_pointer_v<decltype(kDecodePlanes)>) {
      if (job->takes_planes && tile.coding == TileCoding::kPacked) {
        job->status = kDecodePlanes(info, map, rect, tile, job->ahead, job->output.data);
        job->has_planes = true;
        continue;
      }
    }
    if (!HasModel(static_cast<uint8_t>(tile.coding))) {
      job->status = kDecodeSimpleTile(info, map, rect, tile, job->rows, job->output);
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
    kDecodeModelTiles(image, rans_jobs + begin, end - begin);
  }
  for (uint32_t k = 0; k < rans_count; ++k) rans_of[k]->status = rans_jobs[k].status;
}

}  // namespace l3
