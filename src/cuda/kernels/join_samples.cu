// The kernel of JoinPixel(). Layer: cuda.
#include "cuda/kernels/join_samples.h"
#include "cuda/kernels/sample_join.h"

namespace l3 {
namespace {

__global__ void JoinSamples(const JoinTask* tasks) {
  const JoinTask& task = tasks[blockIdx.x / kJoinBlocks];
  const uint64_t count = task.pixel_count();
  const uint64_t first = uint64_t{blockIdx.x % kJoinBlocks} * blockDim.x + threadIdx.x;
  for (uint64_t i = first; i < count; i += uint64_t{kJoinBlocks} * blockDim.x) {
    JoinPixel(task, i);
  }
}

}  // namespace

const void* JoinSamplesKernel() { return reinterpret_cast<const void*>(JoinSamples); }

}  // namespace l3
