// libFuzzer target: what the parser takes and what it promises. No tile is decoded, so that it runs
// often.
#include "fuzz/checks.h"
#include "fuzz/mutator.h"
#include "fuzz/target.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  // Mostly bytes alone: they are cheap, and the parser validates each of them.
  if (seed % 16 == 0) return l3::fuzz::MutateFile(data, size, max_size, l3::fuzz::Dice(seed / 16));
  const size_t mutated = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 16 < 14) l3::fuzz::Repair(data, mutated);
  return mutated;
}

L3_FUZZ_TARGET(CheckParse)
