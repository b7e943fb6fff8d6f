// The kernel of JoinPixel(). Layer: cuda.
#include "cuda/kernels/join_samples.h"
#include "cuda/kernels/sample_join.h"

namespace l3 {
namespace {

__global__ void JoinSamples(const JoinTask* tasks) {
  const JoinTask& task = tasks[blockIdx.y];
  const uint64_t count = task.pixel_count();
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    JoinPixel(task, i);
  }
}

}  // namespace

const void* JoinSamplesKernel() { return reinterpret_cast<const void*>(JoinSamples); }

}  // namespace l3
