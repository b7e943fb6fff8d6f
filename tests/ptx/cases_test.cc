// Many small batches over the PTX machine: of files that exist, and of generated ones of every
// coding, sample type and number of channels, some damaged, in every way that the GPU test knows.
//
//   l3_simulated_cases SHARD BATCHES FILE.l3...
//
// SHARD is a share of the batches, as 0/2; BATCHES is their number. Each batch is a process of its
// own. L3_PTX names the kernels' files.
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
#include "format/image_view.h"
#include "fuzz/generator.h"
#include "native/compare_engines.h"
#include "ptx/runtime.h"

namespace l3 {
namespace {

using ptx::Runtime;

constexpr uint64_t kMaxImageBytes = 12 << 10, kMaxAimedBytes = 28 << 10;
constexpr uint32_t kCutBytes = 6 << 10;  // more than the zeros behind a payload
constexpr uint64_t kMaxManyWindowsBytes = 2 << 10;
constexpr size_t kMaxFileBytes = 14 << 10;  // of those that exist
constexpr uint32_t kManyWindows = 70;  // more than a warp takes of a tile
constexpr uint32_t kWholeImages = 4;  // of the ways; few of them are that
// Ways that differ in stores.
constexpr uint32_t kAimedWays[] = {0, kWholeImages, kWholeImages, kWholeImages, 5,  6, 7,
                                   8, 15,           16,           17,           20, 20};
constexpr uint32_t kChangedOne = 32;  // one batch of so many changes once it was planned
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
        fuzz::MakePackedTile(coded, rect.width_px, rect.height_px, dice, kMaxChannels).payload);
  }
  return parts;
}

// Empty if it would be larger.
Bytes MakeFile(const fuzz::Parts& parts, fuzz::Dice* dice, uint64_t max_image_bytes) {
  if (parts.info.image_bytes() > max_image_bytes) return {};
  Bytes file = fuzz::ToFile(parts);
  if (!dice->OneIn(6)) return file;
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

// What the tiles of an aimed image are.
enum class Aim { kConstant, kStored, kPacked, kDeltas, kMatch, kRans };
constexpr Aim kAims[] = {Aim::kConstant, Aim::kStored, Aim::kPacked, Aim::kPacked,
                         Aim::kDeltas,   Aim::kDeltas, Aim::kDeltas, Aim::kMatch,
                         Aim::kMatch,    Aim::kRans,   Aim::kRans,   Aim::kRans};

void MakeAimedShape(Aim aim, bool is_cut, ImageInfo* shape, fuzz::Dice* dice) {
  shape->channels = static_cast<uint16_t>(dice->Range(1, kMaxChannels));
  shape->tile_width_log2 = static_cast<uint8_t>(dice->Range(kMinTileWidthLog2, kMaxPackedTileLog2));
  shape->tile_height_log2 =
      static_cast<uint8_t>(dice->Range(kMinTileHeightLog2, kMaxPackedTileLog2));
  if (is_cut) {  // one tile, large
    shape->tile_width_log2 = shape->tile_height_log2 = kMaxPackedTileLog2;
    shape->width_px = dice->Range(128, 256);
    if (aim == Aim::kMatch) shape->channels = 1;  // a token is a pixel
    shape->height_px = (12u << 10) / shape->width_px / shape->channels + 1;
    return;
  }
  if (aim == Aim::kStored &&
      dice->OneIn(2)) {  // rows of several parts, of which windows may need one
    shape->tile_width_log2 = static_cast<uint8_t>(kMaxPackedTileLog2 + dice->Range(1, 2));
    shape->width_px = dice->Range(2, 900);
    shape->height_px = dice->Range(1, 4);
    return;
  }
  if ((aim == Aim::kDeltas || aim == Aim::kPacked) &&
      dice->OneIn(3)) {  // rows of many chunks, mostly whole ones
    shape->tile_width_log2 = kMaxPackedTileLog2;
    shape->width_px = 16 * dice->Range(8, 16) + (dice->OneIn(3) ? dice->Below(16) : 0);
    shape->height_px = dice->Range(1, 6);
    return;
  }
  if (aim == Aim::kRans && dice->OneIn(2)) {  // lanes that are all far from both edges
    shape->tile_width_log2 = kMaxPackedTileLog2;
    shape->width_px = dice->OneIn(2) ? 16 * dice->Range(5, 16) : 2 * dice->Range(40, 128);
    if (dice->OneIn(2)) {  // and of which the first has a second row
      shape->tile_height_log2 = kMaxPackedTileLog2;
      shape->width_px = 2 * dice->Range(40, 44);
      shape->height_px = dice->Range(33, 34);
      return;
    }
  } else {  // about what lanes and stores take at once, and about a tile
    const uint32_t wide = 1u << dice->Range(0, dice->OneIn(2) ? 5 : shape->tile_width_log2);
    shape->width_px = wide < 4 ? dice->Range(1, 24) : wide - 2 + dice->Below(5);
  }
  const uint32_t most = (dice->OneIn(4) ? 1u << 12 : 1u << 10) / shape->width_px;
  const uint32_t height =
      dice->OneIn(4) ? (1u << shape->tile_height_log2) + dice->Below(3) : dice->Range(1, 20);
  shape->height_px = std::clamp(height, 1u, std::max(1u, most));
}

bool HasOneToken(const RansModel& model) {
  return std::count(model.frequency[0], std::end(model.frequency[0]), kRansScale) == 1;
}

// Of one coding, sample size and number of channels, all as likely: what kernels have a copy of its
// own for is not rare then.
fuzz::Parts MakeAimedImage(fuzz::Dice* dice) {
  fuzz::Parts parts;
  ImageInfo shape = {};
  const Aim aim = kAims[dice->Below(std::size(kAims))];
  const bool has_bytes = dice->OneIn(2);
  const bool keeps_values = dice->OneIn(2);  // so that plans may have code of their own
  // A table that lacks one value; one token alone, so that no state ever changes.
  const bool lacks_one = dice->OneIn(2);
  const bool is_still = aim == Aim::kRans && dice->OneIn(6);
  // Whose tile ends so early that reading on would come to the end of the memory.
  const bool is_cut = aim > Aim::kStored && dice->OneIn(24);
  fuzz::Coded coded;
  const auto suits = [&] {
    const bool keeps = coded.table.empty() && coded.info.shift == 0 && !coded.info.is_signed();
    return (coded.info.sample_bytes() == 1) == has_bytes && (keeps || !keeps_values) &&
           (coded.table.empty() || !lacks_one || coded.table.size() + 1 == coded.values()) &&
           (!is_still || (coded.model.table_count == 1 && HasOneToken(coded.model))) &&
           (coded.model.match_table_count != 0 || aim != Aim::kMatch);
  };
  MakeAimedShape(aim, is_cut, &shape, dice);
  do {
    parts.chunks.clear();
    coded = fuzz::MakeCoding(shape, &parts.chunks, dice);
  } while (!suits());
  parts.info = coded.info;
  for (uint32_t tile = 0; tile < parts.info.tile_count(); ++tile) {
    const TileRect rect = GetTileRect(parts.info, tile);
    const uint32_t width = rect.width_px, height = rect.height_px;
    const auto make = [&] {
      switch (aim) {
        case Aim::kConstant: return fuzz::MakeConstantTile(coded, width * height, dice);
        case Aim::kStored: return fuzz::MakeStoredTile(coded, width, height, dice);
        case Aim::kPacked: return fuzz::MakePackedTile(coded, width, height, dice);
        case Aim::kDeltas:
          return fuzz::MakePackedTile(coded, width, height, dice,
                                      shape.channels - (dice->OneIn(5) ? 1 : 0));
        case Aim::kMatch: return fuzz::MakeMatchTile(coded, width, height, dice);
        default: return fuzz::MakeRansTile(coded, width, height, dice);
      }
    };
    parts.payloads.push_back(make().payload);
  }
  if (is_cut) {
    Bytes& payload = parts.payloads[0];
    const uint32_t size = static_cast<uint32_t>(payload.size());
    // Of small ones the first fields stay: residuals of zeros may take as much.
    const uint32_t most = std::max(size - std::min(size, kCutBytes), std::min(size, 256u));
    payload.resize(kPayloadAlignment * dice->Range(1, most / kPayloadAlignment));
  } else if (dice->OneIn(4)) {  // one has another number in its first fields, or ends elsewhere
    Bytes& payload = parts.payloads[dice->Below(static_cast<uint32_t>(parts.payloads.size()))];
    const uint32_t units = static_cast<uint32_t>(payload.size() / kPayloadAlignment);
    constexpr uint8_t kState[] = {0, 0, 1, 0};  // the least that may be
    const auto state =
        std::search(payload.begin(), payload.end(), std::begin(kState), std::end(kState));
    const uint32_t channel = dice->Below(shape.channels);
    const uint32_t parts_begin = kTileHeaderBytes + kChannelHeaderBytes * shape.channels;
    if (dice->OneIn(4)) {
      payload[5] ^= 1;  // the transform
    } else if (dice->OneIn(4)) {
      payload.back() ^= 1;
    } else if (aim == Aim::kStored && dice->OneIn(2)) {
      payload[4] = static_cast<uint8_t>(dice->Below(5));  // the coding
    } else if (aim == Aim::kPacked && dice->OneIn(2)) {  // a channel's first width
      payload[kTileHeaderBytes + kChannelHeaderBytes * channel + 1] =
          static_cast<uint8_t>(dice->Range(1, 4));
    } else if (aim == Aim::kDeltas && payload.size() > parts_begin && dice->OneIn(2)) {
      payload[parts_begin] = static_cast<uint8_t>(dice->Byte());  // two predictors
    } else if (is_still && state != payload.end() && dice->OneIn(2)) {
      state[0] = state[1] = 0xFF;
      state[2] = 0;
    } else if (dice->OneIn(2) && units > 1) {
      payload[4 + dice->Below(2 * kPayloadAlignment - 4)] = static_cast<uint8_t>(dice->Below(20));
    } else {
      const bool short_one = dice->OneIn(2);
      const uint32_t left = short_one ? dice->Range(1, std::min(units, 3u))
                                      : dice->Range(std::max(units / 2, 1u), units + 1);
      payload.resize(kPayloadAlignment * left,
                     static_cast<uint8_t>(dice->OneIn(2) ? 0 : dice->Byte()));
    }
  }
  return parts;
}

// Some tiles become ones that the other kind of kernel decodes, once the batch has been planned:
// they are corrupt.
void ChangeKinds(BatchCase* batch) {
  fuzz::Dice dice(batch->seed);
  for (Bytes& file : batch->files) {
    fuzz::Repair(file.data(), file.size());
    Bytes changed = file, judged_as = file;
    ImageView view;
    const Status status = ParseImage(file.data(), file.size(), &view);
    for (uint32_t tile = 0; status == Status::kOk && tile < view.info.tile_count(); ++tile) {
      uint64_t begin;
      uint32_t bytes;
      if (!view.FindPayload(tile, &begin, &bytes) || dice.OneIn(4)) continue;
      const size_t coding = static_cast<size_t>(view.payloads - file.data() + begin) + 4;
      const auto other = HasModel(file[coding]) ? dice.Below(3) : dice.Range(3, 4);
      changed[coding] = judged_as[coding] = static_cast<uint8_t>(other);
      judged_as[coding + 2] = 1;  // which must be 0
    }
    fuzz::Repair(changed.data(), changed.size());
    fuzz::Repair(judged_as.data(), judged_as.size());
    batch->changed.push_back(std::move(changed));
    batch->judged_as.push_back(std::move(judged_as));
  }
}

BatchCase MakeCase(uint32_t number, const std::vector<Bytes>& existing) {
  fuzz::Dice dice(number);
  BatchCase batch;
  batch.way = number;
  batch.seed = number;
  const bool has_many_windows = dice.OneIn(40);
  if (!existing.empty() && number % 4 == 0) {
    batch.files.push_back(existing[number / 4 % existing.size()]);
    batch.way = number / 4 / static_cast<uint32_t>(existing.size()) * 7 + number / 4;
    return batch;
  }
  if (has_many_windows) batch.windows = kManyWindows;
  const bool is_aimed = number % 4 != 1;
  if (is_aimed) {
    batch.way = kAimedWays[dice.Below(std::size(kAimedWays))];
  } else if (dice.OneIn(4)) {
    batch.way = kWholeImages;
  }
  for (uint32_t n = dice.OneIn(4) ? dice.Range(2, 3) : 1; n > 0; --n) {
    const fuzz::Parts parts = is_aimed        ? MakeAimedImage(&dice)
                              : dice.OneIn(3) ? MakeUsualImage(&dice)
                                              : fuzz::MakeImage(&dice).parts;
    Bytes file = MakeFile(parts, &dice,
                          batch.windows != 0 ? kMaxManyWindowsBytes
                          : is_aimed         ? kMaxAimedBytes
                                             : kMaxImageBytes);
    if (!file.empty()) batch.files.push_back(std::move(file));
  }
  if (number % kChangedOne == kChangedOne - 1) ChangeKinds(&batch);  // aimed ones
  return batch;
}

// A value that processes share.
template <class Value>
class Shared {
 public:
  Shared() {
    void* memory =
        mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map memory");
    value_ = static_cast<Value*>(memory);
  }
  ~Shared() { munmap(value_, sizeof(Value)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Value* get() const { return value_; }

 private:
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

// Runs a batch in a process of its own.
Outcome RunCase(const BatchCase& batch) {
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
      for (const ptx::Count& count : loaded.counts) outcome.instructions += count.warps;
    }
    if (!Runtime::Get().Finish()) what = Runtime::Get().findings().Lines()[0];
    say(what);
  });
  Outcome outcome = *shared.get();
  if (status != 0 && outcome.what[0] == '\0') std::strcpy(outcome.what, "ends");
  return outcome;
}

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

// Runs a share of the batches. Prints those that fail, and throws if there are any.
void RunBatches(const Shard& shard, uint32_t count, const std::vector<Bytes>& existing) {
  for (auto& [kernel, loaded] : Runtime::Get().LoadKernels()) {
    loaded.counts.resize(loaded.kernel->body.code.size());
  }
  uint32_t failures = 0, batches = 0;
  uint64_t instructions = 0;
  for (uint32_t number = shard.first; number < count; number += shard.step) {
    const BatchCase batch = MakeCase(number, existing);
    if (batch.files.empty()) continue;
    const Outcome outcome = RunCase(batch);
    if (outcome.what[0] != '\0') {
      std::printf("batch %u: %s\n", number, outcome.what);
      ++failures;
    }
    batches += outcome.instructions != 0 ? 1 : 0;
    instructions += outcome.instructions;
  }
  if (failures != 0) throw std::runtime_error(std::to_string(failures) + " batches failed");
  std::printf("%u batches, %llu million instructions of warps\n", batches,
              static_cast<unsigned long long>(instructions / 1000000));
}

int RunProgram(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) throw std::runtime_error("SHARD BATCHES FILE.l3...");
  std::vector<Bytes> existing;
  for (size_t i = 2; i < arguments.size(); ++i) {
    Bytes file = ReadFile(arguments[i]);
    if (file.size() <= kMaxFileBytes) existing.push_back(std::move(file));
  }
  RunBatches(Shard(arguments[0]), static_cast<uint32_t>(std::stoul(arguments[1])), existing);
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
