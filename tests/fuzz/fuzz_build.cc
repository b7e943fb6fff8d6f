// libFuzzer target: files that the bytes build by the letter of the format, those that no encoder
// would write included. Every engine must give the pixels that the builder knows.
#include "fuzz/checks.h"
#include "fuzz/target.h"

std::string l3::fuzz::RunTarget(const uint8_t* data, size_t size) {
  Dice dice(data, size);
  return CheckImage(MakeImage(&dice));
}
