// A mutator that knows the format: it takes a file apart, changes its parts, lays them out anew
// and makes the checksums right, so that what it changed is what decoders get to see.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "format/constants.h"
#include "format/image_view.h"
#include "format/rans_model.h"
#include "fuzz/fuzz_targets.h"
#include "fuzz/generator.h"

// libFuzzer's own.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace l3::fuzz {

// More than this many tiles or bytes only cost time.
constexpr uint32_t kMaxMutatedTiles = 256;

// Lets libFuzzer change `bytes`, from `begin` on. They may grow by 64 bytes if they may grow.
inline void MutateBytes(Bytes* bytes, size_t begin, bool may_grow) {
  begin = std::min(begin, bytes->size());
  const size_t size = bytes->size() - begin;
  bytes->resize(bytes->size() + (may_grow ? 64 : 0));
  const size_t max_size = bytes->size() - begin;
  if (max_size == 0) return;
  bytes->resize(begin + LLVMFuzzerMutate(bytes->data() + begin, size, max_size));
  if (!may_grow) bytes->resize(begin + size);
}

// Damages bytes in one of the ways that files are damaged, more often behind a header than in it.
inline void Damage(const Bytes& other, Dice* dice, Bytes* data) {
  if (data->empty()) return;
  const uint32_t size = static_cast<uint32_t>(data->size());
  const uint32_t place = dice->Range(dice->OneIn(4) ? 0 : std::min(32u, size - 1), size - 1);
  const uint32_t rest = size - place;
  uint8_t* const bytes = data->data() + place;
  switch (dice->Below(8)) {
    case 0: *bytes = static_cast<uint8_t>(dice->Byte()); break;
    case 1: data->resize(place); break;
    case 2:  // a run of one byte
      std::fill_n(bytes, std::min(rest, dice->Range(1, 40)), static_cast<uint8_t>(dice->Byte()));
      break;
    case 3:
    case 4: {  // a part of another file
      const uint32_t other_size = static_cast<uint32_t>(other.size());
      const uint32_t begin = dice->Below(other_size + 1);
      std::copy_n(other.data() + begin, std::min({rest, other_size - begin, dice->Below(200)}),
                  bytes);
      break;
    }
    default: *bytes ^= static_cast<uint8_t>(1 << dice->Below(8));
  }
}

inline ChunkView FindRawChunk(const std::vector<Bytes>& chunks, uint32_t type) {
  for (const Bytes& chunk : chunks) {
    if (chunk.size() < 8 || LoadU32(chunk.data()) != type) continue;
    const size_t size = std::min<size_t>(chunk.size() - 8, LoadU32(chunk.data() + 4));
    return {chunk.data() + 8, static_cast<uint32_t>(size)};
  }
  return {};
}

// What tiles of these parts can be written for; the chunks may be wrong.
inline Coded CodingOf(const Parts& parts) {
  Coded coded;
  coded.info = CodedInfo(parts.info);
  const ChunkView table = FindRawChunk(parts.chunks, kChunkValueTable);
  if (table.data != nullptr && table.size >= 4) {
    const uint32_t count = LoadU32(table.data);
    if (count >= 1 && count <= coded.values()) coded.table.resize(count);
  }
  const ChunkView model = FindRawChunk(parts.chunks, kChunkRansModel);
  const uint32_t positions = Positions(coded.info);
  if (model.data == nullptr ||
      !ReadRansModel(model.data, model.size, positions, coded.info.used_bits, &coded.model)) {
    coded.model = BuiltInRansModel(positions, coded.info.used_bits);
  }
  const ChunkView match = FindRawChunk(parts.chunks, kChunkMatchModel);
  MatchColors colors;
  const uint32_t channels = coded.info.channels;
  if (match.data == nullptr || channels > kMaxChannels ||
      !ReadMatchModel(match.data, match.size, channels, coded.info.used_bits, &coded.model,
                      &colors)) {
    coded.model.match_table_count = 0;
    return coded;
  }
  std::vector<uint64_t> color(colors.count);
  ReadMatchColors(colors, channels, coded.info.used_bits, color.data());
  for (const uint64_t of : color) {
    coded.colors.push_back({});
    for (uint32_t c = 0; c < channels; ++c) coded.colors.back()[c] = of >> (16 * c) & 0xFFFF;
  }
  // Tiles that are made name no number without a colour.
  for (uint32_t t = 0; t < coded.model.match_table_count; ++t) {
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      if (coded.model.frequency[coded.model.table_count + t][token] != 0 &&
          TokenBegin(token) >= coded.numbers() + kMatchNeighbors) {
        coded.model.match_table_count = 0;
        return coded;
      }
    }
  }
  return coded;
}

// Whether tiles of such an image can be written in little time and memory.
inline bool IsSmall(const ImageInfo& info) {
  const uint64_t samples = uint64_t{info.width_px} * info.height_px * info.channels;
  return samples <= kMaxRarelyMadeSamples && info.tile_count() <= kMaxMutatedTiles;
}

// The groups of the channels, as their list says or, if it does not fit them, a new one.
inline std::vector<ChannelGroup> GroupsOf(Parts* parts, Dice* dice) {
  ImageView view = {};
  view.info = parts->info;
  view.groups = FindRawChunk(parts->chunks, kChunkGroups);
  if (!view.is_group() && view.groups.size >= 2) {
    view.group_count = static_cast<uint16_t>(LoadU16(view.groups.data));
    view.groups = {view.groups.data + 2, view.groups.size - 2};
  }
  std::vector<ChannelGroup> groups = ReadChannelGroups(view);
  if (!groups.empty() && (view.is_group() || view.groups.data != nullptr)) return groups;
  groups = MakeGroups(view.info.channels, dice, view.info.most_group_channels());
  std::vector<Bytes>& chunks = parts->chunks;
  chunks.erase(std::remove_if(chunks.begin(), chunks.end(),
                              [](const Bytes& chunk) {
                                return chunk.size() >= 4 && LoadU32(chunk.data()) == kChunkGroups;
                              }),
               chunks.end());
  if (groups.size() > 1) chunks.insert(chunks.begin(), GroupsChunk(groups));
  return groups;
}

// What the tiles of one of the groups are written for.
inline Coded CodingOf(const Parts& parts, const ChannelGroup& group) {
  Coded coded = CodingOf(parts);
  coded.info.channels = static_cast<uint16_t>(group.channels);
  if (parts.info.holding == Holding::kHalves) coded.info.channels *= 2;
  return coded;
}

// As many payloads as the shape has tiles, in each group. False if those are too many.
inline bool FitPayloads(Parts* parts, Dice* dice) {
  if (!IsSmall(parts->info)) return false;
  const std::vector<ChannelGroup> groups = GroupsOf(parts, dice);
  const uint32_t payloads = parts->info.tile_count() * static_cast<uint32_t>(groups.size());
  const bool repeat = !parts->payloads.empty() && dice->OneIn(2);
  const size_t have = parts->payloads.size();
  while (parts->payloads.size() < payloads) {
    if (repeat) {
      parts->payloads.push_back(Bytes(parts->payloads[parts->payloads.size() % have]));
    } else {
      const size_t number = parts->payloads.size();
      const Coded coded = CodingOf(*parts, groups[number % groups.size()]);
      const uint32_t tile = static_cast<uint32_t>(number / groups.size());
      parts->payloads.push_back(MakeTile(coded, tile, dice).payload);
    }
  }
  parts->payloads.resize(payloads);
  return true;
}

inline void PutChunk(std::vector<Bytes>* chunks, Bytes chunk) {
  for (Bytes& old : *chunks) {
    if (old.size() >= 4 && LoadU32(old.data()) == LoadU32(chunk.data())) {
      old = std::move(chunk);
      return;
    }
  }
  chunks->push_back(std::move(chunk));
}

// A field of the header. Sizes stay small enough to decode.
inline bool MutateHeader(Parts* parts, Dice* dice) {
  ImageInfo& info = parts->info;
  const auto any = [dice](uint32_t low, uint32_t high) {
    return static_cast<uint8_t>(dice->Range(low, high));
  };
  switch (dice->Below(9)) {
    case 0: info.channels = any(1, dice->OneIn(2) ? 13 : 4); break;
    case 1:
      info.sample_type = static_cast<SampleType>(any(0, kSampleTypes - 1));
      info.holding = info.sample_bits() == 32 ? Holding::kHalves : Holding::kAsTheyAre;
      if (info.sample_type < SampleType::kUint32) break;
      parts->version = static_cast<uint8_t>(kVersion2);
      if (info.sample_bits() == 32) PutChunk(&parts->chunks, HalvesChunk(dice->Byte(), any(0, 40)));
      break;
    case 2: info.used_bits = any(1, CodedInfo(info).sample_bits()); break;
    case 3: info.shift = any(0, 16); break;
    case 4: info.tile_width_log2 = any(kMinTileWidthLog2, dice->OneIn(8) ? 15 : 8); break;
    case 5: info.tile_height_log2 = any(kMinTileHeightLog2, dice->OneIn(8) ? 15 : 8); break;
    case 6: info.meaning = static_cast<Meaning>(any(0, 1)); break;
    case 7: info.width_px = std::max(1u, info.width_px + dice->Below(5) - 2); break;
    default: info.height_px = std::max(1u, info.height_px + dice->Below(5) - 2);
  }
  info.used_bits = std::min(info.used_bits, static_cast<uint8_t>(CodedInfo(info).sample_bits()));
  return FitPayloads(parts, dice);
}

// A field of the model, which stays valid.
inline void MutateModel(Parts* parts, Dice* dice) {
  const ImageInfo info = CodedInfo(parts->info);
  RansModel model = CodingOf(*parts).model;
  const uint32_t p = dice->Below(Positions(info));
  switch (dice->Below(5)) {
    case 0: model = MakeModel(info.used_bits, dice); break;
    case 1:
      model.gradient_weight = static_cast<uint8_t>(dice->Below(kMaxRansGradientWeight + 1));
      break;
    case 2:
      model.set_begin[p][0] = static_cast<uint8_t>(dice->Below(kRansLevels + 1));
      model.set_begin[p][1] = static_cast<uint8_t>(dice->Range(model.set_begin[p][0], kRansLevels));
      break;
    case 3: {
      const uint32_t begin = dice->Below(kRansLevels);
      const uint32_t end = dice->Range(begin, kRansLevels);
      const uint8_t table = static_cast<uint8_t>(dice->Below(model.table_count));
      std::fill(model.table_of_level[p] + begin, model.table_of_level[p] + end, table);
      break;
    }
    default: {  // from one token to another
      uint16_t* frequency = model.frequency[dice->Below(model.table_count)];
      const uint32_t tokens = info.used_bits <= 8 ? kRansShortTokens : kRansTokens;
      uint32_t from = dice->Below(tokens);
      while (frequency[from] == 0) from = (from + 1) % tokens;
      const uint16_t moved = static_cast<uint16_t>(dice->Range(1, frequency[from]));
      frequency[from] = static_cast<uint16_t>(frequency[from] - moved);
      uint16_t& to = frequency[dice->Below(tokens)];
      to = static_cast<uint16_t>(to + moved);
    }
  }
  PutChunk(&parts->chunks, ModelChunk(model, Positions(info), info.used_bits, dice));
}

inline void MutateChunks(Parts* parts, Dice* dice) {
  std::vector<Bytes>& chunks = parts->chunks;
  const uint32_t choice = dice->Below(9);
  if (choice == 0) {
    MutateModel(parts, dice);
  } else if (choice == 8) {
    Coded coded = CodingOf(*parts);
    if (CanMatch(coded)) {
      PutChunk(&chunks, MakeMatchModel(&coded, dice));
    }
  } else if (choice == 1) {
    const std::vector<uint16_t> table = MakeValueTable(CodedInfo(parts->info).sample_bits(), dice);
    const uint32_t count = static_cast<uint32_t>(table.size());
    PutChunk(&chunks, ValueTableChunk(table, dice));
    if (!dice->OneIn(8)) {
      parts->info.used_bits = static_cast<uint8_t>(std::max(1u, BitLength(count - 1)));
      parts->info.shift = 0;
    }
  } else if (choice == 2 || chunks.empty()) {
    chunks.push_back(OptionalChunk(dice->Below(kOptionalTypes), dice));
  } else {
    Bytes& chunk = chunks[dice->Below(static_cast<uint32_t>(chunks.size()))];
    switch (choice) {
      case 3: std::swap(chunk, chunks.back()); break;
      case 4:
        std::swap(chunk, chunks.back());
        chunks.pop_back();
        break;
      case 5: chunks.push_back(Bytes(chunk)); break;
      case 6: MutateBytes(&chunk, 0, dice->OneIn(2)); break;
      default:  // its data alone, and a length that fits
        if (chunk.size() < 8) break;
        chunk.resize(std::min<size_t>(chunk.size(), 8 + uint64_t{LoadU32(chunk.data() + 4)}));
        MutateBytes(&chunk, 8, true);
        StoreU32(chunk.data() + 4, static_cast<uint32_t>(chunk.size() - 8));
        PadTo(&chunk, 4);
    }
  }
}

// The tile header and those fields of a body that lie at known places.
inline void MutateTileFields(const ImageInfo& info, Bytes* payload, Dice* dice) {
  const auto byte = [payload](size_t i) -> uint8_t& { return (*payload)[i % payload->size()]; };
  const auto any = [dice](uint32_t limit) { return static_cast<uint8_t>(dice->Below(limit)); };
  const uint32_t p = dice->Below(Positions(info));
  const uint32_t after_header = kTileHeaderBytes + kRansBodyHeaderBytes;
  switch (dice->Below(8)) {
    case 0: byte(4) = any(6); break;
    case 1: byte(5) = any(3); break;
    case 2: byte(6 + any(2)) = any(2); break;
    case 3:  // packed: layout, start width, base
      byte(kTileHeaderBytes + kChannelHeaderBytes * p) = any(5);
      break;
    case 4: byte(kTileHeaderBytes + kChannelHeaderBytes * p + 1) = any(18); break;
    case 5: byte(kTileHeaderBytes + p) = any(5); break;  // rans: sets
    case 6: byte(kTileHeaderBytes + 4 + 2 * p + any(2)) = any(256); break;
    default:  // coefficients and states, or predictors and widths
      for (uint32_t i = dice->Range(1, 4); i > 0; --i) byte(after_header + any(200)) = any(256);
  }
}

inline void MutatePayload(Parts* parts, Dice* dice) {
  std::vector<Bytes>& payloads = parts->payloads;
  if (payloads.empty()) return;
  const uint32_t number = dice->Below(static_cast<uint32_t>(payloads.size()));
  Bytes& payload = payloads[number];
  if (payload.empty()) return;
  switch (dice->Below(8)) {
    case 0:
    case 1:
      if (IsSmall(parts->info)) {
        const std::vector<ChannelGroup> groups = GroupsOf(parts, dice);
        const uint32_t tile = number / static_cast<uint32_t>(groups.size());
        if (tile >= parts->info.tile_count()) break;
        const Coded coded = CodingOf(*parts, groups[number % groups.size()]);
        payload = MakeTile(coded, tile, dice).payload;
      }
      break;
    case 2: payload = payloads[dice->Below(static_cast<uint32_t>(payloads.size()))]; break;
    case 3:
      payload.resize(payload.size() + (dice->OneIn(2) ? 16 : 0));
      if (payload.size() > 16 && dice->OneIn(2)) payload.resize(payload.size() - 16);
      break;
    case 4:
    case 5: MutateTileFields(CodedInfo(parts->info), &payload, dice); break;
    default: MutateBytes(&payload, kTileHeaderBytes, false);
  }
}

// Bytes of the file that ToFile() has made right, made wrong again: index entries, the header, the
// last bytes.
inline void MutateLayout(const ImageInfo& info, Bytes* file, Dice* dice) {
  const uint64_t index = kHeaderBytes + uint64_t{LoadU32(file->data() + 24)};
  switch (dice->Below(4)) {
    case 0: {
      const uint64_t entry = index + 4 * uint64_t{dice->Below(info.tile_count())};
      if (entry + 4 > file->size()) break;
      StoreU32(file->data() + entry, LoadU32(file->data() + entry) + dice->Below(5) - 2);
      break;
    }
    case 1:
      file->resize(file->size() -
                   std::min<size_t>(file->size() - kHeaderBytes, dice->Range(1, 40)));
      break;
    case 2: (*file)[dice->Range(8, 27)] = static_cast<uint8_t>(dice->Byte()); break;
    default: (*file)[dice->Below(static_cast<uint32_t>(file->size()))] ^= 1u << dice->Below(8);
  }
  Repair(file->data(), file->size());
}

inline size_t GiveBack(const Bytes& file, uint8_t* data, size_t max_size) {
  if (file.size() > max_size) return 0;
  std::copy(file.begin(), file.end(), data);
  return file.size();
}

// LLVMFuzzerCustomMutator's contract, but for the choices.
inline size_t MutateFile(uint8_t* data, size_t size, size_t max_size, Dice dice) {
  const auto fall_back = [&] {
    const size_t mutated = LLVMFuzzerMutate(data, size, max_size);
    if (!dice.OneIn(4)) Repair(data, mutated);
    return mutated;
  };
  Parts parts;
  const bool is_file = FromFile(data, size, &parts);
  if (dice.OneIn(16)) return fall_back();
  if (!is_file || dice.OneIn(16)) {
    const size_t made = GiveBack(ToFile(MakeImage(&dice).parts), data, max_size);
    return made != 0 ? made : fall_back();
  }
  for (uint32_t n = dice.Range(1, 4); n > 0; --n) {
    switch (dice.Below(8)) {
      case 0:
        if (!MutateHeader(&parts, &dice)) return fall_back();
        break;
      case 1:
      case 2: MutateChunks(&parts, &dice); break;
      case 3:
        if (dice.OneIn(8)) MutateBytes(&parts.rest, 0, true);
        parts.rest.clear();
        break;
      default: MutatePayload(&parts, &dice);
    }
  }
  Bytes file = ToFile(parts);
  if (dice.OneIn(8)) MutateLayout(parts.info, &file, &dice);
  const size_t mutated = GiveBack(file, data, max_size);
  return mutated != 0 ? mutated : fall_back();
}

// LLVMFuzzerCustomCrossOver's contract: tiles, chunks or the header of the other file.
inline size_t CrossFiles(const uint8_t* data1, size_t size1, const uint8_t* data2, size_t size2,
                         uint8_t* out, size_t max_size, uint32_t seed) {
  Dice dice(seed);
  Parts parts;
  Parts other;
  if (!FromFile(data1, size1, &parts) || !FromFile(data2, size2, &other)) return 0;
  if (dice.OneIn(4)) parts.chunks = other.chunks;
  if (dice.OneIn(4)) {
    parts.version = other.version;
    parts.info = other.info;
  }
  for (Bytes& payload : parts.payloads) {
    if (other.payloads.empty() || !dice.OneIn(2)) continue;
    payload = other.payloads[dice.Below(static_cast<uint32_t>(other.payloads.size()))];
  }
  return FitPayloads(&parts, &dice) ? GiveBack(ToFile(parts), out, max_size) : 0;
}

}  // namespace l3::fuzz
