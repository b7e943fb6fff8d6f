// A program of tests that have names: what they check, and its main().
#pragma once

#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #condition); \
    }                                                                                 \
  } while (false)

namespace l3 {

using Tests = std::map<std::string, void (*)()>;

// The program `PROGRAM NAME`. Returns 0 if the test is passed, 1 if not, and says where it failed;
// 2 if there is no such test.
inline int RunTest(const Tests& tests, int argc, char** argv) {
  const auto test = tests.find(argc == 2 ? argv[1] : "");
  if (test == tests.end()) {
    std::fprintf(stderr, "usage: %s NAME\n", argv[0]);
    return 2;
  }
  try {
    test->second();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}

}  // namespace l3
