#include "format/crc32c.h"

#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>

#include <cstring>
#endif

namespace l3 {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t UpdatePortable(uint32_t crc, const uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kTable[(crc ^ data[i]) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t UpdateSse42(uint32_t crc, const uint8_t* data,
                                                       size_t size) {
  uint64_t crc64 = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc64 = _mm_crc32_u64(crc64, word);
  }
  return UpdatePortable(static_cast<uint32_t>(crc64), data, size);
}
#endif

}  // namespace

uint32_t Crc32c(const uint8_t* data, size_t size) {
  uint32_t crc = 0xFFFFFFFFu;
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return ~UpdateSse42(crc, data, size);
#endif
  return ~UpdatePortable(crc, data, size);
}

}  // namespace l3
