// A file as its parts (format.md 2), for what fuzzing writes and changes: ToFile() lays the parts
// out and makes every checksum right, whatever the fields say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/check.h"
#include "format/channel_groups.h"
#include "format/constants.h"
#include "format/crc32c.h"
#include "format/image_view.h"
#include "fuzz/fuzz_targets.h"

namespace l3::fuzz {

using Bytes = std::vector<uint8_t>;

// Choices from fuzz data; once it is used up, from a generator that the data seeds. So a few
// bytes make a whole file, and each byte still changes it in one place.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  Dice(const uint8_t* data, size_t size)
      : data_(data), size_(size), state_(size != 0 ? Crc32c(data, size) : 0) {}

  uint32_t Byte() {
    if (size_ == 0) return static_cast<uint32_t>(Random() >> 56);
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
  file.push_back(static_cast<uint8_t>(kVersion));
  file.push_back(static_cast<uint8_t>(info.sample_type));
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
// false if header or index say nothing that makes sense.
inline bool FromFile(const uint8_t* data, size_t size, Parts* parts) {
  if (size < kHeaderBytes) return false;
  Bytes header(data, data + kHeaderBytes);
  StoreU32(header.data() + 28, Crc32c(header.data(), 28));
  *parts = Parts{};
  ImageInfo& info = parts->info;
  if (ParseHeader(header.data(), header.size(), &info) != Status::kOk) return false;
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

}  // namespace l3::fuzz
