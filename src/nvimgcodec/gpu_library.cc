// The CUDA engine, a library of the package's. It is opened when the first decoder needs it, so the
// extension loads on hosts without it, and wherever it lies itself.
#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "cuda/engine/cuda_device.h"
#include "nvimgcodec/gpu.h"

namespace l3 {
namespace {

// From site-packages/nvidia/nvimgcodec/extensions it is in site-packages/l3dali. The extension may
// be a link to the one there. Empty if the package has no CUDA engine.
std::filesystem::path FindLibrary() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&FindGpu), &here) == 0) return {};
  std::error_code error;
  for (const auto& extension :
       {std::filesystem::path(here.dli_fname), std::filesystem::canonical(here.dli_fname, error)}) {
    const auto packages = extension.parent_path().parent_path().parent_path().parent_path();
    auto library = packages / "l3dali" / kCudaLibrary;
    if (std::filesystem::exists(library, error)) return library;
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
