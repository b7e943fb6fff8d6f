// What a program may do wrong with CUDA, done to the stand-in runtime. Each case says which error
// CUDA gives; what only the stand-in notices it prints when the process ends.
//
//   L3_PTX=kernels.ptx l3_cudart_test CASE     (test_cudart.py)
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

extern "C" void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int,
                                       void*, void*, void*, void*, int*);

namespace {

constexpr size_t kBytes = 1024;
char kBanks, kFill, kMissing, kSpin;  // their addresses stand for kernels

int failures = 0;

void Expect(cudaError_t got, cudaError_t expected, const char* call) {
  if (got == expected) return;
  ++failures;
  std::printf("%s: %s, not %s\n", call, cudaGetErrorName(got), cudaGetErrorName(expected));
}
#define EXPECT(call, expected) Expect((call), expected, #call)

uint8_t* Allocate(size_t bytes = kBytes) {
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, bytes), cudaSuccess);
  return static_cast<uint8_t*>(memory);
}
uint8_t* AllocatePinned(size_t bytes = kBytes) {
  void* memory = nullptr;
  EXPECT(cudaMallocHost(&memory, bytes), cudaSuccess);
  return static_cast<uint8_t*>(memory);
}
cudaStream_t MakeStream() {
  cudaStream_t stream = nullptr;
  EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  return stream;
}
cudaEvent_t MakeEvent() {
  cudaEvent_t event = nullptr;
  EXPECT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  return event;
}
cudaError_t Copy(void* to, const void* from, cudaStream_t stream, size_t bytes = kBytes) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
// The kernel writes a word a thread.
cudaError_t Fill(const void* memory, dim3 grid = dim3(1), dim3 block = dim3(32), size_t shared = 0,
                 cudaStream_t stream = nullptr, const char* kernel = &kFill) {
  void* arguments[] = {&memory};
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

void BadPointers() {
  uint8_t local = 0;
  uint8_t *device = Allocate(), *pinned = AllocatePinned();
  EXPECT(cudaFree(&local), cudaErrorInvalidValue);
  EXPECT(cudaFree(device + 16), cudaErrorInvalidValue);
  EXPECT(cudaFreeHost(&local), cudaErrorInvalidValue);
  EXPECT(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT(cudaFree(nullptr), cudaSuccess);
  EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT(cudaGetLastError(), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
  EXPECT(cudaFree(device), cudaErrorInvalidValue);  // twice
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
  EXPECT(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

void BadCopies() {
  uint8_t *device = Allocate(), *pinned = AllocatePinned();
  std::vector<uint8_t> host(2 * kBytes);
  EXPECT(Copy(device, host.data(), nullptr, kBytes + 1), cudaErrorInvalidValue);
  EXPECT(Copy(device + 1, host.data(), nullptr, kBytes), cudaErrorInvalidValue);
  EXPECT(Copy(host.data(), pinned, nullptr, kBytes + 1), cudaErrorInvalidValue);
  EXPECT(Copy(nullptr, host.data(), nullptr), cudaErrorInvalidValue);
  EXPECT(Copy(nullptr, nullptr, nullptr, 0), cudaSuccess);
  EXPECT(cudaMemset(device, 0, kBytes + 1), cudaErrorInvalidValue);
  EXPECT(cudaMemsetAsync(device + 1, 0, kBytes, nullptr), cudaErrorInvalidValue);
  EXPECT(cudaMemsetAsync(pinned, 0, kBytes, nullptr), cudaErrorInvalidValue);
  EXPECT(cudaMemset(device, 0, kBytes), cudaSuccess);
  EXPECT(Copy(host.data(), device, nullptr), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
}

void BadHandles() {
  uint8_t* device = Allocate();
  const cudaStream_t stream = MakeStream();
  const cudaEvent_t event = MakeEvent();
  EXPECT(cudaEventSynchronize(event), cudaSuccess);  // never recorded
  EXPECT(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  EXPECT(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  EXPECT(cudaMemsetAsync(device, 0, kBytes, stream), cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventDestroy(event), cudaSuccess);
  EXPECT(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
  EXPECT(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT(cudaFree(device), cudaSuccess);
}

void BadLaunches() {
  uint8_t* device = Allocate(4096);
  EXPECT(Fill(device, dim3(0)), cudaErrorInvalidConfiguration);
  EXPECT(Fill(device, dim3(1), dim3(0)), cudaErrorInvalidConfiguration);
  EXPECT(Fill(device, dim3(1), dim3(1025)), cudaErrorInvalidConfiguration);
  EXPECT(Fill(device, dim3(1, 65536)), cudaErrorInvalidConfiguration);
  EXPECT(Fill(device, dim3(1), dim3(1, 1, 65)), cudaErrorInvalidConfiguration);
  EXPECT(Fill(device, dim3(1), dim3(129)), cudaErrorInvalidValue);  // .maxntid 128
  EXPECT(Fill(device, dim3(1), dim3(32), (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT(Fill(device, dim3(1), dim3(32), 0, nullptr, &kMissing), cudaErrorInvalidDeviceFunction);
  EXPECT(cudaFuncSetAttribute(&kFill, cudaFuncAttributeMaxDynamicSharedMemorySize, 166913),
         cudaErrorInvalidValue);
  EXPECT(cudaFuncSetAttribute(&kFill, cudaFuncAttributeMaxDynamicSharedMemorySize, 166912),
         cudaSuccess);
  EXPECT(Fill(device, dim3(1), dim3(32), 166912), cudaSuccess);
  EXPECT(Fill(device, dim3(8), dim3(128)), cudaSuccess);
  EXPECT(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
}

void OutOfMemory() {
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, size_t{1} << 40), cudaErrorMemoryAllocation);
  EXPECT(cudaMalloc(&memory, 0), cudaSuccess);
  EXPECT(cudaFree(memory), cudaSuccess);
  size_t before = 0, after = 0, all = 0;
  EXPECT(cudaMemGetInfo(&before, &all), cudaSuccess);
  uint8_t* device = Allocate();
  EXPECT(cudaMemGetInfo(&after, &all), cudaSuccess);
  if (before != all || after != all - kBytes) Expect(cudaErrorUnknown, cudaSuccess, "free bytes");
  EXPECT(cudaFree(device), cudaSuccess);
}

// A fault stays until the process ends.
void OutOfBounds() {
  uint8_t* device = Allocate(64);
  Fill(device);
  EXPECT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, 64), cudaErrorIllegalAddress);
  EXPECT(cudaFree(device), cudaSuccess);
}
void Misaligned() {
  uint8_t* device = Allocate();
  Fill(device + 2);
  EXPECT(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
  EXPECT(cudaFree(device), cudaSuccess);
}
void Endless() {
  uint8_t* device = Allocate();
  Fill(device, dim3(1), dim3(32), 0, nullptr, &kSpin);
  EXPECT(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
  EXPECT(cudaFree(device), cudaSuccess);
}
void UseAfterFree() {
  uint8_t* device = Allocate();
  EXPECT(cudaFree(device), cudaSuccess);
  Fill(device);
  EXPECT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

void Leak() { Allocate(77); }
void Unwritten() {
  uint8_t *device = Allocate(), *pinned = AllocatePinned();
  EXPECT(Copy(pinned, device, nullptr), cudaSuccess);
  EXPECT(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
}
void HostOverrun() {
  uint8_t* pinned = AllocatePinned();
  pinned[kBytes] = 1;
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
}

// Two streams, with or without what orders them.
void Streams(bool waits) {
  uint8_t *device = Allocate(), *pinned = AllocatePinned();
  const cudaStream_t first = MakeStream(), second = MakeStream();
  const cudaEvent_t event = MakeEvent();
  std::memset(pinned, 1, kBytes);
  EXPECT(Copy(device, pinned, first), cudaSuccess);
  EXPECT(cudaEventRecord(event, first), cudaSuccess);
  if (waits) EXPECT(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  EXPECT(Fill(device, dim3(1), dim3(32), 0, second), cudaSuccess);
  EXPECT(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT(cudaStreamSynchronize(first), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
}
void Ordered() { Streams(true); }
void Unordered() { Streams(false); }

void ReleasedFill() {
  uint8_t* device = Allocate();
  const cudaStream_t stream = MakeStream();
  EXPECT(cudaMemsetAsync(device, 0, kBytes, stream), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream), cudaSuccess);
}
void Traffic() {
  uint8_t* device = Allocate();
  EXPECT(Fill(device, dim3(1), dim3(32), 0, nullptr, &kBanks), cudaSuccess);
  EXPECT(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
}
void ReleasedInFlight() {
  uint8_t *device = Allocate(), *pinned = AllocatePinned();
  const cudaStream_t stream = MakeStream();
  EXPECT(Copy(device, pinned, stream), cudaSuccess);
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
}
void ChangedInFlight() {
  uint8_t *device = Allocate(), *pinned = AllocatePinned();
  const cudaStream_t stream = MakeStream();
  EXPECT(Copy(device, pinned, stream), cudaSuccess);
  pinned[5] = 9;
  EXPECT(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT(cudaFreeHost(pinned), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
}

// L3_CUDART_FAIL names the call.
void Injected() {
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, kBytes), cudaSuccess);
  void* other = nullptr;
  EXPECT(cudaMallocHost(&other, kBytes), cudaErrorMemoryAllocation);
  EXPECT(cudaMallocHost(&other, kBytes), cudaSuccess);
  EXPECT(cudaFree(memory), cudaSuccess);
  EXPECT(cudaFreeHost(other), cudaSuccess);
}
void InjectedLaunch() {
  uint8_t* device = Allocate();
  EXPECT(Fill(device), cudaErrorLaunchOutOfResources);
  EXPECT(Fill(device), cudaSuccess);
  EXPECT(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT(cudaFree(device), cudaSuccess);
}

const std::map<std::string, std::function<void()>> kCases = {
    {"bad_copies", BadCopies},
    {"bad_handles", BadHandles},
    {"bad_launches", BadLaunches},
    {"bad_pointers", BadPointers},
    {"changed_in_flight", ChangedInFlight},
    {"endless", Endless},
    {"host_overrun", HostOverrun},
    {"injected", Injected},
    {"injected_launch", InjectedLaunch},
    {"leak", Leak},
    {"misaligned", Misaligned},
    {"ordered", Ordered},
    {"out_of_bounds", OutOfBounds},
    {"out_of_memory", OutOfMemory},
    {"released_fill", ReleasedFill},
    {"released_in_flight", ReleasedInFlight},
    {"traffic", Traffic},
    {"unordered", Unordered},
    {"unwritten", Unwritten},
    {"use_after_free", UseAfterFree},
};

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc == 2 ? kCases.find(argv[1]) : kCases.end();
  if (found == kCases.end()) {
    for (const auto& entry : kCases) std::printf("%s\n", entry.first.c_str());
    return argc == 1 ? 0 : 2;
  }
  __cudaRegisterFunction(nullptr, &kBanks, nullptr, "Banks", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterFunction(nullptr, &kFill, nullptr, "Fill", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterFunction(nullptr, &kSpin, nullptr, "Spin", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  found->second();
  return failures == 0 ? 0 : 1;
}
