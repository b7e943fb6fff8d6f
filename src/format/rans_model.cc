#include "format/rans_model.h"

#include <algorithm>

#include "format/byte_reader.h"
#include "format/rans_built_in.h"

namespace l3 {
namespace {

// The tables of 64 levels or contexts.
bool ReadRuns(ByteReader* reader, uint32_t table_count, uint8_t* table_of) {
  static_assert(kMatchContexts == kRansLevels);
  for (uint32_t level = 0; level < kRansLevels;) {
    const uint32_t run = reader->ReadByte();
    const uint32_t table = run & 31;
    const uint32_t end = level + (run >> 5) + 1;
    if (!reader->ok() || table >= table_count || end > kRansLevels) return false;
    for (; level < end; ++level) table_of[level] = static_cast<uint8_t>(table);
  }
  return true;
}

bool ReadLevels(ByteReader* reader, uint32_t table_count, uint8_t* set_begin,
                uint8_t* table_of_level) {
  for (uint32_t i = 0; i + 1 < kMaxRansSets; ++i) {
    set_begin[i] = static_cast<uint8_t>(reader->ReadByte());
    if (set_begin[i] > kRansLevels || (i > 0 && set_begin[i] < set_begin[i - 1])) return false;
  }
  return ReadRuns(reader, table_count, table_of_level);
}

bool ReadTable(ByteReader* reader, uint32_t max_tokens, uint16_t* frequency) {
  const uint32_t tokens = reader->ReadByte();
  if (tokens > max_tokens) return false;
  uint32_t sum = 0;
  for (uint32_t token = 0; token < tokens; ++token) {
    frequency[token] = static_cast<uint16_t>(reader->ReadBase128(2));
    sum += frequency[token];
  }
  return reader->ok() && sum == kRansScale;
}

// Walks the gaps of colours, calling visit(key) for each. Returns false if they are not
// `count` keys of `bits` bits that fill them exactly.
template <typename Visit>
bool WalkColors(const MatchColors& colors, uint32_t bits, const Visit& visit) {
  ByteReader reader(colors.gaps, colors.gaps_bytes);
  uint64_t next = 0;  // the smallest key that a colour can have
  for (uint32_t i = 0; i < colors.count; ++i) {
    if (i >= kMinMatchColorBlock && (i & (i - 1)) == 0) next = 0;
    const uint64_t key = next + reader.ReadBase128<uint64_t>(kMaxMatchColorBits / 7);
    if (!reader.ok() || key >> bits != 0) return false;
    visit(key);
    next = key + 1;
  }
  return reader.at_end();
}

}  // namespace

bool ReadMatchModel(const uint8_t* data, uint32_t size, uint32_t channels, uint32_t used_bits,
                    RansModel* model, MatchColors* colors) {
  RansModel alone{};
  if (model == nullptr) model = &alone;
  ByteReader reader(data, size);
  const uint32_t tables = reader.ReadByte();
  if (tables < 1 || model->table_count + tables > kMaxRansTables || channels > kMaxChannels ||
      channels * used_bits > kMaxMatchColorBits ||
      !ReadRuns(&reader, tables, model->table_of_context)) {
    return false;
  }
  for (uint8_t& table : model->table_of_context) {
    table = static_cast<uint8_t>(table + model->table_count);
  }
  for (uint32_t table = 0; table < tables; ++table) {
    if (!ReadTable(&reader, kRansTokens, model->frequency[model->table_count + table])) {
      return false;
    }
  }
  model->match_table_count = static_cast<uint8_t>(tables);
  const uint32_t low = reader.ReadByte();
  colors->count = low | reader.ReadByte() << 8;
  if (!reader.ok() || colors->count > kMaxMatchColors || (colors->count == 0 && channels > 1)) {
    return false;
  }
  colors->gaps = data + reader.pos();
  colors->gaps_bytes = size - reader.pos();
  return WalkColors(*colors, channels * used_bits, [](uint64_t) {});
}

void ReadMatchColors(const MatchColors& colors, uint32_t channels, uint32_t used_bits,
                     uint64_t* color) {
  const uint64_t mask = (uint64_t{1} << used_bits) - 1;
  uint64_t* const end = color + colors.count;
  WalkColors(colors, channels * used_bits, [&](uint64_t key) {
    const auto part = [&](uint32_t i) { return key >> (i * used_bits) & mask; };
    if (channels < 3) {
      *color++ = part(0) | part(1) << 16;
      return;
    }
    const uint64_t green = part(2);
    const uint64_t red = (part(1) + green) & mask;
    const uint64_t blue = (part(0) + green) & mask;
    *color++ = red | green << 16 | blue << 32 | (channels == 4 ? part(3) << 48 : 0);
  });
  // The chunk may have changed since its validation.
  std::fill(color, end, uint64_t{0});
}

bool ReadRansModel(const uint8_t* data, uint32_t size, uint32_t channels, uint32_t used_bits,
                   RansModel* model) {
  *model = RansModel{};
  ByteReader reader(data, size);
  model->table_count = static_cast<uint8_t>(reader.ReadByte());
  model->gradient_weight = static_cast<uint8_t>(reader.ReadByte());
  if (model->table_count < 1 || model->table_count > kMaxRansTables ||
      model->gradient_weight > kMaxRansGradientWeight) {
    return false;
  }
  for (uint32_t c = 0; c < channels; ++c) {
    if (!ReadLevels(&reader, model->table_count, model->set_begin[c], model->table_of_level[c])) {
      return false;
    }
  }
  const uint32_t max_tokens = used_bits <= 8 ? kRansShortTokens : kRansTokens;
  for (uint32_t table = 0; table < model->table_count; ++table) {
    if (!ReadTable(&reader, max_tokens, model->frequency[table])) return false;
  }
  return reader.at_end();
}

RansModel BuiltInRansModel(uint32_t channels, uint32_t used_bits) {
  constexpr uint32_t kModelled = 3;
  RansModel model;
  if (used_bits <= 8) {
    ReadRansModel(kBuiltInShortModel, sizeof(kBuiltInShortModel), kModelled, used_bits, &model);
  } else {
    ReadRansModel(kBuiltInLongModel, sizeof(kBuiltInLongModel), kModelled, used_bits, &model);
  }
  // The channels behind the first share its statistics.
  for (uint32_t p = channels >= kModelled ? kModelled : 1; p < kMaxChannels; ++p) {
    std::copy_n(model.set_begin[0], kMaxRansSets - 1, model.set_begin[p]);
    std::copy_n(model.table_of_level[0], kRansLevels, model.table_of_level[p]);
  }
  return model;
}

}  // namespace l3
