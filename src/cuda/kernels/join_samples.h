// The address of the kernel that joins samples, for launches: of `const JoinTask*`, a row of blocks
// for each task. Layer: cuda.
#pragma once

namespace l3 {

const void* JoinSamplesKernel();

}  // namespace l3
