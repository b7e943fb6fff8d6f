// What src/op/mixed_backend.h asks of DALI, played over the stand-in runtime: DALI itself needs a
// driver. CMake makes each of DALI's headers include this one.
#pragma once

#include <cuda_runtime_api.h>

#include <any>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dali {

struct CPUBackend {};
struct GPUBackend {};
struct MixedBackend {};

template <class... Parts>
std::string make_string(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

#define DALI_FAIL(message) throw std::runtime_error(message)
#define DALI_ENFORCE(condition, message)  \
  do {                                    \
    if (!(condition)) DALI_FAIL(message); \
  } while (false)
#define CUDA_CALL(call)                                           \
  do {                                                            \
    const cudaError_t error = (call);                             \
    if (error != cudaSuccess) DALI_FAIL(cudaGetErrorName(error)); \
  } while (false)

class OpSpec {
 public:
  template <class T>
  OpSpec& Set(const std::string& name, T value) {
    arguments_[name] = std::move(value);
    return *this;
  }
  template <class T>
  T GetArgument(const std::string& name) const {
    return std::any_cast<T>(arguments_.at(name));
  }

 private:
  std::map<std::string, std::any> arguments_;
};
inline std::string GetOpDisplayName(const OpSpec&, bool) { return "fn.l3.decode"; }

// Whether pinned memory is the pageable memory of the host.
inline bool restricts_pinned = false;
inline bool RestrictPinnedMemUsage() { return restricts_pinned; }

namespace mm {
namespace memory_kind {
struct host {};
struct pinned {};
struct device {};
}  // namespace memory_kind

template <class T, class Kind>
std::shared_ptr<T> alloc_raw_shared(size_t bytes, size_t) {
  void* memory = nullptr;
  if constexpr (std::is_same_v<Kind, memory_kind::host>) {
    memory = std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return {static_cast<T*>(memory), std::free};
  } else if constexpr (std::is_same_v<Kind, memory_kind::pinned>) {
    CUDA_CALL(cudaMallocHost(&memory, bytes));
    return {static_cast<T*>(memory), [](T* place) { cudaFreeHost(place); }};
  } else {
    CUDA_CALL(cudaMalloc(&memory, bytes));
    return {static_cast<T*>(memory), [](T* place) { cudaFree(place); }};
  }
}
}  // namespace mm

// Files of a batch.
template <class Backend>
class TensorList {
 public:
  struct Meta {
    std::string source;
    const std::string& GetSourceInfo() const { return source; }
  };
  struct Tensor {
    const uint8_t* data;
    int64_t bytes;
    Meta meta;
  };
  TensorList(std::vector<Tensor> tensors, bool pinned)
      : tensors_(std::move(tensors)), is_pinned_(pinned) {}

  const Meta& GetMeta(int i) const { return tensors_[i].meta; }
  std::array<int64_t, 1> tensor_shape_span(int i) const { return {tensors_[i].bytes}; }
  template <class T>
  const T* tensor(int i) const {
    return reinterpret_cast<const T*>(tensors_[i].data);
  }
  bool is_pinned() const { return is_pinned_; }

 private:
  std::vector<Tensor> tensors_;
  bool is_pinned_;
};

class Workspace {
 public:
  Workspace(TensorList<CPUBackend> input, cudaStream_t stream)
      : input_(std::move(input)), stream_(stream) {}
  template <class Backend>
  const TensorList<Backend>& Input(int) const {
    return input_;
  }
  cudaStream_t stream() const { return stream_; }

 private:
  TensorList<CPUBackend> input_;
  cudaStream_t stream_;
};

class OldThreadPool {
 public:
  OldThreadPool(int threads, int, bool, const char*) : threads_(threads) {}
  int NumThreads() const { return threads_; }
  void AddWork(std::function<void()> work) { work_.push_back(std::move(work)); }
  void RunAll() {
    for (const auto& work : work_) work();
    work_.clear();
  }

 private:
  int threads_;
  std::vector<std::function<void()>> work_;
};

// The cache that readers ask.
class ImageCache {
 public:
  bool IsCached(const std::string& key) const { return keys_.count(key) != 0; }
  // Reads the image, as DALI's does, behind what the stream has queued.
  void Add(const std::string& key, const uint8_t* data, std::array<int64_t, 3> shape,
           cudaStream_t stream) {
    std::vector<uint8_t> copy(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    CUDA_CALL(cudaMemcpyAsync(copy.data(), data, copy.size(), cudaMemcpyDefault, stream));
    keys_.insert(key);
  }

 private:
  std::set<std::string> keys_;
};

class ImageCacheFactory {
 public:
  static ImageCacheFactory& Instance() {
    static ImageCacheFactory factory;
    return factory;
  }
  bool IsInitialized(int) const { return !cache_.expired(); }
  std::shared_ptr<ImageCache> Get(int) const { return cache_.lock(); }
  std::shared_ptr<ImageCache> Get(int, const std::string&, size_t) {
    auto cache = std::make_shared<ImageCache>();
    cache_ = cache;
    return cache;
  }

 private:
  std::weak_ptr<ImageCache> cache_;
};

}  // namespace dali
