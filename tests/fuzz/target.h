// What makes a libFuzzer target of a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fuzz/fuzz_targets.h"

namespace l3::fuzz {

// Executions whose image was too large to be checked.
inline uint64_t left_out = 0;

// Small images, emulated lanes for one input in 256, and for one in 4 what is checked beside
// engines against each other. L3_FUZZ_EVERYTHING=1 leaves out nothing.
inline void LowerLimits() {
  if (std::getenv("L3_FUZZ_EVERYTHING") == nullptr) limits = {uint64_t{1} << 15, 256, 4};
  std::atexit([] {  // for the ledger
    std::fprintf(stderr, "left out: %llu\n", static_cast<unsigned long long>(left_out));
  });
}

// Ends the process if `check` finds something wrong with an input.
inline void RunCheck(std::string (*check)(const uint8_t* data, size_t size), const uint8_t* data,
                     size_t size) {
  is_left_out = false;
  const std::string error = check(data, size);
  left_out += is_left_out;
  if (error.empty()) return;
  std::fprintf(stderr, "%s\n", error.c_str());
  std::abort();
}

}  // namespace l3::fuzz

// `check` is one of namespace l3::fuzz.
#define L3_FUZZ_TARGET(check)                                               \
  extern "C" int LLVMFuzzerInitialize(int*, char***);                       \
  extern "C" int LLVMFuzzerInitialize(int*, char***) {                      \
    l3::fuzz::LowerLimits();                                                \
    return 0;                                                               \
  }                                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    l3::fuzz::RunCheck(l3::fuzz::check, data, size);                        \
    return 0;                                                               \
  }
