#include "testing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu_batch.h"
#include "cpu/cpu_decoder.h"
#include "cuda/emulation/emulated_decoder.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/encoded_cache.h"
#include "encoder/kernel_targets.h"
#include "format/image_view.h"
#include "native/exact_bytes.h"
#include "output/orientation.h"
#include "output/output_plan.h"
#include "output/request.h"
#include "output/window_job.h"
#include "windowed_image.h"

namespace {

using l3::DecodeResult;
using l3::ExactBytes;
using l3::Status;

template <typename Call>
uint32_t StatusOf(const Call& call) {
  try {
    return static_cast<uint32_t>(call());
  } catch (...) {
    return L3_TEST_EXCEPTION;
  }
}

// The engine's number in cpu_decoder.h, of those that are the CPU's.
l3::CpuEngine CpuEngineOf(uint32_t engine) {
  switch (engine) {
    case kL3TestAvx2: return l3::CpuEngine::kAvx2;
    case kL3TestAvx512: return l3::CpuEngine::kAvx512;
    case kL3TestNeon: return l3::CpuEngine::kNeon;
    default: return l3::CpuEngine::kScalar;
  }
}

// Null for engines of the CPU.
const l3::GpuLimits* EmulatedGpuOf(uint32_t engine) {
  switch (engine) {
    case kL3TestEmulatedCuda: return &l3::kLargeGpu;
    case kL3TestEmulatedSmallCuda: return &l3::kSmallGpu;
    default: return nullptr;
  }
}

DecodeResult FirstBadOf(const std::vector<DecodeResult>& results) {
  DecodeResult first{Status::kOk, 0};
  for (const DecodeResult& result : results) first = FirstBad(first, result);
  return first;
}

// Decodes channels of an image by their groups, as adapters do it.
DecodeResult DecodeGroups(uint32_t engine, const l3::ImageView& view,
                          const l3::DecodeRequest& request, l3::OutputPlan plan, unsigned threads,
                          const l3::ForEach& for_each, uint64_t* decoded_tiles) {
  const std::vector<l3::GroupOutput> groups = l3::PlanGroups(request, view, &plan, 1);
  if (groups.empty()) return {Status::kCorruptHeader, 0};
  const l3::WindowJob job = {&view, &groups, &plan, 1};
  if (const l3::GpuLimits* gpu = EmulatedGpuOf(engine)) {
    return FirstBadOf(l3::DecodeBatchEmulated({job}, *gpu, for_each, decoded_tiles));
  }
  constexpr uint64_t kTaskPixels = 1 << 14;
  l3::CpuBatch batch({job}, kTaskPixels, CpuEngineOf(engine));
  l3::ParallelFor(batch.task_count(), threads, [&](uint64_t task) { batch.Run(task); });
  return batch.Results()[0];
}

// What a plan asks for of up to four of more channels: sources are numbers of the image's channels.
l3::DecodeRequest ChannelsOf(const L3TestPlan& plan) {
  const auto list = [&](const float* values) {
    return std::vector<float>(values, values + plan.channels);
  };
  l3::DecodeRequest request;
  request.channels = {plan.source, plan.source + plan.channels};
  request.normalization = {list(plan.subtract), list(plan.multiply)};
  request.fill = list(plan.fill);
  return request;
}

DecodeResult Decode(uint32_t engine, const l3::ImageView& view, const l3::ImageOutput& output,
                    unsigned threads, const l3::ForEach& for_each = nullptr) {
  if (!view.is_group()) {
    l3::DecodeRequest request;
    request.row_stride_bytes = output.row_stride_bytes;
    request.max_pixels = ~uint64_t{0};
    l3::OutputPlan plan;
    l3::OutputTensor tensor;
    l3::PlanOutput(request, view.info, &plan, &tensor);
    plan.PlaceIn(output.data);
    return DecodeGroups(engine, view, request, plan, threads, for_each, nullptr);
  }
  if (const l3::GpuLimits* gpu = EmulatedGpuOf(engine)) {
    l3::OutputPlan plan = l3::WholeImagePlan(view.info, output.data);
    plan.y_stride_bytes = static_cast<int64_t>(output.row_stride_bytes);
    return l3::DecodeImageEmulated(view, plan, *gpu, for_each);
  }
  return l3::CpuDecoder(view, CpuEngineOf(engine)).DecodeImage(output, threads);
}

// A task for some tiles, as operators do it.
DecodeResult DecodePlans(uint32_t engine, const l3::ImageView& view,
                         const std::vector<l3::OutputPlan>& plans, unsigned threads,
                         const l3::ForEach& for_each = nullptr, uint64_t* decoded_tiles = nullptr) {
  if (const l3::GpuLimits* gpu = EmulatedGpuOf(engine)) {
    const std::vector<l3::WindowedImage> images = {{view, plans}};
    return FirstBadOf(l3::DecodeBatchEmulated(JobsOf(images), *gpu, for_each, decoded_tiles));
  }
  const l3::TileRect tile = l3::GetTileRect(view.info, 0);
  const std::vector<l3::GroupOutput> groups = {l3::GroupOfView(view)};
  l3::CpuBatch batch({{&view, &groups, plans.data(), plans.size()}},
                     uint64_t{3} * tile.width_px * tile.height_px, CpuEngineOf(engine));
  l3::ParallelFor(batch.task_count(), threads, [&](uint64_t task) { batch.Run(task); });
  return batch.Results()[0];
}

l3::OutputPlan ToOutputPlan(const L3TestPlan& from, uint8_t* output) {
  l3::OutputPlan plan = {};
  // As a number: the first pixel of an empty window may lie outside of the output.
  plan.data = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(output) +
                                         static_cast<uintptr_t>(from.data_offset));
  plan.x_stride_bytes = from.x_stride_bytes;
  plan.y_stride_bytes = from.y_stride_bytes;
  plan.SetChannelStride(from.channel_stride_bytes);
  plan.window = {from.x_px, from.y_px, from.width_px, from.height_px};
  plan.border = {from.left_px, from.top_px, from.right_px, from.bottom_px};
  plan.type = static_cast<l3::OutputType>(from.type);
  plan.op = static_cast<l3::PixelOp>(from.op);
  plan.channels = static_cast<uint8_t>(from.channels);
  std::copy_n(from.source, l3::kMaxChannels, plan.source);
  plan.luma_rounding = from.luma_rounding;
  std::copy_n(from.subtract, l3::kMaxChannels, plan.subtract);
  std::copy_n(from.multiply, l3::kMaxChannels, plan.multiply);
  plan.range = from.range;
  std::copy_n(from.weights, 9, &plan.weights[0][0]);
  std::copy_n(from.bias, 3, plan.bias);
  std::copy_n(from.fill, l3::kMaxChannels, plan.fill);
  return plan;
}

// A file that becomes another one of its size.
class ChangingFile {
 public:
  ChangingFile(const uint8_t* data, const uint8_t* changed, size_t size, uint32_t step,
               uint32_t seed)
      : bytes_(data, size), original_(data), changed_(changed), step_(step), seed_(seed) {}
  ~ChangingFile() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  ChangingFile(const ChangingFile&) = delete;
  ChangingFile& operator=(const ChangingFile&) = delete;

  const uint8_t* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

  // Changes before this returns, or from now on.
  void Start() {
    if (step_ == L3_TEST_ALL_THE_TIME) thread_ = std::thread([this] { ChangeParts(); });
    if (step_ == 0) Change();
  }
  // Runs tasks, after one of which it changes.
  l3::ForEach for_each() {
    return [this](size_t count, const std::function<void(size_t)>& task) {
      for (size_t i = 0; i < count; ++i) {
        task(i);
        if (++tasks_ == step_) Change();
      }
    };
  }

 private:
  void Change() {
    if (bytes_.size() != 0) std::memcpy(bytes_.data(), changed_, bytes_.size());
  }
  void ChangeParts() {
    std::mt19937 random(seed_);
    while (!stop_) {
      const size_t begin = random() % bytes_.size();
      const size_t end = std::min(bytes_.size(), begin + (size_t{1} << random() % 8));
      const uint8_t* from = random() % 2 == 0 ? original_ : changed_;
      for (size_t i = begin; i < end; ++i) {
        const volatile uint8_t byte = from[i];
        *static_cast<volatile uint8_t*>(bytes_.data() + i) = byte;
      }
    }
  }

  ExactBytes bytes_;
  const uint8_t* const original_;
  const uint8_t* const changed_;
  const uint32_t step_;
  const uint32_t seed_;
  uint32_t tasks_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

using MakePlan = std::function<l3::OutputPlan(const l3::ImageView& view, uint8_t* output)>;

// Decodes a file on an emulated GPU with a cache, then from the cache if it got there. The plan for
// `view` takes `output_bytes`.
DecodeResult DecodeByCache(const l3::ImageView& view, const MakePlan& make_plan, uint32_t seed,
                           ChangingFile* file, uint8_t* output, size_t output_bytes) {
  using l3::EmulatedPace;
  constexpr l3::UploadPolicy kSmallParts = {1, 1};
  const EmulatedPace pace = (seed & 1) != 0 ? EmulatedPace::kLazy : EmulatedPace::kEager;
  const std::string key = "file";
  l3::EmulatedGpu gpu;
  const auto device = gpu.MakeDevice(EmulatedPace::kEager);
  const auto stream = gpu.MakeStream(pace);
  const auto cache = std::make_shared<l3::EncodedCache>(
      l3::CacheOptions{uint64_t{1} << 20, l3::CachePolicy::kThreshold, 0},
      gpu.MakeDevice(EmulatedPace::kLazy));
  l3::BatchDecoder decoder(gpu.MakeDevice(pace), cache,
                           (seed & 2) != 0 ? kSmallParts : l3::BatchDecoder::kUsualUpload);
  const auto decode = [&](l3::WindowedImage image, size_t bytes, bool to_output) {
    const auto memory = device->AllocateDevice(bytes);
    image.plans = {make_plan(image.view, static_cast<uint8_t*>(memory.get()))};
    if (to_output) device->Copy(memory.get(), output, bytes, stream.get());
    const std::vector<l3::WindowedImage> batch = {image};
    decoder.Launch(JobsOf(batch), stream.get(), file->for_each());
    if (to_output) device->Copy(output, memory.get(), bytes, stream.get());
    const DecodeResult result = decoder.Wait()[0];
    const auto copied = device->MakeEvent();
    copied->Record(stream.get());
    copied->Synchronize();
    return result;
  };
  l3::WindowedImage image = {view, {}};
  image.is_pinned = (seed & 4) != 0;
  if (cache->Wants(key, view)) image.cache_key = &key;
  const DecodeResult first = decode(image, output_bytes, true);
  const l3::CachedImage* cached = cache->FindUnread(key);
  if (cached == nullptr) return first;
  const l3::ImageInfo& info = cached->view.info;
  const bool is_alike =
      info.width_px == view.info.width_px && info.height_px == view.info.height_px &&
      info.channels == view.info.channels && info.sample_type == view.info.sample_type;
  constexpr uint64_t kMostBytes = uint64_t{1} << 24;
  if (!is_alike && info.image_bytes() > kMostBytes) return first;
  return decode({cached->view, {}, cached}, is_alike ? output_bytes : info.image_bytes(), is_alike);
}

}  // namespace

int l3_test_engine_available(uint32_t engine) {
  switch (engine) {
    case kL3TestScalar: return l3::IsAvailable(l3::CpuEngine::kScalar);
    case kL3TestAvx2: return l3::IsAvailable(l3::CpuEngine::kAvx2);
    case kL3TestEmulatedCuda:
    case kL3TestEmulatedSmallCuda: return true;
    case kL3TestAvx512: return l3::IsAvailable(l3::CpuEngine::kAvx512);
    case kL3TestNeon: return l3::IsAvailable(l3::CpuEngine::kNeon);
    default: return false;
  }
}

uint32_t l3_test_decode(uint32_t engine, const uint8_t* data, size_t size, uint8_t* output,
                        size_t output_bytes, uint64_t row_stride_bytes, uint32_t threads,
                        uint32_t* bad_tile) {
  return StatusOf([&] {
    ExactBytes input(data, size);
    l3::ImageView view;
    Status status = l3::ParseImage(input.data(), input.size(), &view);
    if (status != Status::kOk) return status;
    const uint64_t row_bytes = view.info.row_bytes();
    if (row_stride_bytes < row_bytes ||
        row_stride_bytes * (view.info.height_px - 1) + row_bytes != output_bytes) {
      return Status::kInvalidArgument;
    }
    ExactBytes pixels(output, output_bytes);
    const l3::ImageOutput target{pixels.data(), row_stride_bytes};
    const DecodeResult result = Decode(engine, view, target, threads);
    *bad_tile = result.tile;
    std::memcpy(output, pixels.data(), output_bytes);
    return result.status;
  });
}

uint32_t l3_test_decode_plans(uint32_t engine, const uint8_t* data, size_t size,
                              const L3TestPlan* plans, size_t plan_count, uint8_t* output,
                              size_t output_bytes, uint32_t threads, uint32_t* bad_tile,
                              uint64_t* decoded_tiles) {
  return StatusOf([&] {
    ExactBytes input(data, size);
    l3::ImageView view;
    const Status status = l3::ParseImage(input.data(), input.size(), &view);
    if (status != Status::kOk) return status;
    ExactBytes pixels(output, output_bytes);
    std::vector<l3::OutputPlan> placed;
    for (size_t i = 0; i < plan_count; ++i) placed.push_back(ToOutputPlan(plans[i], pixels.data()));
    *decoded_tiles = 0;
    DecodeResult result{Status::kOk, 0};
    if (view.is_group()) {
      result = DecodePlans(engine, view, placed, threads, nullptr, decoded_tiles);
    }
    for (size_t i = 0; i < plan_count && !view.is_group(); ++i) {
      const bool is_wide = view.info.channels > l3::kMaxChannels;
      const l3::DecodeRequest request = is_wide ? ChannelsOf(plans[i]) : l3::DecodeRequest{};
      uint64_t tiles = 0;
      result = FirstBad(result,
                        DecodeGroups(engine, view, request, placed[i], threads, nullptr, &tiles));
      *decoded_tiles += tiles;
    }
    *bad_tile = result.tile;
    if (output_bytes != 0) std::memcpy(output, pixels.data(), output_bytes);
    return result.status;
  });
}

uint32_t l3_test_decode_changing(uint32_t engine, const uint8_t* data, const uint8_t* changed,
                                 size_t size, uint32_t step, uint32_t seed, const L3TestPlan* plan,
                                 uint8_t* output, size_t output_bytes, uint32_t* bad_tile) {
  return StatusOf([&] {
    ChangingFile file(data, changed, size, step, seed);
    l3::ImageView view;
    const Status status = l3::ParseImage(file.data(), file.size(), &view);
    if (status != Status::kOk) return status;
    if (plan == nullptr && view.info.image_bytes() != output_bytes) return Status::kInvalidArgument;
    if (plan != nullptr && !view.is_group()) return Status::kInvalidArgument;
    if (engine == kL3TestEncodedCache && !view.is_group()) engine = kL3TestEmulatedCuda;
    const uint32_t width_px = view.info.width_px;
    const uint32_t height_px = view.info.height_px;
    const MakePlan make_plan = [&](const l3::ImageView& of, uint8_t* to) {
      const bool fits = plan != nullptr && of.info.width_px == width_px &&
                        of.info.height_px == height_px && of.info.channels == view.info.channels;
      return fits ? ToOutputPlan(*plan, to) : l3::WholeImagePlan(of.info, to);
    };
    ExactBytes pixels(output, output_bytes);
    file.Start();
    DecodeResult result;
    if (engine == kL3TestEncodedCache) {
      result = DecodeByCache(view, make_plan, seed, &file, pixels.data(), output_bytes);
    } else if (plan != nullptr) {
      result = DecodePlans(engine, view, {make_plan(view, pixels.data())}, 1, file.for_each());
    } else {
      result = Decode(engine, view, {pixels.data(), view.info.row_bytes()}, 1, file.for_each());
    }
    *bad_tile = result.tile;
    if (output_bytes != 0) std::memcpy(output, pixels.data(), output_bytes);
    return result.status;
  });
}

uint64_t l3_test_uploaded_bytes(const uint8_t* data, size_t size, const L3TestPlan* plan) {
  uint64_t bytes = 0;
  StatusOf([&] {
    l3::ImageView view;
    const Status status = l3::ParseImage(data, size, &view);
    if (status == Status::kOk) {
      l3::OutputPlan output = ToOutputPlan(*plan, nullptr);
      const l3::DecodeRequest request = view.is_group() ? l3::DecodeRequest{} : ChannelsOf(*plan);
      const std::vector<l3::GroupOutput> groups = l3::PlanGroups(request, view, &output, 1);
      l3::WindowJob job = {&view, &groups, &output, 1};
      for (size_t g = 0; g < groups.size(); ++g) {
        job.group_begin = g;
        job.group_end = g + 1;
        bytes += l3::UploadedBytesEmulated({job});
      }
    }
    return status;
  });
  return bytes;
}

uint32_t l3_test_read_orientation(const uint8_t* exif, size_t size) {
  ExactBytes block(exif, size);
  const l3::Orientation turn =
      l3::ReadOrientation({block.data(), static_cast<uint32_t>(block.size())});
  return (turn.swap_xy ? 1u : 0u) | (turn.flip_x ? 2u : 0u) | (turn.flip_y ? 4u : 0u);
}

void l3_test_limit_kernels(uint32_t kernels) {
  l3::highest_kernel_target =
      kernels == 0 ? l3::KernelTarget::kAvx512 : static_cast<l3::KernelTarget>(kernels - 1);
}
