#include "cpu/large_tile.h"

#include <algorithm>

#include "base/parallel.h"

namespace l3 {
namespace {

constexpr uint32_t kPageBytes = 4096;

void ReadPages(const uint8_t* payload, uint32_t size) {
  const volatile uint8_t* const bytes = payload;
  for (uint64_t at = 0; at < size; at += kPageBytes) {
    if (at % (1024 * kPageBytes) == 0) CheckInterrupt();
    static_cast<void>(bytes[at]);
  }
}

}  // namespace

void TouchPages(const ImageInfo& info, const TileJob& job) {
  ReadPages(job.payload, job.size);
  const TileRect rect = GetTileRect(info, job.tile);
  const uint64_t row_bytes = uint64_t{rect.width_px} * info.pixel_bytes();
  uint64_t written = 0;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    for (uint64_t x = 0; x < row_bytes; x += kPageBytes) {
      if (written++ % 1024 == 0) CheckInterrupt();
      job.output.Row(y)[x] = 0;
    }
  }
}

Status DecodeLargeTile(const EngineFunctions& engine, const ImageInfo& info, const SampleMap& map,
                       const TileJob& job, const PlanList& plans, uint8_t* piece) {
  ReadPages(job.payload, job.size);
  if (engine.payload_check(job.payload, job.size) != LoadU32(job.payload)) {
    return Status::kChecksumMismatch;
  }
  TilePayload parsed;
  Status status = ParseTilePayload(info, job.payload, job.size, &parsed);
  if (status != Status::kOk) return status;
  const TileRect rect = GetTileRect(info, job.tile);
  const uint64_t row_bytes = uint64_t{rect.width_px} * info.pixel_bytes();
  status = CheckBodyEnd(parsed, kTileHeaderBytes + row_bytes * rect.height_px);
  if (status != Status::kOk) return status;

  const uint8_t* in = job.payload + kTileHeaderBytes;
  const bool any_value = map.value_count == 1u << info.sample_bits();
  RowSweep rows;
  rows.Start(plans);
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    CheckInterrupt();
    const PlanList& of_row = rows.At(rect.y_px + y, 1);
    if (of_row.empty() && any_value) {  // no value can be invalid
      in += row_bytes;
      continue;
    }
    for (uint32_t x = 0; x < rect.width_px; x += kPiecePixels) {
      const uint32_t width = std::min(kPiecePixels, rect.width_px - x);
      if (!DecodeStoredSamples(info, map, in, width * info.channels, piece)) {
        return Status::kCorruptTile;
      }
      in += uint64_t{width} * info.pixel_bytes();
      for (const OutputPlan* plan : of_row) {
        engine.store_rect(info, *plan, {rect.x_px + x, rect.y_px + y, width, 1}, {piece, 0});
      }
    }
  }
  return Status::kOk;
}

}  // namespace l3
