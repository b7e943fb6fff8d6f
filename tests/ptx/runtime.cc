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

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "l3_cudart: %s\n", what.c_str());
  std::exit(5);
}

}  // namespace

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
  machine_ = std::make_unique<Machine>(options_, &memory_, &findings_);
  std::atexit([] {
    if (!Runtime::Get().Finish()) std::_Exit(4);
  });
}

// Memory.

void* Runtime::Allocate(size_t bytes, bool of_device) {
  if (of_device && bytes > kDeviceBytes - device_bytes_) return nullptr;
  const size_t room = (bytes + 2 * kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* storage = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, room));
  if (storage == nullptr) return nullptr;
  std::memset(storage, 0xCD, room);
  uint8_t* data = storage + kGuardBytes;
  allocations_[of_device].emplace(reinterpret_cast<uint64_t>(data),
                                  Allocation{{storage, std::free}, data, bytes});
  if (of_device) {
    device_bytes_ += bytes;
    memory_.Add(data, bytes);
  }
  return data;
}

bool Runtime::Release(void* memory, bool of_device) {
  const auto found = allocations_[of_device].find(reinterpret_cast<uint64_t>(memory));
  if (found == allocations_[of_device].end()) return false;
  if (of_device) {
    device_bytes_ -= found->second.bytes;
    memory_.Remove(found->first);
  }
  allocations_[of_device].erase(found);
  return true;
}

const Runtime::Allocation* Runtime::Find(const void* place, bool of_device) const {
  const Allocations& allocations = allocations_[of_device];
  const auto address = reinterpret_cast<uint64_t>(place);
  const auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return nullptr;
  const Allocation& allocation = std::prev(next)->second;
  // One past the end too, so that a range that passes it is known.
  return address - std::prev(next)->first <= allocation.bytes ? &allocation : nullptr;
}

bool Runtime::IsRange(const void* place, size_t bytes) const {
  for (const bool of_device : {false, true}) {
    const Allocation* allocation = Find(place, of_device);
    if (allocation == nullptr) continue;
    const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(place) - allocation->data);
    return bytes <= allocation->bytes - offset;
  }
  return true;
}

std::pair<uint64_t, uint64_t> Runtime::device_bytes() const {
  return {kDeviceBytes - device_bytes_, kDeviceBytes};
}

// Streams.

bool Runtime::HasHandle(void* handle) const {
  return std::any_of(handles_.begin(), handles_.end(),
                     [handle](const auto& one) { return one.get() == handle; });
}

bool Runtime::DestroyHandle(void* handle) {
  const auto found = std::find_if(handles_.begin(), handles_.end(),
                                  [handle](const auto& one) { return one.get() == handle; });
  if (found == handles_.end()) return false;
  handles_.erase(found);
  return true;
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
  try {
    modules_.push_back(ParseModule(file, text));
  } catch (const Fault& fault) {
    Die(fault.what());
  }
  return modules_.back().get();
}

// The PTX files of L3_PTX, whose kernels come before the program's own.
void Runtime::LoadFiles() {
  if (has_loaded_files_) return;
  has_loaded_files_ = true;
  std::istringstream files(Environment("L3_PTX"));
  std::string file;
  while (std::getline(files, file, ':')) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) Die("cannot read " + file);
    Load(file, {std::istreambuf_iterator<char>(stream), {}});
    ++file_count_;
  }
}

// What a unit of the program was compiled to, which is there as text if nvcc ran with
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
  unit.module =
      Load("<unit " + std::to_string(number) + ">", std::string(all.substr(begin, end - begin)));
  return unit.module;
}

const Kernel* Runtime::FindKernel(const void* host) {
  const auto function = functions_.find(host);
  if (function == functions_.end()) return nullptr;
  const auto& [unit, name] = function->second;
  std::unique_ptr<Kernel>& kernel = kernels_[name];
  if (kernel != nullptr) return kernel.get();
  LoadFiles();
  try {
    for (size_t i = 0; i < file_count_ && kernel == nullptr; ++i) {
      kernel = LinkKernel(*modules_[i], name);
    }
    if (kernel != nullptr) return kernel.get();
    const Module* module = LoadUnit(unit);
    if (module != nullptr) kernel = LinkKernel(*module, name);
  } catch (const Fault& fault) {
    Die(fault.what());
  }
  return kernel.get();
}

void Runtime::RunLaunch(Launch launch, void** arguments) {
  const Function& body = launch.kernel->body;
  std::vector<uint8_t> parameters(body.entry_bytes);
  for (size_t i = 0; i < body.parameters.size(); ++i) {
    const auto [offset, bytes] = body.parameters[i];
    std::memcpy(parameters.data() + offset, arguments[i], bytes);
  }
  if (++launches_ > Stamp::kMaxLaunch) Die("more launches than stamps can tell apart");
  launch.parameters = parameters.data();
  launch.number = launches_;
  try {
    machine_->Run(launch);
  } catch (const Fault& fault) {
    fault_ = fault.what();
    findings_.Add("l3_cudart", fault_, "");
  }
}

bool Runtime::Finish() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  for (const bool of_device : {false, true}) {
    for (const auto& entry : allocations_[of_device]) {
      findings_.Add(
          "l3_cudart",
          of_device ? "device memory was never released" : "pinned memory was never released",
          std::to_string(entry.second.bytes) + " bytes");
    }
  }
  for (const std::string& line : findings_.Lines()) std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(nullptr);
  return findings_.empty();
}

}  // namespace l3::ptx
