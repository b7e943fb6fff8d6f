#include "cuda/emulation/emulated_device.h"

#include <cstring>
#include <deque>
#include <utility>

#include "cuda/emulation/emulated_decoder.h"

namespace l3 {
namespace {

constexpr int kFresh = 0xCD;  // fills unwritten memory

using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

class EmulatedStream : public std::enable_shared_from_this<EmulatedStream> {
 public:
  EmulatedStream(EmulatedGpu* gpu, EmulatedPace pace) : gpu_(gpu), pace_(pace) {}
  // A stream that is destroyed still does its work.
  ~EmulatedStream() { RunUntil(queued()); }

  static EmulatedStream* From(CUstream_st* stream) {
    return reinterpret_cast<EmulatedStream*>(stream);
  }
  static std::shared_ptr<CUstream_st> Make(EmulatedGpu* gpu, EmulatedPace pace) {
    const auto stream = std::make_shared<EmulatedStream>(gpu, pace);
    return {stream, reinterpret_cast<CUstream_st*>(stream.get())};
  }

  void Queue(std::function<void()> work) {
    queue_.push_back(std::move(work));
    if (pace_ == EmulatedPace::kEager) RunUntil(queued());
  }
  uint64_t queued() const { return done_ + queue_.size(); }
  size_t waiting() const { return queue_.size(); }
  void RunUntil(uint64_t count) {
    while (done_ < count) {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      ++done_;
      gpu_->Run(work);
    }
  }

 private:
  EmulatedGpu* const gpu_;
  const EmulatedPace pace_;
  std::deque<std::function<void()>> queue_;
  uint64_t done_ = 0;
};

class EmulatedEvent : public GpuEvent {
 public:
  explicit EmulatedEvent(EmulatedGpu* gpu) : gpu_(gpu) {}

  void Record(CUstream_st* stream) override {
    const Lock lock(gpu_->mutex_);
    stream_ = gpu_->Find(stream)->shared_from_this();
    place_ = stream_->queued();
  }
  void Synchronize() override {
    const Lock lock(gpu_->mutex_);
    if (stream_ != nullptr) stream_->RunUntil(place_);
  }
  void MakeWait(CUstream_st* stream) override {
    const Lock lock(gpu_->mutex_);
    if (stream_ == nullptr || stream_.get() == gpu_->Find(stream)) return;
    gpu_->Find(stream)->Queue([other = stream_, place = place_] { other->RunUntil(place); });
  }

 private:
  EmulatedGpu* const gpu_;
  std::shared_ptr<EmulatedStream> stream_;
  uint64_t place_ = 0;
};

class EmulatedDevice : public GpuDevice {
 public:
  EmulatedDevice(EmulatedGpu* gpu, EmulatedPace pace) : gpu_(gpu), pace_(pace) {}

  GpuLimits limits() const override { return kLargeGpu; }
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    return gpu_->Allocate(bytes, false);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    return gpu_->Allocate(bytes, true);
  }
  std::shared_ptr<CUstream_st> MakeStream() override { return gpu_->MakeStream(pace_); }
  std::unique_ptr<GpuEvent> MakeEvent() override { return std::make_unique<EmulatedEvent>(gpu_); }
  void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    const Lock lock(gpu_->mutex_);
    if (gpu_->IsDevice(to) && !gpu_->IsDevice(from)) gpu_->uploaded_bytes_ += bytes;
    gpu_->Find(stream)->Queue([=] {
      if (bytes != 0) std::memcpy(to, from, bytes);
    });
  }
  void Launch(const TileBatch& batch, CUstream_st* stream) override {
    const Lock lock(gpu_->mutex_);
    ++gpu_->launches_;
    gpu_->Find(stream)->Queue(
        [gpu = gpu_, batch] { gpu->decoded_tiles_ += DecodeTilesEmulated(batch); });
  }
  void LaunchJpeg(const JpegBatch& batch, CUstream_st* stream) override {
    const Lock lock(gpu_->mutex_);
    gpu_->launches_ += 2;
    gpu_->Find(stream)->Queue(
        [gpu = gpu_, batch] { gpu->decoded_tiles_ += DecodeJpegEmulated(batch); });
  }

  void LaunchJoins(const JoinTask* tasks, size_t count, CUstream_st* stream) override {
    const Lock lock(gpu_->mutex_);
    gpu_->Find(stream)->Queue([=] { JoinSamplesEmulated(tasks, count); });
  }

 private:
  EmulatedGpu* const gpu_;
  const EmulatedPace pace_;
};

std::unique_ptr<GpuDevice> EmulatedGpu::MakeDevice(EmulatedPace pace) {
  return std::make_unique<EmulatedDevice>(this, pace);
}

std::shared_ptr<CUstream_st> EmulatedGpu::MakeStream(EmulatedPace pace) {
  return EmulatedStream::Make(this, pace);
}

EmulatedStream* EmulatedGpu::Find(CUstream_st* stream) {
  if (stream != nullptr) return EmulatedStream::From(stream);
  if (null_stream_ == nullptr) null_stream_ = MakeStream(EmulatedPace::kLazy);
  return EmulatedStream::From(null_stream_.get());
}

size_t EmulatedGpu::QueuedWork(CUstream_st* stream) {
  const Lock lock(mutex_);
  return Find(stream)->waiting();
}

uint8_t* EmulatedGpu::MakeBlock(size_t bytes, bool) {
  uint8_t* const block = new uint8_t[bytes];
  std::memset(block, kFresh, bytes);
  return block;
}

void EmulatedGpu::FreeBlock(uint8_t* block, bool) { delete[] block; }

void EmulatedGpu::Run(const std::function<void()>& work) {
  const Lock lock(mutex_);
  if (running_++ == 0) Guard(false);
  work();
  if (--running_ == 0) Guard(true);
}

}  // namespace l3
