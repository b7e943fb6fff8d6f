#include "output/sample_join.h"

#include <memory>

#include "core/tile.h"

namespace l3 {

bool DecodeTableByCore(const ImageView& table, uint16_t* samples) {
  std::vector<uint16_t> values(table.value_count);
  if (!ReadValueTable(table, values.data())) return false;
  const SampleMap map =
      values.empty() ? MakeSampleMap(table.info) : MakeSampleMap(values.data(), table.value_count);
  RansModel model;
  if (!GetRansModel(table, &model, nullptr)) return false;
  const std::unique_ptr<RansTables> rans(new RansTables);
  BuildRansTables(model, table.info.used_bits, rans.get());
  const ImageOutput image = {reinterpret_cast<uint8_t*>(samples), table.info.row_bytes()};
  for (uint32_t tile = 0; tile < table.info.tile_count(); ++tile) {
    uint64_t begin;
    uint32_t bytes;
    if (!table.FindPayload(tile, &begin, &bytes)) return false;
    const ImageOutput output = OutputOfTile(table.info, image, GetTileRect(table.info, tile));
    if (DecodeTile(table.info, map, rans.get(), tile, table.payloads + begin, bytes, output) !=
        Status::kOk) {
      return false;
    }
  }
  return true;
}

bool ReadSampleJoin(const ImageView& view, const DecodeTable& decode, SampleJoin* join) {
  if (view.info.holding == Holding::kAsTheyAre) return true;
  if (view.info.holding == Holding::kHalves) return ReadSampleHalves(view, &join->halves);
  ImageView table;
  if (!ReadSampleTable(view, &table)) return false;
  const uint32_t count = table.info.width_px * table.info.height_px;
  std::vector<uint16_t> gaps(2 * size_t{count});
  if (!decode(table, gaps.data())) return false;
  join->table.resize(MostRanks(view.info));
  uint32_t sample = 0;
  for (uint32_t rank = 0; rank < join->table.size(); ++rank) {
    if (rank < count) sample += gaps[2 * rank + 1] << 16 | gaps[2 * rank];
    join->table[rank] = sample;
  }
  return true;
}

}  // namespace l3
