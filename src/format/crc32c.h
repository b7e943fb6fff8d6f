// CRC-32C (Castagnoli), format.md 3. Layer: format.
#pragma once

#include <cstddef>
#include <cstdint>

namespace l3 {

uint32_t Crc32c(const uint8_t* data, size_t size);

}  // namespace l3
