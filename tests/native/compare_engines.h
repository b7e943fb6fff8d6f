// Decodes files by every kernel of the CUDA engine, and compares with the CPU engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/engine/gpu_device.h"

namespace l3 {

// The program around it, of `files` from the command line: a line for each way to decode them,
// and one for each file that came out different. Returns 0 if both engines agree on all of them
// and each kernel was launched, 1 if not, 2 if a file cannot be read or the GPU fails. Digests of
// what the GPU made go to the file that L3_DIGESTS names; L3_WAYS chooses some ways by number.
int CompareEngines(int argc, char** argv, const std::function<std::unique_ptr<GpuDevice>()>& make);

// A batch of a few files, for tests of many.
struct BatchCase {
  uint32_t way = 0;      // by number; beyond the last they begin again
  uint32_t seed = 1;     // of windows and plans
  uint32_t windows = 0;  // of each file; 0: as the way has it
  bool has_compact_blocks = false;  // of rans tiles, as small GPUs have them
  std::vector<std::vector<uint8_t>> files;
  // Of each file what stands in its place once the batch was planned, in as many bytes, and what
  // the CPU is given then. Or none.
  std::vector<std::vector<uint8_t>> changed, judged_as;
};

// How many windows the engines differ on. Files without a header that is right are left out.
size_t CountDifferences(const BatchCase& batch,
                        const std::function<std::unique_ptr<GpuDevice>()>& make);

}  // namespace l3
