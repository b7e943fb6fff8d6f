// Many small batches over the PTX machine: of files that exist, and of generated ones of every
// coding, sample type and number of channels, some damaged, in every way that the GPU test knows.
//
//   l3_simulated_cases cover OUT NUMBER FILE.l3...      runs NUMBER batches; OUT is what they
//   executed l3_simulated_cases try LIST SHARD NUMBER FILE.l3...  runs them with each changed
//   kernel of LIST
//
// LIST has a line for each: kernel, line of its PTX, the text in that line's place, parted by tabs.
// SHARD as 0/2. A batch is a process, so that a changed kernel spoils nothing but its own.
// L3_PTX names the kernels' files.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/engine/cuda_device.h"
#include "fuzz/generator.h"
#include "native/compare_engines.h"
#include "ptx/runtime.h"

namespace l3 {
namespace {

using ptx::Runtime;

constexpr uint64_t kMaxImageBytes = 12 << 10, kMaxManyWindowsBytes = 2 << 10;
constexpr size_t kMaxFileBytes = 14 << 10;  // of those that exist
constexpr uint32_t kManyWindows = 70;  // more than a warp takes of a tile
constexpr uint32_t kWholeImages = 4;  // of the ways; few of them are that
// How many batches try a changed kernel: the shortest, then some of the others.
constexpr size_t kShortest = 24, kOthers = 24;
constexpr rlim_t kCpuSeconds = 60;

using Bytes = std::vector<uint8_t>;

Bytes ReadFile(const std::string& name) {
  std::ifstream stream(name, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + name);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Of packed tiles whose channels are all coded by deltas, which kernels have loops of their own
// for.
fuzz::Parts MakeUsualImage(fuzz::Dice* dice) {
  fuzz::Parts parts;
  do {
    fuzz::MakeShape(&parts.info, dice);
  } while (parts.info.channels > kMaxChannels || parts.info.has_large_tiles());
  const fuzz::Coded coded = fuzz::MakeCoding(parts.info, &parts.chunks, dice);
  parts.info = coded.info;
  for (uint32_t tile = 0; tile < parts.info.tile_count(); ++tile) {
    const TileRect rect = GetTileRect(parts.info, tile);
    parts.payloads.push_back(
        fuzz::MakePackedTile(coded, rect.width_px, rect.height_px, dice, true).payload);
  }
  return parts;
}

// Empty if it would be larger.
Bytes MakeFile(fuzz::Dice* dice, uint64_t max_image_bytes) {
  const fuzz::Parts parts = dice->OneIn(3) ? MakeUsualImage(dice) : fuzz::MakeImage(dice).parts;
  if (parts.info.image_bytes() > max_image_bytes) return {};
  Bytes file = fuzz::ToFile(parts);
  if (!dice->OneIn(3)) return file;
  for (uint32_t n = dice->Range(1, 3); n > 0; --n) {
    // Mostly in payloads, and there mostly where they begin.
    const uint32_t size = static_cast<uint32_t>(file.size());
    const uint32_t begin = dice->OneIn(2) ? size - std::min(size, 64u) : 0;
    file[begin + dice->Below(size - begin)] = static_cast<uint8_t>(dice->Byte());
  }
  // Checks that fail hide what else does.
  if (!dice->OneIn(4)) fuzz::Repair(file.data(), file.size());
  return file;
}

BatchCase MakeCase(uint32_t number, const std::vector<Bytes>& existing) {
  fuzz::Dice dice(number);
  BatchCase batch;
  batch.way = number;
  batch.seed = number;
  const bool has_many_windows = dice.OneIn(40);
  if (!existing.empty() && number % 3 == 0) {
    batch.files.push_back(existing[number / 3 % existing.size()]);
    batch.way = number / 3 / static_cast<uint32_t>(existing.size()) * 7 + number / 3;
    return batch;
  }
  if (has_many_windows) batch.windows = kManyWindows;
  if (dice.OneIn(4)) batch.way = kWholeImages;
  for (uint32_t n = dice.OneIn(4) ? dice.Range(2, 3) : 1; n > 0; --n) {
    Bytes file = MakeFile(&dice, batch.windows == 0 ? kMaxImageBytes : kMaxManyWindowsBytes);
    if (!file.empty()) batch.files.push_back(std::move(file));
  }
  return batch;
}

// What became of an instruction, in a byte.
constexpr uint8_t kRan = 1, kSkipped = 2;

// Memory that processes share.
template <class Value>
class Shared {
 public:
  explicit Shared(size_t count = 1) : bytes_(count * sizeof(Value)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map memory");
    value_ = static_cast<Value*>(memory);
  }
  ~Shared() { munmap(value_, bytes_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Value* get() const { return value_; }
  Value* operator->() const { return value_; }

 private:
  const size_t bytes_;
  Value* value_;
};

// Runs it in a process of its own, and returns that one's status.
template <class Body>
int InProcess(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    const rlimit limit = {kCpuSeconds, kCpuSeconds};
    setrlimit(RLIMIT_CPU, &limit);
    if (std::freopen("/dev/null", "w", stdout) == nullptr ||
        std::freopen("/dev/null", "w", stderr) == nullptr) {
      _exit(2);
    }
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

struct Outcome {
  char what[500];  // is wrong; empty: nothing
  uint64_t instructions;  // of warps
};

// Runs a batch in a process of its own. `seen`, if not null, gets a byte for each instruction of
// each kernel.
Outcome RunCase(const BatchCase& batch, uint8_t* seen) {
  const Shared<Outcome> shared;
  const int status = InProcess([&] {
    Outcome& outcome = *shared.get();
    const auto say = [&](const std::string& what) {
      std::snprintf(outcome.what, sizeof outcome.what, "%s", what.c_str());
    };
    say("ends");
    std::string what;
    try {
      const size_t differences =
          CountDifferences(batch, [] { return MakeCudaDevice(0, MakeDefaultCudaAllocator()); });
      if (differences != 0) what = "pixels or Status";
    } catch (const std::exception& error) {
      what = error.what();
    }
    for (const auto& [name, loaded] : Runtime::Get().LoadKernels()) {
      for (const ptx::Count& count : loaded.counts) {
        outcome.instructions += count.warps;
        if (seen == nullptr) continue;
        *seen++ = static_cast<uint8_t>((count.lanes != 0 ? kRan : 0) |
                                       (count.skipped != 0 ? kSkipped : 0));
      }
    }
    if (!Runtime::Get().Finish()) what = Runtime::Get().findings().Lines()[0];
    say(what);
  });
  Outcome outcome = *shared.get();
  if (status != 0 && outcome.what[0] == '\0') std::strcpy(outcome.what, "ends");
  return outcome;
}

// A batch that executed something.
struct Run {
  uint32_t number;
  uint64_t instructions;  // of warps
  std::vector<bool> reached;  // each instruction of each kernel
};

// A share of what there is.
struct Shard {
  uint32_t first = 0, step = 0;

  explicit Shard(const std::string& text) {
    char slash = 0;
    if (!(std::istringstream(text) >> first >> slash >> step) || step == 0) {
      throw std::runtime_error("SHARD is as 0/2");
    }
  }
};

void Write(std::ostream* out, const Run& run) {
  Bytes bits(CeilDiv(run.reached.size(), 8));
  for (size_t i = 0; i < run.reached.size(); ++i) {
    bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | (run.reached[i] ? 1 : 0) << i % 8);
  }
  const uint64_t head[] = {run.number, run.instructions};
  out->write(reinterpret_cast<const char*>(head), sizeof head);
  out->write(reinterpret_cast<const char*>(bits.data()), static_cast<std::streamsize>(bits.size()));
}

// Those of some files, the shortest first.
std::vector<Run> ReadRuns(const std::string& names) {
  size_t instructions = 0;  // of all kernels
  for (const auto& [name, loaded] : Runtime::Get().LoadKernels()) {
    instructions += loaded.kernel->body.code.size();
  }
  std::vector<Run> runs;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ':');) {
    std::ifstream in(name, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + name);
    uint64_t head[2];
    Bytes bits(CeilDiv(instructions, 8));
    while (
        in.read(reinterpret_cast<char*>(head), sizeof head) &&
        in.read(reinterpret_cast<char*>(bits.data()), static_cast<std::streamsize>(bits.size()))) {
      Run run = {static_cast<uint32_t>(head[0]), head[1], std::vector<bool>(instructions)};
      for (size_t i = 0; i < instructions; ++i) run.reached[i] = (bits[i / 8] >> i % 8 & 1) != 0;
      runs.push_back(std::move(run));
    }
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return a.instructions < b.instructions; });
  return runs;
}

// Runs a share of the batches with the kernels as they are, and writes what they executed. Says
// which do not end well, and throws if there are any.
void Cover(const std::string& name, const Shard& shard, uint32_t count,
           const std::vector<Bytes>& existing) {
  std::vector<ptx::Count> counts;
  for (auto& [kernel, loaded] : Runtime::Get().LoadKernels()) {
    loaded.counts.resize(loaded.kernel->body.code.size());
    counts.resize(counts.size() + loaded.counts.size());
  }
  const Shared<uint8_t> seen(counts.size());
  std::ofstream out(name + ".runs", std::ios::binary);
  uint32_t failures = 0, batches = 0;
  uint64_t instructions = 0;
  for (uint32_t number = shard.first; number < count; number += shard.step) {
    const BatchCase batch = MakeCase(number, existing);
    if (batch.files.empty()) continue;
    std::fill_n(seen.get(), counts.size(), uint8_t{0});
    const Outcome outcome = RunCase(batch, seen.get());
    if (outcome.what[0] != '\0') {
      std::printf("batch %u: %s\n", number, outcome.what);
      ++failures;
    }
    if (outcome.instructions == 0) continue;
    ++batches;
    instructions += outcome.instructions;
    Run run = {number, outcome.instructions, std::vector<bool>(counts.size())};
    for (size_t i = 0; i < counts.size(); ++i) {
      const uint8_t one = seen.get()[i];
      run.reached[i] = one != 0;
      counts[i].warps += one != 0 ? 1 : 0;
      counts[i].lanes += (one & kRan) != 0 ? 1 : 0;
      counts[i].skipped += (one & kSkipped) != 0 ? 1 : 0;
    }
    Write(&out, run);
  }
  auto next = counts.begin();
  for (auto& [kernel, loaded] : Runtime::Get().LoadKernels()) {
    for (ptx::Count& one : loaded.counts) one = *next++;
  }
  Runtime::Get().WriteCounts(name.c_str());
  if (!out.flush()) throw std::runtime_error("cannot write " + name);
  if (failures != 0) throw std::runtime_error(std::to_string(failures) + " batches ended badly");
  std::printf("%u batches, %llu million instructions of warps\n", batches,
              static_cast<unsigned long long>(instructions / 1000000));
}

struct Change {
  std::string kernel, text;
  uint32_t line = 0;
};

std::vector<Change> ReadList(const std::string& name) {
  std::ifstream stream(name);
  if (!stream) throw std::runtime_error("cannot read " + name);
  std::vector<Change> changes;
  for (std::string row; std::getline(stream, row);) {
    Change change;
    std::string line;
    std::istringstream fields(row);
    std::getline(std::getline(fields, change.kernel, '\t'), line, '\t');
    std::getline(fields, change.text);
    change.line = static_cast<uint32_t>(std::stoul(line));
    changes.push_back(std::move(change));
  }
  return changes;
}

// The files of L3_PTX by lines.
std::vector<std::vector<std::string>> ReadPtx() {
  const char* const names = std::getenv("L3_PTX");
  std::istringstream list(names != nullptr ? names : "");
  std::vector<std::vector<std::string>> files;
  for (std::string name; std::getline(list, name, ':');) {
    std::ifstream stream(name);
    files.emplace_back();
    for (std::string line; std::getline(stream, line);) files.back().push_back(line);
  }
  return files;
}

// Of a changed kernel.
struct Trial {
  int32_t batch;  // that ended badly; kSurvives: none; kNoPtx: it is no PTX
  Outcome outcome;
};
constexpr int32_t kSurvives = -1, kNoPtx = -2;

// Runs batches with a changed kernel until one ends badly.
Trial TryChange(const Change& change, const std::vector<std::vector<std::string>>& files,
                const std::vector<Run>& runs, const std::vector<Bytes>& existing) {
  size_t place = 0;
  bool is_known = false;
  for (const auto& [name, loaded] : Runtime::Get().LoadKernels()) {
    for (const ptx::Instruction& in : loaded.kernel->body.code) {
      is_known = is_known || (name == change.kernel && in.line == change.line);
      place += is_known ? 0 : 1;
    }
  }
  if (!is_known) throw std::runtime_error(change.kernel + " has no instruction in such a line");
  std::vector<const Run*> chosen;  // runs are in order of length
  for (const Run& run : runs) {
    if (run.reached[place]) chosen.push_back(&run);
  }
  if (chosen.size() > kShortest + kOthers) {
    const size_t rest = chosen.size() - kShortest;
    for (size_t i = 0; i < kOthers; ++i) {
      chosen[kShortest + i] = chosen[kShortest + i * rest / kOthers];
    }
    chosen.resize(kShortest + kOthers);
  }
  const Shared<Trial> trial;
  trial->batch = kNoPtx;
  InProcess([&] {
    for (const auto& file : files) {
      std::string text;
      for (size_t i = 0; i < file.size(); ++i) {
        text += (i + 1 == change.line ? change.text : file[i]) + "\n";
      }
      if (text.find(".entry " + change.kernel + "(") == std::string::npos) continue;
      Runtime::Get().ReplaceKernel(change.kernel, text);  // ends here if it is none
    }
    trial->batch = kSurvives;
    for (const Run* run : chosen) {
      trial->outcome = RunCase(MakeCase(run->number, existing), nullptr);
      if (trial->outcome.what[0] == '\0') continue;
      trial->batch = static_cast<int32_t>(run->number);
      break;
    }
  });
  return *trial.get();
}

void Try(const std::string& list, const Shard& shard, const std::string& names,
         const std::vector<Bytes>& existing) {
  const std::vector<Change> changes = ReadList(list);
  const auto files = ReadPtx();
  const std::vector<Run> runs = ReadRuns(names);
  for (size_t i = shard.first; i < changes.size(); i += shard.step) {
    const Trial trial = TryChange(changes[i], files, runs, existing);
    std::printf("%zu\t%d\t%s\n", i, trial.batch, trial.outcome.what);
    std::fflush(stdout);
  }
}

int RunProgram(const std::vector<std::string>& arguments) {
  const std::string what = arguments.size() > 4 ? arguments[0] : "";
  if (what != "cover" && what != "try") {
    throw std::runtime_error("cover OUT SHARD NUMBER FILE.l3... or try LIST SHARD RUNS FILE.l3...");
  }
  std::vector<Bytes> existing;
  for (size_t i = 4; i < arguments.size(); ++i) {
    Bytes file = ReadFile(arguments[i]);
    if (file.size() <= kMaxFileBytes) existing.push_back(std::move(file));
  }
  const Shard shard(arguments[2]);
  if (what == "try") {
    Try(arguments[1], shard, arguments[3], existing);
  } else {
    Cover(arguments[1], shard, static_cast<uint32_t>(std::stoul(arguments[3])), existing);
  }
  return 0;
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  try {
    return l3::RunProgram({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
