// What fuzz targets check of the reader of JPEG files. Returns what went wrong, or "".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "encoder/jpeg_file.h"
#include "format/crc32c.h"

namespace l3::fuzz {

// A file that is read gives coefficients that restore it, or no restore data. Restore data that is
// damaged is refused.
inline std::string CheckJpeg(const uint8_t* data, size_t size) {
  // A sanitizer sees every byte too far.
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  if (size != 0) std::memcpy(copy.get(), data, size);
  JpegFile jpeg;
  if (ReadJpeg({copy.get(), size}, &jpeg) != nullptr || jpeg.restore_data.empty()) return "";
  const auto restore = [&](const std::vector<uint8_t>& restore_data, std::vector<uint8_t>* file) {
    const std::vector<uint8_t> exact(restore_data);
    return RestoreJpeg(jpeg.image, jpeg.metadata, {exact.data(), exact.size()}, file);
  };
  std::vector<uint8_t> restored;
  if (!restore(jpeg.restore_data, &restored) || restored.size() != size ||
      std::memcmp(restored.data(), copy.get(), size) != 0) {
    return "the restored file differs";
  }
  // The bytes choose the damage.
  uint32_t random = Crc32c(data, size);
  for (uint32_t n = 0; n < 8; ++n) {
    std::vector<uint8_t> damaged = jpeg.restore_data;
    random = random * 1664525 + 1013904223;
    const size_t place = 4 + (random >> 8) % (damaged.size() - 4);
    if (n % 4 == 3) {
      damaged.resize(place);
    } else {
      damaged[place] ^= static_cast<uint8_t>(1u << (random & 7));
    }
    if (restore(damaged, &restored) &&
        (restored.size() != size || std::memcmp(restored.data(), copy.get(), size) != 0)) {
      return "damaged data restores another file";
    }
  }
  return "";
}

}  // namespace l3::fuzz
