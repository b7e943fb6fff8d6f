// libFuzzer target: images made of any bytes, encoded and decoded.
#include "fuzz/fuzz_targets.h"
#include "fuzz/target.h"

std::string l3::fuzz::RunTarget(const uint8_t* data, size_t size) {
  return CheckEncode(data, size);
}
