// Decodes files by every kernel of the CUDA engine, and compares with the CPU engine.
#pragma once

#include <functional>
#include <memory>

#include "cuda/engine/gpu_device.h"

namespace l3 {

// The program around it, of `files` from the command line: a line for each way to decode them,
// and one for each file that came out different. Returns 0 if both engines agree on all of them
// and each kernel was launched, 1 if not, 2 if a file cannot be read or the GPU fails. Digests of
// what the GPU made go to the file that L3_DIGESTS names; L3_WAYS chooses some ways by number.
int CompareEngines(int argc, char** argv, const std::function<std::unique_ptr<GpuDevice>()>& make);

}  // namespace l3
