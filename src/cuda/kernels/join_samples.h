// The address of the kernel that joins samples, for launches: of `const JoinTask*`, kJoinBlocks
// blocks for each task. Layer: cuda.
#pragma once

namespace l3 {

constexpr unsigned kJoinBlocks = 32;

const void* JoinSamplesKernel();

}  // namespace l3
