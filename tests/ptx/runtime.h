// What the stand-in for libcudart keeps: memory, streams, events, kernels. All work runs at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ptx/machine.h"

namespace l3::ptx {

class Runtime {
 public:
  static Runtime& Get();

  // All calls hold it.
  std::recursive_mutex mutex;

  // Sticks until the process ends. Empty: none.
  const std::string& fault() const { return fault_; }

  // Null: there is no memory.
  void* Allocate(size_t bytes, bool of_device);
  bool Release(void* memory, bool of_device);  // false: it is not there
  // Of device memory and pinned memory: whether the range lies within it. Of other memory true.
  bool IsRange(const void* place, size_t bytes) const;
  bool IsDevice(const void* place) const { return Find(place, true) != nullptr; }
  // Of the device: what is left and what there is.
  std::pair<uint64_t, uint64_t> device_bytes() const;

  // Streams and events: their work is done by the time that a call returns.
  void* MakeHandle() { return handles_.insert(std::make_unique<char>()).first->get(); }
  bool HasHandle(void* handle) const;
  bool DestroyHandle(void* handle);

  // Kernels. Returns what names the unit.
  void* Register(const void* fatbin_wrapper);
  void RegisterFunction(const void* unit, const void* host, const char* name);
  // Null: there is none such.
  const Kernel* FindKernel(const void* host);
  // Fills in the parameters from `arguments` and the number.
  void RunLaunch(Launch launch, void** arguments);
  std::map<const void*, size_t> dynamic_shared;  // that a kernel was allowed

  // Findings to stderr. Returns whether all was well.
  bool Finish();

 private:
  struct Allocation {
    std::unique_ptr<uint8_t, void (*)(void*)> storage;
    uint8_t* data = nullptr;
    size_t bytes = 0;
  };
  using Allocations = std::map<uint64_t, Allocation>;
  struct Unit {  // of the program, as nvcc compiled it
    const void* fatbin;
    const Module* module;
  };

  Runtime();
  const Allocation* Find(const void* place, bool of_device) const;
  const Module* Load(const std::string& file, const std::string& text);
  void LoadFiles();
  const Module* LoadUnit(size_t number);

  Options options_;
  Memory memory_;
  Findings findings_;
  Allocations allocations_[2];  // pinned, device
  uint64_t device_bytes_ = 0;
  std::set<std::unique_ptr<char>> handles_;
  std::string fault_;

  std::vector<Unit> units_;
  std::map<const void*, std::pair<size_t, std::string>> functions_;  // unit and name
  std::vector<std::unique_ptr<Module>> modules_;  // those of files first
  size_t file_count_ = 0;
  bool has_loaded_files_ = false;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;  // by name
  uint32_t launches_ = 0;
  std::unique_ptr<Machine> machine_;
};

}  // namespace l3::ptx
