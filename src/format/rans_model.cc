#include "format/rans_model.h"

#include <algorithm>

#include "format/byte_reader.h"
#include "format/rans_built_in.h"

namespace l3 {
namespace {

bool ReadLevels(ByteReader* reader, uint32_t table_count, uint8_t* set_begin,
                uint8_t* table_of_level) {
  for (uint32_t i = 0; i + 1 < kMaxRansSets; ++i) {
    set_begin[i] = static_cast<uint8_t>(reader->ReadByte());
    if (set_begin[i] > kRansLevels || (i > 0 && set_begin[i] < set_begin[i - 1])) return false;
  }
  for (uint32_t level = 0; level < kRansLevels;) {
    const uint32_t run = reader->ReadByte();
    const uint32_t table = run & 31;
    const uint32_t end = level + (run >> 5) + 1;
    if (!reader->ok() || table >= table_count || end > kRansLevels) return false;
    for (; level < end; ++level) table_of_level[level] = static_cast<uint8_t>(table);
  }
  return true;
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

}  // namespace

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
  // Other channels are like the first.
  for (uint32_t p = channels >= kModelled ? kModelled : 1; p < kMaxChannels; ++p) {
    std::copy_n(model.set_begin[0], kMaxRansSets - 1, model.set_begin[p]);
    std::copy_n(model.table_of_level[0], kRansLevels, model.table_of_level[p]);
  }
  return model;
}

}  // namespace l3
