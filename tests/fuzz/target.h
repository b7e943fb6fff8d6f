// What makes a libFuzzer target of a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

// `check` is one of namespace l3::fuzz: what it says is wrong with an input ends the process.
#define L3_FUZZ_TARGET(check)                                               \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    const std::string error = l3::fuzz::check(data, size);                  \
    if (!error.empty()) {                                                   \
      std::fprintf(stderr, "%s\n", error.c_str());                          \
      std::abort();                                                         \
    }                                                                       \
    return 0;                                                               \
  }
