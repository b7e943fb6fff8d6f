// libFuzzer target: a file, with checksums made right, that changes once it was parsed to one that
// differs here and there, through every engine.
#include "fuzz/change_target.h"
#include "fuzz/target.h"

std::string l3::fuzz::RunTarget(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  Repair(file.data(), size);
  const uint64_t seed = Crc32c(data, size);
  const std::vector<uint8_t> changed = ChangedCopy(file.data(), size, seed);
  return CheckChange(file.data(), changed.data(), size, seed);
}
