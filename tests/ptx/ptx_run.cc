#include "ptx/ptx_run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ptx/machine.h"

namespace l3::ptx {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr uint64_t kMaxShared = 227 * 1024;  // of the largest GPU

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using Storage = std::unique_ptr<uint8_t, Free>;

Storage MakeStorage(size_t bytes) {
  const size_t room = (bytes + 2 * kGuardBytes + 255) / 256 * 256;
  Storage storage(static_cast<uint8_t*>(std::aligned_alloc(256, room)));
  if (storage == nullptr) throw Fault("the host has no memory for the buffers");
  std::memset(storage.get(), 0xCD, room);
  return storage;
}

void Run(const char* ptx, const char* entry, uint32_t blocks, uint32_t threads,
         uint32_t shared_bytes, void* const* buffers, const size_t* sizes, int buffer_count) {
  const auto module = ParseModule("<ptx>", ptx);
  const auto kernel = LinkKernel(*module, entry);
  if (kernel == nullptr) throw Fault(std::string("<ptx>: .entry: there is no kernel ") + entry);
  const size_t count = static_cast<size_t>(std::max(buffer_count, 0));
  if (kernel->body.entry_bytes != 8 * count) {
    throw Fault("<ptx>:" + std::to_string(kernel->body.line) + ": .entry: the kernel has " +
                std::to_string(kernel->body.entry_bytes) + " bytes of parameters, and there are " +
                std::to_string(count) + " buffers");
  }
  if (blocks == 0 || threads == 0 || threads > kernel->body.max_threads ||
      shared_bytes > kMaxShared) {
    throw Fault("<ptx>:" + std::to_string(kernel->body.line) +
                ": .entry: a launch beyond the kernel's limits");
  }
  Memory memory;
  Findings findings;
  std::vector<Storage> storages;
  std::vector<uint64_t> parameters;
  for (size_t i = 0; i < count; ++i) {
    storages.push_back(MakeStorage(sizes[i]));
    uint8_t* data = storages.back().get() + kGuardBytes;
    if (sizes[i] != 0) std::memcpy(data, buffers[i], sizes[i]);
    memory.Add(data, sizes[i]);
    parameters.push_back(reinterpret_cast<uint64_t>(data));
  }
  const auto copy_back = [&] {
    for (size_t i = 0; i < count; ++i) {
      if (sizes[i] != 0) std::memcpy(buffers[i], storages[i].get() + kGuardBytes, sizes[i]);
    }
  };
  Machine machine(OptionsOfEnvironment(), &memory, &findings);
  Launch launch;
  launch.kernel = kernel.get();
  launch.blocks = blocks;
  launch.width = threads;
  launch.dynamic_shared_bytes = shared_bytes;
  launch.parameters = reinterpret_cast<const uint8_t*>(parameters.data());
  try {
    machine.Run(launch);
  } catch (const Fault&) {
    copy_back();
    throw;
  }
  copy_back();
  if (!findings.empty()) throw Fault(findings.Lines().front());
}

}  // namespace
}  // namespace l3::ptx

int l3_ptx_run(const char* ptx, const char* entry, uint32_t blocks, uint32_t threads,
               uint32_t shared_bytes, void* const* buffers, const size_t* sizes, int buffer_count,
               char* error, size_t error_size) {
  try {
    l3::ptx::Run(ptx, entry, blocks, threads, shared_bytes, buffers, sizes, buffer_count);
    if (error != nullptr && error_size != 0) error[0] = '\0';
    return 0;
  } catch (const std::exception& fault) {
    if (error != nullptr && error_size != 0) {
      std::snprintf(error, error_size, "%s", fault.what());
    }
    return 1;
  }
}
