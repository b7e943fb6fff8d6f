#include "format/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
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

// The processor's own instruction, and whether it has it.
#if defined(__x86_64__)
#define L3_CRC32C __attribute__((target("sse4.2")))
L3_CRC32C inline uint32_t AddWord(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
bool HasCrc32c() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
#define L3_CRC32C __attribute__((target("+crc")))
L3_CRC32C inline uint32_t AddWord(uint32_t crc, uint64_t word) { return __crc32cd(crc, word); }
bool HasCrc32c() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#if defined(L3_CRC32C)
L3_CRC32C uint32_t UpdateByWords(uint32_t crc, const uint8_t* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc = AddWord(crc, word);
  }
  return UpdatePortable(crc, data, size);
}
#endif

}  // namespace

uint32_t Crc32c(const uint8_t* data, size_t size) {
  constexpr uint32_t kStart = 0xFFFFFFFFu;
#if defined(L3_CRC32C)
  static const bool has_crc32c = HasCrc32c();
  if (has_crc32c) return ~UpdateByWords(kStart, data, size);
#endif
  return ~UpdatePortable(kStart, data, size);
}

}  // namespace l3
