// libFuzzer target: windows, types and layouts of files that the bytes build, some of them damaged.
#include "fuzz/checks.h"
#include "fuzz/target.h"

std::string l3::fuzz::RunTarget(const uint8_t* data, size_t size) {
  Dice dice(data, size);
  const uint64_t seed = dice.Range(0, 0xFFFF);
  const uint32_t damages = dice.OneIn(4) ? dice.Range(1, 3) : 0;
  Bytes file = ToFile(MakeImage(&dice).parts);
  for (uint32_t n = 0; n < damages; ++n) {
    file[dice.Below(static_cast<uint32_t>(file.size()))] = static_cast<uint8_t>(dice.Byte());
  }
  if (damages != 0) Repair(file.data(), file.size());
  return CheckPlan(file.data(), file.size(), seed);
}
