// libFuzzer target: a file, with checksums made right, that changes once it was parsed to one that
// differs here and there, through every engine.
#include <cstdio>
#include <cstdlib>

#include "fuzz/change_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  l3::fuzz::Repair(file.data(), size);
  const uint64_t seed = l3::Crc32c(data, size);
  const std::vector<uint8_t> changed = l3::fuzz::ChangedCopy(file.data(), size, seed);
  const std::string error = l3::fuzz::CheckChange(file.data(), changed.data(), size, seed);
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::abort();
  }
  return 0;
}
