// What every libFuzzer target is made of: RunTarget() looks at one input and says what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace l3::fuzz {

// Each target defines it. Returns "" if all is well.
std::string RunTarget(const uint8_t* data, size_t size);

}  // namespace l3::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string error = l3::fuzz::RunTarget(data, size);
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::abort();
  }
  return 0;
}
