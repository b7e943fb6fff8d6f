// Decodes files on the GPU and compares with the CPU: for compute-sanitizer, without Python.
//
//   l3_compare_on_gpu FILE.l3...
#include "compare_engines.h"
#include "cuda/engine/cuda_device.h"

int main(int argc, char** argv) {
  return l3::CompareEngines(argc, argv,
                            [] { return l3::MakeCudaDevice(0, l3::MakeDefaultCudaAllocator()); });
}
