// libFuzzer target: any bytes through every engine, as they are and with
// checksums made right, so that mutations reach the code behind them. Mutations know the format.
#include "fuzz/checks.h"
#include "fuzz/mutator.h"
#include "fuzz/target.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return l3::fuzz::MutateFile(data, size, max_size, l3::fuzz::Dice(seed));
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned int seed) {
  return l3::fuzz::CrossFiles(data1, size1, data2, size2, out, max_size, seed);
}

L3_FUZZ_TARGET(CheckBytes)
