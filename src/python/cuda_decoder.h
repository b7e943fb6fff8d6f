// The batch engine for Python, on a device that the module names. Layer: adapter.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/cuda_device.h"
#include "python/decode_batch.h"
#include "python/gil.h"

namespace l3 {

// Memory from a Python function: allocate(bytes, pinned) gives an object whose data_ptr() is
// memory of the device, or pinned memory of the host, while the object lives.
class PythonAllocator final : public CudaAllocator {
 public:
  explicit PythonAllocator(py::function allocate) : allocate_(std::move(allocate)) {}
  ~PythonAllocator() override {
    WithGil([this] { allocate_ = py::function(); });
  }

  std::shared_ptr<void> AllocatePinned(size_t bytes) override { return Allocate(bytes, true); }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override { return Allocate(bytes, false); }

 private:
  std::shared_ptr<void> Allocate(size_t bytes, bool pinned) {
    return WithGil([&]() -> std::shared_ptr<void> {
      py::object memory = allocate_(bytes, pinned);
      void* const address = reinterpret_cast<void*>(memory.attr("data_ptr")().cast<uintptr_t>());
      return {address,
              [held = memory.release().ptr()](void*) { WithGil([held] { Py_DECREF(held); }); }};
    });
  }

  py::function allocate_;
};

// One device. Threads may share it: their batches take turns.
class CudaDecoder {
 public:
  explicit CudaDecoder(std::unique_ptr<GpuDevice> device)
      : decoder_(std::make_unique<BatchDecoder>(std::move(device))) {}
  ~CudaDecoder() {
    const WithoutGil released;  // it waits for its work
    decoder_.reset();
  }

  // Decodes to packed outputs in the device's memory, behind what `stream` has queued, and waits
  // for it; `threads` threads (0: all the machine has) copy what goes up.
  void Decode(DecodeBatch& batch, const std::vector<uintptr_t>& addresses, CUstream_st* stream,
              unsigned threads) {
    batch.PlaceOutputs(addresses, std::nullopt);
    std::vector<DecodeResult> results;
    {
      const WithoutGil released;
      const std::lock_guard<std::mutex> lock(mutex_);
      results = decoder_->Decode(batch.jobs(), stream,
                                 [threads](size_t count, const std::function<void(size_t)>& task) {
                                   ParallelFor(count, threads, task);
                                 });
    }
    batch.RequireDecoded(results);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<BatchDecoder> decoder_;
};

// Makes the class `Decoder`, whose first two arguments are those of `make_device`: a number and an
// allocator. `stream_of` makes a stream of the number that frameworks give.
inline void BindCudaDecoder(
    py::module_& m,
    const std::function<std::unique_ptr<GpuDevice>(int, std::unique_ptr<CudaAllocator>)>&
        make_device,
    const std::function<CUstream_st*(uintptr_t)>& stream_of) {
  FindL3Error();
  BindDecodeBatch(m);
  py::class_<CudaDecoder>(m, "Decoder", py::module_local())
      .def(py::init([make_device](int device_id, py::function allocate) {
             return std::make_unique<CudaDecoder>(
                 make_device(device_id, std::make_unique<PythonAllocator>(std::move(allocate))));
           }),
           py::arg("device_id"), py::arg("allocate"))
      .def(
          "decode",
          [stream_of](CudaDecoder& decoder, DecodeBatch& batch,
                      const std::vector<uintptr_t>& addresses, uintptr_t stream, unsigned threads) {
            decoder.Decode(batch, addresses, stream_of(stream), threads);
          },
          py::arg("batch"), py::arg("addresses"), py::kw_only(), py::arg("stream"),
          py::arg("threads"));
}

}  // namespace l3
