#include "ptx/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace l3::ptx {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr size_t kAlignment = 256;
constexpr uint64_t kDeviceBytes = uint64_t{4} << 30;
constexpr size_t kMaxReleased = 512;  // allocations that are kept
constexpr int kIllegalAddress = 700, kMisaligned = 716, kTimeout = 702;

using Lock = std::lock_guard<std::recursive_mutex>;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

uint64_t Digest(const void* data, size_t bytes) {
  uint64_t digest = bytes;
  const auto* place = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, place + i, std::min<size_t>(8, bytes - i));
    digest = (digest ^ word) * 0x9E3779B97F4A7C15u;
    digest ^= digest >> 29;
  }
  return digest;
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "l3_cudart: %s\n", what.c_str());
  std::exit(5);
}

}  // namespace

void Join(Clock* clock, const Clock& other) {
  if (clock->size() < other.size()) clock->resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) (*clock)[i] = std::max((*clock)[i], other[i]);
}

void Stream::RunUntil(uint32_t count) {
  while (done_ < count && !queue_.empty()) {
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    ++done_;
    work();
  }
}

Runtime& Runtime::Get() {
  static Runtime* const runtime = new Runtime;  // others may outlive whatever ends it
  return *runtime;
}

Runtime::Runtime() {
  try {
    options_ = OptionsOfEnvironment();
  } catch (const Fault& fault) {
    Die(fault.what());
  }
  random_.seed(options_.seed);
  const std::string pace = Environment("L3_CUDART_STREAMS");
  if (pace == "late") {
    pace_ = Pace::kLate;
  } else if (pace == "random") {
    pace_ = Pace::kRandom;
  } else if (pace.rfind("early ", 0) == 0) {
    pace_ = Pace::kLate;
    early_ = static_cast<uint32_t>(std::atoi(pace.c_str() + 6));
  } else if (!pace.empty() && pace != "at_once") {
    Die("L3_CUDART_STREAMS=" + pace + ": there are at_once, late, random and \"early N\"");
  }
  const std::string fail = Environment("L3_CUDART_FAIL");
  if (!fail.empty()) {
    std::istringstream words(fail);
    words >> fail_kind_ >> fail_number_;
    if (!words) Die("L3_CUDART_FAIL=" + fail + ": as \"allocation 3\"");
  }
  operations_.emplace_back();  // 0 is nobody
  machine_ = std::make_unique<Machine>(options_, &memory_, &findings_, this);
  streams_[nullptr] = nullptr;
  MakeStream();
  streams_[nullptr] = all_streams_[0];
  std::atexit([] {
    if (!Runtime::Get().Finish()) std::_Exit(4);
  });
}

bool Runtime::ShallFail(ApiCall call) {
  const char* const names[] = {"allocation", "launch", "copy", "other"};
  const char* name = names[static_cast<int>(call)];
  const uint64_t number = ++calls_[name];
  return fail_number_ != 0 && fail_kind_ == name && number == fail_number_;
}

void Runtime::Stick(const std::string& fault, int code) {
  findings_.Add("l3_cudart", fault, "");
  if (!fault_.empty()) return;
  fault_ = fault;
  fault_code_ = code;
}

// Memory.

void* Runtime::Allocate(Allocations* allocations, size_t bytes) {
  const size_t room = (bytes + 2 * kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* storage = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, room));
  if (storage == nullptr) return nullptr;
  std::memset(storage, 0xCD, room);
  Allocation allocation = {{storage, std::free}, storage + kGuardBytes, bytes, {}};
  uint8_t* data = allocation.data;
  allocations->emplace(reinterpret_cast<uint64_t>(data), std::move(allocation));
  return data;
}

void* Runtime::AllocateDevice(size_t bytes) {
  if (bytes > kDeviceBytes - device_bytes_) return nullptr;
  void* memory = Allocate(&device_, bytes);
  if (memory == nullptr) return nullptr;
  device_bytes_ += bytes;
  memory_.Add(static_cast<uint8_t*>(memory), bytes, false, false);
  return memory;
}

void* Runtime::AllocatePinned(size_t bytes) { return Allocate(&pinned_, bytes); }

Runtime::Allocation* Runtime::FindAllocation(Allocations* allocations, const void* place) {
  const auto address = reinterpret_cast<uint64_t>(place);
  const auto next = allocations->upper_bound(address);
  if (next == allocations->begin()) return nullptr;
  Allocation& allocation = std::prev(next)->second;
  // One past the end too, so that a range that passes it is known.
  return address - std::prev(next)->first <= allocation.bytes ? &allocation : nullptr;
}

bool Runtime::Release(Allocations* allocations, void* memory, const char* kind) {
  const auto found = allocations->find(reinterpret_cast<uint64_t>(memory));
  if (found == allocations->end()) return false;
  Allocation& allocation = found->second;
  const uint8_t* end = allocation.data + allocation.bytes + kGuardBytes;
  const bool is_intact = std::all_of(allocation.data - kGuardBytes, allocation.data,
                                     [](uint8_t b) { return b == 0xCD; }) &&
                         std::all_of(allocation.data + allocation.bytes, const_cast<uint8_t*>(end),
                                     [](uint8_t b) { return b == 0xCD; });
  if (!is_intact) findings_.Add("l3_cudart", std::string("the host wrote around ") + kind, "");
  for (uint32_t use : allocation.uses) {
    const Operation& operation = operations_[use];
    const bool is_done =
        operation.stream < host_.size() && host_[operation.stream] >= operation.place;
    if (is_done || !fault_.empty()) continue;  // a fault has ended all work
    findings_.Add("l3_cudart",
                  std::string(kind) + " was released while work that nobody waited for uses it",
                  operation.name);
    break;
  }
  released_.push_back(std::move(allocation));
  if (released_.size() > kMaxReleased) released_.pop_front();
  allocations->erase(found);
  return true;
}

bool Runtime::ReleaseDevice(void* memory) {
  const auto found = device_.find(reinterpret_cast<uint64_t>(memory));
  if (found == device_.end()) return false;
  device_bytes_ -= found->second.bytes;
  memory_.Remove(found->first);
  return Release(&device_, memory, "device memory");
}

bool Runtime::ReleasePinned(void* memory) { return Release(&pinned_, memory, "pinned memory"); }

std::pair<uint64_t, uint64_t> Runtime::device_bytes() const {
  return {kDeviceBytes - device_bytes_, kDeviceBytes};
}

bool Runtime::IsDevice(const void* place) { return FindAllocation(&device_, place) != nullptr; }

bool Runtime::IsRange(const void* place, size_t bytes) {
  for (Allocations* allocations : {&device_, &pinned_}) {
    const Allocation* allocation = FindAllocation(allocations, place);
    if (allocation == nullptr) continue;
    const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(place) - allocation->data);
    return bytes <= allocation->bytes - offset;
  }
  return true;
}

// Streams.

void* Runtime::MakeStream() {
  auto stream = std::make_shared<Stream>(static_cast<uint32_t>(all_streams_.size()));
  stream->pace = stream->number() == early_ ? Pace::kAtOnce : pace_;
  void* handle = stream.get();
  streams_[handle] = stream;
  all_streams_.push_back(std::move(stream));
  return handle;
}

std::shared_ptr<Stream> Runtime::FindStream(void* handle) {
  const auto found = streams_.find(handle);
  return found != streams_.end() ? found->second : nullptr;
}

// Its work still runs.
bool Runtime::DestroyStream(void* handle) {
  return handle != nullptr && streams_.erase(handle) != 0;
}

void* Runtime::MakeEvent() {
  auto event = std::make_unique<Event>();
  void* handle = event.get();
  events_[handle] = std::move(event);
  return handle;
}

Event* Runtime::FindEvent(void* handle) {
  const auto found = events_.find(handle);
  return found != events_.end() ? found->second.get() : nullptr;
}

bool Runtime::DestroyEvent(void* handle) { return events_.erase(handle) != 0; }

void Runtime::WaitFor(const std::shared_ptr<Stream>& stream, uint32_t place, const Clock& clock) {
  stream->RunUntil(place);
  Join(&host_, clock);
}

void Runtime::WaitForAll() {
  for (const auto& stream : all_streams_) WaitFor(stream, stream->queued(), stream->clock);
}

void Runtime::MakeWait(const std::shared_ptr<Stream>& stream, const Event& event) {
  if (event.stream == nullptr) return;
  Join(&stream->clock, event.clock);
  if (event.stream == stream) return;
  Queue(stream, [other = event.stream, place = event.place] { other->RunUntil(place); });
}

// Gives work of a stream its number. It comes after all that the stream and the host know of.
uint32_t Runtime::Begin(const std::string& name, const std::shared_ptr<Stream>& stream) {
  if (operations_.size() > Stamp::kMaxOperation) Die("more work than the stamps can tell apart");
  Join(&stream->clock, host_);
  const uint32_t place = stream->queued() + 1;
  if (stream->clock.size() <= stream->number()) stream->clock.resize(stream->number() + 1);
  stream->clock[stream->number()] = place;
  operations_.push_back({name, stream->number(), place, stream->clock});
  return static_cast<uint32_t>(operations_.size() - 1);
}

void Runtime::Queue(const std::shared_ptr<Stream>& stream, std::function<void()> work) {
  if (stream->clock.size() <= stream->number()) stream->clock.resize(stream->number() + 1);
  stream->clock[stream->number()] = stream->queued() + 1;
  stream->Queue(std::move(work));
  if (stream->pace == Pace::kAtOnce) stream->RunUntil(stream->queued());
  if (stream->pace == Pace::kRandom) RunSome();
}

void Runtime::RunSome() {
  while (random_() % 2 == 0) {
    const auto stream = all_streams_[random_() % all_streams_.size()];
    const uint32_t count = static_cast<uint32_t>(random_() % 4);
    stream->RunUntil(stream->queued() > count ? stream->queued() - count : 0);
  }
}

bool Runtime::IsBefore(uint32_t earlier, uint32_t later) const {
  const Operation& first = operations_[earlier];
  const Clock& clock = operations_[later].clock;
  return first.stream < clock.size() && clock[first.stream] >= first.place;
}

std::string Runtime::Name(uint32_t operation) const {
  const Operation& found = operations_[operation];
  return found.name + " (number " + std::to_string(found.place) + " of stream " +
         std::to_string(found.stream) + ")";
}

// Copies.

void Runtime::Touch(uint32_t operation, const void* place, size_t bytes, bool writes) {
  const auto address = reinterpret_cast<uint64_t>(place);
  Block* block = memory_.Find(address);
  if (block == nullptr) return;
  block->NoteUse(operation);
  if (!options_.checks_order) return;
  const std::string where = "l3_cudart: " + Name(operation);
  const Stamp mine(operation, false, Stamp::kThread, 0, 0);
  uint32_t known = 0;
  bool is_raced = false;
  const auto check = [&](Stamp other, const char* what) {
    if (other.is_nobody() || other.operation() == known || other.operation() == operation) return;
    known = other.operation();
    if (IsBefore(known, operation) || is_raced) return;
    is_raced = true;
    findings_.Add(where, std::string(what) + " by work of a stream that nothing orders before this",
                  Name(known));
  };
  for (size_t i = 0; i < bytes;) {
    const uint64_t offset = address - block->base() + i;
    const ByteStamps stamps = block->stamps(offset);
    const size_t count =
        std::min<size_t>(bytes - i, Block::kPageBytes - offset % Block::kPageBytes);
    for (size_t j = 0; j < count; ++j) {
      check(stamps.written[j], writes ? "a write of bytes written" : "a read of bytes written");
      if (writes) check(stamps.read[j], "a write of bytes read");
      (writes ? stamps.written : stamps.read)[j] = mine;
      if (writes) stamps.read[j] = Stamp();
    }
    i += count;
  }
}

void Runtime::RunCopy(uint32_t operation, void* to, const void* from, size_t bytes) {
  Touch(operation, from, bytes, false);
  Touch(operation, to, bytes, true);
  std::memcpy(to, from, bytes);
  Block* target = memory_.Find(reinterpret_cast<uint64_t>(to));
  Block* source = memory_.Find(reinterpret_cast<uint64_t>(from));
  const uint8_t* undefined =
      source != nullptr ? source->undefined(reinterpret_cast<uint64_t>(from) - source->base())
                        : nullptr;
  if (target != nullptr) {
    uint8_t* place = target->undefined(reinterpret_cast<uint64_t>(to) - target->base());
    if (undefined != nullptr) {
      std::memcpy(place, undefined, bytes);
    } else {
      std::memset(place, 0, bytes);
    }
  } else if (undefined != nullptr && options_.checks_undefined &&
             std::any_of(undefined, undefined + bytes, [](uint8_t b) { return b != 0; })) {
    findings_.Add("l3_cudart: " + Name(operation), "a copy to the host of what nobody has written",
                  "");
  }
}

void Runtime::Copy(void* to, const void* from, size_t bytes,
                   const std::shared_ptr<Stream>& stream) {
  if (bytes == 0) return;
  const bool to_device = IsDevice(to), from_device = IsDevice(from);
  Allocation* pinned_from = FindAllocation(&pinned_, from);
  Allocation* pinned_to = FindAllocation(&pinned_, to);
  const uint32_t operation =
      Begin(std::string("a copy of ") + std::to_string(bytes) + " bytes", stream);
  for (Allocation* used :
       {pinned_from, pinned_to, FindAllocation(&device_, to), FindAllocation(&device_, from)}) {
    if (used != nullptr) used->uses.push_back(operation);
  }
  if (!from_device && pinned_from == nullptr) {
    // Memory that is not pinned is read before the call returns.
    auto copied = std::make_shared<std::vector<uint8_t>>(static_cast<const uint8_t*>(from),
                                                         static_cast<const uint8_t*>(from) + bytes);
    Queue(stream, [=] { RunCopy(operation, to, copied->data(), bytes); });
  } else {
    const bool watches = !from_device && stream->pace != Pace::kAtOnce;
    const uint64_t digest = watches ? Digest(from, bytes) : 0;
    // What is there before the copy has run means nothing.
    if (pinned_to != nullptr && stream->pace != Pace::kAtOnce) std::memset(to, 0xCD, bytes);
    Queue(stream, [=] {
      for (const void* place : {static_cast<const void*>(to), from}) {
        const bool was_device = place == to ? to_device : from_device;
        const bool was_pinned = place == to ? pinned_to != nullptr : pinned_from != nullptr;
        const bool is_there = (!was_device || IsDevice(place)) &&
                              (!was_pinned || FindAllocation(&pinned_, place) != nullptr);
        if (is_there) continue;
        findings_.Add("l3_cudart: " + Name(operation), "a copy of memory that was released", "");
        return;
      }
      if (watches && Digest(from, bytes) != digest) {
        findings_.Add("l3_cudart: " + Name(operation),
                      "the host changed pinned memory while a copy from it was queued", "");
      }
      RunCopy(operation, to, from, bytes);
    });
  }
  // A copy to memory that is not pinned has run when the call returns.
  if (!to_device && pinned_to == nullptr) WaitFor(stream, stream->queued(), stream->clock);
}

void Runtime::Fill(void* to, int value, size_t bytes, const std::shared_ptr<Stream>& stream) {
  if (bytes == 0) return;
  const uint32_t operation = Begin("a fill of " + std::to_string(bytes) + " bytes", stream);
  Allocation* used = FindAllocation(&device_, to);
  if (used != nullptr) used->uses.push_back(operation);
  Queue(stream, [=] {
    if (!IsDevice(to)) {
      findings_.Add("l3_cudart: " + Name(operation), "a fill of memory that was released", "");
      return;
    }
    Touch(operation, to, bytes, true);
    std::memset(to, value, bytes);
    Block* block = memory_.Find(reinterpret_cast<uint64_t>(to));
    if (block == nullptr) return;
    std::memset(block->undefined(reinterpret_cast<uint64_t>(to) - block->base()), 0, bytes);
  });
}

// Kernels.

void* Runtime::Register(const void* fatbin_wrapper) {
  units_.push_back({fatbin_wrapper, nullptr});
  return reinterpret_cast<void*>(units_.size());  // its number, from 1
}

void Runtime::RegisterFunction(const void* unit, const void* host, const char* name) {
  functions_[host] = {reinterpret_cast<size_t>(unit), name};
}

const Module* Runtime::Load(const std::string& file, const std::string& text) {
  modules_.push_back(ParseModule(file, text));
  for (const Variable& variable : modules_.back()->variables) {
    memory_.Add(variable.storage.get(), variable.bytes, variable.is_constant, true);
  }
  return modules_.back().get();
}

const Module* Runtime::LoadOrDie(const std::string& file, const std::string& text) {
  try {
    return Load(file, text);
  } catch (const Fault& fault) {
    Die(fault.what());
  }
}

// The PTX files of L3_PTX, of which each kernel is taken that is there.
void Runtime::LoadFiles() {
  if (has_loaded_files_) return;
  has_loaded_files_ = true;
  std::istringstream files(Environment("L3_PTX"));
  std::string file;
  while (std::getline(files, file, ':')) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) Die("cannot read " + file);
    LoadOrDie(file, {std::istreambuf_iterator<char>(stream), {}});
    ++file_count_;
  }
}

// What a unit of the program was compiled to, which is there as text if nvcc was told
// --no-compress. Null: there is no such unit.
const Module* Runtime::LoadUnit(size_t number) {
  if (number == 0 || number > units_.size()) return nullptr;
  Unit& unit = units_[number - 1];
  if (unit.module != nullptr) return unit.module;
  struct Wrapper {
    uint32_t magic, version;
    const char* data;
  };
  const char* data = static_cast<const Wrapper*>(unit.fatbin)->data;
  uint64_t bytes = 0;
  std::memcpy(&bytes, data + 8, sizeof bytes);  // after magic, version and the header's size
  const std::string_view all(data, bytes + 16);
  const size_t begin = all.find(".version");
  if (begin == std::string_view::npos) Die("the program holds no PTX as text; set L3_PTX");
  const size_t end = all.find('\0', begin);
  unit.module = LoadOrDie("<unit " + std::to_string(number) + ">",
                          std::string(all.substr(begin, end - begin)));
  return unit.module;
}

const Kernel* Runtime::FindKernel(const void* host) {
  const auto function = functions_.find(host);
  if (function == functions_.end()) return nullptr;
  const auto& [unit, name] = function->second;
  Loaded& loaded = kernels_[name];
  if (loaded.kernel != nullptr) return loaded.kernel.get();
  LoadFiles();
  try {
    for (size_t i = 0; i < file_count_ && loaded.kernel == nullptr; ++i) {
      loaded.module = modules_[i].get();
      loaded.kernel = LinkKernel(*loaded.module, name);
    }
    if (loaded.kernel == nullptr) loaded.module = LoadUnit(unit);
    if (loaded.kernel == nullptr && loaded.module != nullptr) {
      loaded.kernel = LinkKernel(*loaded.module, name);
    }
  } catch (const Fault& fault) {
    Die(fault.what());
  }
  return loaded.kernel.get();
}

std::map<std::string, Runtime::Loaded>& Runtime::LoadKernels() {
  for (const auto& [host, function] : functions_) FindKernel(host);
  return kernels_;
}

uint32_t Runtime::target() {
  LoadFiles();
  const Module* module = file_count_ != 0 ? modules_[0].get() : LoadUnit(1);
  if (module == nullptr) Die("there is no PTX; set L3_PTX");
  return module->target;
}

void Runtime::QueueLaunch(const Kernel& kernel, Dim grid, Dim block, size_t shared_bytes,
                          void** arguments, const std::shared_ptr<Stream>& stream) {
  auto parameters = std::make_shared<std::vector<uint8_t>>(kernel.body.entry_bytes);
  for (size_t i = 0; i < kernel.body.parameters.size(); ++i) {
    const auto [offset, bytes] = kernel.body.parameters[i];
    std::memcpy(parameters->data() + offset, arguments[i], bytes);
  }
  std::vector<Count>* counts = nullptr;
  for (auto& entry : kernels_) {
    if (entry.second.kernel.get() == &kernel) counts = &entry.second.counts;
  }
  const uint32_t operation = Begin("a launch of " + kernel.body.name, stream);
  Queue(stream, [=, &kernel] {
    if (!fault_.empty()) return;
    Launch launch;
    launch.kernel = &kernel;
    launch.grid = grid;
    launch.block = block;
    launch.dynamic_shared_bytes = static_cast<uint32_t>(shared_bytes);
    launch.parameters = parameters->data();
    launch.operation = operation;
    try {
      machine_->Run(launch, counts);
    } catch (const Fault& fault) {
      const std::string what = fault.what();
      const bool hangs = what.find("for ever") != std::string::npos ||
                         what.find("does not end") != std::string::npos;
      const bool is_misaligned = what.find("no multiple") != std::string::npos;
      Stick(what, hangs ? kTimeout : is_misaligned ? kMisaligned : kIllegalAddress);
    }
    for (auto& [address, allocation] : device_) {
      Block* used = memory_.Find(address);
      if (used != nullptr && used->last_use() == operation) allocation.uses.push_back(operation);
    }
  });
}

bool Runtime::Finish() {
  const Lock lock(mutex);
  for (const auto& [allocations, kind] :
       {std::pair{&device_, "device memory"}, {&pinned_, "pinned memory"}}) {
    for (const auto& entry : *allocations) {
      findings_.Add("l3_cudart", std::string(kind) + " was never released",
                    std::to_string(entry.second.bytes) + " bytes");
    }
  }
  for (const std::string& line : findings_.Lines()) std::fprintf(stderr, "%s\n", line.c_str());
  if (!Environment("L3_CUDART_CALLS").empty()) {
    for (const auto& [name, count] : calls_) {
      std::fprintf(stderr, "l3_cudart: %s calls: %llu\n", name.c_str(),
                   static_cast<unsigned long long>(count));
    }
  }
  const std::string path = Environment("L3_PTX_COUNTS");
  if (!path.empty()) WriteCounts(path.c_str());
  const std::string traffic = Environment("L3_PTX_TRAFFIC");
  if (!traffic.empty()) WriteTraffic(traffic.c_str());
  std::fflush(nullptr);
  return findings_.empty();
}

void Runtime::WriteCounts(const char* path) const {
  std::ofstream out(path);
  for (const auto& entry : kernels_) {
    const Loaded& loaded = entry.second;
    if (loaded.kernel == nullptr) continue;
    out << "kernel " << loaded.kernel->body.name << "\n";
    const std::vector<Instruction>& code = loaded.kernel->body.code;
    for (size_t i = 0; i < code.size(); ++i) {
      const Instruction& in = code[i];
      const Count count = i < loaded.counts.size() ? loaded.counts[i] : Count();
      const std::vector<std::string>& files = loaded.module->source_files;
      const std::string file = in.source_file < files.size() ? files[in.source_file] : "";
      out << in.line << " " << in.operation->name << " " << count.warps << " " << count.lanes << " "
          << count.skipped << " " << in.source_line << " " << file << "\n";
    }
  }
}

void Runtime::WriteTraffic(const char* path) const {
  std::ofstream out(path);
  for (const auto& entry : kernels_) {
    const Loaded& loaded = entry.second;
    if (loaded.kernel == nullptr) continue;
    out << "kernel " << loaded.kernel->body.name << "\n";
    const std::vector<Instruction>& code = loaded.kernel->body.code;
    for (size_t i = 0; i < loaded.counts.size(); ++i) {
      const Count& count = loaded.counts[i];
      if (count.wavefronts == 0) continue;
      out << code[i].line << " " << count.wavefronts << " " << count.sectors << "\n";
    }
  }
}

}  // namespace l3::ptx
