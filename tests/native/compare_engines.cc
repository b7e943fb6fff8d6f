#include "compare_engines.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpu/border.h"
#include "cpu/cpu_decoder.h"
#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/encoded_cache.h"
#include "format/channel_groups.h"
#include "format/image_view.h"
#include "output/output_plan.h"
#include "windowed_image.h"

namespace l3 {
namespace {

constexpr uint8_t kUntouched = 0xA5;
// Between outputs: odd, so that they have all alignments; seen if written to.
constexpr size_t kGapBytes = 7;
constexpr size_t kGroupBytes = 16;  // as kernels store them
// Small, so that a batch of small files has several parts, and copies from where the files are.
constexpr UploadPolicy kSmallParts = {16 << 10, 1 << 10};
// Of samples of jpeg tiles: units of some tiles.
constexpr uint64_t kSmallScratchBytes = 4 << 10;
constexpr uint64_t kCacheBytes = 64 << 20;

enum class Store {
  kWhole,     // the image as stored, which takes no plan
  kWindow,    // as stored too, with a border
  kTraining,  // mirrored or not, CHW, normalized float16
  kAligned,   // the same without borders, groups of eight values at multiples of 16 bytes, or 8
  kAny,       // every operation, type and layout, by chance
};

enum class Source { kHost, kHostInParts, kPinnedInParts, kHostToCache, kCache };

// A way to decode a batch.
struct Way {
  const char* name;
  bool without_rans;  // files with rans tiles stay out, so that kernels without them run
  Store store;
  bool has_large_blocks;  // of rans and jpeg tiles, by several warps; and little scratch memory
  Source source;
  uint32_t windows = 1;  // of each file
  bool in_teams = false;  // only files that teams decode

  UploadPolicy upload() const {
    const bool in_parts = source == Source::kHostInParts || source == Source::kPinnedInParts;
    return in_parts ? kSmallParts : BatchDecoder::kUsualUpload;
  }
  bool has_version_2() const { return !without_rans && !in_teams; }
  // With samples of 32 bits all images of a batch are stored by plans.
  bool has_32_bits() const {
    return has_version_2() && (store != Store::kWhole || !has_large_blocks);
  }
};
constexpr Way kWays[] = {
    {"no rans, whole", true, Store::kWhole, false, Source::kHost},
    {"no rans, windows", true, Store::kWindow, false, Source::kHost},
    {"no rans, for training", true, Store::kTraining, false, Source::kHost},
    {"no rans, any plan", true, Store::kAny, false, Source::kHost},
    {"all, whole", false, Store::kWhole, true, Source::kHost},
    {"all, windows", false, Store::kWindow, true, Source::kHost},
    {"all, for training", false, Store::kTraining, true, Source::kHost},
    {"all, any plan", false, Store::kAny, true, Source::kHost},
    {"all, any plan, in parts", false, Store::kAny, false, Source::kHostInParts},
    {"all, whole, in parts, pinned", false, Store::kWhole, false, Source::kPinnedInParts},
    {"all, whole, to the cache", false, Store::kWhole, false, Source::kHostToCache},
    {"all, whole, from the cache", false, Store::kWhole, false, Source::kCache},
    {"all, any plan, from the cache", false, Store::kAny, false, Source::kCache},
    {"no rans, several windows", true, Store::kWindow, false, Source::kHost, 3},
    {"no rans, several for training", true, Store::kTraining, false, Source::kHost, 3},
    {"all, several windows", false, Store::kWindow, true, Source::kHost, 3},
    {"all, several for training", false, Store::kTraining, true, Source::kHost, 3},
    {"all, several plans", false, Store::kAny, true, Source::kHost, 4},
    {"all, several plans, in parts", false, Store::kAny, false, Source::kHostInParts, 4},
    {"all, several plans, from the cache", false, Store::kAny, false, Source::kCache, 4},
    {"all, two aligned for training", false, Store::kAligned, false, Source::kHost, 2},
    {"in teams, whole", true, Store::kWhole, false, Source::kHost, 1, true},
    {"in teams, several for training", true, Store::kTraining, false, Source::kHost, 3, true},
};

using LaunchCounts = std::map<std::string, int>;  // by kernel
constexpr char kJpegKernels[] = "jpeg, both";

std::string KernelName(TileKind kind, uint32_t sample_bytes, StoreKind store, bool in_teams) {
  return std::string(kind == TileKind::kModel ? "rans" : "packed") +
         (sample_bytes == 1 ? " 8" : " 16") + (store == StoreKind::kPlans ? ", plans" : "") +
         (in_teams ? ", in teams" : "");
}

LaunchCounts NoLaunches() {
  LaunchCounts counts;
  for (const TileKind kind : {TileKind::kModel, TileKind::kSimple}) {
    for (const uint32_t sample_bytes : {1, 2}) {
      for (const StoreKind store : {StoreKind::kStored, StoreKind::kPlans}) {
        counts[KernelName(kind, sample_bytes, store, false)] = 0;
      }
    }
  }
  for (const StoreKind store : {StoreKind::kStored, StoreKind::kPlans}) {
    counts[KernelName(TileKind::kSimple, 1, store, true)] = 0;
  }
  counts[kJpegKernels] = 0;
  return counts;
}

// A GPU that counts launches and may say of itself what makes the engine use large blocks.
class LimitedDevice : public GpuDevice {
 public:
  LimitedDevice(std::unique_ptr<GpuDevice> device, bool has_large_blocks, LaunchCounts* launches)
      : device_(std::move(device)), has_large_blocks_(has_large_blocks), launches_(launches) {}

  GpuLimits limits() const override {
    GpuLimits limits = device_->limits();
    if (!has_large_blocks_) return limits;
    // One block at a time, so that it is worth several warps. And no teams.
    limits.multiprocessors = 1;
    limits.shared_bytes = 0;
    std::fill(std::begin(limits.team_tiles), std::end(limits.team_tiles), 0);
    limits.jpeg_scratch_bytes = kSmallScratchBytes;
    return limits;
  }
  void Launch(const TileBatch& batch, CUstream_st* stream) override {
    ++(*launches_)[KernelName(batch.kind, batch.sample_bytes, batch.store(), batch.in_teams != 0)];
    device_->Launch(batch, stream);
  }
  void LaunchJpeg(const JpegBatch& batch, CUstream_st* stream) override {
    ++(*launches_)[kJpegKernels];
    device_->LaunchJpeg(batch, stream);
  }
  void LaunchJoins(const JoinTask* tasks, size_t count, CUstream_st* stream) override {
    device_->LaunchJoins(tasks, count, stream);
  }

  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    return device_->AllocatePinned(bytes);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    return device_->AllocateDevice(bytes);
  }
  std::shared_ptr<CUstream_st> MakeStream() override { return device_->MakeStream(); }
  std::unique_ptr<GpuEvent> MakeEvent() override { return device_->MakeEvent(); }
  void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    device_->Copy(to, from, bytes, stream);
  }

 private:
  const std::unique_ptr<GpuDevice> device_;
  const bool has_large_blocks_;
  LaunchCounts* const launches_;
};

// What becomes of an image, and where it lies among the outputs of a batch.
struct Output {
  OutputPlan plan;  // but for its place
  size_t first_pixel;
  size_t bytes;
  size_t offset;

  OutputPlan PlanIn(uint8_t* outputs) const {
    OutputPlan placed = plan;
    placed.data = outputs + offset + first_pixel;
    return placed;
  }
};

struct Layout {
  bool planar, transposed, mirrored_x, mirrored_y, reversed_channels;
};

// Chooses the strides of a plan. Pixels and samples are packed.
Output LayOut(OutputPlan plan, const Layout& layout) {
  struct Axis {
    int64_t* stride;
    int64_t length, before;  // before: of it, in front of the window
    bool mirrored;
  };
  const Border& border = plan.border;
  const Window& window = plan.window;
  const Axis x = {&plan.x_stride_bytes, int64_t{border.left_px} + window.width_px + border.right_px,
                  border.left_px, layout.mirrored_x};
  const Axis y = {&plan.y_stride_bytes,
                  int64_t{border.top_px} + window.height_px + border.bottom_px, border.top_px,
                  layout.mirrored_y};
  int64_t channel_stride_bytes = 0;
  const Axis channel = {&channel_stride_bytes, plan.channels, 0, false};
  std::vector<Axis> axes = {x, y};  // from the innermost on
  if (layout.transposed) std::swap(axes[0], axes[1]);
  axes.insert(layout.planar ? axes.end() : axes.begin(), channel);
  int64_t bytes = OutputBytes(plan.type);
  int64_t first_pixel = 0;
  for (const Axis& axis : axes) {
    first_pixel += bytes * (axis.mirrored ? axis.length - 1 - axis.before : axis.before);
    *axis.stride = axis.mirrored ? -bytes : bytes;
    bytes *= axis.length;
  }
  plan.SetChannelStride(channel_stride_bytes);
  if (layout.reversed_channels) {
    std::reverse(plan.channel_offset_bytes, plan.channel_offset_bytes + plan.channels);
  }
  return {plan, static_cast<size_t>(first_pixel), static_cast<size_t>(bytes), 0};
}

// Where types end and halves round, and NaN.
constexpr float kEdgeFills[] = {0x1p16f,  65519,    65520,     0x1p31f,    -0x1p31f, 0x1p40f,
                                -0x1p40f, INFINITY, -INFINITY, NAN,        -0.0f,    0.5f,
                                -0.5f,    254.5f,   255.5f,    -128.5f,    32767.5f, 2049,
                                0x1p-14f, 0x1p-15f, 0x1p-25f,  0x1.8p-24f, 2051,     -32768.5f};

// With fractions, so that sums and products are rounded; or so that those of some samples are
// rounded to the middle of two halves, sums from below it and products from above it.
void ChooseFactors(const ImageInfo& info, std::mt19937* random, OutputPlan* plan) {
  const auto fraction = [random](float unit) {
    return static_cast<float>((*random)() % (1 << 16)) / unit;
  };
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    const uint32_t kind = (*random)() % 3;
    const uint32_t unit = 1u << info.shift;  // between samples
    const uint32_t least = unit << (*random)() % info.used_bits;  // of samples up to twice as many
    const uint32_t sample = least + (*random)() % least / unit * unit;
    const float step = static_cast<float>(least) * 0x1p-10f;  // of their halves
    if (kind == 0) {
      plan->subtract[c] = fraction(251);
      plan->multiply[c] = fraction(1021);
    } else if (kind == 1) {
      const float added = step * (1.5f - 0x1p-15f);
      plan->subtract[c] = (*random)() % 4 == 0 ? added : -added;
      plan->multiply[c] = 1;
    } else {
      const float middle = (std::floor(static_cast<float>(sample) / step / 2) * 2 + 0.5f) * step;
      const float factor = middle / static_cast<float>(sample);
      const bool is_less = double{factor} * sample < double{middle};
      plan->subtract[c] = 0;
      plan->multiply[c] = is_less ? std::nextafter(factor, 2.0f) : factor;
    }
  }
}

Output MakeOutput(const ImageInfo& info, Store store, std::mt19937* random) {
  const auto below = [random](uint32_t end) { return static_cast<uint32_t>((*random)() % end); };
  OutputPlan plan = WholeImagePlan(info, nullptr);
  if (store == Store::kWhole) return {plan, 0, info.image_bytes(), 0};
  const uint32_t x = below(info.width_px), y = below(info.height_px);
  plan.window = {x, y, 1 + below(info.width_px - x), 1 + below(info.height_px - y)};
  plan.border = {below(4), below(4), below(4), 1 + below(4)};
  if (store == Store::kAligned) {
    plan.border = {};
    if (below(2) == 1) plan.window = {0, 0, info.width_px, info.height_px};
    plan.window.x_px -= plan.window.x_px % 8;
    if (plan.window.width_px > 8) plan.window.width_px -= plan.window.width_px % 8;
  }
  for (float& fill : plan.fill) fill = static_cast<float>(below(256));
  if (store == Store::kWindow) return LayOut(plan, {false, false, false, below(2) == 1, false});

  plan.op = PixelOp::kScale;
  plan.type = OutputType::kF16;
  // As normalization has it, and planes that are a multiple of eight values; or neither.
  const bool normalizes = below(4) != 0;
  plan.range = normalizes ? 1 : 1.0f / 255;
  const uint32_t width = plan.border.left_px + plan.window.width_px + plan.border.right_px;
  if (normalizes) plan.border.right_px += (0u - width) % 8;
  ChooseFactors(info, random, &plan);
  if (store == Store::kTraining || store == Store::kAligned) {
    return LayOut(plan, {true, false, below(2) == 1, false, below(4) == 0});
  }

  plan.op = static_cast<PixelOp>(below(3));
  plan.type = static_cast<OutputType>(below(kOutputTypes));
  plan.channels = plan.op == PixelOp::kMix ? 3 : static_cast<uint8_t>(1 + below(kMaxChannels));
  for (uint8_t& source : plan.source) source = static_cast<uint8_t>(below(info.channels));
  if (plan.op != PixelOp::kMix) {
    plan.source[below(kMaxChannels)] = info.channels < 3 ? kFillChannel : kLumaChannel;
  }
  plan.luma_rounding = below(kLumaScale);
  for (auto& row : plan.weights) {
    for (float& weight : row) weight = static_cast<float>(below(2000)) / 1000 - 1;
  }
  for (float& bias : plan.bias) bias = static_cast<float>(below(256));
  if (below(2) == 0) {  // of one sample, to be rounded as above
    for (uint32_t c = 0; c < 3; ++c) {
      std::fill(std::begin(plan.weights[c]), std::end(plan.weights[c]), 0.0f);
      plan.weights[c][below(3)] = plan.multiply[c];
      plan.bias[c] = -plan.subtract[c];
    }
  }
  if (below(4) == 0) {
    for (float& fill : plan.fill) fill = kEdgeFills[below(std::size(kEdgeFills))];
  }
  if (below(16) == 0) {  // no number, which is a half by a rule of its own
    for (float& fill : plan.fill) fill = NAN;
    plan.type = OutputType::kF16;
  }
  // Then values take the output's type one at a time.
  if (below(8) == 0) plan.multiply[below(kMaxChannels)] = 0x1p31f;
  return LayOut(plan, {below(2) == 1, below(2) == 1, below(2) == 1, below(2) == 1, below(4) == 0});
}

// A file with a header that is right.
struct File {
  std::string name;
  std::vector<uint8_t> bytes;
  ImageView view;
  bool has_rans;
  bool is_sound;  // all tiles can be decoded
};

// One of the groups of channels that engines take, where there are several.
ImageView LastGroup(const ImageView& view) {
  const std::vector<ChannelGroup> groups = ReadChannelGroups(view);
  return ViewOfGroup(view, groups.back(), static_cast<uint32_t>(groups.size() - 1));
}

DecodeResult DecodeOnCpu(const ImageView& view, const OutputPlan& plan) {
  FillBorder(plan);
  const TileSpan span = TilesOfWindow(view, plan.window);
  return CpuDecoder(view, CpuEngine::kScalar).DecodeWindows(&plan, 1, span, 0, span.tile_count());
}

// Adds it, if its header is right.
void AddFile(const std::string& name, std::vector<uint8_t> bytes, std::vector<File>* files) {
  File file = {name, std::move(bytes), {}, false, false};
  if (ParseImage(file.bytes.data(), file.bytes.size(), &file.view) != Status::kOk) return;
  file.view = LastGroup(file.view);
  const ImageInfo& info = file.view.info;
  for (uint32_t tile = 0; tile < info.tile_count(); ++tile) {
    file.has_rans |= IsRansTile(file.view, file.view.payloads, tile);
  }
  std::vector<uint16_t> samples(CeilDiv(info.image_bytes(), 2));
  const auto plan = WholeImagePlan(info, reinterpret_cast<uint8_t*>(samples.data()));
  file.is_sound = DecodeOnCpu(file.view, plan).status == Status::kOk;
  files->push_back(std::move(file));
}

std::vector<File> ReadFiles(const std::vector<std::string>& names) {
  std::vector<File> files;
  for (const std::string& name : names) {
    std::ifstream stream(name, std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + name);
    AddFile(name, {std::istreambuf_iterator<char>(stream), {}}, &files);
  }
  return files;
}

std::string Describe(const DecodeResult& result) {
  if (result.status == Status::kOk) return "other samples";
  return std::string(StatusName(result.status)) + " in tile " + std::to_string(result.tile);
}

// Whether outputs have the same bytes, or both no number where a float is one: after arithmetic
// GPUs and CPUs give a NaN other bits.
bool AreSame(OutputType type, const uint8_t* a, const uint8_t* b, size_t bytes) {
  const auto is_nan = [type](const uint8_t* place) {
    uint32_t value = 0;
    std::memcpy(&value, place, OutputBytes(type));
    return type == OutputType::kF16 ? (value & 0x7FFF) > 0x7C00 : (value & 0x7FFFFFFF) > 0x7F800000;
  };
  const size_t item = IsFloat(type) ? OutputBytes(type) : 1;
  for (size_t i = 0; i + item <= bytes; i += item) {
    if (std::memcmp(a + i, b + i, item) == 0) continue;
    if (item == 1 || !is_nan(a + i) || !is_nan(b + i)) return false;
  }
  return true;
}

// Of what the GPU made of a window, to be compared with another GPU's.
uint64_t Digest(const DecodeResult& result, const uint8_t* pixels, size_t bytes) {
  uint64_t digest = 14695981039346656037u;  // FNV-1a
  const auto add = [&digest](uint8_t byte) { digest = (digest ^ byte) * 1099511628211u; };
  add(static_cast<uint8_t>(result.status));
  for (int shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(result.tile >> shift));
  // Where a tile cannot be decoded, others may come first or not.
  for (size_t i = 0; result.status == Status::kOk && i < bytes; ++i) add(pixels[i]);
  return digest;
}

// Decodes files in one of the ways, and returns how many of their windows the engines differ on.
// Adds a line for each to `digests`, if there is such a file.
// `on_result`, if any, is called before the CPU decodes.
size_t CountDifferences(const Way& way, const std::vector<const File*>& chosen, uint32_t seed,
                        GpuDevice* memory, BatchDecoder* decoder, EncodedCache* cache,
                        std::FILE* digests) {
  std::mt19937 random(seed);
  std::vector<const File*> files;  // of each window
  for (const File* file : chosen) files.insert(files.end(), way.windows, file);
  std::vector<Output> outputs;
  size_t bytes = kGapBytes;
  for (const File* file : files) {
    outputs.push_back(MakeOutput(file->view.info, way.store, &random));
    size_t unit = OutputBytes(outputs.back().plan.type);
    if (way.store == Store::kWhole && seed % 2 == 0) unit = kGroupBytes;
    if (way.store == Store::kAligned) unit = seed % 8 < 4 ? kGroupBytes : kGroupBytes / 2;
    outputs.back().offset = CeilDiv(bytes, unit) * unit;
    bytes = outputs.back().offset + outputs.back().bytes + kGapBytes;
  }

  const auto stream = memory->MakeStream();
  const auto finished = memory->MakeEvent();
  const auto copy = [&](void* to, const void* from) {
    memory->Copy(to, from, bytes, stream.get());
    finished->Record(stream.get());
    finished->Synchronize();
  };
  const std::shared_ptr<void> outputs_dev = memory->AllocateDevice(bytes);
  const std::vector<uint8_t> untouched(bytes, kUntouched);
  copy(outputs_dev.get(), untouched.data());

  size_t pinned_bytes = 0;
  for (const File* file : files) pinned_bytes += CeilDiv(file->bytes.size(), 16) * 16;
  const std::shared_ptr<void> pinned = memory->AllocatePinned(pinned_bytes);
  uint8_t* pinned_file = static_cast<uint8_t*>(pinned.get());

  size_t differences = 0;
  std::vector<WindowedImage> images;
  for (size_t i = 0; i < files.size(); ++i) {
    const File& file = *files[i];
    const OutputPlan plan = outputs[i].PlanIn(static_cast<uint8_t*>(outputs_dev.get()));
    if (i % way.windows != 0) {
      images.back().plans.push_back(plan);
      continue;
    }
    images.push_back({file.view, {plan}});
    WindowedImage& image = images.back();
    if (way.source == Source::kPinnedInParts) {
      std::memcpy(pinned_file, file.bytes.data(), file.bytes.size());
      ParseImage(pinned_file, file.bytes.size(), &image.view);
      image.view = LastGroup(image.view);
      image.is_pinned = true;
      pinned_file += CeilDiv(file.bytes.size(), 16) * 16;
    }
    if (file.view.group_count != 1) continue;  // none that the cache keeps
    if (way.source == Source::kHostToCache) image.cache_key = &file.name;
    if (way.source != Source::kCache) continue;
    image.cached = cache->Find(file.name, file.bytes.data(), file.bytes.size(), file.bytes.size());
    if (image.cached != nullptr) {
      image.view = image.cached->view;
    } else if (file.is_sound) {
      ++differences;
      std::printf("%s: %s: not cached\n", way.name, file.name.c_str());
    }
  }
  decoder->Launch(JobsOf(images), stream.get());
  const std::vector<DecodeResult>& results = decoder->Wait();
  std::vector<uint8_t> got(bytes);
  copy(got.data(), outputs_dev.get());

  std::vector<uint8_t> expected = untouched;
  for (size_t i = 0; i < files.size(); ++i) {
    const Output& output = outputs[i];
    const DecodeResult cpu = DecodeOnCpu(files[i]->view, output.PlanIn(expected.data()));
    const auto begin = got.begin() + static_cast<std::ptrdiff_t>(output.offset);
    const auto end = begin + static_cast<std::ptrdiff_t>(output.bytes);
    const auto expected_begin = expected.begin() + (begin - got.begin());
    if (digests != nullptr) {
      const uint64_t digest = Digest(results[i], got.data() + output.offset, output.bytes);
      std::fprintf(digests, "%016llx %s, window %zu, %s\n", static_cast<unsigned long long>(digest),
                   way.name, i % way.windows, files[i]->name.c_str());
    }
    bool agree = cpu.status == results[i].status && cpu.tile == results[i].tile;
    if (cpu.status == Status::kOk) {
      agree = agree && AreSame(output.plan.type, got.data() + output.offset,
                               expected.data() + output.offset, output.bytes);
    }
    std::copy(begin, end, expected_begin);  // what is left to compare are the gaps
    if (agree) continue;
    ++differences;
    std::printf("%s: %s: the GPU has %s, the CPU %s\n", way.name, files[i]->name.c_str(),
                Describe(results[i]).c_str(), Describe(cpu).c_str());
  }
  if (got != expected) {
    ++differences;
    std::printf("%s: the GPU wrote between outputs\n", way.name);
  }
  return differences;
}

bool EnginesAgree(const std::vector<std::string>& names,
                  const std::function<std::unique_ptr<GpuDevice>()>& make) {
  const std::vector<File> files = ReadFiles(names);
  const std::unique_ptr<GpuDevice> memory = make();
  const auto cache =
      std::make_shared<EncodedCache>(CacheOptions{kCacheBytes, CachePolicy::kThreshold, 0}, make());
  LaunchCounts launches = NoLaunches();
  const char* digests_name = std::getenv("L3_DIGESTS");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> digests(
      digests_name != nullptr ? std::fopen(digests_name, "w") : nullptr, std::fclose);
  if (digests_name != nullptr && digests == nullptr) {
    throw std::runtime_error(std::string("cannot write ") + digests_name);
  }
  bool agree = true;
  // Of a test that needs some of them: their numbers, as "0,4".
  const char* chosen_ways = std::getenv("L3_WAYS");
  for (const Way& way : kWays) {
    const std::string number = "," + std::to_string(&way - kWays) + ",";
    if (chosen_ways != nullptr &&
        ("," + std::string(chosen_ways) + ",").find(number) == std::string::npos) {
      continue;
    }
    std::vector<const File*> chosen;
    for (const File& file : files) {
      const ImageInfo& info = file.view.info;
      if (way.without_rans && file.has_rans) continue;
      if (way.in_teams && (info.channels != 3 || info.sample_bytes() != 1)) continue;
      if (file.view.jpeg.data != nullptr && !way.has_version_2()) continue;
      if (info.sample_type >= SampleType::kUint32 && !way.has_32_bits()) continue;
      chosen.push_back(&file);
    }
    BatchDecoder decoder(std::make_unique<LimitedDevice>(make(), way.has_large_blocks, &launches),
                         cache, way.upload());
    const size_t differences =
        CountDifferences(way, chosen, 1, memory.get(), &decoder, cache.get(), digests.get());
    std::printf("%s: %zu files, %zu differences\n", way.name, chosen.size(), differences);
    std::fflush(stdout);  // a way may take its time
    agree = agree && differences == 0;
  }
  for (const auto& [kernel, count] : launches) {
    std::printf("kernel \"%s\": %d launches\n", kernel.c_str(), count);
    agree = agree && (count > 0 || chosen_ways != nullptr);
  }
  return agree;
}

}  // namespace

int CompareEngines(int argc, char** argv, const std::function<std::unique_ptr<GpuDevice>()>& make) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE.l3...\n", argv[0]);
    return 2;
  }
  try {
    const bool agree = EnginesAgree({argv + 1, argv + argc}, make);
    std::printf("%s\n", agree ? "GPU and CPU agree, by every kernel"
                              : "GPU and CPU DIFFER, or a kernel was not launched");
    return agree ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 2;
  }
}

}  // namespace l3
