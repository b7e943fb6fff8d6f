// Tests of the nvImageCodec extension over its C interface: this program is the framework, and the
// GPU is emulated. What nvImageCodec itself makes of the extension is in
// tests/dali/test_nvimgcodec.py.
//
//   l3_nvimgcodec_test NAME                            runs one; exits with 1 and says where it
//   failed l3_nvimgcodec_test --mutants N [--seed S] PATH...  N mutants of the files through all
//   plugins
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/emulation/emulated_device.h"
#include "encoder/encoder.h"
#include "failing_allocations.h"
#include "nvimgcodec/abi.h"
#include "nvimgcodec/gpu.h"
#include "test_program.h"

namespace l3 {

namespace {

using Data = std::vector<uint8_t>;
using Processed = nvimgcodecProcessingStatus_t;

constexpr Processed kSuccess = NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
constexpr Processed kCorrupted = NVIMGCODEC_PROCESSING_STATUS_IMAGE_CORRUPTED;
constexpr int kUntouched = 0xA5;  // what buffers hold before

enum class Gpu { kWorks, kBroken, kNone };

// Outlives all decoders of a test.
EmulatedGpu* g_gpu = nullptr;
Gpu g_state = Gpu::kWorks;

}  // namespace

GpuSource FindGpu() {
  if (g_state == Gpu::kNone) return {};
  return {[](int) -> std::unique_ptr<GpuDevice> {
    if (g_state == Gpu::kBroken) throw std::runtime_error("the driver is too old");
    return g_gpu->MakeDevice(EmulatedPace::kLazy);
  }};
}

namespace {

// The bytes of a file that is read, or of one that is written.
class Stream {
 public:
  explicit Stream(Data file, bool maps = true) : bytes_(std::move(file)), maps_(maps) {
    desc_ = Tagged<nvimgcodecIoStreamDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_IO_STREAM_DESC);
    desc_.instance = this;
    desc_.read = [](void* self, size_t* done, void* to, size_t bytes) {
      Stream& s = Of(self);
      *done = std::min(bytes, s.bytes_.size() - s.position_);
      if (*done != 0) std::memcpy(to, s.bytes_.data() + s.position_, *done);
      s.position_ += *done;
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.write = [](void* self, size_t* done, void* from, size_t bytes) {
      Stream& s = Of(self);
      *done = std::min(bytes, s.most_ - s.bytes_.size());
      const auto* begin = static_cast<const uint8_t*>(from);
      s.bytes_.insert(s.bytes_.end(), begin, begin + *done);
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.seek = [](void* self, ptrdiff_t offset, int) {
      Of(self).position_ = static_cast<size_t>(offset);
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.size = [](void* self, size_t* size) {
      *size = Of(self).bytes_.size();
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.reserve = [](void*, size_t) { return NVIMGCODEC_STATUS_SUCCESS; };
    desc_.flush = [](void*) { return NVIMGCODEC_STATUS_SUCCESS; };
    desc_.map = [](void* self, void** to, size_t offset, size_t) {
      Stream& s = Of(self);
      *to = s.maps_ ? s.bytes_.data() + offset : nullptr;
      ++s.mapped_;
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.unmap = [](void* self, void*, size_t) {
      ++Of(self).unmapped_;
      return NVIMGCODEC_STATUS_SUCCESS;
    };
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  nvimgcodecIoStreamDesc_t* desc() { return &desc_; }
  const Data& bytes() const { return bytes_; }
  bool is_unmapped() const { return !maps_ || mapped_ == unmapped_; }
  void HasRoomFor(size_t bytes) { most_ = bytes; }

 private:
  static Stream& Of(void* self) { return *static_cast<Stream*>(self); }

  nvimgcodecIoStreamDesc_t desc_;
  Data bytes_;
  bool maps_;
  size_t position_ = 0;
  size_t most_ = SIZE_MAX;
  std::atomic<size_t> mapped_{0};
  std::atomic<size_t> unmapped_{0};
};

// How many bytes the framework knows more of each struct than this header, or fewer.
int g_growth = 0;

// Gives a struct as a framework does: all that it knows of it.
template <typename Struct>
void Give(const Struct& from, Struct* to) {
  const size_t bytes = sizeof(Struct) + static_cast<size_t>(g_growth);
  Data given(bytes, 0x77);
  std::memcpy(given.data(), &from, std::min(bytes, sizeof(Struct)));
  std::memcpy(given.data() + offsetof(Struct, struct_size), &bytes, sizeof(bytes));
  std::memcpy(static_cast<void*>(to), given.data(), bytes);
}

// A struct of the framework's says how large it is there.
template <typename Struct>
Struct Known(nvimgcodecStructureType_t type) {
  auto known = Tagged<Struct>(type);
  known.struct_size = sizeof(Struct) + static_cast<size_t>(g_growth);
  return known;
}

class CodeStream {
 public:
  explicit CodeStream(Data bytes, bool maps = true) : stream_(std::move(bytes), maps) {
    desc_ = Known<nvimgcodecCodeStreamDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_DESC);
    desc_.instance = this;
    desc_.io_stream = stream_.desc();
    desc_.getCodeStreamInfo = [](void* self, nvimgcodecCodeStreamInfo_t* info) {
      auto& s = *static_cast<CodeStream*>(self);
      auto known = Tagged<nvimgcodecCodeStreamInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_INFO);
      known.code_stream_view = s.view ? &*s.view : nullptr;
      known.num_images = 1;
      Give(known, info);
      return NVIMGCODEC_STATUS_SUCCESS;
    };
  }

  nvimgcodecCodeStreamDesc_t* desc() { return &desc_; }
  Stream& stream() { return stream_; }

  std::optional<nvimgcodecCodeStreamView_t> view;

 private:
  Stream stream_;
  nvimgcodecCodeStreamDesc_t desc_;
};

class Image {
 public:
  Image() {
    desc_ = Known<nvimgcodecImageDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_DESC);
    desc_.instance = this;
    desc_.getImageInfo = [](void* self, nvimgcodecImageInfo_t* to) {
      Give(static_cast<Image*>(self)->info, to);
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.imageReady = [](void* self, Processed processed) {
      auto& image = *static_cast<Image*>(self);
      image.status = processed;
      ++image.times_ready;
      return NVIMGCODEC_STATUS_SUCCESS;
    };
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const nvimgcodecImageDesc_t* desc() const { return &desc_; }
  size_t bytes() const {
    return info.num_planes * info.plane_info[0].row_stride * info.plane_info[0].height;
  }

  nvimgcodecImageInfo_t info = Tagged<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  Processed status = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
  int times_ready = 0;

 private:
  nvimgcodecImageDesc_t desc_;
};

// The extension's plugins, registered here.
class Framework {
 public:
  explicit Framework(uint32_t version = 900,
                     size_t struct_size = sizeof(nvimgcodecFrameworkDesc_t)) {
    desc_ = Tagged<nvimgcodecFrameworkDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_FRAMEWORK_DESC);
    desc_.struct_size = struct_size;
    desc_.instance = this;
    desc_.id = "test";
    desc_.version = version;
    desc_.log = [](void* self, auto, auto, const nvimgcodecDebugMessageData_t* data) {
      auto& f = *static_cast<Framework*>(self);
      const std::lock_guard<std::mutex> lock(f.mutex_);
      f.messages.emplace_back(data->message);
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.registerParser = Enter<&Framework::parser>;
    desc_.unregisterParser = Leave<&Framework::parser>;
    desc_.registerEncoder = Enter<&Framework::encoder>;
    desc_.unregisterEncoder = Leave<&Framework::encoder>;
    desc_.registerDecoder = [](void* self, const nvimgcodecDecoderDesc_t* decoder, float priority) {
      static_cast<Framework*>(self)->decoders[priority] = decoder;
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.unregisterDecoder = [](void* self, const nvimgcodecDecoderDesc_t* decoder) {
      auto& all = static_cast<Framework*>(self)->decoders;
      const auto mine = std::find_if(all.begin(), all.end(),
                                     [&](const auto& entry) { return entry.second == decoder; });
      if (mine != all.end()) all.erase(mine);
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    nvimgcodecExtensionDesc_t extension;
    CHECK(nvimgcodecExtensionModuleEntry(&extension) == NVIMGCODEC_STATUS_SUCCESS);
    destroy_ = extension.destroy;
    status = extension.create(extension.instance, &handle_, &desc_);
  }
  // To be called where CHECK may throw.
  void Unload() {
    if (handle_ != nullptr) destroy_(handle_);
    handle_ = nullptr;
    CHECK(parser == nullptr && encoder == nullptr && decoders.empty());
  }
  ~Framework() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Framework(const Framework&) = delete;
  Framework& operator=(const Framework&) = delete;

  const nvimgcodecDecoderDesc_t& gpu() const {
    CHECK(decoders.size() == 2);
    CHECK(decoders.begin()->second->backend_kind == NVIMGCODEC_BACKEND_KIND_GPU_ONLY);
    return *decoders.begin()->second;
  }
  const nvimgcodecDecoderDesc_t& cpu() const {
    CHECK(!decoders.empty());
    CHECK(decoders.rbegin()->second->backend_kind == NVIMGCODEC_BACKEND_KIND_CPU_ONLY);
    return *decoders.rbegin()->second;
  }
  bool HasSaid(const std::string& text) const {
    return std::any_of(messages.begin(), messages.end(), [&](const std::string& message) {
      return message.find(text) != std::string::npos;
    });
  }

  nvimgcodecStatus_t status;
  std::vector<std::string> messages;
  const nvimgcodecParserDesc_t* parser = nullptr;
  const nvimgcodecEncoderDesc_t* encoder = nullptr;
  std::map<float, const nvimgcodecDecoderDesc_t*> decoders;  // by priority

 private:
  template <auto kMember, typename Desc>
  static nvimgcodecStatus_t Enter(void* self, const Desc* desc, float) {
    static_cast<Framework*>(self)->*kMember = desc;
    return NVIMGCODEC_STATUS_SUCCESS;
  }
  template <auto kMember, typename Desc>
  static nvimgcodecStatus_t Leave(void* self, const Desc* desc) {
    auto& entry = static_cast<Framework*>(self)->*kMember;
    if (entry == desc) entry = nullptr;
    return NVIMGCODEC_STATUS_SUCCESS;
  }

  nvimgcodecFrameworkDesc_t desc_;
  nvimgcodecExtension_t handle_ = nullptr;
  nvimgcodecStatus_t (*destroy_)(nvimgcodecExtension_t);
  std::mutex mutex_;
};

// Threads, as nvImageCodec has them.
class Executor {
 public:
  explicit Executor(int threads, bool refuses = false) : threads_(threads), refuses_(refuses) {
    desc_ = Tagged<nvimgcodecExecutorDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_EXECUTOR_DESC);
    desc_.instance = this;
    desc_.schedule = [](void* self, int, int sample, void* context, void (*task)(int, int, void*)) {
      auto& e = *static_cast<Executor*>(self);
      if (e.refuses_) return NVIMGCODEC_STATUS_INTERNAL_ERROR;
      const std::lock_guard<std::mutex> lock(e.mutex_);
      e.tasks_.push_back([=] { task(0, sample, context); });
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.run = [](void* self, int) {
      static_cast<Executor*>(self)->wake_.notify_all();
      return NVIMGCODEC_STATUS_SUCCESS;
    };
    desc_.getNumThreads = [](void* self) { return static_cast<Executor*>(self)->threads_; };
    for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { Work(); });
  }
  // What is left is done.
  ~Executor() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  nvimgcodecExecutorDesc_t* desc() { return &desc_; }
  int tasks() const { return tasks_done_; }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      ++tasks_done_;
      lock.lock();
    }
  }

  nvimgcodecExecutorDesc_t desc_;
  const int threads_;
  const bool refuses_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<int> tasks_done_{0};
  bool ends_ = false;
  std::vector<std::thread> workers_;
};

// A decoder of a description.
class Decoder {
 public:
  Decoder(const nvimgcodecDecoderDesc_t& desc, nvimgcodecExecutionParams_t execution)
      : desc_(desc) {
    status = desc.create(desc.instance, &handle_, &execution, "");
    if (status != NVIMGCODEC_STATUS_SUCCESS) handle_ = nullptr;  // as nvImageCodec does
  }
  explicit Decoder(const nvimgcodecDecoderDesc_t& desc) : Decoder(desc, OnDevice(nullptr)) {}
  ~Decoder() {
    if (handle_ != nullptr) desc_.destroy(handle_);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  static nvimgcodecExecutionParams_t OnDevice(nvimgcodecExecutorDesc_t* executor) {
    auto execution = Known<nvimgcodecExecutionParams_t>(NVIMGCODEC_STRUCTURE_TYPE_EXECUTION_PARAMS);
    execution.executor = executor;
    return execution;
  }

  Processed CanDecode(const Image& image, CodeStream& stream, bool orient = true) const {
    const auto params = Params(orient);
    return desc_.canDecode(handle_, image.desc(), stream.desc(), &params, 0);
  }
  nvimgcodecStatus_t Decode(const Image& image, CodeStream& stream, bool orient) const {
    const auto params = Params(orient);
    return desc_.decode(handle_, image.desc(), stream.desc(), &params, 0);
  }
  nvimgcodecStatus_t DecodeBatch(std::vector<const nvimgcodecImageDesc_t*> images,
                                 std::vector<const nvimgcodecCodeStreamDesc_t*> streams,
                                 bool orient) const {
    const auto params = Params(orient);
    return desc_.decodeBatch(handle_, images.data(), streams.data(),
                             static_cast<int>(images.size()), &params, 0);
  }

  nvimgcodecStatus_t status;

 private:
  static nvimgcodecDecodeParams_t Params(bool orient) {
    auto params = Known<nvimgcodecDecodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODE_PARAMS);
    params.apply_exif_orientation = orient;
    return params;
  }

  const nvimgcodecDecoderDesc_t& desc_;
  nvimgcodecDecoder_t handle_ = nullptr;
};

// An EXIF block with an orientation and nothing else.
Data Exif(uint8_t orientation) {
  Data exif = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation};
  exif.resize(26);
  return exif;
}

struct Kind {
  uint32_t width_px, height_px, channels, sample_bits;
  Coding coding;
  uint8_t orientation;
  bool is_signed = false;

  SampleType type() const {
    return sample_bits == 8 ? (is_signed ? SampleType::kInt8 : SampleType::kUint8)
                            : (is_signed ? SampleType::kInt16 : SampleType::kUint16);
  }
};

constexpr Kind kKinds[] = {
    {40, 30, 3, 8, Coding::kRans, 1},        {37, 21, 3, 8, Coding::kPacked, 6},
    {1, 1, 1, 8, Coding::kPacked, 0},        {33, 17, 1, 16, Coding::kPacked, 3},
    {64, 9, 4, 8, Coding::kPacked, 8},       {19, 40, 4, 16, Coding::kRans, 5},
    {70, 40, 2, 8, Coding::kStored, 2},      {50, 34, 3, 16, Coding::kPacked, 7},
    {31, 20, 1, 16, Coding::kRans, 1, true}, {34, 11, 3, 8, Coding::kPacked, 1, true},
};

Data Samples(const Kind& kind, uint32_t seed) {
  std::mt19937 random(seed);
  Data samples(size_t{kind.width_px} * kind.height_px * kind.channels * kind.sample_bits / 8);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<uint8_t>(i / kind.channels % kind.width_px + (random() & 15));
  }
  return samples;
}

Data Encoded(const Kind& kind, uint32_t seed) {
  const Data samples = Samples(kind, seed);
  const Data exif = Exif(kind.orientation);
  EncodeOptions options;
  options.coding = kind.coding;
  options.effort = 1;
  options.tile_width_log2 = 5;
  options.tile_height_log2 = 3;
  if (kind.orientation != 0) options.exif = {exif.data(), exif.size()};
  const PixelView pixels = {samples.data(), kind.width_px, kind.height_px,
                            kind.channels,  kind.type(),   samples.size() / kind.height_px};
  Data file;
  CHECK(EncodeImage(pixels, options, &file) == Status::kOk);
  return file;
}

constexpr nvimgcodecSampleDataType_t kTypes[] = {
    NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8,   NVIMGCODEC_SAMPLE_DATA_TYPE_INT8,
    NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16,  NVIMGCODEC_SAMPLE_DATA_TYPE_INT16,
    NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32,  NVIMGCODEC_SAMPLE_DATA_TYPE_INT32,
    NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT16, NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32};

size_t TypeBytes(nvimgcodecSampleDataType_t type) { return static_cast<size_t>(type) >> 11; }

// Channels of the format with the number 2 n or 2 n + 1; 0: as stored.
uint32_t FormatChannels(nvimgcodecSampleFormat_t format, uint32_t stored) {
  constexpr uint32_t kChannels[] = {0, 1, 2, 3, 3, 3, 4, 4, 4};
  const uint32_t channels = kChannels[(static_cast<int>(format) - 1) / 2];
  return channels == 0 ? stored : channels;
}

// What is asked of an image.
struct Ask {
  nvimgcodecSampleFormat_t format = NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED;
  std::optional<nvimgcodecSampleDataType_t> type;  // none: as stored
  std::optional<std::array<int, 4>> region;        // top, left, bottom, right
  size_t padding_bytes = 0;                        // of a row
  bool orient = true;
};

// What the parser says of a file; none if it refuses it.
std::optional<nvimgcodecImageInfo_t> Parse(const Framework& framework, CodeStream& stream) {
  const nvimgcodecParserDesc_t& desc = *framework.parser;
  int can_parse = 0;
  CHECK(desc.canParse(desc.instance, &can_parse, stream.desc()) == NVIMGCODEC_STATUS_SUCCESS);
  nvimgcodecParser_t parser;
  CHECK(desc.create(desc.instance, &parser) == NVIMGCODEC_STATUS_SUCCESS);
  auto info = Tagged<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  const bool parsed = desc.getImageInfo(parser, &info, stream.desc()) == NVIMGCODEC_STATUS_SUCCESS;
  CHECK(!parsed || can_parse == 1);
  CHECK(desc.destroy(parser) == NVIMGCODEC_STATUS_SUCCESS);
  if (!parsed) return std::nullopt;
  return info;
}

// An image with a buffer that is described and not there.
void Describe(const nvimgcodecImageInfo_t& parsed, const Ask& ask, Image* image,
              CodeStream* stream) {
  nvimgcodecImageInfo_t& info = image->info;
  info = parsed;
  uint32_t width = parsed.plane_info[0].width;
  uint32_t height = parsed.plane_info[0].height;
  if (ask.orient && parsed.orientation.rotated % 180 != 0) std::swap(width, height);
  if (ask.region) {
    auto view = Tagged<nvimgcodecCodeStreamView_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_VIEW);
    view.region = Tagged<nvimgcodecRegion_t>(NVIMGCODEC_STRUCTURE_TYPE_REGION);
    view.region.ndim = 2;
    for (int axis = 0; axis < 2; ++axis) {
      view.region.start[axis] = (*ask.region)[axis];
      view.region.end[axis] = (*ask.region)[axis + 2];
    }
    for (uint32_t c = 0; c < NVIMGCODEC_MAX_ROI_FILL_CHANNELS; ++c) {
      view.region.out_of_bounds_samples[c].value.as_uint = 7 + c;
      view.region.out_of_bounds_samples[c].type = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32;
    }
    stream->view = view;
    height = static_cast<uint32_t>((*ask.region)[2] - (*ask.region)[0]);
    width = static_cast<uint32_t>((*ask.region)[3] - (*ask.region)[1]);
  }
  const bool is_planar = static_cast<int>(ask.format) % 2 == 1;
  const uint32_t channels = FormatChannels(ask.format, parsed.plane_info[0].num_channels);
  auto plane = Tagged<nvimgcodecImagePlaneInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_PLANE_INFO);
  plane.width = width;
  plane.height = height;
  plane.num_channels = is_planar ? 1 : channels;
  plane.sample_type = ask.type.value_or(parsed.plane_info[0].sample_type);
  plane.row_stride = width * plane.num_channels * TypeBytes(plane.sample_type) + ask.padding_bytes;
  info.sample_format = ask.format;
  info.num_planes = is_planar ? channels : 1;
  for (uint32_t i = 0; i < info.num_planes; ++i) info.plane_info[i] = plane;
}

// A batch for both decoders: each file, and what is asked of it.
struct Item {
  Data file;
  Ask ask;
};

// What became of an item.
struct Result {
  Processed can_decode;
  Processed decoded;
  Data buffer;

  bool operator==(const Result& other) const {
    return can_decode == other.can_decode && decoded == other.decoded && buffer == other.buffer;
  }
};

// A header that cannot be read has the plain image of 16x16 pixels asked of it.
nvimgcodecImageInfo_t ParsedOrPlain(const Framework& framework, CodeStream& stream) {
  if (const auto parsed = Parse(framework, stream)) return *parsed;
  auto info = Tagged<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  info.num_planes = 1;
  info.plane_info[0].width = info.plane_info[0].height = 16;
  info.plane_info[0].num_channels = 3;
  info.plane_info[0].sample_type = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
  return info;
}

// Where damage shows, other output is not compared.
Result Settle(Processed can_decode, Processed decoded, Data buffer) {
  if (decoded != kSuccess) buffer.clear();
  return {can_decode, decoded, std::move(buffer)};
}

std::vector<Result> DecodeOnCpu(const Framework& framework, const std::vector<Item>& items) {
  const Decoder decoder(framework.cpu());
  CHECK(decoder.status == NVIMGCODEC_STATUS_SUCCESS);
  std::vector<Result> results;
  for (const Item& item : items) {
    CodeStream stream(item.file, results.size() % 2 == 0);
    Image image;
    Describe(ParsedOrPlain(framework, stream), item.ask, &image, &stream);
    Data buffer(image.bytes(), kUntouched);
    const Processed can_decode = decoder.CanDecode(image, stream, item.ask.orient);
    image.info.buffer = buffer.data();
    image.info.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST;
    const nvimgcodecStatus_t status = decoder.Decode(image, stream, item.ask.orient);
    CHECK(image.times_ready == 1);
    CHECK((status == NVIMGCODEC_STATUS_SUCCESS) == (image.status == kSuccess));
    CHECK(stream.stream().is_unmapped());
    results.push_back(Settle(can_decode, image.status, std::move(buffer)));
  }
  return results;
}

// Memory of the GPU: the host writes and reads it by copies.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes)
      : device_(g_gpu->MakeDevice(EmulatedPace::kEager)),
        stream_(device_->MakeStream()),
        bytes_(bytes),
        memory_(device_->AllocateDevice(bytes)) {
    const Data fresh(bytes, kUntouched);
    Copy(memory_.get(), fresh.data());
  }
  void* data() const { return memory_.get(); }
  Data Read() const {
    Data read(bytes_);
    Copy(read.data(), memory_.get());
    return read;
  }

 private:
  void Copy(void* to, const void* from) const {
    device_->Copy(to, from, bytes_, stream_.get());
    const auto copied = device_->MakeEvent();
    copied->Record(stream_.get());
    copied->Synchronize();
  }

  std::unique_ptr<GpuDevice> device_;
  std::shared_ptr<CUstream_st> stream_;
  size_t bytes_;
  std::shared_ptr<void> memory_;
};

// One batch, on one stream or taking turns on several. The call itself may have to fail.
std::vector<Result> DecodeOnGpu(const Framework& framework, const Decoder& decoder,
                                const std::vector<Item>& items, size_t stream_count = 1,
                                bool succeeds = true) {
  struct Open {
    CodeStream stream;
    Image image;
    std::unique_ptr<DeviceBuffer> buffer;
    Processed can_decode = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
    explicit Open(const Data& file) : stream(file) {}
  };
  std::vector<std::shared_ptr<CUstream_st>> streams;
  for (size_t i = 0; i < stream_count; ++i) {
    streams.push_back(g_gpu->MakeStream(EmulatedPace::kLazy));
  }
  std::deque<Open> open;
  std::vector<const nvimgcodecImageDesc_t*> images;
  std::vector<const nvimgcodecCodeStreamDesc_t*> code_streams;
  for (const Item& item : items) {
    CHECK(item.ask.orient == items[0].ask.orient);
    Open& one = open.emplace_back(item.file);
    Describe(ParsedOrPlain(framework, one.stream), item.ask, &one.image, &one.stream);
    one.can_decode = decoder.CanDecode(one.image, one.stream, item.ask.orient);
    one.buffer = std::make_unique<DeviceBuffer>(one.image.bytes());
    one.image.info.buffer = one.buffer->data();
    one.image.info.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE;
    one.image.info.cuda_stream = streams[open.size() % streams.size()].get();
    images.push_back(one.image.desc());
    code_streams.push_back(one.stream.desc());
  }
  CHECK(decoder.DecodeBatch(images, code_streams, items[0].ask.orient) ==
        (succeeds ? NVIMGCODEC_STATUS_SUCCESS : NVIMGCODEC_STATUS_EXECUTION_FAILED));
  std::vector<Result> results;
  for (Open& one : open) {
    CHECK(one.image.times_ready == 1);
    CHECK(one.stream.stream().is_unmapped());
    results.push_back(Settle(one.can_decode, one.image.status, one.buffer->Read()));
  }
  return results;
}

Ask RandomAsk(std::mt19937* random, bool orient) {
  Ask ask;
  ask.orient = orient;
  const auto below = [&](uint32_t limit) { return static_cast<int>((*random)() % limit); };
  ask.format = static_cast<nvimgcodecSampleFormat_t>(1 + below(18));
  if (below(2) == 0) ask.type = kTypes[below(std::size(kTypes))];
  if (below(3) == 0) ask.padding_bytes = static_cast<size_t>(4 * below(5));
  if (below(2) == 0) {
    const int top = below(20) - 4;
    const int left = below(20) - 4;
    ask.region = {top, left, top + 1 + below(30), left + 1 + below(30)};
  }
  return ask;
}

std::vector<Item> RandomBatch(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  const bool orient = random() % 2 == 0;
  std::vector<Item> items;
  for (size_t i = 0; i < count; ++i) {
    const Kind& kind = kKinds[random() % std::size(kKinds)];
    items.push_back({Encoded(kind, random()), RandomAsk(&random, orient)});
  }
  return items;
}

// Each file as it is stored.
std::vector<Item> PlainBatch(uint32_t seed) {
  std::vector<Item> items;
  for (const Kind& kind : kKinds) items.push_back({Encoded(kind, seed++), {}});
  for (Item& item : items) item.ask.orient = false;
  return items;
}

// Tests.

void GpuDecodesAsTheCpu() {
  const Framework framework;
  const Decoder decoder(framework.gpu());
  size_t decoded = 0;
  size_t refused = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::vector<Item> items = RandomBatch(seed, 1 + seed % 7);
    const std::vector<Result> results = DecodeOnGpu(framework, decoder, items);
    CHECK(results == DecodeOnCpu(framework, items));
    for (const Result& result : results) {
      ++(result.decoded == kSuccess ? decoded : refused);
      CHECK(result.can_decode == result.decoded);
    }
  }
  CHECK(decoded > 60 && refused > 20);
}

void DamageFailsAlone() {
  Framework framework;
  const Decoder decoder(framework.gpu());
  const std::vector<Item> sound = PlainBatch(4);
  const std::vector<Result> want = DecodeOnGpu(framework, decoder, sound);
  for (size_t damaged = 0; damaged < sound.size(); ++damaged) {
    std::vector<Item> items = sound;
    items[damaged].file.back() ^= 0x40;                     // in the last tile
    items[(damaged + 1) % items.size()].file.resize(70);    // behind the header
    items[(damaged + 2) % items.size()].file[0] ^= 1;       // no L3 file
    items[(damaged + 3) % items.size()].file[8] = 99;       // of a later version
    const std::vector<Result> results = DecodeOnGpu(framework, decoder, items);
    CHECK(results == DecodeOnCpu(framework, items));
    for (size_t i = 0; i < items.size(); ++i) {
      const size_t distance = (i + items.size() - damaged) % items.size();
      CHECK((results[i].decoded == kSuccess) == (distance > 3));
      if (distance > 3) CHECK(results[i] == want[i]);
      if (distance == 0) CHECK(results[i].decoded == kCorrupted);
      if (distance == 2) {
        CHECK(results[i].decoded == NVIMGCODEC_PROCESSING_STATUS_CODEC_UNSUPPORTED);
      }
    }
  }
  CHECK(framework.HasSaid("kChecksumMismatch") && framework.HasSaid(", tile "));
  CHECK(framework.HasSaid("kTruncated") && framework.HasSaid("kBadMagic"));
}

void BatchesOnThreads() {
  const Framework framework;
  Executor executor(2);
  const Decoder shared(framework.gpu(), Decoder::OnDevice(executor.desc()));
  const Decoder other(framework.gpu());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (uint32_t round = 0; round < 4; ++round) {
          const std::vector<Item> items = RandomBatch(100 + 10 * t + round, 4);
          const Decoder& decoder = t == 3 ? other : shared;
          if (DecodeOnGpu(framework, decoder, items) != DecodeOnCpu(framework, items)) ++wrong;
        }
      } catch (const std::exception&) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

void StreamsOfOneBatch() {
  const Framework framework;
  const Decoder decoder(framework.gpu());
  const std::vector<Item> items = PlainBatch(5);
  const std::vector<Result> want = DecodeOnCpu(framework, items);
  for (size_t streams = 1; streams <= 3; ++streams) {
    const uint64_t before = g_gpu->launches();
    CHECK(DecodeOnGpu(framework, decoder, items, streams) == want);
    CHECK(g_gpu->launches() >= before + streams);
  }
}

void ExecutorsThreads() {
  const Framework framework;
  const std::vector<Item> items = PlainBatch(6);
  const std::vector<Result> want = DecodeOnCpu(framework, items);
  for (const bool refuses : {false, true}) {
    Executor executor(3, refuses);
    {
      const Decoder decoder(framework.gpu(), Decoder::OnDevice(executor.desc()));
      CHECK(DecodeOnGpu(framework, decoder, items) == want);
    }
    while (!refuses && executor.tasks() == 0) std::this_thread::yield();
    CHECK(refuses == (executor.tasks() == 0));
  }
}

void EmptyBatches() {
  const Framework framework;
  const Decoder decoder(framework.gpu());
  CHECK(decoder.DecodeBatch({}, {}, true) == NVIMGCODEC_STATUS_SUCCESS);
  std::vector<Item> items = PlainBatch(7);
  items.resize(1);
  items[0].file.clear();
  CHECK(DecodeOnGpu(framework, decoder, items)[0].decoded == kCorrupted);
}

// As nvImageCodec tries an image of a batch again.
void OneImage() {
  const Framework framework;
  const Decoder decoder(framework.gpu());
  for (const bool damaged : {false, true}) {
    Item item = PlainBatch(8)[0];
    if (damaged) item.file.back() ^= 1;
    CodeStream stream(item.file);
    Image image;
    Describe(*Parse(framework, stream), item.ask, &image, &stream);
    const DeviceBuffer buffer(image.bytes());
    image.info.buffer = buffer.data();
    image.info.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE;
    CHECK(decoder.Decode(image, stream, false) ==
          (damaged ? NVIMGCODEC_STATUS_EXECUTION_FAILED : NVIMGCODEC_STATUS_SUCCESS));
    CHECK(image.times_ready == 1 && image.status == (damaged ? kCorrupted : kSuccess));
    CHECK(damaged || buffer.Read() == Samples(kKinds[0], 8));
  }
}

void HostMemoryIsRefused() {
  Framework framework;
  const Decoder decoder(framework.gpu());
  const std::vector<Item> items = PlainBatch(8);
  CodeStream stream(items[0].file);
  Image image;
  Describe(*Parse(framework, stream), items[0].ask, &image, &stream);
  Data buffer(image.bytes());
  image.info.buffer = buffer.data();
  image.info.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST;
  CHECK(decoder.DecodeBatch({image.desc()}, {stream.desc()}, false) == NVIMGCODEC_STATUS_SUCCESS);
  CHECK(image.status == NVIMGCODEC_PROCESSING_STATUS_FAIL);
  CHECK(framework.HasSaid("device memory"));
}

void WithoutAGpu() {
  g_state = Gpu::kNone;
  {
    Framework framework;
    CHECK(framework.status == NVIMGCODEC_STATUS_SUCCESS && framework.decoders.size() == 1);
    CHECK(DecodeOnCpu(framework, PlainBatch(1))[0].decoded == kSuccess);
    CHECK(framework.messages.empty());
    framework.Unload();
  }
  g_state = Gpu::kBroken;
  {
    Framework framework;
    const Decoder decoder(framework.gpu());
    CHECK(decoder.status == NVIMGCODEC_STATUS_EXTENSION_CUDA_CALL_ERROR);
    CHECK(framework.HasSaid("the driver is too old"));
    const std::vector<Item> items = PlainBatch(1);
    CodeStream stream(items[0].file);
    Image image;
    Describe(*Parse(framework, stream), {}, &image, &stream);
    CHECK(decoder.CanDecode(image, stream) == NVIMGCODEC_PROCESSING_STATUS_BACKEND_UNSUPPORTED);
    CHECK(decoder.DecodeBatch({image.desc()}, {stream.desc()}, true) != NVIMGCODEC_STATUS_SUCCESS);
  }
  g_state = Gpu::kWorks;
  Framework framework;
  nvimgcodecExecutionParams_t execution = Decoder::OnDevice(nullptr);
  execution.device_id = NVIMGCODEC_DEVICE_CPU_ONLY;
  const Decoder decoder(framework.gpu(), execution);
  CHECK(decoder.status == NVIMGCODEC_STATUS_INVALID_PARAMETER);
  CHECK(framework.messages.empty());
}

// The framework's memory, counted.
struct Pool {
  size_t given = 0;
  size_t taken_back = 0;
  bool is_empty = false;

  static int Malloc(void* context, void** memory, size_t bytes, cudaStream_t) {
    auto& pool = *static_cast<Pool*>(context);
    if (pool.is_empty) return 2;
    pool.given += bytes;
    *memory = std::malloc(bytes);
    return *memory == nullptr ? 2 : 0;
  }
  static int Free(void* context, void* memory, size_t bytes, cudaStream_t) {
    static_cast<Pool*>(context)->taken_back += bytes;
    std::free(memory);
    return 0;
  }
};

void MemoryOfTheFramework() {
  Framework framework;
  Pool device_pool;
  Pool pinned_pool;
  auto device = Tagged<nvimgcodecDeviceAllocator_t>(NVIMGCODEC_STRUCTURE_TYPE_DEVICE_ALLOCATOR);
  device.device_malloc = Pool::Malloc;
  device.device_free = Pool::Free;
  device.device_ctx = &device_pool;
  auto pinned = Tagged<nvimgcodecPinnedAllocator_t>(NVIMGCODEC_STRUCTURE_TYPE_PINNED_ALLOCATOR);
  pinned.pinned_malloc = Pool::Malloc;
  pinned.pinned_free = Pool::Free;
  pinned.pinned_ctx = &pinned_pool;
  nvimgcodecExecutionParams_t execution = Decoder::OnDevice(nullptr);
  execution.device_allocator = &device;
  execution.pinned_allocator = &pinned;
  const std::vector<Item> items = PlainBatch(9);
  const std::vector<Result> want = DecodeOnCpu(framework, items);
  {
    const Decoder decoder(framework.gpu(), execution);
    // Decoders copy their arguments.
    device = {};
    pinned = {};
    device_pool.is_empty = true;
    for (const Result& result : DecodeOnGpu(framework, decoder, items, 1, false)) {
      CHECK(result.decoded == NVIMGCODEC_PROCESSING_STATUS_FAIL);
    }
    CHECK(framework.HasSaid("out of memory"));
    device_pool.is_empty = false;
    CHECK(DecodeOnGpu(framework, decoder, items) == want);
    CHECK(device_pool.given > 0 && pinned_pool.given > 0);
  }
  CHECK(device_pool.given == device_pool.taken_back);
  CHECK(pinned_pool.given == pinned_pool.taken_back);
}

// Color specifications ask for colors where the format is as stored; sYCC, CMYK and the like are
// none that L3 has.
void ColorsThatL3DoesNotHave() {
  const Framework framework;
  const Decoder cpu(framework.cpu());
  CodeStream stream(Encoded(kKinds[0], 1));
  const nvimgcodecImageInfo_t parsed = *Parse(framework, stream);
  for (const auto spec :
       {NVIMGCODEC_COLORSPEC_SYCC, NVIMGCODEC_COLORSPEC_CMYK, NVIMGCODEC_COLORSPEC_YCCK}) {
    Image image;
    Describe(parsed, {}, &image, &stream);
    image.info.color_spec = spec;
    CHECK(cpu.CanDecode(image, stream) == NVIMGCODEC_PROCESSING_STATUS_COLOR_SPEC_UNSUPPORTED);
  }
  for (const auto sampling : {NVIMGCODEC_SAMPLING_422, NVIMGCODEC_SAMPLING_420}) {
    Image image;
    Describe(parsed, {}, &image, &stream);
    image.info.chroma_subsampling = sampling;  // unused without chroma
    CHECK(cpu.CanDecode(image, stream) == kSuccess);
  }
}

void HeadersSayWhatIsWrong() {
  Framework framework;
  Data file = Encoded(kKinds[0], 1);
  file[20] ^= 1;
  CodeStream stream(file);
  CHECK(!Parse(framework, stream));
  CHECK(framework.HasSaid("L3 header of a file of " + std::to_string(file.size()) + " bytes: "));
  CodeStream other(Data{'B', 'M', 0, 0, 0, 0, 0, 0, 0});
  int can_parse = 1;
  CHECK(framework.parser->canParse(framework.parser->instance, &can_parse, other.desc()) ==
        NVIMGCODEC_STATUS_SUCCESS);
  CHECK(can_parse == 0);
}

void NewerStructsAreLarger() {
  g_growth = 200;
  GpuDecodesAsTheCpu();
  const Framework framework(950, sizeof(nvimgcodecFrameworkDesc_t) + 200);
  CHECK(framework.decoders.size() == 2);
}

void OlderStructsAreRefused() {
  Framework framework;
  const Decoder gpu(framework.gpu());
  const Decoder cpu(framework.cpu());
  CodeStream stream(Encoded(kKinds[0], 1));
  Image image;
  Describe(*Parse(framework, stream), {}, &image, &stream);
  CHECK(cpu.CanDecode(image, stream) == kSuccess && gpu.CanDecode(image, stream) == kSuccess);
  g_growth = -8;
  CHECK(cpu.CanDecode(image, stream) == NVIMGCODEC_PROCESSING_STATUS_FAIL);
  CHECK(gpu.CanDecode(image, stream) == NVIMGCODEC_PROCESSING_STATUS_FAIL);
  CHECK(cpu.Decode(image, stream, true) == NVIMGCODEC_STATUS_EXECUTION_FAILED);
  CHECK(image.status == NVIMGCODEC_PROCESSING_STATUS_FAIL);
  CHECK(framework.HasSaid("older than those of 0.7"));
  CHECK(Decoder(framework.gpu()).status == NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER);
  g_growth = 0;
  // Nothing is written to a struct that has no room for it.
  nvimgcodecParser_t parser;
  const nvimgcodecParserDesc_t& desc = *framework.parser;
  CHECK(desc.create(desc.instance, &parser) == NVIMGCODEC_STATUS_SUCCESS);
  auto info = Tagged<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  info.struct_size -= 8;
  CHECK(desc.getImageInfo(parser, &info, stream.desc()) != NVIMGCODEC_STATUS_SUCCESS);
  CHECK(info.num_planes == 0);
  auto stream_info = Tagged<nvimgcodecCodeStreamInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_INFO);
  stream_info.struct_size -= 8;
  CHECK(desc.getCodeStreamInfo(parser, &stream_info, stream.desc()) != NVIMGCODEC_STATUS_SUCCESS);
  CHECK(stream_info.num_images == 0);
}

void OtherVersionsAreLeftAlone() {
  for (const uint32_t version : {100u, 600u, 699u, 1000u, 2000u}) {
    Framework framework(version);
    CHECK(framework.status == NVIMGCODEC_STATUS_SUCCESS);
    CHECK(framework.decoders.empty() && framework.parser == nullptr);
    CHECK(framework.encoder == nullptr && framework.HasSaid("will not read L3 files"));
    CHECK(framework.HasSaid("Install nvImageCodec 0.9"));
    CHECK(framework.HasSaid("Version 0.10 or newer") == (version >= 1000));
  }
  const Framework older(900, sizeof(nvimgcodecFrameworkDesc_t) - 8);
  CHECK(older.status != NVIMGCODEC_STATUS_SUCCESS && older.parser == nullptr);
  for (const uint32_t version : {700u, 704u, 800u, 999u}) {
    Framework framework(version);
    CHECK(framework.parser != nullptr && framework.decoders.size() == 2);
    CHECK(framework.encoder != nullptr && framework.messages.empty());
    framework.Unload();
  }
}

// The encoder.

struct Encoding {
  nvimgcodecStatus_t created;
  Processed can_encode = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
  Processed encoded = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
  Data file;
  bool ran_out = false;  // of memory
};

constexpr uint64_t kEnough = ~uint64_t{0};

struct EncodeAsk {
  std::string options;
  nvimgcodecQualityType_t quality = NVIMGCODEC_QUALITY_TYPE_DEFAULT;
  size_t room = SIZE_MAX;
  uint32_t tile_width = 0;
  uint64_t allocations = kEnough;  // that succeed before one fails
};

Encoding Encode(const Framework& framework, const Image& image, const EncodeAsk& ask = {}) {
  const nvimgcodecEncoderDesc_t& desc = *framework.encoder;
  Encoding result;
  nvimgcodecEncoder_t encoder = nullptr;
  auto execution = Decoder::OnDevice(nullptr);
  result.created = desc.create(desc.instance, &encoder, &execution, ask.options.c_str());
  if (result.created != NVIMGCODEC_STATUS_SUCCESS) encoder = nullptr;
  CodeStream stream(Data{});
  stream.stream().HasRoomFor(ask.room);
  auto tiles = Tagged<nvimgcodecTileGeometryInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_TILE_GEOMETRY_INFO);
  tiles.tile_width = ask.tile_width;
  auto jpeg = Tagged<nvimgcodecJpegEncodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_JPEG_ENCODE_PARAMS);
  jpeg.struct_next = &tiles;
  auto params = Tagged<nvimgcodecEncodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_ENCODE_PARAMS);
  params.struct_next = &jpeg;
  params.quality_type = ask.quality;
  params.quality_value = 95;
  result.can_encode = desc.canEncode(encoder, stream.desc(), image.desc(), &params, 0);
  if (encoder != nullptr) {
    const uint64_t failing = allocations + ask.allocations;
    if (ask.allocations != kEnough) failing_allocation = failing;
    const nvimgcodecStatus_t status = desc.encode(encoder, stream.desc(), image.desc(), &params, 0);
    failing_allocation = ~uint64_t{0};
    result.ran_out = ask.allocations != kEnough && allocations > failing;
    result.encoded = image.status;
    CHECK((status == NVIMGCODEC_STATUS_SUCCESS) == (image.status == kSuccess));
    desc.destroy(encoder);
  }
  result.file = stream.stream().bytes();
  return result;
}

// An image in memory, as the decoder writes it for the same ask.
void Fill(const Kind& kind, const Ask& ask, Image* image, Data* buffer) {
  auto info = Tagged<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  info.color_spec = NVIMGCODEC_COLORSPEC_SRGB;
  info.plane_info[0].width = kind.width_px;
  info.plane_info[0].height = kind.height_px;
  info.plane_info[0].num_channels = kind.channels;
  constexpr nvimgcodecSampleDataType_t kStoredTypes[] = {
      NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8, NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16,
      NVIMGCODEC_SAMPLE_DATA_TYPE_INT8, NVIMGCODEC_SAMPLE_DATA_TYPE_INT16};
  info.plane_info[0].sample_type = kStoredTypes[static_cast<uint32_t>(kind.type())];
  CodeStream none(Data{});
  Describe(info, ask, image, &none);
  buffer->assign(image->bytes() + 1, kUntouched);
  std::mt19937 random(kind.width_px);
  const nvimgcodecImagePlaneInfo_t& plane = image->info.plane_info[0];
  const size_t row = plane.row_stride - ask.padding_bytes;
  for (size_t y = 0; y < size_t{plane.height} * image->info.num_planes; ++y) {
    for (size_t x = 0; x < row; ++x) {
      (*buffer)[y * plane.row_stride + x] = static_cast<uint8_t>(random() & 63);
    }
  }
  image->info.buffer = buffer->data();
  image->info.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST;
}

void EncoderAndDecoder() {
  const Framework framework;
  const Decoder decoder(framework.gpu());
  for (const Kind& kind : kKinds) {
    for (int format = 1; format <= 14; ++format) {
      Ask ask;
      ask.format = static_cast<nvimgcodecSampleFormat_t>(format);
      const bool is_yuv = format == 11 || format == 12;
      if (is_yuv || FormatChannels(ask.format, kind.channels) != kind.channels) continue;
      for (const size_t padding : {0, 6, 7}) {
        ask.padding_bytes = padding;
        Image image;
        Data buffer;
        Fill(kind, ask, &image, &buffer);
        if (padding == 7) {  // samples of 16 bits at odd addresses
          std::memmove(buffer.data() + 1, buffer.data(), buffer.size() - 1);
          image.info.buffer = buffer.data() + 1;
        }
        const Encoding encoding = Encode(framework, image, {"l3_encoder:coding=packed x:y=z"});
        CHECK(encoding.can_encode == kSuccess && encoding.encoded == kSuccess);
        Ask back = ask;
        back.padding_bytes = 6;
        const std::vector<Item> items = {{encoding.file, back}};
        const std::vector<Result> results = DecodeOnCpu(framework, items);
        CHECK(results[0].decoded == kSuccess);
        CHECK(DecodeOnGpu(framework, decoder, items) == results);
        Image again;
        Data same;
        Fill(kind, back, &again, &same);
        same.pop_back();
        CHECK(results[0].buffer == same);
      }
    }
  }
}

void EncoderOptions() {
  Framework framework;
  Image image;
  Data buffer;
  Fill({64, 64, 3, 8, Coding::kRans, 0}, {}, &image, &buffer);
  const Data usual = Encode(framework, image).file;
  CHECK(Encode(framework, image, {"l3_encoder:coding=rans l3_encoder:effort=5"}).file == usual);
  CHECK(Encode(framework, image, {"l3_encoder:coding=stored"}).file.size() > usual.size());
  CHECK(Encode(framework, image, {"", NVIMGCODEC_QUALITY_TYPE_LOSSLESS}).file == usual);
  for (const char* wrong : {"l3_encoder:effort=10", "l3_encoder:coding=jpeg", "l3_encoder:coding",
                            "l3_encoder:tiles=3"}) {
    const Encoding encoding = Encode(framework, image, {wrong});
    CHECK(encoding.created != NVIMGCODEC_STATUS_SUCCESS);
    CHECK(encoding.can_encode == NVIMGCODEC_PROCESSING_STATUS_FAIL);
    CHECK(framework.HasSaid(wrong));
  }
}

void EncoderRefuses() {
  Framework framework;
  const Kind kind = {20, 10, 3, 8, Coding::kRans, 0};
  const auto refused = [&](Processed status, const std::function<void(Image*)>& change,
                           const EncodeAsk& ask = {}) {
    Image image;
    Data buffer;
    Fill(kind, {}, &image, &buffer);
    change(&image);
    const Encoding encoding = Encode(framework, image, ask);
    return encoding.can_encode == status && encoding.encoded == status && encoding.file.empty();
  };
  const auto nothing = [](Image*) {};
  for (const auto quality :
       {NVIMGCODEC_QUALITY_TYPE_QUALITY, NVIMGCODEC_QUALITY_TYPE_PSNR,
        NVIMGCODEC_QUALITY_TYPE_QUANTIZATION_STEP, NVIMGCODEC_QUALITY_TYPE_SIZE_RATIO}) {
    CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_QUALITY_TYPE_UNSUPPORTED, nothing, {"", quality}));
  }
  EncodeAsk tiled;
  tiled.tile_width = 64;
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_TILING_UNSUPPORTED, nothing, tiled));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_SAMPLE_FORMAT_UNSUPPORTED,
                [](Image* i) { i->info.sample_format = NVIMGCODEC_SAMPLEFORMAT_I_YUV; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_COLOR_SPEC_UNSUPPORTED,
                [](Image* i) { i->info.color_spec = NVIMGCODEC_COLORSPEC_SYCC; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_SAMPLING_UNSUPPORTED,
                [](Image* i) { i->info.chroma_subsampling = NVIMGCODEC_SAMPLING_420; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_SAMPLE_TYPE_UNSUPPORTED, [](Image* i) {
    i->info.plane_info[0].sample_type = NVIMGCODEC_SAMPLE_DATA_TYPE_INT32;
  }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED,
                [](Image* i) { i->info.plane_info[0].num_channels = 5; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED,
                [](Image* i) { i->info.num_planes = 0; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED,
                [](Image* i) { i->info.sample_format = NVIMGCODEC_SAMPLEFORMAT_P_RGB; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED,
                [](Image* i) { i->info.plane_info[0].row_stride = 59; }));
  CHECK(refused(NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED, [](Image* i) {
    i->info.plane_info[0].width = i->info.plane_info[0].height = 1 << 17;
  }));
  Image image;
  Data buffer;
  Fill(kind, {}, &image, &buffer);
  EncodeAsk narrow;
  narrow.room = 10;
  CHECK(Encode(framework, image, narrow).encoded == NVIMGCODEC_PROCESSING_STATUS_FAIL);
  CHECK(framework.HasSaid("could not be written"));
  image.info.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE;
  CHECK(Encode(framework, image).encoded == NVIMGCODEC_PROCESSING_STATUS_FAIL);
}

// Whichever allocation fails, the image fails and the next one does not.
void EncoderWithoutMemory() {
  const Framework framework;
  for (const char* options : {"l3_encoder:coding=packed", "l3_encoder:coding=rans"}) {
    Image image;
    Data buffer;
    Fill({20, 10, 3, 8, Coding::kRans, 0}, {}, &image, &buffer);
    const Data whole = Encode(framework, image, {options}).file;
    EncodeAsk ask = {options};
    for (ask.allocations = 0;; ++ask.allocations) {
      const Encoding encoding = Encode(framework, image, ask);
      CHECK(Encode(framework, image, {options}).file == whole);
      if (!encoding.ran_out) {
        CHECK(encoding.file == whole);
        break;
      }
      CHECK(encoding.encoded == NVIMGCODEC_PROCESSING_STATUS_FAIL && encoding.file.empty());
    }
    CHECK(ask.allocations > 3);
  }
}

void NothingForNull() {
  const Framework framework;
  const nvimgcodecDecoderDesc_t& gpu = framework.gpu();
  const nvimgcodecDecoderDesc_t& cpu = framework.cpu();
  CHECK(nvimgcodecExtensionModuleEntry(nullptr) != NVIMGCODEC_STATUS_SUCCESS);
  CHECK(gpu.decodeBatch(nullptr, nullptr, nullptr, 1, nullptr, 0) != NVIMGCODEC_STATUS_SUCCESS);
  CHECK(gpu.canDecode(nullptr, nullptr, nullptr, nullptr, 0) != kSuccess);
  CHECK(gpu.create(gpu.instance, nullptr, nullptr, nullptr) != NVIMGCODEC_STATUS_SUCCESS);
  CHECK(gpu.destroy(nullptr) == NVIMGCODEC_STATUS_SUCCESS);
  CHECK(cpu.canDecode(nullptr, nullptr, nullptr, nullptr, 0) != kSuccess);
  CHECK(cpu.decode(nullptr, nullptr, nullptr, nullptr, 0) != NVIMGCODEC_STATUS_SUCCESS);
  const Decoder decoder(gpu);
  CHECK(decoder.DecodeBatch({nullptr}, {nullptr}, true) == NVIMGCODEC_STATUS_SUCCESS);
  for (const auto* desc : {&gpu, &cpu}) {
    CHECK(desc->getMetadata(nullptr, nullptr, nullptr, nullptr) ==
          NVIMGCODEC_STATUS_IMPLEMENTATION_UNSUPPORTED);
  }
  CHECK(framework.encoder->canEncode(nullptr, nullptr, nullptr, nullptr, 0) != kSuccess);
  CHECK(framework.encoder->encode(nullptr, nullptr, nullptr, nullptr, 0) !=
        NVIMGCODEC_STATUS_SUCCESS);
}

// Damaged files.

Data ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return Data(std::istreambuf_iterator<char>(file), {});
}

void Mutate(std::mt19937* random, Data* file) {
  for (uint32_t changes = (*random)() % 4; changes > 0 && !file->empty(); --changes) {
    const size_t reach = (*random)() % 2 == 0 ? std::min<size_t>(file->size(), 64) : file->size();
    (*file)[(*random)() % reach] = static_cast<uint8_t>((*random)());
  }
  if ((*random)() % 5 == 0) file->resize((*random)() % (file->size() + 1));
}

// Both decoders say the same of damaged files, and write the same of sound ones.
void RunMutants(uint32_t count, uint32_t seed, const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.path().extension() == ".l3" && entry.file_size() < 20000) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  CHECK(!files.empty());
  const Framework framework;
  const Decoder decoder(framework.gpu());
  std::map<Processed, uint32_t> seen;
  constexpr uint32_t kBatch = 8;
  for (uint32_t begin = 0; begin < count; begin += kBatch) {
    std::mt19937 random(seed + begin);
    std::vector<Item> items;
    for (uint32_t i = 0; i < kBatch; ++i) {
      items.push_back({ReadFile(files[(begin + i) % files.size()]), {}});
      if (begin + i >= files.size()) Mutate(&random, &items.back().file);
      if (random() % 2 == 0) items.back().ask = RandomAsk(&random, true);
    }
    // Buffers are allocated by sizes of parsers, so files must be long enough for them.
    const auto is_huge = [&](const Item& item) {
      CodeStream stream(item.file);
      const auto parsed = Parse(framework, stream);
      return parsed &&
             uint64_t{parsed->plane_info[0].width} * parsed->plane_info[0].height > 1 << 20;
    };
    items.erase(std::remove_if(items.begin(), items.end(), is_huge), items.end());
    if (items.empty()) continue;
    const std::vector<Result> results = DecodeOnGpu(framework, decoder, items);
    if (results != DecodeOnCpu(framework, items)) {
      throw std::runtime_error("batch of seed " + std::to_string(seed + begin) +
                               ": decoders differ");
    }
    for (const Result& result : results) ++seen[result.decoded];
  }
  std::printf("%u mutants of %zu files:", count, files.size());
  for (const auto& [status, times] : seen) std::printf(" %#x %u", status, times);
  std::printf("\n");
  CHECK(seen.size() > 2);
}

const Tests kTests = {
    {"batches_on_threads", BatchesOnThreads},
    {"colors_that_l3_does_not_have", ColorsThatL3DoesNotHave},
    {"damage_fails_alone", DamageFailsAlone},
    {"empty_batches", EmptyBatches},
    {"encoder_and_decoder", EncoderAndDecoder},
    {"encoder_options", EncoderOptions},
    {"encoder_refuses", EncoderRefuses},
    {"encoder_without_memory", EncoderWithoutMemory},
    {"executors_threads", ExecutorsThreads},
    {"gpu_decodes_as_the_cpu", GpuDecodesAsTheCpu},
    {"headers_say_what_is_wrong", HeadersSayWhatIsWrong},
    {"host_memory_is_refused", HostMemoryIsRefused},
    {"memory_of_the_framework", MemoryOfTheFramework},
    {"newer_structs_are_larger", NewerStructsAreLarger},
    {"nothing_for_null", NothingForNull},
    {"older_structs_are_refused", OlderStructsAreRefused},
    {"one_image", OneImage},
    {"other_versions_are_left_alone", OtherVersionsAreLeftAlone},
    {"streams_of_one_batch", StreamsOfOneBatch},
    {"without_a_gpu", WithoutAGpu},
};

int Run(const std::vector<std::string>& arguments) {
  EmulatedGpu gpu;
  g_gpu = &gpu;
  const std::string name = arguments.empty() ? "" : arguments[0];
  try {
    if (name == "--mutants" && arguments.size() > 2) {
      const bool has_seed = arguments[2] == "--seed" && arguments.size() > 4;
      const uint32_t seed = has_seed ? static_cast<uint32_t>(std::stoul(arguments[3])) : 0;
      RunMutants(static_cast<uint32_t>(std::stoul(arguments[1])), seed,
                 {arguments.begin() + (has_seed ? 4 : 2), arguments.end()});
      return 0;
    }
    const auto test = kTests.find(name);
    if (test == kTests.end()) {
      std::fprintf(stderr, "usage: l3_nvimgcodec_test NAME | --mutants N [--seed S] PATH...\n");
      return 2;
    }
    test->second();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::Run({argv + 1, argv + argc}); }
