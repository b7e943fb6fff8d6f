// What fuzz targets check, each of one input. A check returns what went wrong, or "".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/change_target.h"
#include "fuzz/check_jpeg.h"
#include "fuzz/fuzz_targets.h"
#include "fuzz/generator.h"

namespace l3::fuzz {

// Any bytes through every engine, as they are and with checksums made right.
inline std::string CheckBytes(const uint8_t* data, size_t size) {
  Decoded decoded;
  std::string error = CheckDecode(data, size, &decoded);
  if (!error.empty()) return error;
  Bytes repaired(data, data + size);
  Repair(repaired.data(), size);
  if (!std::equal(repaired.begin(), repaired.end(), data)) {
    error = CheckDecode(repaired.data(), size, &decoded);
  }
  if (!error.empty() || !IsOneIn(limits.check_share, kOfPlans, data, size)) return error;
  return CheckPlan(repaired.data(), size, Crc32c(data, size));
}

// Files that bytes build have so many times fewer samples than the generator may make.
constexpr uint32_t kSmaller = 4;

// The file that the bytes build, and the pixels that its builder knows.
inline std::string CheckBuilt(const uint8_t* data, size_t size) {
  Dice dice(data, size);
  const Image image = MakeImage(&dice, kSmaller);
  if (!IsWithinLimits(image.parts.info.image_bytes())) return "";
  const Bytes file = ToFile(image.parts);
  Decoded decoded;
  const std::string error = CheckDecode(file.data(), file.size(), &decoded);
  if (!error.empty()) return error;
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

// A window, a type and a layout of the file that the bytes build, some of them damaged.
inline std::string CheckBuiltPlan(const uint8_t* data, size_t size) {
  Dice dice(data, size);
  const uint64_t seed = dice.Range(0, 0xFFFF);
  const uint32_t damages = dice.OneIn(4) ? dice.Range(1, 3) : 0;
  Bytes file = ToFile(MakeImage(&dice, kSmaller).parts);
  for (uint32_t n = 0; n < damages; ++n) {
    const uint32_t place = dice.Below(static_cast<uint32_t>(file.size()));
    file[place] = static_cast<uint8_t>(dice.Byte());
  }
  if (damages != 0) Repair(file.data(), file.size());
  return CheckPlan(file.data(), file.size(), seed);
}

// What ParseImage() promises of the bytes it takes, used as engines use it. The bytes have a
// buffer of their exact size, so that a sanitizer sees every byte too far.
inline std::string CheckParse(const uint8_t* data, size_t size) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  if (size != 0) std::memcpy(copy.get(), data, size);
  const uint8_t* const file = copy.get();
  FindChunk(file, static_cast<uint32_t>(std::min<size_t>(size, kMaxChunksBytes)), kChunkExif);
  ChunkView other;
  for (uint64_t pos = 0; NextOtherChunk(file, size, &pos, &other);) {
    if (other.data + other.size != file + pos) return "a chunk ends elsewhere";
  }

  ImageView view;
  const Status status = ParseImage(file, size, &view);
  ImageInfo info;
  const Status header = ParseHeader(file, size, &info);
  if (status != Status::kOk) {
    return header == Status::kOk || header == status ? "" : "header and image disagree";
  }
  if (header != Status::kOk) return "an image without a header";
  uint64_t begin = 0;
  const std::vector<ChannelGroup> groups = ReadChannelGroups(view);
  if (groups.size() != view.group_count) return "the list of channel groups is not sound any more";
  for (uint64_t payload = 0; payload < view.payload_count(); ++payload) {
    const uint32_t number = static_cast<uint32_t>(payload % groups.size());
    const ImageView group = ViewOfGroup(view, groups[number], number);
    const uint32_t tile = static_cast<uint32_t>(payload / groups.size());
    if (group.PayloadBegin(tile) != begin || group.PayloadEnd(tile) <= begin) return "payloads";
    begin = group.PayloadEnd(tile);
  }
  if (begin != view.payloads_bytes) return "the payloads end elsewhere";
  if (FileBytes(view) != size) return "the file ends elsewhere";
  std::vector<uint16_t> table(view.value_count);
  if (!ReadValueTable(view, table.data())) return "the value table is not sound any more";
  const ImageInfo coded = CodedInfo(view.info);
  const uint32_t top_bit = coded.is_signed() ? 1u << (coded.sample_bits() - 1) : 0;
  for (size_t i = 0; i < table.size(); ++i) {
    // In numbers that rise with the samples.
    if (i > 0 && (table[i] ^ top_bit) <= (table[i - 1] ^ top_bit)) {
      return "the value table does not rise";
    }
    if (uint32_t{table[i]} >> coded.sample_bits() != 0) return "the value table is too high";
  }
  RansModel model;
  MatchColors colors;
  if (!GetRansModel(view, &model, &colors)) return "the rans model is not sound any more";
  if (colors.count != view.color_count) return "other colours";
  std::vector<uint64_t> color(colors.count);
  ReadMatchColors(colors, coded.channels, coded.used_bits, color.data());
  for (const uint64_t of : color) {
    for (uint32_t c = 0; c < kMaxChannels; ++c) {
      const uint32_t limit = c < coded.channels ? 1u << coded.used_bits : 1;
      if ((of >> (16 * c) & 0xFFFF) >= limit) return "a colour is too large";
    }
  }
  const uint32_t tables = model.table_count + model.match_table_count;
  if (tables > kMaxRansTables) return "too many tables";
  for (const uint8_t of_context : model.table_of_context) {
    if (model.match_table_count != 0 && (of_context < model.table_count || of_context >= tables)) {
      return "a context without a table";
    }
  }
  for (uint32_t t = 0; t < tables; ++t) {
    uint32_t sum = 0;
    for (const uint16_t frequency : model.frequency[t]) sum += frequency;
    if (sum != kRansScale) return "frequencies do not add up";
  }
  for (uint32_t p = 0; p < view.rans_positions; ++p) {
    for (const uint8_t of_level : model.table_of_level[p]) {
      if (of_level >= model.table_count) return "a level without a table";
    }
  }
  const ImageView group = ViewOfGroup(view, groups[0], 0);
  for (uint32_t tile = 0; tile < view.info.tile_count(); ++tile) {
    IsRansTile(group, group.payloads, tile);
  }
  uint64_t others = 0;
  for (uint64_t pos = 0; NextOtherChunk(view.chunks, view.info.chunks_bytes, &pos, &other);) {
    others += other.size;
  }
  if (others > view.info.chunks_bytes) return "more chunks than there are";
  const ChunkView exif = FindChunk(view, kChunkExif);
  if (exif.data != nullptr) l3_test_read_orientation(exif.data, exif.size);
  return "";
}

// Finds a fuzz target by its name; null if no target has it.
using Check = std::string (*)(const uint8_t* data, size_t size);
inline Check FindCheck(const std::string& target) {
  if (target == "fuzz_build") return CheckBuilt;
  if (target == "fuzz_change") return CheckChanging;
  if (target == "fuzz_decode") return CheckBytes;
  if (target == "fuzz_encode") return CheckEncode;
  if (target == "fuzz_encode_change") return CheckEncodeChanging;
  if (target == "fuzz_jpeg") return CheckJpeg;
  if (target == "fuzz_parse") return CheckParse;
  if (target == "fuzz_plan") return CheckBuiltPlan;
  return nullptr;
}

}  // namespace l3::fuzz
