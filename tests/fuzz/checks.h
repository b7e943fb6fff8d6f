// What must hold of files that the generator built, and of any bytes that parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/fuzz_targets.h"
#include "fuzz/generator.h"
#include "fuzz/parts.h"

namespace l3::fuzz {

inline std::string CheckImage(const Image& image) {
  const Bytes file = ToFile(image.parts);
  uint32_t status;
  const std::string error = CheckDecode(file.data(), file.size(), &status);
  if (!error.empty()) return error;
  L3TestInfo info;
  status = l3_test_parse(file.data(), file.size(), &info);
  if (status != kOk) return std::string("a built file parses to ") + l3_test_status_name(status);
  const Decoded decoded = Decode(kL3TestScalar, file.data(), file.size(), info.image_bytes,
                                 info.image_bytes / info.height_px);
  Decoded expected;
  if (image.bad) {
    expected.status = static_cast<uint32_t>(Status::kCorruptTile);
    expected.bad_tile = *image.bad;
  }
  expected.pixels = image.pixels;
  if (decoded.status != expected.status || decoded.bad_tile != expected.bad_tile) {
    return "scalar says " + Describe(decoded) + ", the builder says " + Describe(expected);
  }
  return decoded.pixels == expected.pixels ? "" : "scalar gives other pixels than the builder";
}

// What ParseImage() promises of the bytes it takes, used as engines use it. The bytes have a
// buffer of their exact size, so that a sanitizer sees every byte too far.
inline std::string CheckParse(const uint8_t* data, size_t size) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  if (size != 0) std::memcpy(copy.get(), data, size);
  const uint8_t* const file = copy.get();
  FindChunk(file, static_cast<uint32_t>(std::min<size_t>(size, kMaxChunksBytes)), kChunkExif);

  ImageView view;
  const Status status = ParseImage(file, size, &view);
  ImageInfo info;
  const Status header = ParseHeader(file, size, &info);
  if (status != Status::kOk) {
    return header == Status::kOk || header == status ? "" : "header and image disagree";
  }
  if (header != Status::kOk) return "an image without a header";
  uint64_t begin = 0;
  for (uint32_t tile = 0; tile < view.info.tile_count(); ++tile) {
    if (view.PayloadBegin(tile) != begin || view.PayloadEnd(tile) <= begin) return "payloads";
    begin = view.PayloadEnd(tile);
  }
  if (begin != view.payloads_bytes) return "the payloads end elsewhere";
  if (HeadBytes(view) + view.payloads_bytes != size) return "the file ends elsewhere";
  std::vector<uint16_t> table(view.value_count);
  if (!ReadValueTable(view, table.data())) return "the value table is not sound any more";
  for (size_t i = 0; i < table.size(); ++i) {
    if (i > 0 && table[i] <= table[i - 1]) return "the value table does not rise";
    if (uint32_t{table[i]} >> view.info.sample_bits != 0) return "the value table is too high";
  }
  RansModel model;
  if (!GetRansModel(view, &model)) return "the rans model is not sound any more";
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t sum = 0;
    for (const uint16_t frequency : model.frequency[t]) sum += frequency;
    if (sum != kRansScale) return "frequencies do not add up";
  }
  for (uint32_t p = 0; p < view.info.channels; ++p) {
    for (const uint8_t of_level : model.table_of_level[p]) {
      if (of_level >= model.table_count) return "a level without a table";
    }
  }
  HasRansTile(view, AllTiles(view.info));
  const ChunkView exif = FindChunk(view, kChunkExif);
  if (exif.data != nullptr) l3_test_read_orientation(exif.data, exif.size);
  return "";
}

}  // namespace l3::fuzz
