// Any valid file, written by the rules of docs/format.md and by nothing of the product's encoder:
// choices decide header, chunks, the coding of each tile and every field of it. It knows what the
// file must decode to, so it is also a third reading of the format.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "format/channel_groups.h"
#include "format/constants.h"
#include "format/crc32c.h"
#include "format/image_view.h"
#include "format/rans_model.h"
#include "fuzz/fuzz_targets.h"

namespace l3::fuzz {

// Choices, and a file as its parts (format.md 2).

using Bytes = std::vector<uint8_t>;

// Choices from fuzz data; once it is used up, from a generator that the data seeds. So a few
// bytes make a whole file, and each byte still changes it in one place.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  Dice(const uint8_t* data, size_t size)
      : Dice(data, size, size != 0 ? Crc32c(data, size) : 0, false) {}
  // With a seed of its own. If `ends_in_zeros`, what follows the data is the simplest choice.
  Dice(const uint8_t* data, size_t size, uint64_t seed, bool ends_in_zeros)
      : data_(data), size_(size), state_(seed), ends_in_zeros_(ends_in_zeros) {}

  uint32_t Byte() {
    if (size_ == 0) return ends_in_zeros_ ? 0 : static_cast<uint32_t>(Random() >> 56);
    --size_;
    return *data_++;
  }
  // In [0, limit).
  uint32_t Below(uint32_t limit) {
    uint32_t number = Byte();
    if (limit > 1u << 8) number = number << 8 | Byte();
    for (int i = 0; i < 2 && limit > 1u << 16; ++i) number = number << 8 | Byte();
    return number % limit;
  }
  // In [low, high].
  uint32_t Range(uint32_t low, uint32_t high) { return low + Below(high - low + 1); }
  bool OneIn(uint32_t n) { return Below(n) == n - 1; }
  // For many numbers that are not worth a byte each.
  Dice Bulk() { return Dice(Range(0, 0xFFFF)); }

 private:
  uint64_t Random() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  uint64_t state_;
  bool ends_in_zeros_ = false;
};

inline void AppendU16(Bytes* bytes, uint32_t number) {
  bytes->push_back(static_cast<uint8_t>(number));
  bytes->push_back(static_cast<uint8_t>(number >> 8));
}
inline void AppendU32(Bytes* bytes, uint32_t number) {
  AppendU16(bytes, number & 0xFFFF);
  AppendU16(bytes, number >> 16);
}
inline void Append(Bytes* bytes, const Bytes& more) {
  bytes->insert(bytes->end(), more.begin(), more.end());
}
inline void PadTo(Bytes* bytes, size_t alignment) {
  bytes->resize(CeilDiv(bytes->size(), alignment) * alignment);
}

// A number in base 128 (format.md 4), in a byte more than needed if `is_long`.
inline void AppendBase128(Bytes* bytes, uint64_t number, bool is_long) {
  for (; number >= 128; number >>= 7) bytes->push_back(static_cast<uint8_t>(number | 128));
  bytes->push_back(static_cast<uint8_t>(number | (is_long ? 128 : 0)));
  if (is_long) bytes->push_back(0);
}

inline Bytes MakeChunk(uint32_t type, const Bytes& data) {
  Bytes chunk;
  AppendU32(&chunk, type);
  AppendU32(&chunk, static_cast<uint32_t>(data.size()));
  Append(&chunk, data);
  PadTo(&chunk, 4);
  return chunk;
}

// A payload around a body. The check is ToFile()'s.
inline Bytes MakePayload(TileCoding coding, ColorTransform transform, const Bytes& body) {
  Bytes payload(kTileHeaderBytes);
  payload[4] = static_cast<uint8_t>(coding);
  payload[5] = static_cast<uint8_t>(transform);
  Append(&payload, body);
  PadTo(&payload, kPayloadAlignment);
  return payload;
}

struct Parts {
  uint8_t version = kVersion;
  ImageInfo info = {};           // chunks_bytes follows from `chunks`
  std::vector<Bytes> chunks;     // header, data and padding; the last may be none
  std::vector<Bytes> payloads;   // multiples of 16 bytes
  Bytes rest;                    // behind the last payload
};

inline Bytes ToFile(const Parts& parts) {
  Bytes chunks;
  for (const Bytes& chunk : parts.chunks) Append(&chunks, chunk);
  PadTo(&chunks, 4);

  const ImageInfo& info = parts.info;
  Bytes file(kSignature, kSignature + sizeof(kSignature));
  file.push_back(parts.version);
  file.push_back(static_cast<uint8_t>(static_cast<uint32_t>(info.sample_type) |
                                      static_cast<uint32_t>(info.holding) << kHoldingShift));
  AppendU16(&file, info.channels);
  for (const uint32_t field :
       {uint32_t{info.used_bits}, uint32_t{info.shift},
        uint32_t{info.tile_width_log2} | uint32_t{info.tile_height_log2} << 4,
        static_cast<uint32_t>(info.meaning)}) {
    file.push_back(static_cast<uint8_t>(field));
  }
  AppendU32(&file, info.width_px);
  AppendU32(&file, info.height_px);
  AppendU32(&file, static_cast<uint32_t>(chunks.size()));
  AppendU32(&file, Crc32c(file.data(), file.size()));

  Append(&file, chunks);
  uint32_t end = 0;
  for (const Bytes& payload : parts.payloads) {
    end += static_cast<uint32_t>(payload.size() / kPayloadAlignment);
    AppendU32(&file, end);
  }
  AppendU32(&file, Crc32c(file.data() + kHeaderBytes, file.size() - kHeaderBytes));
  PadTo(&file, kPayloadAlignment);
  for (const Bytes& payload : parts.payloads) {
    const size_t begin = file.size();
    Append(&file, payload);
    if (payload.size() >= kTileHeaderBytes) {
      StoreU32(file.data() + begin, PayloadCheck(payload.data(), payload.size()));
    }
  }
  Append(&file, parts.rest);
  return file;
}

// Takes a file apart, as far as it can be: what the index gives no place is missing. Returns
// false if header or index make no sense.
inline bool FromFile(const uint8_t* data, size_t size, Parts* parts) {
  if (size < kHeaderBytes) return false;
  Bytes header(data, data + kHeaderBytes);
  StoreU32(header.data() + 28, Crc32c(header.data(), 28));
  *parts = Parts{};
  ImageInfo& info = parts->info;
  if (ParseHeader(header.data(), header.size(), &info) != Status::kOk) return false;
  parts->version = header[8];
  const uint64_t index = kHeaderBytes + uint64_t{info.chunks_bytes};
  const uint64_t index_end = index + 4 * PayloadCount(info, data, size);
  if (size < index_end + 4) return false;

  for (uint64_t pos = kHeaderBytes; pos < index;) {
    uint64_t end = index;
    if (index - pos >= 8) end = std::min(end, pos + 8 + CeilDiv(LoadU32(data + pos + 4), 4) * 4);
    parts->chunks.emplace_back(data + pos, data + end);
    pos = end;
  }
  const uint64_t payloads = CeilDiv(index_end + 4, kPayloadAlignment) * kPayloadAlignment;
  uint64_t begin = payloads;
  for (uint64_t entry = index; entry < index_end; entry += 4) {
    const uint64_t end = payloads + uint64_t{LoadU32(data + entry)} * kPayloadAlignment;
    if (end <= begin || end > size) break;
    parts->payloads.emplace_back(data + begin, data + end);
    begin = end;
  }
  if (begin < size) parts->rest.assign(data + begin, data + size);
  return true;
}

// What is made of choices.

// What the tiles of a file are written for.
struct Coded {
  ImageInfo info = {};
  std::vector<uint16_t> table;  // the value table; empty without one
  RansModel model = {};
  // Of the colours of match tiles by number, by channel; empty where numbers are values.
  std::vector<std::array<uint32_t, kMaxChannels>> colors;

  uint32_t numbers() const {
    return colors.empty() ? std::min(values(), kMaxMatchColors)
                          : static_cast<uint32_t>(colors.size());
  }
  uint32_t values() const { return 1u << info.used_bits; }
  uint32_t valid_values() const {
    return table.empty() ? values() : static_cast<uint32_t>(table.size());
  }
  // The sample of a value, of a signed type modulo 2^32.
  uint32_t Sample(uint32_t value) const {
    const uint32_t offset_bits = table.empty() ? info.used_bits + info.shift : info.sample_bits();
    const uint32_t offset = info.is_signed() ? 1u << (offset_bits - 1) : 0;
    return (table.empty() ? value << info.shift : table[value]) - offset;
  }
};

// A payload and the values it holds: pixel by pixel, channels interleaved.
struct Tile {
  Bytes payload;
  std::vector<uint16_t> values;
};

struct Image {
  Parts parts;
  Bytes pixels;                 // as stored; empty if a tile is bad
  std::optional<uint32_t> bad;  // the first tile with a value that the table lacks
};

// Fields of up to 16 bits, least significant bit first.
class BitWriter {
 public:
  explicit BitWriter(Bytes* bytes) : bytes_(bytes) {}
  void Put(uint32_t value, uint32_t bits) {
    for (uint32_t i = 0; i < bits; ++i) {
      if (used_ == 0) bytes_->push_back(0);
      bytes_->back() |= static_cast<uint8_t>((value >> i & 1) << used_);
      used_ = (used_ + 1) % 8;
    }
  }
  // Fills up the last byte with bits that are not validated.
  void Align(Dice* dice, bool any) {
    while (used_ != 0) Put(any ? dice->Below(2) : 0, 1);
  }

 private:
  Bytes* bytes_;
  uint32_t used_ = 0;
};

inline int32_t Unfold(uint32_t folded) {
  const int32_t half = static_cast<int32_t>(folded >> 1);
  return folded % 2 == 0 ? half : -half - 1;
}
// The least folded residual that leads from `prediction` to `value`.
inline uint32_t Fold(int32_t value, int32_t prediction, int32_t values) {
  int32_t residual = (value - prediction) % values;
  if (residual >= values / 2) residual -= values;
  if (residual < -(values / 2)) residual += values;
  return static_cast<uint32_t>(residual < 0 ? -2 * residual - 1 : 2 * residual);
}

// Plain shapes for the values of a tile: noise on a slope, runs, or nothing but noise.
class Picture {
 public:
  Picture(const Coded& coded, Dice* dice)
      : bulk_(dice->Bulk()),
        limit_(coded.valid_values()),
        style_(dice->Below(4)),
        start_(dice->Below(limit_)),
        slope_x_(dice->Below(5)),
        slope_y_(dice->Below(5)),
        noise_(1 + dice->Below(1u << dice->Range(0, coded.info.used_bits))) {}

  uint32_t At(uint32_t x, uint32_t y, uint32_t channel) {
    if (style_ == 0) return bulk_.Below(limit_);
    if (style_ == 1) {
      if (bulk_.Below(16) == 0) start_ = bulk_.Below(limit_);
      return start_;
    }
    return (start_ + slope_x_ * x + slope_y_ * y + channel + bulk_.Below(noise_)) % limit_;
  }

 private:
  Dice bulk_;
  uint32_t limit_, style_, start_, slope_x_, slope_y_, noise_;
};

// Chunks (format.md 4).

// `smaller` divides the values of large tables.
inline std::vector<uint16_t> MakeValueTable(uint32_t sample_bits, Dice* dice,
                                            uint32_t smaller = 1) {
  const uint32_t samples = 1u << sample_bits;
  uint32_t count = 1 + dice->Below(std::min(samples, 1u << dice->Range(0, 8)));
  if (dice->OneIn(16)) count = 1 + dice->Below(std::min(samples, (1u << 12) / smaller));
  if (dice->OneIn(128)) count = smaller == 1 ? samples : std::min(samples, 1u << 10);
  Dice bulk = dice->Bulk();
  std::vector<uint16_t> table;
  uint32_t next = 0;
  for (uint32_t left = count; left > 0; --left) {
    const uint32_t spare = samples - next - left;
    const uint32_t gap = spare == 0 ? 0 : bulk.Below(std::min(spare + 1, 2 * spare / left + 2));
    next += std::min(gap, spare);
    table.push_back(static_cast<uint16_t>(next++));
  }
  return table;
}

inline Bytes ValueTableChunk(const std::vector<uint16_t>& table, Dice* dice) {
  const bool any_length = dice->OneIn(4);
  Bytes data;
  AppendU32(&data, static_cast<uint32_t>(table.size()));
  uint32_t next = 0;
  for (const uint32_t value : table) {
    const uint32_t gap = value - next;
    AppendBase128(&data, gap, any_length && gap < 1u << 14 && dice->Below(2) == 0);
    next = value + 1;
  }
  return MakeChunk(kChunkValueTable, data);
}

// Frequencies of tokens below `tokens` that add up to 1024, some of them 0.
inline void MakeFrequencies(uint32_t tokens, uint16_t* frequency, Dice* dice) {
  const uint32_t style = dice->Below(5);
  Dice bulk = dice->Bulk();
  std::fill_n(frequency, kRansTokens, uint16_t{0});
  const auto any = [&] { return bulk.Below(tokens); };
  uint32_t left = kRansScale;
  switch (style) {
    case 0: break;  // one token alone
    case 1:         // all, but for one rare
      frequency[any()] += 1;
      --left;
      break;
    case 2:  // each
      for (uint32_t token = 0; token < tokens; ++token, --left) frequency[token] += 1;
      break;
    case 3:  // falling
      for (uint32_t token = 0; token < tokens && left > 1; ++token) {
        const uint32_t share = 1 + bulk.Below(left / 2 + 1);
        frequency[token] = static_cast<uint16_t>(share);
        left -= share;
      }
      break;
    default:  // a few
      for (uint32_t n = bulk.Range(2, 8); n > 0 && left > 0; --n) {
        const uint32_t share = 1 + bulk.Below(left);
        frequency[any()] += static_cast<uint16_t>(share);
        left -= share;
      }
  }
  if (left > 0) frequency[any()] += static_cast<uint16_t>(left);
}

inline RansModel MakeModel(uint32_t used_bits, Dice* dice) {
  RansModel model = {};
  model.table_count = static_cast<uint8_t>(
      dice->OneIn(4) ? kMaxRansTables : dice->Range(1, dice->OneIn(2) ? 4 : kMaxRansTables));
  model.gradient_weight = static_cast<uint8_t>(dice->Below(kMaxRansGradientWeight + 1));
  const bool rising = dice->OneIn(2);
  Dice bulk = dice->Bulk();
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    uint32_t begin[2] = {dice->Below(kRansLevels + 1), dice->Below(kRansLevels + 1)};
    if (begin[0] > begin[1]) std::swap(begin[0], begin[1]);
    std::copy_n(begin, 2, model.set_begin[p]);
    uint32_t table = 0;
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      if (rising) {
        table = level * model.table_count / kRansLevels;
      } else if (level == 0 || bulk.Below(3) == 0) {
        table = bulk.Below(model.table_count);
      }
      model.table_of_level[p][level] = static_cast<uint8_t>(table);
    }
  }
  const uint32_t max_tokens = used_bits <= 8 ? kRansShortTokens : kRansTokens;
  const bool all_tokens = dice->OneIn(2);
  for (uint32_t t = 0; t < model.table_count; ++t) {
    MakeFrequencies(all_tokens ? max_tokens : dice->Range(1, max_tokens), model.frequency[t], dice);
  }
  return model;
}

inline Bytes ModelChunk(const RansModel& model, uint32_t channels, uint32_t used_bits, Dice* dice) {
  Bytes data = {model.table_count, model.gradient_weight};
  const bool short_runs = dice->OneIn(4);
  for (uint32_t p = 0; p < channels; ++p) {
    data.push_back(model.set_begin[p][0]);
    data.push_back(model.set_begin[p][1]);
    for (uint32_t level = 0; level < kRansLevels;) {
      uint32_t run = 1;
      const uint8_t table = model.table_of_level[p][level];
      const uint32_t longest = short_runs ? dice->Range(1, 8) : 8;
      while (run < longest && level + run < kRansLevels &&
             model.table_of_level[p][level + run] == table) {
        ++run;
      }
      data.push_back(static_cast<uint8_t>(table | (run - 1) << 5));
      level += run;
    }
  }
  const bool spare_tokens = dice->OneIn(4);
  const bool any_length = dice->OneIn(4);
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t tokens = used_bits <= 8 ? kRansShortTokens : kRansTokens;
    while (!spare_tokens && model.frequency[t][tokens - 1] == 0) --tokens;
    data.push_back(static_cast<uint8_t>(tokens));
    for (uint32_t token = 0; token < tokens; ++token) {
      const uint32_t frequency = model.frequency[t][token];
      AppendBase128(&data, frequency, any_length && frequency < 128 && dice->Below(2) == 0);
    }
  }
  return MakeChunk(kChunkRansModel, data);
}

inline uint32_t TokenOf(uint32_t folded) {
  if (folded < 16) return folded;
  uint32_t b = 3;
  while (folded >> (b + 2) != 0) ++b;
  return 16 + 2 * (b - 3) + (folded >> b & 1);
}
inline uint32_t TokenRawBits(uint32_t token) { return token < 16 ? 0 : 3 + (token - 16) / 2; }
inline uint32_t TokenBegin(uint32_t token) {
  return token < 16 ? token : (2 + token % 2) << TokenRawBits(token);
}

// The fields of a colour's key, from the lowest bits up.
inline uint64_t ColorKey(const std::array<uint32_t, kMaxChannels>& color, uint32_t channels,
                         uint32_t used_bits) {
  uint32_t fields[kMaxChannels] = {color[0], color[1], color[2], color[3]};
  if (channels >= 3) {
    fields[0] = color[2] - color[1];
    fields[1] = color[0] - color[1];
    fields[2] = color[1];
  }
  uint64_t key = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    key |= uint64_t{fields[i] & ((1u << used_bits) - 1)} << (i * used_bits);
  }
  return key;
}

// Whether there can be match tiles.
inline bool CanMatch(const Coded& coded) {
  const ImageInfo& info = coded.info;
  return info.channels <= kMaxChannels && coded.model.table_count < kMaxRansTables &&
         info.channels * info.used_bits <= kMaxMatchColorBits;
}

// Adds tables and colours of match tiles to what is coded, and gives their chunk. CanMatch().
inline Bytes MakeMatchModel(Coded* coded, Dice* dice) {
  const uint32_t channels = coded->info.channels;
  const uint32_t used_bits = coded->info.used_bits;
  RansModel& model = coded->model;
  coded->colors.clear();
  Bytes gaps;
  if (channels > 1 || dice->OneIn(2)) {
    const uint32_t count = 1 + dice->Below(1u << (dice->OneIn(16) ? 12 : dice->Range(0, 7)));
    Dice bulk = dice->Bulk();
    const bool any = dice->OneIn(16);
    // Keys rise in blocks of 16, 16, 32, 64, ... colours. One that repeats a key ends them.
    for (uint32_t begin = 0, end = 16; begin == coded->colors.size() && begin < count;
         begin = end, end *= 2) {
      std::map<uint64_t, std::array<uint32_t, kMaxChannels>> block;
      for (uint32_t n = std::min(end, count) - begin; n > 0; --n) {
        std::array<uint32_t, kMaxChannels> color = {};
        for (uint32_t c = 0; c < channels; ++c) {
          color[c] = bulk.Below(any ? coded->values() : coded->valid_values());
        }
        block[ColorKey(color, channels, used_bits)] = color;
      }
      uint64_t next = 0;
      for (const auto& [key, color] : block) {
        AppendBase128(&gaps, key - next, false);
        next = key + 1;
        coded->colors.push_back(color);
      }
    }
  }
  uint32_t tokens = 0;  // that numbers may have
  while (tokens < kRansTokens && TokenBegin(tokens) < coded->numbers() + kMatchNeighbors) ++tokens;
  const uint32_t tables = dice->Range(1, kMaxRansTables - model.table_count);
  model.match_table_count = static_cast<uint8_t>(tables);
  Bytes data = {model.match_table_count};
  for (uint32_t context = 0; context < kMatchContexts; ++context) {
    const uint32_t table = dice->Below(tables);
    model.table_of_context[context] = static_cast<uint8_t>(model.table_count + table);
    data.push_back(static_cast<uint8_t>(table));
  }
  for (uint32_t t = model.table_count; t < model.table_count + tables; ++t) {
    MakeFrequencies(dice->Range(1, tokens), model.frequency[t], dice);
    data.push_back(kRansTokens);
    for (const uint16_t frequency : model.frequency[t]) AppendBase128(&data, frequency, false);
  }
  AppendU16(&data, static_cast<uint32_t>(coded->colors.size()));
  Append(&data, gaps);
  return MakeChunk(kChunkMatchModel, data);
}

// constant and stored (format.md 5.1, 5.2)

inline Tile MakeConstantTile(const Coded& coded, uint32_t pixels, Dice* dice) {
  Tile tile;
  Bytes body;
  uint32_t values[kMaxChannels] = {};
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    if (c < coded.info.channels) {
      values[c] = dice->Below(dice->OneIn(16) ? coded.values() : coded.valid_values());
    }
    AppendU16(&body, values[c]);
  }
  for (uint32_t i = 0; i < pixels; ++i) {
    tile.values.insert(tile.values.end(), values, values + coded.info.channels);
  }
  tile.payload = MakePayload(TileCoding::kConstant, ColorTransform::kNone, body);
  return tile;
}

inline Tile MakeStoredTile(const Coded& coded, uint32_t width, uint32_t height, Dice* dice) {
  Tile tile;
  Bytes body;
  Picture picture(coded, dice);
  const bool any = dice->OneIn(16);
  Dice bulk = dice->Bulk();
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (uint32_t c = 0; c < coded.info.channels; ++c) {
        const uint32_t value = any ? bulk.Below(coded.values()) : picture.At(x, y, c);
        tile.values.push_back(static_cast<uint16_t>(value));
        if (coded.info.sample_bits() == 8) {
          body.push_back(static_cast<uint8_t>(value));
        } else {
          AppendU16(&body, value);
        }
      }
    }
  }
  tile.payload = MakePayload(TileCoding::kStored, ColorTransform::kNone, body);
  return tile;
}

// packed (format.md 5.3)

inline int32_t PackedPrediction(uint32_t predictor, int32_t w, int32_t n, int32_t nw, int32_t ne) {
  switch (predictor) {
    case 0: return w;
    case 1: return n;
    case 2: return (nw + 2 * n + ne + 2) >> 2;
    case 3: return w + n - nw;
    case 4: return w + ((n - 2 * nw + ne + 2) >> 2);
    case 5: return (n + ne + 1) >> 1;
    case 6: return (nw + n + 1) >> 1;
    default: return w + ((ne - nw + 1) >> 1);
  }
}

// One channel of a packed tile: its parts, and its values.
struct PackedPlane {
  uint32_t layout, start_width, base;
  Bytes predictors, widths;
  std::vector<Bytes> rows;
  std::vector<uint16_t> values;
};

inline PackedPlane MakePackedPlane(uint32_t used_bits, uint32_t width, uint32_t height,
                                   Dice* dice) {
  PackedPlane plane = {};
  const uint32_t groups = (width + 7) / 8;
  const int32_t mask = (1 << used_bits) - 1;
  plane.layout = dice->Below(4);
  plane.base = dice->Below(1u << used_bits);
  plane.start_width = plane.layout == 2 ? dice->Below(used_bits + 1) : 0;
  plane.values.assign(size_t{width} * height, static_cast<uint16_t>(plane.base));
  plane.rows.resize(height);
  if (plane.layout == 0) return plane;

  const uint32_t predictor = dice->Below(9);  // 8: any
  const uint32_t code = dice->Below(18);      // 16, 17: any
  const bool spare_bits = dice->OneIn(4);
  const uint32_t coded_groups = dice->Below(5);  // of 4, in sparse rows
  Dice bulk = dice->Bulk();
  BitWriter predictor_bits(&plane.predictors);
  BitWriter width_bits(&plane.widths);
  std::vector<uint32_t> group_width(groups, plane.start_width);
  for (uint32_t y = 0; y < height; ++y) {
    const uint32_t p = predictor < 8 ? predictor : bulk.Below(8);
    predictor_bits.Put(p, 4);
    BitWriter bits(&plane.rows[y]);
    const auto any_code = [&] { return code < 16 ? code : bulk.Below(16); };
    std::vector<uint32_t> folded(8 * groups, 0);
    if (plane.layout == 3) {
      const bool has_bytes = coded_groups != 0 && bulk.Below(4) != 0;
      width_bits.Put(has_bytes, 1);
      if (has_bytes) {
        std::vector<uint32_t> coded;
        for (uint32_t g = 0; g < groups; ++g) {
          const bool is_coded = bulk.Below(4) < coded_groups;
          bits.Put(is_coded, 1);
          if (is_coded) coded.push_back(g);
        }
        bits.Align(&bulk, spare_bits);
        std::vector<uint32_t> fields;
        for (size_t i = 0; i < coded.size(); ++i) {
          const uint32_t k = any_code();
          bits.Put(k, 4);
          fields.push_back(std::min(k + 1, used_bits));
        }
        bits.Align(&bulk, spare_bits);
        std::vector<uint32_t> masks;
        for (size_t i = 0; i < coded.size(); ++i) {
          masks.push_back(bulk.Byte() & bulk.Byte());
          bits.Put(masks.back(), 8);
        }
        for (size_t i = 0; i < coded.size(); ++i) {
          for (uint32_t x = 0; x < 8; ++x) {
            if ((masks[i] >> x & 1) == 0) continue;
            const uint32_t field = bulk.Below(1u << fields[i]);
            bits.Put(field, fields[i]);
            folded[8 * coded[i] + x] = field;
          }
        }
        bits.Align(&bulk, spare_bits);
      }
    } else {
      for (uint32_t g = 0; g < groups; ++g) {
        if (plane.layout == 1) {
          const uint32_t k = any_code();
          width_bits.Put(k, 4);
          group_width[g] = std::min(k == 15 ? 16 : k, used_bits);
        } else {
          const uint32_t k = code < 4 ? code : bulk.Below(4);
          width_bits.Put(k, 2);
          const int32_t next = static_cast<int32_t>(group_width[g] + k) - 1;
          group_width[g] = std::min(static_cast<uint32_t>(std::max(next, 0)), used_bits);
        }
        for (uint32_t x = 0; x < 8; ++x) {
          folded[8 * g + x] = bulk.Below(1u << group_width[g]);
          bits.Put(folded[8 * g + x], group_width[g]);
        }
      }
      width_bits.Align(&bulk, spare_bits);
    }

    const auto above = [&](uint32_t x) {
      return static_cast<int32_t>(y == 0 ? plane.base : plane.values[(y - 1) * width + x]);
    };
    int32_t w = above(0);
    for (uint32_t x = 0; x < width; ++x) {
      const int32_t prediction = PackedPrediction(p, w, above(x), above(x > 0 ? x - 1 : 0),
                                                  above(std::min(x + 1, width - 1)));
      w = (prediction + Unfold(folded[x])) & mask;
      plane.values[y * width + x] = static_cast<uint16_t>(w);
    }
  }
  predictor_bits.Align(&bulk, spare_bits);
  if (plane.layout == 3) width_bits.Align(&bulk, spare_bits);
  return plane;
}

// The first `deltas` channels are that, as all are of nearly all tiles of photographs.
inline Tile MakePackedTile(const Coded& coded, uint32_t width, uint32_t height, Dice* dice,
                           uint32_t deltas = 0) {
  const uint32_t channels = coded.info.channels;
  const bool transformed = channels >= 3 && dice->OneIn(2);
  std::vector<PackedPlane> planes;
  Bytes body;
  for (uint32_t c = 0; c < channels; ++c) {
    planes.push_back(MakePackedPlane(coded.info.used_bits, width, height, dice));
    while (c < deltas && planes[c].layout != static_cast<uint32_t>(ChannelLayout::kDelta)) {
      planes[c] = MakePackedPlane(coded.info.used_bits, width, height, dice);
    }
    body.push_back(static_cast<uint8_t>(planes[c].layout));
    body.push_back(static_cast<uint8_t>(planes[c].start_width));
    AppendU16(&body, planes[c].base);
  }
  for (const PackedPlane& plane : planes) Append(&body, plane.predictors);
  for (const PackedPlane& plane : planes) Append(&body, plane.widths);
  for (uint32_t y = 0; y < height; ++y) {
    for (const PackedPlane& plane : planes) Append(&body, plane.rows[y]);
  }

  Tile tile;
  const uint32_t half = coded.values() / 2;
  for (size_t i = 0; i < size_t{width} * height; ++i) {
    for (uint32_t c = 0; c < channels; ++c) {
      uint32_t value = planes[c].values[i];
      if (transformed && (c == 0 || c == 2)) value = value + planes[1].values[i] - half;
      tile.values.push_back(static_cast<uint16_t>(value % coded.values()));
    }
  }
  const auto transform = transformed ? ColorTransform::kSubtractGreen : ColorTransform::kNone;
  tile.payload = MakePayload(TileCoding::kPacked, transform, body);
  return tile;
}

// rans (format.md 5.4)

// The pixels of each step of a tile, lanes rising ("Order").
struct LanePixel {
  int32_t x, y;
  uint32_t lane;
};
inline int32_t LaneCount(int32_t width) {
  int32_t lanes = 1;
  while (lanes < 32 && 2 * lanes <= width / 2) lanes *= 2;
  return lanes;
}
inline std::vector<std::vector<LanePixel>> StepsOf(int32_t width, int32_t height) {
  const int32_t lanes = LaneCount(width);
  const int32_t period = std::max(width, 2);
  std::vector<std::vector<LanePixel>> steps;
  for (int32_t y = 0; y < height; ++y) {
    const size_t first = static_cast<size_t>(y / lanes * period + 2 * (y % lanes));
    steps.resize(std::max(steps.size(), first + static_cast<size_t>(width)));
    for (int32_t x = 0; x < width; ++x) {
      steps[first + static_cast<size_t>(x)].push_back({x, y, static_cast<uint32_t>(y % lanes)});
    }
  }
  const auto by_lane = [](const LanePixel& a, const LanePixel& b) { return a.lane < b.lane; };
  for (auto& step : steps) std::sort(step.begin(), step.end(), by_lane);
  return steps;
}

// One channel of a rans tile, as far as it is known. Every rule of "Neighbours" in its order.
struct RansWalkPlane {
  int32_t width, base;
  std::vector<int32_t> value, energy;

  int32_t At(const std::vector<int32_t>& numbers, int32_t x, int32_t y, int32_t outside) const {
    if (x >= width) return At(numbers, width - 1, y, outside);
    if (y < 0) return At(numbers, x - 2, y + 1, outside);
    if (x < 0) return y == 0 ? outside : At(numbers, 0, y - 1, outside);
    return numbers[static_cast<size_t>(y * width + x)];
  }
  int32_t V(int32_t x, int32_t y) const { return At(value, x, y, base); }
  int32_t S(int32_t x, int32_t y) const { return At(energy, x, y, 0); }
};

// One symbol, as the encoder must write it.
struct RansSymbol {
  uint32_t lane, frequency, start, raw, raw_bits;
};

inline uint32_t TokenOfSlot(const uint16_t* frequency, uint32_t slot) {
  uint32_t token = 0;
  for (; slot >= frequency[token]; ++token) slot -= frequency[token];
  return token;
}
inline RansSymbol SymbolOf(const uint16_t* frequency, uint32_t lane, uint32_t folded) {
  const uint32_t token = TokenOf(folded);
  const uint32_t start = std::accumulate(frequency, frequency + token, 0u);
  return {lane, frequency[token], start, folded - TokenBegin(token), TokenRawBits(token)};
}

// Appends states and words of symbols in groups: a group is one position in one step, lanes rising.
inline void WriteSymbols(const std::vector<std::vector<RansSymbol>>& groups, int32_t lanes,
                         bool long_raw, Bytes* body) {
  std::vector<uint64_t> states(static_cast<size_t>(lanes), 1u << 16);
  std::vector<uint16_t> words;  // the last first
  const auto drain = [&](uint32_t lane, uint64_t limit) {
    if (states[lane] >= limit) {
      words.push_back(static_cast<uint16_t>(states[lane]));
      states[lane] >>= 16;
    }
    return states[lane];
  };
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    for (auto s = group->rbegin(); long_raw && s != group->rend(); ++s) {
      const uint64_t limit = uint64_t{1} << (32 - s->raw_bits);
      states[s->lane] = drain(s->lane, limit) << s->raw_bits | s->raw;
    }
    for (auto s = group->rbegin(); s != group->rend(); ++s) {
      const uint32_t raw_bits = long_raw ? 0 : s->raw_bits;
      uint64_t state = drain(s->lane, uint64_t{s->frequency} << (22 - raw_bits));
      if (!long_raw) state = state << raw_bits | s->raw;
      states[s->lane] = (state / s->frequency << 10) + state % s->frequency + s->start;
    }
  }
  for (const uint64_t state : states) AppendU32(body, static_cast<uint32_t>(state));
  for (auto word = words.rbegin(); word != words.rend(); ++word) AppendU16(body, *word);
}

inline Tile MakeRansTile(const Coded& coded, uint32_t tile_width, uint32_t tile_height,
                         Dice* dice) {
  const int32_t width = static_cast<int32_t>(tile_width);
  const int32_t height = static_cast<int32_t>(tile_height);
  const uint32_t channels = coded.info.channels;
  const bool coloured = channels >= 3;
  const int32_t max_value = static_cast<int32_t>(coded.values()) - 1;
  const auto clamp = [max_value](int32_t v) { return std::clamp(v, 0, max_value); };
  // 0, 1, 2 for first, second, third.
  const auto role_of = [coloured](uint32_t p) { return coloured && p < 3 ? p : 0; };
  const auto channel_of = [coloured](uint32_t p) { return coloured && p < 2 ? 1 - p : p; };

  // Parts 1 to 3.
  Bytes body(4);
  std::vector<RansWalkPlane> planes;
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    const bool exists = p < channels;
    body[p] = static_cast<uint8_t>(exists ? dice->Below(4) : 0);
    const uint32_t base = exists ? dice->Below(coded.values()) : 0;
    AppendU16(&body, base);
    if (!exists) continue;
    const std::vector<int32_t> zeros(static_cast<size_t>(width * height), 0);
    planes.push_back({width, static_cast<int32_t>(base), zeros, zeros});
  }
  const uint32_t coefficient_style = dice->Below(4);
  Dice bulk = dice->Bulk();
  std::array<std::vector<std::vector<int32_t>>, kMaxChannels> coefficients;
  for (uint32_t p = 0; p < channels; ++p) {
    for (uint32_t set = 0; set < body[p]; ++set) {
      std::vector<int32_t> taps(8 + 4 * role_of(p));
      for (int32_t& tap : taps) {
        switch (coefficient_style) {
          case 0: tap = static_cast<int8_t>(bulk.Byte()); break;
          case 1: tap = bulk.Below(2) == 0 ? 127 : -128; break;
          default: tap = static_cast<int32_t>(bulk.Below(17)) - 8;
        }
      }
      if (coefficient_style >= 2) {  // they add up to one
        int32_t sum = 0;
        for (const int32_t tap : taps) sum += tap;
        taps[3] = std::clamp(taps[3] + 64 - sum, -128, 127);
      }
      for (const int32_t tap : taps) body.push_back(static_cast<uint8_t>(tap));
      coefficients[p].push_back(std::move(taps));
    }
  }

  // What the samples shall be: as a picture has them, as the tables like it, or any tokens.
  const uint32_t residual_style = dice->Below(4);
  Picture picture(coded, dice);
  const auto choose = [&](uint32_t table, int32_t prediction, int32_t x, int32_t y, uint32_t p) {
    const uint16_t* frequency = coded.model.frequency[table];
    const bool must_be_valid = coded.valid_values() != coded.values();
    if (residual_style <= 1 || (must_be_valid && residual_style != 3)) {
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t value =
            i == 0 ? picture.At(static_cast<uint32_t>(x), static_cast<uint32_t>(y), p)
                   : bulk.Below(coded.valid_values());
        uint32_t folded =
            Fold(static_cast<int32_t>(value), prediction, static_cast<int32_t>(coded.values()));
        if (residual_style == 1) folded += bulk.Below(3) << (coded.info.used_bits + 1);  // laps
        const uint32_t token = TokenOf(folded);
        if (token < kRansTokens && frequency[token] != 0) return folded;
      }
    }
    uint32_t token = TokenOfSlot(frequency, bulk.Below(kRansScale));
    if (residual_style == 3) {  // each as often
      token = bulk.Below(kRansTokens);
      while (frequency[token] == 0) token = (token + 1) % kRansTokens;
    }
    return TokenBegin(token) + bulk.Below(1u << TokenRawBits(token));
  };

  const auto gradient = [](int32_t w, int32_t n, int32_t nw) {
    if (nw >= std::max(w, n)) return std::min(w, n);
    if (nw <= std::min(w, n)) return std::max(w, n);
    return w + n - nw;
  };

  std::vector<std::vector<RansSymbol>> groups;  // by step and position
  for (const std::vector<LanePixel>& pixels : StepsOf(width, height)) {
    std::vector<std::array<uint32_t, 2>> magnitudes(pixels.size());
    for (uint32_t p = 0; p < channels; ++p) {
      RansWalkPlane& plane = planes[p];
      std::vector<RansSymbol> symbols;
      for (size_t i = 0; i < pixels.size(); ++i) {
        const auto [x, y, lane] = pixels[i];
        const auto at = [x = x, y = y](const RansWalkPlane& of, int32_t dx, int32_t dy) {
          return of.V(x + dx, y + dy);
        };
        const int32_t w = at(plane, -1, 0), n = at(plane, 0, -1);
        const int32_t nw = at(plane, -1, -1), ne = at(plane, 1, -1);
        const uint32_t role = role_of(p);
        const int32_t e = 3 * plane.S(x - 1, y) + 2 * plane.S(x + 1, y - 1);
        uint32_t activity = static_cast<uint32_t>(e);
        if (role == 0) {
          const int32_t sum = std::abs(w - nw) + std::abs(n - nw) + std::abs(n - ne);
          activity += coded.model.gradient_weight * static_cast<uint32_t>(std::min(2047, sum));
        } else {
          activity += 4 * magnitudes[i][0] + (role == 2 ? 8 * magnitudes[i][1] : 0);
        }
        const uint32_t v = activity + 8;
        uint32_t high = 3;
        while (v >> (high + 1) != 0) ++high;
        const uint32_t level = 4 * (high - 3) + (v >> (high - 2) & 3);

        const RansWalkPlane& first = planes[0];
        int32_t prediction;
        if (coefficients[p].empty()) {
          prediction = gradient(w, n, nw);
          if (role != 0) {
            prediction =
                clamp(at(first, 0, 0) +
                      gradient(w - at(first, -1, 0), n - at(first, 0, -1), nw - at(first, -1, -1)));
          }
        } else {
          uint32_t set = static_cast<uint32_t>(coefficients[p].size()) - 1;
          while (set > 0 && level < coded.model.set_begin[p][set - 1]) --set;
          std::vector<int32_t> taps = {ne, n, nw, w, at(plane, 0, -2), at(plane, -2, 0)};
          if (role == 0) taps.insert(taps.end(), {at(plane, 1, -2), at(plane, -2, -1)});
          if (role == 1) taps.insert(taps.end(), {at(plane, 1, -2), at(first, 0, 0)});
          if (role == 2) taps.insert(taps.end(), {at(first, 0, 0), at(planes[1], 0, 0)});
          for (uint32_t other = 0; other < role; ++other) {
            const RansWalkPlane& from = planes[other];
            taps.insert(taps.end(),
                        {at(from, 1, -1), at(from, 0, -1), at(from, -1, -1), at(from, -1, 0)});
          }
          int32_t sum = 32;
          for (size_t t = 0; t < taps.size(); ++t) sum += coefficients[p][set][t] * taps[t];
          prediction = clamp(sum >> 6);
        }

        const uint32_t table = coded.model.table_of_level[p][level];
        const uint32_t folded = choose(table, prediction, x, y, p);
        symbols.push_back(SymbolOf(coded.model.frequency[table], lane, folded));
        const uint32_t magnitude = std::min(2047u, (folded + 1) >> 1);
        if (p < 2) magnitudes[i][p] = magnitude;
        const size_t place = static_cast<size_t>(y * width + x);
        plane.value[place] = (prediction + Unfold(folded)) & max_value;
        plane.energy[place] = (48 * static_cast<int32_t>(magnitude) + e) >> 3;
      }
      groups.push_back(std::move(symbols));
    }
  }

  WriteSymbols(groups, std::min(LaneCount(width), height), coded.info.used_bits > 8, &body);

  Tile tile;
  tile.payload = MakePayload(TileCoding::kRans, ColorTransform::kNone, body);
  tile.values.resize(static_cast<size_t>(width * height) * channels);
  for (uint32_t p = 0; p < channels; ++p) {
    for (size_t i = 0; i < planes[p].value.size(); ++i) {
      tile.values[i * channels + channel_of(p)] = static_cast<uint16_t>(planes[p].value[i]);
    }
  }
  return tile;
}

// match (format.md 5.5)

inline Tile MakeMatchTile(const Coded& coded, uint32_t tile_width, uint32_t tile_height,
                          Dice* dice) {
  const int32_t width = static_cast<int32_t>(tile_width);
  const int32_t height = static_cast<int32_t>(tile_height);
  const uint32_t numbers = coded.numbers();
  const std::vector<int32_t> zeros(static_cast<size_t>(width * height), 0);
  RansWalkPlane plane = {width, static_cast<int32_t>(dice->Below(numbers)), zeros, {}};
  Bytes body;
  AppendU16(&body, static_cast<uint32_t>(plane.base));
  const bool skips = dice->OneIn(2);
  Dice bulk = dice->Bulk();
  std::vector<std::vector<RansSymbol>> groups;
  uint32_t skipped = 0;  // bits of 16 blocks
  uint32_t step = 0;
  for (const std::vector<LanePixel>& pixels : StepsOf(width, height)) {
    if (step % 256 == 0) {
      skipped = skips ? bulk.Below(1u << 16) : 0;
      AppendU16(&body, skipped);
    }
    const bool is_skipped = (skipped >> (step++ % 256 / 16) & 1) != 0;
    std::vector<RansSymbol> symbols;
    for (const auto [x, y, lane] : pixels) {
      const int32_t w = plane.V(x - 1, y), n = plane.V(x, y - 1);
      const int32_t ne = plane.V(x + 1, y - 1), nw = plane.V(x - 1, y - 1);
      uint32_t folded = 0;
      if (!is_skipped) {
        const uint32_t context = (w == n ? 1u : 0u) + (w == nw ? 2u : 0u) + (n == ne ? 4u : 0u) +
                                 (w == plane.V(x - 2, y) ? 8u : 0u) +
                                 (ne == plane.V(x + 1, y - 2) ? 16u : 0u) +
                                 (nw == plane.V(x - 2, y - 1) ? 32u : 0u);
        const uint16_t* frequency = coded.model.frequency[coded.model.table_of_context[context]];
        const uint32_t token = TokenOfSlot(frequency, bulk.Below(kRansScale));
        folded = TokenBegin(token);
        if (folded >= 16) {
          folded += bulk.Below(std::min(1u << TokenRawBits(token), numbers + 4 - folded));
        }
        symbols.push_back(SymbolOf(frequency, lane, folded));
      }
      const int32_t neighbors[4] = {w, n, ne, nw};
      plane.value[static_cast<size_t>(y * width + x)] =
          folded < 4 ? neighbors[folded] : static_cast<int32_t>(folded - 4);
    }
    groups.push_back(std::move(symbols));
  }
  WriteSymbols(groups, std::min(LaneCount(width), height), true, &body);
  Tile tile;
  tile.payload = MakePayload(TileCoding::kMatch, ColorTransform::kNone, body);
  for (const int32_t number : plane.value) {
    for (uint32_t c = 0; c < coded.info.channels; ++c) {
      const uint32_t value = coded.colors.empty() ? static_cast<uint32_t>(number)
                                                  : coded.colors[static_cast<size_t>(number)][c];
      tile.values.push_back(static_cast<uint16_t>(value));
    }
  }
  return tile;
}

// Any tile of this place in the image.
inline Tile MakeTile(const Coded& coded, uint32_t number, Dice* dice) {
  const TileRect rect = GetTileRect(coded.info, number);
  if (coded.info.has_large_tiles()) {
    return MakeStoredTile(coded, rect.width_px, rect.height_px, dice);
  }
  if (coded.model.match_table_count != 0 && dice->OneIn(2)) {
    return MakeMatchTile(coded, rect.width_px, rect.height_px, dice);
  }
  switch (dice->Below(8)) {
    case 0: return MakeConstantTile(coded, rect.width_px * rect.height_px, dice);
    case 1: return MakeStoredTile(coded, rect.width_px, rect.height_px, dice);
    case 2:
    case 3:
    case 4: return MakePackedTile(coded, rect.width_px, rect.height_px, dice);
    default: return MakeRansTile(coded, rect.width_px, rect.height_px, dice);
  }
}

// That a model has.
inline uint32_t Positions(const ImageInfo& info) {
  return std::min<uint32_t>(info.channels, kMaxChannels);
}

// Samples in an image, at most: more of them only cost time. The lanes of the widest tiles begin a
// second row in images of the second size.
constexpr uint32_t kMaxMadeSamples = 1u << 11;
constexpr uint32_t kMaxSometimesMadeSamples = 1u << 14;
constexpr uint32_t kMaxRarelyMadeSamples = 1u << 16;

inline void MakeShape(ImageInfo* info, Dice* dice, uint32_t smaller = 1) {
  info->channels = static_cast<uint16_t>(dice->OneIn(6) ? dice->Range(kMaxChannels + 1, 13)
                                                        : dice->Range(1, kMaxChannels));
  info->tile_width_log2 = static_cast<uint8_t>(dice->Range(kMinTileWidthLog2, kMaxPackedTileLog2));
  info->tile_height_log2 =
      static_cast<uint8_t>(dice->Range(kMinTileHeightLog2, kMaxPackedTileLog2));
  if (dice->OneIn(16)) {
    info->tile_width_log2 = static_cast<uint8_t>(dice->Range(kMinTileWidthLog2, kMaxTileLog2));
  }
  if (dice->OneIn(16)) {
    info->tile_height_log2 = static_cast<uint8_t>(dice->Range(kMinTileHeightLog2, kMaxTileLog2));
  }
  const uint32_t size = dice->Below(64);
  const uint32_t most = (size == 63  ? kMaxRarelyMadeSamples
                         : size > 47 ? kMaxSometimesMadeSamples
                                     : kMaxMadeSamples) /
                        info->channels / smaller;
  const auto side = [dice](uint32_t tile_log2, uint32_t limit) {
    const uint32_t tile = 1u << tile_log2;
    uint32_t length = 0;
    switch (dice->Below(4)) {
      case 0: length = dice->Range(1, 16); break;
      case 1: length = tile - 2 + dice->Below(5); break;
      case 2: length = dice->Range(1, 3) * tile + dice->Below(3); break;
      default: length = dice->Range(1, 130);
    }
    return std::min(length, limit);
  };
  info->width_px = side(info->tile_width_log2, dice->OneIn(32) ? most : std::min(most, 700u));
  info->height_px = std::max(1u, side(info->tile_height_log2, most / info->width_px));
}

inline Bytes AnyBytes(uint32_t size, Dice* dice) {
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(dice->Byte());
  return bytes;
}

// Of the type with this number: each is in a file once at most.
constexpr uint32_t kOptionalTypes = 6;
inline Bytes OptionalChunk(uint32_t number, Dice* dice) {
  constexpr uint32_t kTypes[kOptionalTypes] = {
      kChunkIcc, kChunkExif, kChunkPalette, kChunkXmp, kChunkKeyValues, FourCc('o', '1', ' ', 'Z')};
  return MakeChunk(kTypes[number % kOptionalTypes], AnyBytes(dice->Below(40), dice));
}

// Groups of any of the channels, of `most` at most; one of all where they are few.
inline std::vector<ChannelGroup> MakeGroups(uint32_t channels, Dice* dice,
                                            uint32_t most = kMaxChannels) {
  if (channels <= most) return {{channels, {0, 1, 2, 3}}};
  std::vector<uint16_t> order(channels);
  for (uint32_t i = 0; i < channels; ++i) {
    const uint32_t place = dice->Below(i + 1);
    order[i] = order[place];
    order[place] = static_cast<uint16_t>(i);
  }
  std::vector<ChannelGroup> groups;
  for (uint32_t begin = 0; begin < channels; begin += groups.back().channels) {
    groups.push_back({dice->Range(1, std::min(most, channels - begin)), {}});
    std::copy_n(order.begin() + begin, groups.back().channels, groups.back().channel);
  }
  return groups;
}

inline Bytes GroupsChunk(const std::vector<ChannelGroup>& groups) {
  Bytes data;
  AppendU16(&data, static_cast<uint32_t>(groups.size()));
  for (const ChannelGroup& group : groups) {
    data.push_back(static_cast<uint8_t>(group.channels));
    for (uint32_t i = 0; i < group.channels; ++i) AppendU16(&data, group.channel[i]);
  }
  return MakeChunk(kChunkGroups, data);
}

// Bits and values of samples, and the model, with their chunks.
inline Coded MakeCoding(const ImageInfo& shape, std::vector<Bytes>* chunks, Dice* dice,
                        uint32_t smaller = 1) {
  Coded coded;
  coded.info = shape;
  ImageInfo& info = coded.info;
  info.sample_type = static_cast<SampleType>(dice->Below(kSampleTypesOfVersion1));
  info.meaning = dice->OneIn(8) ? Meaning::kLabels : Meaning::kColor;
  if (dice->OneIn(4)) {
    coded.table = MakeValueTable(info.sample_bits(), dice, smaller);
    const uint32_t count = static_cast<uint32_t>(coded.table.size());
    info.used_bits = static_cast<uint8_t>(std::max(1u, BitLength(count - 1)));
    info.shift = 0;
    chunks->push_back(ValueTableChunk(coded.table, dice));
  } else {
    const uint32_t bits = info.sample_bits();
    info.used_bits = static_cast<uint8_t>(dice->OneIn(2) ? bits : dice->Range(1, bits));
    info.shift = static_cast<uint8_t>(dice->Below(bits - info.used_bits + 1));
  }
  if (dice->OneIn(2)) {
    coded.model = MakeModel(info.used_bits, dice);
    chunks->push_back(ModelChunk(coded.model, Positions(info), info.used_bits, dice));
  } else {
    coded.model = BuiltInRansModel(Positions(info), info.used_bits);
  }
  if (dice->OneIn(2) && CanMatch(coded)) chunks->push_back(MakeMatchModel(&coded, dice));
  if (dice->OneIn(8)) {
    const uint32_t first = dice->Below(kOptionalTypes);
    for (uint32_t n = dice->Range(1, kOptionalTypes); n > 0; --n) {
      chunks->push_back(OptionalChunk(first + n, dice));
      std::swap(chunks->back(), (*chunks)[dice->Below(static_cast<uint32_t>(chunks->size()))]);
    }
  }
  if (chunks->size() > 1 && dice->OneIn(2)) std::swap(chunks->front(), chunks->back());
  return coded;
}

inline Bytes HalvesChunk(uint32_t minimum, uint32_t zeros) {
  Bytes data;
  AppendU32(&data, minimum);
  data.push_back(static_cast<uint8_t>(zeros));
  return MakeChunk(kChunkSamples, data);
}

// A table of up to `most` samples, which is added, and its chunk.
inline Bytes TableChunk(uint32_t most, std::vector<uint32_t>* samples, Dice* dice) {
  Parts table;
  Coded coded;
  coded.info =
      table.info = {dice->Range(1, most), 1, 0, 2, SampleType::kUint16, 16, 0, 8, 3, {}, {}};
  coded.model = BuiltInRansModel(2, 16);
  uint32_t sample = 0;
  for (uint32_t t = 0; t < table.info.tile_count(); ++t) {
    Tile tile = MakeTile(coded, t, dice);
    for (size_t i = 0; i < tile.values.size(); i += 2) {
      sample += tile.values[i + 1] << 16 | tile.values[i];
      samples->push_back(sample);
    }
    table.payloads.push_back(std::move(tile.payload));
  }
  return MakeChunk(kChunkSamples, ToFile(table));
}

// Makes floats or samples of 32 bits of an image of unsigned samples: tiles hold their bits,
// halves or ranks (format.md 4.6).
inline void Widen(Image* image, Dice* dice) {
  ImageInfo& info = image->parts.info;
  const uint32_t channels = info.channels;
  const bool is_words = info.sample_type == SampleType::kUint16;
  if (info.is_signed() || (info.has_large_tiles() && !is_words)) return;
  image->parts.version = static_cast<uint8_t>(kVersion2);
  if (is_words && (info.has_large_tiles() || dice->OneIn(4))) {
    info.sample_type = SampleType::kFloat16;
    return;
  }
  constexpr SampleType kTypes[] = {SampleType::kUint32, SampleType::kInt32, SampleType::kFloat32};
  info.sample_type = kTypes[dice->Below(3)];
  Bytes joined;
  std::vector<uint32_t> samples(image->pixels.size() / (is_words ? 2 : 1));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = is_words ? LoadU16(image->pixels.data() + 2 * i) : image->pixels[i];
  }
  if (is_words && (channels == 2 || channels == 4) && dice->OneIn(2)) {
    const uint32_t minimum = dice->Below(1u << 16) * 65521, zeros = dice->Below(32);
    image->parts.chunks.push_back(HalvesChunk(minimum, zeros));
    info.holding = Holding::kHalves;
    info.channels = static_cast<uint16_t>(channels / 2);
    for (size_t i = 0; i < samples.size() / 2; ++i) {
      const size_t high = i / info.channels * channels + i % info.channels;
      const uint32_t both = samples[high] << 16 | samples[high + info.channels];
      AppendU32(&joined, (both << zeros) + minimum);
    }
  } else {
    info.holding = is_words ? Holding::kRanks16 : Holding::kRanks8;
    std::vector<uint32_t> table;
    image->parts.chunks.push_back(TableChunk(is_words ? 600 : 256, &table, dice));
    for (const uint32_t rank : samples) {
      AppendU32(&joined, table[std::min<size_t>(rank, table.size() - 1)]);
    }
  }
  image->pixels = std::move(joined);
}

// `smaller` divides the samples that it may have, up to 16, and the values of its table.
inline Image MakeImage(Dice* dice, uint32_t smaller = 1) {
  Image image;
  MakeShape(&image.parts.info, dice, smaller);
  const Coded coded = MakeCoding(image.parts.info, &image.parts.chunks, dice, smaller);
  const ImageInfo& info = image.parts.info = coded.info;
  const std::vector<ChannelGroup> groups = MakeGroups(info.channels, dice);
  if (groups.size() > 1) {
    image.parts.chunks.insert(image.parts.chunks.begin(), GroupsChunk(groups));
  }
  image.pixels.resize(info.image_bytes());
  for (size_t payload = 0; payload < info.tile_count() * groups.size(); ++payload) {
    const ChannelGroup& group = groups[payload % groups.size()];
    const uint32_t t = static_cast<uint32_t>(payload / groups.size());
    Coded of_group = coded;
    of_group.info.channels = static_cast<uint16_t>(group.channels);
    Tile tile = MakeTile(of_group, t, dice);
    const TileRect rect = GetTileRect(info, t);
    size_t i = 0;
    for (uint32_t y = rect.y_px; y < rect.y_px + rect.height_px && !image.bad; ++y) {
      uint8_t* row = image.pixels.data() + y * info.row_bytes() + rect.x_px * info.pixel_bytes();
      for (uint32_t n = 0; n < rect.width_px * group.channels && !image.bad; ++n, ++i) {
        if (tile.values[i] >= coded.valid_values()) {
          image.bad = t;
          break;
        }
        const uint32_t sample = coded.Sample(tile.values[i]);
        const uint32_t channel = group.channel[n % group.channels];
        uint8_t* out = row + (n / group.channels * info.channels + channel) * info.sample_bytes();
        out[0] = static_cast<uint8_t>(sample);
        if (info.sample_bits() == 16) out[1] = static_cast<uint8_t>(sample >> 8);
      }
    }
    image.parts.payloads.push_back(std::move(tile.payload));
  }
  if (image.bad) image.pixels.clear();
  if (dice->OneIn(4)) Widen(&image, dice);
  return image;
}

}  // namespace l3::fuzz
