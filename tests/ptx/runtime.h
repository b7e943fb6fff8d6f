// What the stand-in for libcudart keeps: memory, streams, events, kernels. Work of streams runs at
// once, late or by chance, and what nothing orders is reported whatever ran first.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ptx/machine.h"

namespace l3::ptx {

// When the work of a stream runs. kLate: only when something waits for it.
enum class Pace { kAtOnce, kLate, kRandom };

// What can be made to fail.
enum class ApiCall { kAllocation, kLaunch, kCopy, kOther };

// How far each stream has come, of which something is known: operations by stream.
using Clock = std::vector<uint32_t>;
void Join(Clock* clock, const Clock& other);

class Stream {
 public:
  explicit Stream(uint32_t number) : number_(number) {}
  uint32_t number() const { return number_; }
  uint32_t queued() const { return done_ + static_cast<uint32_t>(queue_.size()); }
  size_t waiting() const { return queue_.size(); }
  void Queue(std::function<void()> work) { queue_.push_back(std::move(work)); }
  void RunUntil(uint32_t count);

  Clock clock;  // known when the newest work runs
  Pace pace = Pace::kAtOnce;

 private:
  const uint32_t number_;
  std::deque<std::function<void()>> queue_;
  uint32_t done_ = 0;
};

struct Event {
  std::shared_ptr<Stream> stream;
  uint32_t place = 0;
  Clock clock;
};

class Runtime : public OperationOrder {
 public:
  static Runtime& Get();

  // All calls hold it.
  std::recursive_mutex mutex;

  // Whether this call is one that shall fail: L3_CUDART_FAIL, as "allocation 3".
  bool ShallFail(ApiCall call);
  // Sticks until the process ends. Empty: none.
  const std::string& fault() const { return fault_; }
  int fault_code() const { return fault_code_; }

  // Memory. Null: there is none.
  void* AllocateDevice(size_t bytes);
  void* AllocatePinned(size_t bytes);
  bool ReleaseDevice(void* memory);  // false: it is not there
  bool ReleasePinned(void* memory);
  // Of device memory and pinned memory: a range within it; of other memory true.
  bool IsRange(const void* place, size_t bytes);
  bool IsDevice(const void* place);

  // Streams. Null: there is none such.
  void* MakeStream();
  std::shared_ptr<Stream> FindStream(void* handle);
  bool DestroyStream(void* handle);
  void* MakeEvent();
  Event* FindEvent(void* handle);
  bool DestroyEvent(void* handle);
  void WaitFor(const std::shared_ptr<Stream>& stream, uint32_t place, const Clock& clock);
  void WaitForAll();
  void MakeWait(const std::shared_ptr<Stream>& stream, const Event& event);

  void Copy(void* to, const void* from, size_t bytes, const std::shared_ptr<Stream>& stream);
  void Fill(void* to, int value, size_t bytes, const std::shared_ptr<Stream>& stream);
  // Of the device's memory, what is left and what there is.
  std::pair<uint64_t, uint64_t> device_bytes() const;

  // Kernels.
  // Returns what names the unit.
  void* Register(const void* fatbin_wrapper);
  void RegisterFunction(const void* unit, const void* host, const char* name);
  // Null: there is none such.
  const Kernel* FindKernel(const void* host);
  uint32_t target();  // 80 for sm_80
  void QueueLaunch(const Kernel& kernel, Dim grid, Dim block, size_t shared_bytes, void** arguments,
                   const std::shared_ptr<Stream>& stream);
  std::map<const void*, size_t> dynamic_shared;  // that a kernel was allowed

  // By name.
  struct Loaded {
    const Module* module = nullptr;
    std::unique_ptr<Kernel> kernel;
    std::vector<Count> counts;  // by instruction
  };
  std::map<std::string, Loaded>& LoadKernels();  // all that the program has
  void WriteCounts(const char* path) const;
  void WriteTraffic(const char* path) const;  // lines of PTX that have some: wavefronts, sectors

  bool IsBefore(uint32_t earlier, uint32_t later) const override;
  std::string Name(uint32_t operation) const override;

  // Findings to stderr, counts to L3_PTX_COUNTS. Returns whether all was well.
  bool Finish();
  const Findings& findings() const { return findings_; }

 private:
  struct Operation {
    std::string name;
    uint32_t stream = 0, place = 0;
    Clock clock;
  };
  struct Allocation {
    std::unique_ptr<uint8_t, void (*)(void*)> storage;
    uint8_t* data = nullptr;
    size_t bytes = 0;
    std::vector<uint32_t> uses;  // operations
  };
  using Allocations = std::map<uint64_t, Allocation>;
  struct Unit {  // of the program, as nvcc compiled it
    const void* fatbin;
    const Module* module;
  };

  Runtime();
  void* Allocate(Allocations* allocations, size_t bytes);
  Allocation* FindAllocation(Allocations* allocations, const void* place);
  bool Release(Allocations* allocations, void* memory, const char* kind);
  uint32_t Begin(const std::string& name, const std::shared_ptr<Stream>& stream);
  void Queue(const std::shared_ptr<Stream>& stream, std::function<void()> work);
  void RunSome();
  void RunCopy(uint32_t operation, void* to, const void* from, size_t bytes);
  void Touch(uint32_t operation, const void* place, size_t bytes, bool writes);
  const Module* Load(const std::string& file, const std::string& text);
  const Module* LoadOrDie(const std::string& file, const std::string& text);
  void LoadFiles();
  const Module* LoadUnit(size_t number);
  void Stick(const std::string& fault, int code);

  Options options_;
  Pace pace_ = Pace::kAtOnce;
  uint32_t early_ = ~0u;  // a stream that runs at once where others are late
  std::mt19937 random_;
  std::string fail_kind_;
  uint64_t fail_number_ = 0;
  std::map<std::string, uint64_t> calls_;  // of each kind

  Memory memory_;
  Findings findings_;
  Allocations device_, pinned_;
  uint64_t device_bytes_ = 0;
  std::deque<Allocation> released_;  // kept, so that a late use is seen and does no harm
  std::map<void*, std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Stream>> all_streams_;
  std::map<void*, std::unique_ptr<Event>> events_;
  Clock host_;
  std::vector<Operation> operations_;
  std::string fault_;
  int fault_code_ = 0;

  std::vector<Unit> units_;
  std::map<const void*, std::pair<size_t, std::string>> functions_;  // unit and name
  std::vector<std::unique_ptr<Module>> modules_;                     // those of files first
  size_t file_count_ = 0;
  bool has_loaded_files_ = false;
  std::map<std::string, Loaded> kernels_;
  std::unique_ptr<Machine> machine_;
};

}  // namespace l3::ptx
