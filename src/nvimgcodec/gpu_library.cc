// The CUDA engine, a library of the package's. It is opened when the first decoder needs it, so the
// extension loads on hosts without it, and wherever it lies itself.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "cuda/engine/cuda_device.h"
#include "nvimgcodec/gpu.h"

namespace l3 {
namespace {

// From site-packages/nvidia/nvimgcodec/extensions it is in site-packages/l3dali. The extension may
// be a link to the one there. Empty if the package has no CUDA engine.
std::string FindLibrary() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&FindGpu), &here) == 0) return {};
  const std::unique_ptr<char, decltype(&free)> linked(realpath(here.dli_fname, nullptr), &free);
  for (const char* extension : {here.dli_fname, static_cast<const char*>(linked.get())}) {
    if (extension == nullptr) continue;
    std::string path = extension;
    for (int i = 0; i < 4 && !path.empty(); ++i) {
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
    if (path.empty()) continue;
    path = path + "/l3dali/" + kCudaLibrary;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

std::unique_ptr<GpuDevice> Make(int device_id) {
  static const auto make = [] {
    void* library = dlopen(FindLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    void* function = dlsym(library, kMakeCudaDevice);
    if (function == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<decltype(&L3MakeCudaDevice)>(function);
  }();
  return std::unique_ptr<GpuDevice>(make(device_id, nullptr));
}

}  // namespace

GpuSource FindGpu() { return FindLibrary().empty() ? GpuSource{} : GpuSource{&Make}; }

}  // namespace l3
