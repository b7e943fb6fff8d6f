// compare_on_gpu.cc on emulated lanes.
//
//   l3_compare_emulated FILE.l3...
#include "compare_engines.h"
#include "cuda/emulation/emulated_device.h"

int main(int argc, char** argv) {
  l3::EmulatedGpu gpu;
  return l3::CompareEngines(argc, argv, [&] { return gpu.MakeDevice(l3::EmulatedPace::kLazy); });
}
