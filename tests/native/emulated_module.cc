// l3dali._cuda on an emulated GPU, for tests: work runs when something waits for it, and memory
// comes from the function that Python gives, on the host.
#include "cuda/emulation/emulated_device.h"
#include "python/cuda_decoder.h"
#include "python/gpu_meter.h"

namespace {

l3::EmulatedGpu& Gpu() {
  static auto* const gpu = new l3::EmulatedGpu;  // outlives all that Python holds
  return *gpu;
}

class DeviceWithAllocator final : public l3::GpuDevice {
 public:
  explicit DeviceWithAllocator(std::unique_ptr<l3::CudaAllocator> allocator)
      : device_(Gpu().MakeDevice(l3::EmulatedPace::kLazy)), allocator_(std::move(allocator)) {}

  l3::GpuLimits limits() const override { return device_->limits(); }
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    return allocator_->AllocatePinned(bytes);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    return allocator_->AllocateDevice(bytes);
  }
  std::shared_ptr<CUstream_st> MakeStream() override { return device_->MakeStream(); }
  std::unique_ptr<l3::GpuEvent> MakeEvent() override { return device_->MakeEvent(); }
  void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    device_->Copy(to, from, bytes, stream);
  }
  void Launch(const l3::TileBatch& batch, CUstream_st* stream) override {
    device_->Launch(batch, stream);
  }
  void LaunchJpeg(const l3::JpegBatch& batch, CUstream_st* stream) override {
    device_->LaunchJpeg(batch, stream);
  }
  void LaunchJoins(const l3::JoinTask* tasks, size_t count, CUstream_st* stream) override {
    device_->LaunchJoins(tasks, count, stream);
  }

 private:
  const std::unique_ptr<l3::GpuDevice> device_;
  const std::unique_ptr<l3::CudaAllocator> allocator_;
};

}  // namespace

PYBIND11_MODULE(_emulated, m) {
  static const auto* const stream =
      new std::shared_ptr<CUstream_st>(Gpu().MakeStream(l3::EmulatedPace::kLazy));
  l3::BindCudaDecoder(
      m,
      [](int, std::unique_ptr<l3::CudaAllocator> allocator) {
        return std::make_unique<DeviceWithAllocator>(std::move(allocator));
      },
      [](uintptr_t) { return stream->get(); });
  l3::BindGpuMeter(
      m, [](int) { return Gpu().MakeDevice(l3::EmulatedPace::kLazy); },
      [](int) { return size_t{1} << 30; });
  m.def("launches", [] { return Gpu().launches(); });
  m.def("decoded_tiles", [] { return Gpu().decoded_tiles(); });
}
