// What makes a libFuzzer target of a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fuzz/fuzz_targets.h"

namespace l3::fuzz {

// Small images, and emulated lanes for one input in 16. L3_FUZZ_EVERYTHING=1 leaves out nothing.
inline void LowerLimits() {
  if (std::getenv("L3_FUZZ_EVERYTHING") == nullptr) limits = {uint64_t{1} << 17, 16};
}

}  // namespace l3::fuzz

// `check` is one of namespace l3::fuzz: what it says is wrong with an input ends the process.
#define L3_FUZZ_TARGET(check)                                               \
  extern "C" int LLVMFuzzerInitialize(int*, char***);                       \
  extern "C" int LLVMFuzzerInitialize(int*, char***) {                      \
    l3::fuzz::LowerLimits();                                                \
    return 0;                                                               \
  }                                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    const std::string error = l3::fuzz::check(data, size);                  \
    if (!error.empty()) {                                                   \
      std::fprintf(stderr, "%s\n", error.c_str());                          \
      std::abort();                                                         \
    }                                                                       \
    return 0;                                                               \
  }
