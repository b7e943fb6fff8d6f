// libFuzzer target: any bytes through every engine, as they are and with
// checksums made right, so that mutations reach the code behind them.
#include <cstdio>
#include <cstdlib>

#include "fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t status;
  std::string error = l3::fuzz::CheckDecode(data, size, &status);
  if (error.empty()) {
    std::vector<uint8_t> repaired(data, data + size);
    l3::fuzz::Repair(repaired.data(), size);
    error = l3::fuzz::CheckDecode(repaired.data(), size, &status);
    if (error.empty()) error = l3::fuzz::CheckPlan(repaired.data(), size, l3::Crc32c(data, size));
  }
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::abort();
  }
  return 0;
}
