// The nvImageCodec extension with an emulated GPU in place of CUDA's, for tests with nvImageCodec
// itself: its memory is the host's, so the GPU decoder is one for the CPU there. Work runs when
// something waits for it.
#include <cstdint>

#include "cuda/emulation/emulated_device.h"
#include "nvimgcodec/gpu.h"

namespace l3 {
namespace {

EmulatedGpu& TheGpu() {
  static auto* const gpu = new EmulatedGpu;  // outlives all decoders
  return *gpu;
}

}  // namespace

GpuSource FindGpu() {
  return {[](int) { return TheGpu().MakeDevice(EmulatedPace::kLazy); },
          NVIMGCODEC_BACKEND_KIND_CPU_ONLY};
}

}  // namespace l3

// Batches that it has decoded.
extern "C" __attribute__((visibility("default"))) uint64_t l3_emulated_launches() {
  return l3::TheGpu().launches();
}
