#include "format/sample_chunk.h"

namespace l3 {
namespace {

constexpr uint32_t kHalvesBytes = 5;
constexpr uint32_t kTableChannels = 2;  // low and high halves

}  // namespace

bool ReadSampleHalves(const ImageView& view, SampleHalves* halves) {
  const ChunkView& chunk = view.samples;
  if (view.info.holding != Holding::kHalves || chunk.size != kHalvesBytes) return false;
  *halves = {ReadOnce(LoadU32(chunk.data)), ReadOnce(chunk.data[4])};
  return halves->zeros < 32;
}

bool ReadSampleTable(const ImageView& view, ImageView* table) {
  const ChunkView& chunk = view.samples;
  if (view.info.holding != Holding::kRanks8 && view.info.holding != Holding::kRanks16) return false;
  if (ParseImage(chunk.data, chunk.size, table) != Status::kOk) return false;
  const ImageInfo& info = table->info;
  return table->version == kVersion && info.sample_type == SampleType::kUint16 &&
         info.channels == kTableChannels && !info.has_large_tiles() &&
         table->match_model.data == nullptr &&
         uint64_t{info.width_px} * info.height_px <= MostRanks(view.info);
}

bool IsSampleChunk(const ImageView& view) {
  SampleHalves halves;
  ImageView table;
  return ReadSampleHalves(view, &halves) || ReadSampleTable(view, &table);
}

}  // namespace l3
