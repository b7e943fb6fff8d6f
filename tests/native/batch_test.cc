// Tests of the batch engine and the encoded cache on the emulated GPU, in a program of its own
// since they count allocations.
//
//   l3_batch_test NAME
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu_decoder.h"
#include "cpu/cpu_engine.h"
#include "cuda/emulation/emulated_decoder.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/encoded_cache.h"
#include "encoder/encoder.h"
#include "encoder/jpeg_encoder.h"
#include "failing_allocations.h"
#include "files/file_handle.h"
#include "format/image_view.h"
#include "test_program.h"
#include "windowed_image.h"

namespace l3 {
namespace {

using Bytes = std::vector<uint8_t>;
using Pace = EmulatedPace;

constexpr Pace kPaces[] = {Pace::kEager, Pace::kLazy};

// Of the payloads: large enough that the batches below go in one part, or so small that they
// have several.
constexpr UploadPolicy kOnePart = BatchDecoder::kUsualUpload;
constexpr UploadPolicy kSmallParts = {1000, ~uint64_t{0}};

// An encoded file, and its samples.
struct Picture {
  Bytes file;
  Bytes samples;
  ImageView view;  // of `file`
  std::string name;
};

struct Kind {
  uint32_t width_px, height_px, channels, sample_bits;
  Coding coding;
  uint32_t noise_bits;  // of each sample, on a gradient; 0: all samples are the same
  bool is_signed = false;

  SampleType type() const {
    return sample_bits == 8 ? (is_signed ? SampleType::kInt8 : SampleType::kUint8)
                            : (is_signed ? SampleType::kInt16 : SampleType::kUint16);
  }
};

std::unique_ptr<Picture> MakePicture(const Kind& kind, uint32_t seed) {
  std::mt19937 random(seed);
  auto picture = std::make_unique<Picture>();
  const size_t count = size_t{kind.width_px} * kind.height_px * kind.channels;
  picture->samples.resize(count * kind.sample_bits / 8);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t x = static_cast<uint32_t>(i / kind.channels % kind.width_px);
    const uint32_t noise = random() & ((1u << kind.noise_bits) - 1);
    const uint32_t sample = kind.noise_bits == 0 ? seed : x + seed + noise;
    if (kind.sample_bits == 8) {
      picture->samples[i] = static_cast<uint8_t>(sample);
    } else {
      reinterpret_cast<uint16_t*>(picture->samples.data())[i] = static_cast<uint16_t>(sample);
    }
  }
  const PixelView pixels = {picture->samples.data(),
                            kind.width_px,
                            kind.height_px,
                            kind.channels,
                            kind.type(),
                            uint64_t{kind.width_px} * kind.channels * kind.sample_bits / 8};
  EncodeOptions options;
  options.coding = kind.coding;
  options.effort = 1;
  CHECK(EncodeImage(pixels, options, &picture->file) == Status::kOk);
  CHECK(ParseImage(picture->file.data(), picture->file.size(), &picture->view) == Status::kOk);
  picture->name = std::to_string(seed) + ".l3";
  return picture;
}

// One of jpeg tiles, whose chroma has half the rows and columns and whose coefficients fade.
std::unique_ptr<Picture> MakeJpegPicture(uint32_t width_px, uint32_t height_px, uint32_t seed) {
  std::mt19937 random(seed);
  JpegImage image;
  image.info.width_px = width_px;
  image.info.height_px = height_px;
  image.info.color = JpegColor::kYcbcr;
  image.info.components = 3;
  image.info.chroma_x_shift = image.info.chroma_y_shift = 1;
  image.Allocate();
  for (uint32_t c = 0; c < 3; ++c) {
    std::fill_n(image.info.quantizers[c], 64, uint16_t{9});
    const JpegBlockRect rect = JpegBlocksOfImage(image.info, c);
    for (uint32_t i = 0; i < 64 * rect.width * rect.height; ++i) {
      const uint32_t place = kJpegNaturalOrder[i % 64];
      const uint32_t range = 60 / (1 + place % 8 * (place % 8) + place / 8 * 3);
      image.blocks.At(c, i / 64 % rect.width, i / 64 / rect.width)[i % 64] = static_cast<int16_t>(
          static_cast<int32_t>(random() % (2 * range + 1)) - static_cast<int32_t>(range));
    }
  }
  auto picture = std::make_unique<Picture>();
  EncodeOptions options;
  options.tile_width_log2 = options.tile_height_log2 = 6;
  CHECK(EncodeJpeg(image, 1000, {}, options, [&picture](uint64_t bytes) {
          picture->file.resize(bytes);
          return picture->file.data();
        }) == Status::kOk);
  CHECK(ParseImage(picture->file.data(), picture->file.size(), &picture->view) == Status::kOk);
  picture->samples.resize(picture->view.info.image_bytes());
  const OutputPlan plan = WholeImagePlan(picture->view.info, picture->samples.data());
  const TileSpan span = TilesOfWindow(picture->view, plan.window);
  CpuDecoder(picture->view).DecodeWindows(&plan, 1, span, 0, span.tile_count());
  picture->name = std::to_string(seed) + ".l3";
  return picture;
}

using Pictures = std::vector<std::unique_ptr<Picture>>;

// One of each sort, small ones since lanes are emulated.
Pictures MakeMixedBatch(uint32_t seed) {
  constexpr Kind kKinds[] = {
      {40, 30, 3, 8, Coding::kRans, 4},    {37, 21, 3, 8, Coding::kPacked, 4},
      {1, 1, 1, 8, Coding::kPacked, 0},    {33, 17, 1, 16, Coding::kPacked, 9},
      {64, 9, 4, 8, Coding::kPacked, 8},   {19, 40, 1, 16, Coding::kRans, 6},
      {130, 40, 2, 8, Coding::kPacked, 2},
  };
  Pictures batch;
  for (const Kind& kind : kKinds) {
    batch.push_back(MakePicture(kind, seed++));
  }
  return batch;
}

// Several tiles of each coding.
Pictures MakeOneOfEachMode() {
  Pictures batch;
  batch.push_back(MakePicture({300, 200, 3, 8, Coding::kRans, 4}, 1));
  batch.push_back(MakePicture({300, 200, 3, 8, Coding::kPacked, 4}, 2));
  return batch;
}

void DamageLastTile(Picture* picture) { picture->file.back() ^= 0x40; }

// The outputs of a batch in the memory of the device.
class Outputs {
 public:
  Outputs(EmulatedGpu* gpu, const Pictures& batch)
      : device_(gpu->MakeDevice(Pace::kEager)), stream_(device_->MakeStream()) {
    for (const auto& picture : batch) {
      memory_.push_back(device_->AllocateDevice(picture->samples.size()));
    }
  }

  uint8_t* data(size_t i) const { return static_cast<uint8_t*>(memory_[i].get()); }

  // What lies there now.
  Bytes Read(size_t i, size_t bytes) const {
    Bytes samples(bytes);
    const auto event = device_->MakeEvent();
    device_->Copy(samples.data(), data(i), bytes, stream_.get());
    event->Record(stream_.get());
    event->Synchronize();
    return samples;
  }

  bool AreRight(const Pictures& batch) const {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (Read(i, batch[i]->samples.size()) != batch[i]->samples) return false;
    }
    return true;
  }

 private:
  std::unique_ptr<GpuDevice> device_;
  std::shared_ptr<CUstream_st> stream_;
  std::vector<std::shared_ptr<void>> memory_;
};

std::vector<WindowedImage> MakeImages(const Pictures& batch, const Outputs& outputs) {
  std::vector<WindowedImage> images;
  for (size_t i = 0; i < batch.size(); ++i) {
    const ImageView& view = batch[i]->view;
    images.push_back({view, {WholeImagePlan(view.info, outputs.data(i))}});
  }
  return images;
}

// The files of a batch one after the other, as a reader leaves them in pinned memory.
class PinnedFiles {
 public:
  explicit PinnedFiles(const Pictures& batch, size_t gap_bytes = 0) {
    size_t bytes = 0;
    for (const auto& picture : batch) bytes += picture->file.size() + gap_bytes;
    memory_.reset(new (std::align_val_t{16}) uint8_t[bytes]);
    uint8_t* place = memory_.get();
    for (const auto& picture : batch) {
      const Bytes& file = picture->file;
      std::memcpy(place, file.data(), file.size());
      CHECK(ParseImage(place, file.size(), &views_.emplace_back()) == Status::kOk);
      place += file.size() + gap_bytes;
    }
  }

  // Images whose number has one of the bits of `mask` at this place.
  std::vector<WindowedImage> Pin(std::vector<WindowedImage> images, uint32_t mask) const {
    for (size_t i = 0; i < images.size(); ++i) {
      images[i].is_pinned = (mask >> i & 1) != 0;
      if (images[i].is_pinned) images[i].view = views_[i];
    }
    return images;
  }
  const ImageView& view(size_t i) const { return views_[i]; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { operator delete[](memory, std::align_val_t{16}); }
  };
  std::unique_ptr<uint8_t[], Free> memory_;
  std::vector<ImageView> views_;
};

std::shared_ptr<EncodedCache> MakeCache(EmulatedGpu* gpu, const CacheOptions& options) {
  return std::make_shared<EncodedCache>(options, gpu->MakeDevice(Pace::kLazy));
}

// The same as an operator does it that has a cache.
std::vector<WindowedImage> MakeCachedImages(const Pictures& batch, const Outputs& outputs,
                                            EncodedCache* cache) {
  std::vector<WindowedImage> images = MakeImages(batch, outputs);
  for (size_t i = 0; i < batch.size(); ++i) {
    const Picture& picture = *batch[i];
    images[i].cached =
        cache->Find(picture.name, picture.file.data(), picture.file.size(), picture.file.size());
    if (images[i].cached != nullptr) {
      images[i].view = images[i].cached->view;
    } else if (cache->Wants(picture.name, picture.view)) {
      images[i].cache_key = &picture.name;
    }
  }
  return images;
}

bool AllOk(const std::vector<DecodeResult>& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const DecodeResult& r) { return r.status == Status::kOk; });
}

const ForEach kOnTwoThreads = [](size_t count, const std::function<void(size_t)>& task) {
  ParallelFor(count, 2, [&task](uint64_t i) { task(i); });
};

// A device that does nothing, and remembers what it was asked.
class IdleDevice : public GpuDevice {
 public:
  struct Upload {
    const uint8_t* from;
    size_t bytes;
  };

  explicit IdleDevice(std::vector<Upload>* uploads = nullptr) : uploads_(uploads) {}

  GpuLimits limits() const override { return kLargeGpu; }
  std::shared_ptr<void> AllocatePinned(size_t bytes) override { return Allocate(bytes); }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override { return Allocate(bytes); }
  std::shared_ptr<CUstream_st> MakeStream() override {
    return {reinterpret_cast<CUstream_st*>(this), [](CUstream_st*) {}};
  }
  std::unique_ptr<GpuEvent> MakeEvent() override { return std::make_unique<Event>(); }
  void Copy(void*, const void* from, size_t bytes, CUstream_st* stream) override {
    if (uploads_ != nullptr && stream != nullptr) {
      uploads_->push_back({static_cast<const uint8_t*>(from), bytes});
    }
  }
  void Launch(const TileBatch&, CUstream_st*) override {}
  void LaunchJpeg(const JpegBatch&, CUstream_st*) override {}
  void LaunchJoins(const JoinTask*, size_t, CUstream_st*) override {}

 private:
  struct Event : GpuEvent {
    void Record(CUstream_st*) override {}
    void Synchronize() override {}
    void MakeWait(CUstream_st*) override {}
  };

  static std::shared_ptr<void> Allocate(size_t bytes) {
    return std::shared_ptr<uint8_t[]>(new uint8_t[bytes]);
  }

  std::vector<Upload>* uploads_;
};

// Batches follow one another at any pace of the decoder's uploads and of the stream, also
// if no caller waits for their results.
void BatchesInFlight() {
  std::vector<Pictures> batches;
  for (uint32_t i = 0; i < 4; ++i) batches.push_back(MakeMixedBatch(10 * i));
  std::rotate(batches[2].begin(), batches[2].begin() + 2, batches[2].end());
  const auto decode = [&](Pace upload_pace, Pace pace, const UploadPolicy& upload, bool waits) {
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(pace);
    std::vector<Outputs> outputs;
    for (const Pictures& batch : batches) outputs.emplace_back(&gpu, batch);
    BatchDecoder decoder(gpu.MakeDevice(upload_pace), nullptr, upload);
    decoder.Reserve(1 << 20, 1 << 20);  // growing would wait
    for (size_t i = 0; i < batches.size(); ++i) {
      decoder.Launch(JobsOf(MakeImages(batches[i], outputs[i])), stream.get(), kOnTwoThreads);
      if (waits && i > 0) CHECK(AllOk(decoder.Wait()));
    }
    for (int i = 0; i < 2; ++i) CHECK(AllOk(decoder.Wait()));
    for (size_t i = 0; i < batches.size(); ++i) CHECK(outputs[i].AreRight(batches[i]));
    // Rans and packed tiles, samples of one byte and of two; more in several parts.
    const bool in_parts = upload.part_bytes != kOnePart.part_bytes;
    CHECK(in_parts ? gpu.launches() > 4 * batches.size() : gpu.launches() == 4 * batches.size());
  };
  for (const Pace upload_pace : kPaces) {
    for (const Pace pace : kPaces) {
      for (const UploadPolicy& upload : {kOnePart, kSmallParts}) {
        for (const bool waits : {true, false}) decode(upload_pace, pace, upload, waits);
      }
    }
  }
}

// Payloads that several windows of a file touch go up once, and each tile is decoded once.
void WindowsOfOneFile() {
  const auto picture = MakePicture({300, 200, 3, 8, Coding::kPacked, 4}, 1);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto memory = gpu.MakeDevice(Pace::kEager)->AllocateDevice(picture->samples.size());
  OutputPlan plan = WholeImagePlan(picture->view.info, static_cast<uint8_t*>(memory.get()));
  std::vector<WindowedImage> images = {{picture->view, {plan}}};
  for (const Window& window : {Window{0, 0, 9, 9}, {9, 9, 280, 100}, {290, 190, 10, 10}, {}}) {
    plan.window = window;
    images[0].plans.push_back(plan);
  }
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
  decoder.Launch(JobsOf(images), stream.get(), kOnTwoThreads);
  CHECK(AllOk(decoder.Wait()));
  CHECK(gpu.decoded_tiles() == picture->view.info.tile_count());
  CHECK(decoder.uploaded_bytes() < picture->view.payloads_bytes + (16 << 10));
}

// The images of a batch in files, and handles of them.
class StoredFiles {
 public:
  explicit StoredFiles(const Pictures& batch) {
    CHECK(mkdtemp(folder_) != nullptr);
    for (size_t i = 0; i < batch.size(); ++i) {
      File& file = files_.emplace_back();
      file.path = std::string(folder_) + "/" + std::to_string(i);
      Write(i, Bytes(i, 0xEE), batch[i]->file);  // behind other bytes, as in a tar
      CHECK(LookAt(file.path.c_str(), &file.handle.identity).empty());
      const ImageView& view = batch[i]->view;
      file.head.assign(view.payloads - PayloadsOffset(view), view.payloads);
      file.handle = {file.path.c_str(),     file.handle.identity, i,
                     batch[i]->file.size(), file.head.data(),     file.head.size()};
      CHECK(ParseHandle(file.handle, &file.view) == Status::kOk);
    }
  }
  StoredFiles(const StoredFiles&) = delete;
  ~StoredFiles() {
    Remove();
    rmdir(folder_);
  }

  void Write(size_t i, const Bytes& before, const Bytes& file) {
    std::ofstream stream(files_[i].path, std::ios::binary);
    for (const Bytes* bytes : {&before, &file}) {
      stream.write(reinterpret_cast<const char*>(bytes->data()),
                   static_cast<std::streamsize>(bytes->size()));
    }
  }
  void Remove() {
    for (const File& file : files_) unlink(file.path.c_str());
  }
  const FileHandle& handle(size_t i) const { return files_[i].handle; }

  // Images that read from the files, and their readers.
  std::vector<WindowedImage> Open(std::vector<WindowedImage> images) {
    readers_.clear();
    for (size_t i = 0; i < images.size(); ++i) {
      images[i].view = files_[i].view;
      images[i].source = &readers_.emplace_back(files_[i].handle);
    }
    return images;
  }
  PayloadReader& reader(size_t i) { return readers_[i]; }

 private:
  struct File {
    std::string path;
    Bytes head;
    FileHandle handle;
    ImageView view;
  };
  char folder_[32] = "/tmp/l3_batch_test.XXXXXX";
  std::deque<File> files_;
  std::deque<PayloadReader> readers_;
};

// Tiles of files are read, no others, in one launch or several, by a process with few descriptors.
void TilesOfFilesAreRead() {
  Pictures batch = MakeMixedBatch(3);
  for (auto& picture : MakeOneOfEachMode()) batch.push_back(std::move(picture));
  batch.push_back(MakeJpegPicture(300, 200, 1));
  batch.push_back(MakeJpegPicture(65, 129, 3));
  for (uint32_t i = 0; i < 30; ++i) {
    batch.push_back(MakePicture({150, 140, 1, 8, Coding::kPacked, 5}, 40 + i));
  }
  StoredFiles files(batch);
  rlimit before;
  CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 12;
  for (const Pace pace : kPaces) {
    for (const UploadPolicy& upload : {kOnePart, kSmallParts, UploadPolicy{20000, 1}}) {
      EmulatedGpu gpu;
      const auto stream = gpu.MakeStream(pace);
      const Outputs outputs(&gpu, batch);
      BatchDecoder decoder(gpu.MakeDevice(pace), nullptr, upload);
      const auto decode = [&](const std::vector<WindowedImage>& images) {
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        const auto results = decoder.Decode(JobsOf(images), stream.get(), kOnTwoThreads);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        return results;
      };
      std::vector<WindowedImage> images = files.Open(MakeImages(batch, outputs));
      images[2].view = batch[2]->view;  // a file in memory among them
      images[2].source = nullptr;
      CHECK(AllOk(decode(images)) && outputs.AreRight(batch));
      CHECK((gpu.launches() > 8) == (upload.part_bytes != kOnePart.part_bytes));

      const uint64_t whole = gpu.uploaded_bytes();
      for (size_t i : {7, 8, 9}) {  // of jpeg tiles, the halo begins in the same ones
        images[i].plans[0].window = {270, 150, 30, 50};
        images[i].plans[0].y_stride_bytes = 90;
      }
      images.erase(images.begin() + 10, images.end());
      images.erase(images.begin(), images.begin() + 7);
      CHECK(AllOk(decode(images)));
      CHECK(gpu.uploaded_bytes() - whole < batch[7]->file.size() / 2);
      for (const size_t i : {7, 8, 9}) {
        const Bytes rows = outputs.Read(i, 90 * 50);
        for (size_t y = 0; y < 50; ++y) {
          const uint8_t* expected = batch[i]->samples.data() + 3 * (300 * (150 + y) + 270);
          CHECK(std::memcmp(rows.data() + 90 * y, expected, 90) == 0);
        }
      }
    }
  }
}

// A source whose reads come once something waits for them, as those of a network.
class LateSource final : public PayloadSource {
 public:
  LateSource(const FileHandle& handle, std::atomic<int>* begun) : reader_(handle), begun_(*begun) {}
  Traits traits() const override { return {true, 0, ~uint64_t{0}}; }
  bool Check() override { return reader_.Check(); }
  void Read(uint64_t begin, size_t bytes, uint8_t* to) override {
    if (reads_.empty()) ++begun_;
    reads_.push_back([this, begin, bytes, to] { reader_.Read(begin, bytes, to); });
  }
  bool Wait() override {
    others_ = begun_;
    for (const auto& read : reads_) read();
    return reader_.Wait();
  }
  void Close() override {}
  std::string error() override { return reader_.error(); }
  // How many sources had begun to read before this one was waited for.
  int others() const { return others_; }

 private:
  PayloadReader reader_;
  std::atomic<int>& begun_;
  std::vector<std::function<void()>> reads_;
  int others_ = 0;
};

// All objects of a batch are asked for before one is waited for, however it is cut for files.
void ObjectsAreAskedForAtOnce() {
  const Pictures batch = MakeMixedBatch(3);
  StoredFiles files(batch);
  for (const UploadPolicy& upload : {kOnePart, kSmallParts}) {
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs outputs(&gpu, batch);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), nullptr, upload);
    std::vector<WindowedImage> images = files.Open(MakeImages(batch, outputs));
    std::atomic<int> begun{0};
    std::deque<LateSource> sources;
    for (size_t i = 0; i < images.size(); ++i) {
      images[i].source = &sources.emplace_back(files.handle(i), &begun);
    }
    CHECK(AllOk(decoder.Decode(JobsOf(images), stream.get())) && outputs.AreRight(batch));
    for (const LateSource& source : sources) {
      CHECK(source.others() == static_cast<int>(images.size()));
    }
  }
}

// A file that changed since it was listed, or ends early, or is gone, costs its image alone.
void FilesThatChange() {
  const Pictures batch = MakeMixedBatch(3);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache, kSmallParts);
  StoredFiles files(batch);
  for (const bool is_bad : {false, true}) {
    const Outputs outputs(&gpu, batch);
    std::vector<WindowedImage> images = files.Open(MakeImages(batch, outputs));
    images[1].cache_key = &batch[1]->name;
    if (is_bad) {
      files.Write(1, {0xEE}, Bytes(batch[1]->file.size()));
      files.Write(4, {}, {});
      unlink(files.handle(6).path);
      images[1].cache_key = &batch[2]->name;
    }
    const auto results = decoder.Decode(JobsOf(images), stream.get(), kOnTwoThreads);
    for (const size_t i : {0, 1, 2, 3, 4, 5, 6}) {
      const bool is_lost = is_bad && (i == 1 || i == 4 || i == 6);
      CHECK(results[i].status == (is_lost ? Status::kTruncated : Status::kOk));
      CHECK((files.reader(i).error().find(files.handle(i).path) == 0) == is_lost);
      CHECK(is_lost || outputs.Read(i, batch[i]->samples.size()) == batch[i]->samples);
    }
  }
  CHECK(cache->statistics().entries == 1 && cache->Peek(batch[1]->name) != nullptr);
}

// An image in the cache is decoded without its file, which the handle's head is compared with.
void CacheServesHandles() {
  const Pictures batch = MakeMixedBatch(4);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
  StoredFiles files(batch);
  const auto find = [&](size_t i, size_t head_bytes) {
    const FileHandle& handle = files.handle(i);
    return cache->Find(batch[i]->name, handle.head, head_bytes, handle.bytes);
  };
  for (const bool is_cached : {false, true}) {
    const Outputs outputs(&gpu, batch);
    std::vector<WindowedImage> images = files.Open(MakeImages(batch, outputs));
    for (size_t i = 0; i < batch.size(); ++i) {
      images[i].cached = find(i, files.handle(i).head_bytes);
      CHECK((images[i].cached != nullptr) == is_cached);
      CHECK(find(i, 0) == nullptr);
      if (!is_cached) images[i].cache_key = &batch[i]->name;
      if (is_cached) images[i].view = images[i].cached->view;
      const Bytes& file = batch[i]->file;
      CHECK((cache->Find(batch[i]->name, file.data(), file.size(), file.size()) != nullptr) ==
            is_cached);
    }
    CHECK(AllOk(decoder.Decode(JobsOf(images), stream.get())) && outputs.AreRight(batch));
    files.Remove();
  }
}

void ResultsInOrder() {
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
  CHECK(decoder.Wait().empty());
  Pictures batch = MakeMixedBatch(1);
  const Outputs outputs(&gpu, batch);
  const std::vector<WindowedImage> images = MakeImages(batch, outputs);
  for (size_t i = 0; i < 3; ++i) {  // the results of batch 0 are lost
    DamageLastTile(batch[i].get());
    decoder.Launch(JobsOf(images), stream.get());
  }
  CHECK(decoder.Wait()[1].status == Status::kChecksumMismatch);
  CHECK(decoder.Wait()[2].status == Status::kChecksumMismatch);
  CHECK(decoder.Wait()[2].status == Status::kChecksumMismatch);
  decoder.Launch({}, stream.get());
  CHECK(decoder.Wait().empty());
  CHECK(decoder.uploaded_bytes() == 0);
}

// Files in pinned memory go up from there, in one copy where they follow one another.
void PinnedFilesAreNotStaged() {
  const Pictures batch = MakeMixedBatch(8);
  for (const Pace pace : kPaces) {
    for (const UploadPolicy& upload : {UploadPolicy{~uint64_t{0}, 1}, {1000, 1}, {1000, 2000}}) {
      for (const uint32_t mask : {0x7Fu, 0x55u, 0x36u}) {
        EmulatedGpu gpu;
        const auto stream = gpu.MakeStream(pace);
        const Outputs outputs(&gpu, batch);
        BatchDecoder decoder(gpu.MakeDevice(pace), nullptr, upload);
        {
          const PinnedFiles files(batch);
          decoder.Launch(JobsOf(files.Pin(MakeImages(batch, outputs), mask)), stream.get(),
                         kOnTwoThreads);
          CHECK(AllOk(decoder.Wait()));
        }
        CHECK(outputs.AreRight(batch));
        CHECK(gpu.uploaded_bytes() == decoder.uploaded_bytes());
      }
    }
  }

  EmulatedGpu gpu;
  const Outputs outputs(&gpu, batch);
  const PinnedFiles files(batch);
  const std::vector<WindowedImage> images = files.Pin(MakeImages(batch, outputs), ~0u);
  std::vector<IdleDevice::Upload> uploads;
  BatchDecoder decoder(std::make_unique<IdleDevice>(&uploads), nullptr, {~uint64_t{0}, 1});
  decoder.Launch(JobsOf(images), nullptr);
  CHECK(uploads.size() == 3);  // the files, descriptors and all that, padding
  const ImageView& last = files.view(batch.size() - 1);
  CHECK(uploads[0].from == files.view(0).payloads);
  CHECK(uploads[0].from + uploads[0].bytes == last.payloads + last.payloads_bytes);
  CHECK(uploads[2].bytes == kPayloadPaddingBytes);
  CHECK(uploads[0].bytes + uploads[1].bytes + uploads[2].bytes == decoder.uploaded_bytes());

  // Files that do not follow one another: what lies between may be anybody's.
  uploads.clear();
  const PinnedFiles apart(batch, 8);
  decoder.Launch(JobsOf(apart.Pin(MakeImages(batch, outputs), ~0u)), nullptr);
  CHECK(uploads.size() == 2 + batch.size());
}

// A batch that is served by the cache allocates nothing either, and begins no threads.
void SteadyStateAllocatesNothing() {
  const Pictures batch = MakeMixedBatch(3);
  const auto cache = std::make_shared<EncodedCache>(
      CacheOptions{1 << 20, CachePolicy::kThreshold, 0}, std::make_unique<IdleDevice>());
  EmulatedGpu gpu;
  const Outputs outputs(&gpu, batch);
  BatchDecoder decoder(std::make_unique<IdleDevice>(), cache, {1000, 1});
  size_t calls = 0;
  const ForEach for_each = [&calls](size_t count, const std::function<void(size_t)>& task) {
    ++calls;
    for (size_t i = 0; i < count; ++i) task(i);
  };
  const PinnedFiles files(batch);
  for (const bool cached : {false, true}) {
    std::vector<WindowedImage> images;
    std::vector<WindowJob> jobs;
    const auto run = [&] {
      decoder.Launch(jobs, nullptr, for_each);
      CHECK(decoder.Wait().size() == batch.size());
    };
    images = cached ? MakeCachedImages(batch, outputs, cache.get())
                    : files.Pin(MakeImages(batch, outputs), 0x35);
    jobs = JobsOf(images);
    for (int i = 0; i < 2; ++i) run();
    if (cached) images = MakeCachedImages(batch, outputs, cache.get());
    jobs = JobsOf(images);
    CHECK(!cached || images[0].cached != nullptr);
    const uint64_t before = allocations;
    for (int i = 0; i < 10; ++i) run();
    CHECK(allocations == before && calls != 0);
    if (!cached) continue;
    calls = 0;
    BatchDecoder usual(std::make_unique<IdleDevice>(), cache);
    usual.Launch(jobs, nullptr, for_each);
    CHECK(usual.Wait().size() == batch.size() && calls == 0);
  }
}

// Whichever allocation fails, the batch in flight is not disturbed and the next one is fine.
void OutOfMemory() {
  const Pictures small = MakeMixedBatch(2);
  Pictures large = MakeMixedBatch(20);
  for (uint32_t i = 0; i < 4; ++i) {
    large.push_back(MakePicture({90, 70, 3, 8, Coding::kPacked, 8}, 30 + i));
  }
  for (uint64_t failing = 0;; ++failing) {
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs small_outputs(&gpu, small);
    const Outputs large_outputs(&gpu, large);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
    const std::vector<WindowedImage> images = MakeImages(large, large_outputs);
    decoder.Launch(JobsOf(MakeImages(small, small_outputs)), stream.get());
    decoder.Launch(JobsOf(MakeImages(small, small_outputs)), stream.get());
    gpu.FailAllocations(failing, 2);  // with room for more, and without
    bool failed = false;
    try {
      decoder.Launch(JobsOf(images), stream.get());
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    if (failed) {
      CHECK(decoder.Wait().size() == small.size() && small_outputs.AreRight(small));
      decoder.Launch(JobsOf(images), stream.get());
    } else {
      CHECK(failing == 3);  // memory of the device, staging, results
      CHECK(decoder.Wait().size() == small.size());
    }
    CHECK(decoder.Wait().size() == large.size() && large_outputs.AreRight(large));
    if (!failed) break;
  }

  // Too little for room, but enough.
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const Outputs outputs(&gpu, large);
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
  gpu.FailAllocations(0, 1);
  decoder.Launch(JobsOf(MakeImages(large, outputs)), stream.get());
  CHECK(AllOk(decoder.Wait()) && outputs.AreRight(large));
}

void ReservedMemoryIsEnough() {
  const Pictures batch = MakeMixedBatch(2);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const Outputs outputs(&gpu, batch);
  const std::vector<WindowedImage> images = MakeImages(batch, outputs);
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
  decoder.Reserve(1 << 20, 1 << 20);
  decoder.Reserve(1 << 10, 1 << 10);
  const uint64_t reserved = gpu.allocations();
  decoder.Launch(JobsOf(images), stream.get());
  CHECK(gpu.allocations() == reserved + 1);  // of the results
  decoder.Wait();
  CHECK(outputs.AreRight(batch));
}

// Buffers that grow are those of a batch in flight.
void GrowingInFlight() {
  const Pictures small = MakeMixedBatch(2);
  Pictures large = MakeMixedBatch(20);
  for (uint32_t i = 0; i < 9; ++i) {
    large.push_back(MakePicture({8, 8, 1, 8, Coding::kPacked, 3}, i));
  }
  for (const size_t reserved : {0, 1 << 20}) {  // the second time only the results grow
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs small_outputs(&gpu, small);
    const Outputs large_outputs(&gpu, large);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
    decoder.Reserve(reserved, reserved);
    for (int i = 0; i < 2; ++i) {
      decoder.Launch(JobsOf(MakeImages(small, small_outputs)), stream.get());
    }
    decoder.Launch(JobsOf(MakeImages(large, large_outputs)), stream.get());
    decoder.Reserve(0, 2 << 20);
    for (int i = 0; i < 2; ++i) CHECK(AllOk(decoder.Wait()));
    CHECK(small_outputs.AreRight(small) && large_outputs.AreRight(large));
  }
}

// A staging task that fails: chunks and files are on their way, parts are launched. None of that
// goes on when the caller gets the error.
void FailedStaging() {
  const Pictures batch = MakeMixedBatch(2);
  for (size_t failing = 0;; ++failing) {
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs outputs(&gpu, batch);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), nullptr, {1000, 1});
    decoder.Launch(JobsOf(MakeImages(batch, outputs)), stream.get());
    const size_t queued = gpu.QueuedWork(stream.get());
    size_t calls = 0;
    bool failed = false;
    {
      const Outputs lost(&gpu, batch);
      const PinnedFiles files(batch);
      try {
        decoder.Launch(JobsOf(files.Pin(MakeImages(batch, lost), 0x12)), stream.get(),
                       [&](size_t count, const std::function<void(size_t)>& task) {
                         if (calls++ == failing) throw std::runtime_error("a thread died");
                         for (size_t i = 0; i < count; ++i) task(i);
                       });
      } catch (const std::runtime_error&) {
        failed = true;
        // Headers come first: while they are read, there is nothing to wait for.
        CHECK(gpu.QueuedWork(stream.get()) == (failing == 0 ? queued : 0));
      }
      if (!failed) {
        CHECK(failing >= 4);  // headers, then a chunk for each part
        for (int i = 0; i < 2; ++i) CHECK(AllOk(decoder.Wait()));
        CHECK(lost.AreRight(batch));
        return;
      }
    }
    CHECK(AllOk(decoder.Wait()) && outputs.AreRight(batch));
    const Outputs again(&gpu, batch);
    decoder.Launch(JobsOf(MakeImages(batch, again)), stream.get());
    CHECK(AllOk(decoder.Wait()) && again.AreRight(batch));
  }
}

void DestructionWaitsForItsOwnWork() {
  const Pictures batch = MakeMixedBatch(2);
  EmulatedGpu gpu;
  const Outputs outputs(&gpu, batch);
  const uint64_t before = gpu.live_bytes();
  const auto device = gpu.MakeDevice(Pace::kLazy);
  const Bytes from(8);
  Bytes to(8);
  const auto foreign = device->MakeStream();
  device->Copy(to.data(), from.data(), 8, foreign.get());
  for (const bool fills_cache : {false, true}) {
    const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
    {
      const auto stream = gpu.MakeStream(Pace::kLazy);
      BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
      decoder.Launch(JobsOf(MakeImages(batch, outputs)), stream.get());
      if (fills_cache) {
        decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
      }
      device->Copy(to.data(), from.data(), 8, stream.get());
      CHECK(gpu.QueuedWork(stream.get()) > 1);
    }
    CHECK(outputs.AreRight(batch));
  }
  CHECK(gpu.live_bytes() == before);
  CHECK(gpu.QueuedWork(foreign.get()) == 1);
}

void ManyTinyImages() {
  Pictures batch;
  for (uint32_t i = 0; i < 1024; ++i) {
    const Coding coding = i % 2 == 0 ? Coding::kPacked : Coding::kRans;
    batch.push_back(MakePicture({i % 3 + 1, i % 5 + 1, i % 4 + 1, 8, coding, 3}, i));
  }
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kEager);
  const Outputs outputs(&gpu, batch);
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
  decoder.Launch(JobsOf(MakeImages(batch, outputs)), stream.get(), kOnTwoThreads);
  CHECK(decoder.Wait().size() == 1024 && outputs.AreRight(batch));
  CHECK(gpu.launches() == 2);  // of rans tiles, and of packed ones
}

// Few packed tiles of RGB8 are decoded by teams; other images, and more tiles, are not.
void FewTilesInTeams() {
  const Kind rgb = {300, 100, 3, 8, Coding::kPacked, 4};
  Kind gray = rgb;
  gray.channels = 1;
  Kind deep = rgb;
  deep.sample_bits = 16;
  const auto in_teams = [](const std::vector<Kind>& kinds, size_t copies) {
    std::vector<WindowedImage> images;
    Pictures batch;
    for (const Kind& kind : kinds) batch.push_back(MakePicture(kind, 1));
    for (size_t i = 0; i < copies * batch.size(); ++i) {
      const ImageView& view = batch[i % batch.size()]->view;
      images.push_back({view, {WholeImagePlan(view.info, nullptr)}});
    }
    std::vector<WindowJob> jobs = JobsOf(images);
    BatchLayout layout;
    layout.Plan(&jobs, kLargeGpu);
    return layout.Batch(nullptr, 0).in_teams != 0;
  };
  CHECK(in_teams({rgb}, 1) && in_teams({rgb, deep}, 1));
  CHECK(!in_teams({gray}, 1) && !in_teams({deep}, 1) && !in_teams({rgb, gray}, 1));
  CHECK(!in_teams({rgb}, kLargeGpu.team_tiles[0]));
}

// An index that changes after validation: the image is damaged, and nothing is read that
// is not there.
void IndexChangesWhilePlanned() {
  for (const bool pinned : {false, true}) {
    Pictures batch;
    batch.push_back(MakePicture({300, 200, 1, 8, Coding::kPacked, 4}, 1));
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs outputs(&gpu, batch);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), nullptr, {1, 1});
    std::vector<WindowedImage> images = MakeImages(batch, outputs);
    images[0].is_pinned = pinned;
    uint8_t* index = const_cast<uint8_t*>(batch[0]->view.tile_index);
    size_t calls = 0;
    decoder.Launch(JobsOf(images), stream.get(),
                   [&](size_t count, const std::function<void(size_t)>& task) {
                     for (size_t i = 0; i < count; ++i) task(i);
                     if (calls++ == 0) std::fill(index, index + 24, uint8_t{0xFF});
                   });
    CHECK(decoder.Wait()[0].status == Status::kCorruptHeader && decoder.Wait()[0].tile == 0);
  }
}

// A chunk that changes after validation: the image is damaged, and no memory is shown
// that was never written.
void ValueTableChangesWhileStaged() {
  const auto picture = std::make_unique<Picture>();
  Bytes samples(64 * 96);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<uint8_t>(i * i % 5 * 51 / 2);
  CHECK(EncodeImage({samples.data(), 64, 96, 1, SampleType::kUint8, 64}, {}, &picture->file) ==
        Status::kOk);
  CHECK(ParseImage(picture->file.data(), picture->file.size(), &picture->view) == Status::kOk);
  CHECK(picture->view.value_count > 1);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto device = gpu.MakeDevice(Pace::kEager);
  const auto memory = device->AllocateDevice(samples.size());
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
  const std::vector<WindowedImage> batch = {
      {picture->view, {WholeImagePlan(picture->view.info, static_cast<uint8_t*>(memory.get()))}}};
  const ChunkView gaps = picture->view.value_table;
  std::fill_n(const_cast<uint8_t*>(gaps.data), gaps.size, uint8_t{0xFF});
  decoder.Launch(JobsOf(batch), stream.get());
  CHECK(decoder.Wait()[0].status == Status::kCorruptHeader && decoder.Wait()[0].tile == 0);
}

// The coding of a tile is read to see whether tables are needed, and again to decode it: where it
// has become rans in between there are none.
void RansTileWithoutTables() {
  const auto picture = MakePicture({40, 30, 3, 8, Coding::kRans, 4}, 1);
  const ImageView& view = picture->view;
  const SampleMap map = MakeSampleMap(view.info);
  uint64_t begin;
  uint32_t bytes;
  CHECK(view.FindPayload(0, &begin, &bytes));
  Bytes samples(picture->samples.size());
  const ImageOutput output = {samples.data(), view.info.row_bytes()};
  CHECK(DecodeTile(view.info, map, nullptr, 0, view.payloads + begin, bytes, output) ==
        Status::kCorruptTile);
#if defined(__x86_64__)
  const auto decode = [&](const auto& decode_tiles) {
    TileJob jobs[2];
    for (TileJob& job : jobs) job = {0, view.payloads + begin, bytes, output, Status::kOk};
    decode_tiles(view.info, map, nullptr, jobs, 2);
    CHECK(jobs[0].status == Status::kCorruptTile && jobs[1].status == Status::kCorruptTile);
  };
  if (IsAvailable(CpuEngine::kAvx2)) decode(DecodeTilesAvx2);
  if (IsAvailable(CpuEngine::kAvx512)) decode(DecodeTilesAvx512);
#endif
  // On a GPU: with another image's tables in place, and in kernels that have none.
  for (const bool with_another : {false, true}) {
    Pictures batch;
    batch.push_back(MakePicture({40, 30, 3, 8, Coding::kRans, 4}, 1));
    if (with_another) batch.push_back(MakePicture({40, 30, 3, 8, Coding::kRans, 4}, 2));
    uint8_t* coding = const_cast<uint8_t*>(batch[0]->view.payloads) + 4;
    *coding = static_cast<uint8_t>(TileCoding::kPacked);
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs outputs(&gpu, batch);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy));
    size_t calls = 0;
    decoder.Launch(JobsOf(MakeImages(batch, outputs)), stream.get(),
                   [&](size_t count, const std::function<void(size_t)>& task) {
                     for (size_t i = 0; i < count; ++i) task(i);
                     if (calls++ == 0) *coding = static_cast<uint8_t>(TileCoding::kRans);
                   });
    const std::vector<DecodeResult> results = decoder.Wait();
    CHECK(results[0].status == Status::kCorruptTile && results[0].tile == 0);
    CHECK(!with_another || results[1].status == Status::kOk);
  }
}

// An index whose rows of tiles all claim the whole file: no more is staged than the file has.
void IndexThatOverlapsStagesNoMore() {
  const auto picture = MakePicture({64, 2048, 1, 8, Coding::kPacked, 4}, 1);
  const ImageView& view = picture->view;
  CHECK(view.info.tile_rows() > 8);
  uint8_t* index = const_cast<uint8_t*>(view.tile_index);
  const uint32_t all = static_cast<uint32_t>(view.payloads_bytes / kPayloadAlignment);
  for (uint32_t tile = 0; tile < view.info.tile_count(); ++tile) {
    StoreU32(index + 4 * tile, tile % 2 == 0 ? all : 0);
  }
  const std::vector<WindowedImage> images = {{view, {WholeImagePlan(view.info, nullptr)}}};
  std::vector<WindowJob> jobs = JobsOf(images);
  BatchLayout layout;
  layout.Plan(&jobs, kLargeGpu);
  CHECK(layout.staged_bytes() < view.payloads_bytes + (16 << 10));
}

// What a cache keeps of a file that changes is validated once more.
void CacheValidatesWhatItKeeps() {
  for (const bool of_model : {false, true}) {
    Pictures batch;
    batch.push_back(MakePicture({400, 300, 3, 8, Coding::kRans, 4}, 1));
    const ImageView& view = batch[0]->view;
    CHECK(view.rans_model.data != nullptr);
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const Outputs outputs(&gpu, batch);
    std::vector<WindowedImage> images = MakeImages(batch, outputs);
    images[0].cache_key = &batch[0]->name;
    uint8_t* place = const_cast<uint8_t*>(of_model ? view.rans_model.data : view.tile_index);
    size_t calls = 0;
    size_t last_call = 0;
    for (const bool changes : {false, true}) {  // the first time calls are counted
      last_call = changes ? calls : 0;
      calls = 0;
      const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
      BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
      decoder.Launch(JobsOf(images), stream.get(),
                     [&](size_t count, const std::function<void(size_t)>& task) {
                       for (size_t i = 0; i < count; ++i) task(i);
                       if (++calls == last_call) std::fill_n(place, 16, uint8_t{0xFF});
                     });
      CHECK(decoder.Wait()[0].status == Status::kOk);
      CHECK((cache->Peek(batch[0]->name) == nullptr) == changes);
    }
  }
}

// A file that the reader skipped comes without bytes. Payloads of those in the cache do not go up.
void CacheServesUnreadFiles() {
  const Pictures batch = MakeMixedBatch(4);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
  const Outputs first(&gpu, batch);
  CHECK(cache->FindUnread(batch[0]->name) == nullptr);
  decoder.Launch(JobsOf(MakeCachedImages(batch, first, cache.get())), stream.get());
  CHECK(AllOk(decoder.Wait()) && first.AreRight(batch));
  const CacheStatistics filled = cache->statistics();
  CHECK(filled.entries == batch.size() && filled.hits == 0 && filled.misses == batch.size() + 1);

  const Outputs second(&gpu, batch);
  std::vector<WindowedImage> images;
  uint64_t tiles = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const CachedImage* cached = cache->FindUnread(batch[i]->name);
    CHECK(cached != nullptr && cache->Peek(batch[i]->name) == cached);
    images.push_back({cached->view, {WholeImagePlan(cached->view.info, second.data(i))}, cached});
    tiles += cached->view.info.tile_count();
  }
  const uint64_t before = gpu.uploaded_bytes();
  decoder.Launch(JobsOf(images), stream.get());
  CHECK(AllOk(decoder.Wait()) && second.AreRight(batch));
  const uint64_t uploaded = gpu.uploaded_bytes() - before;
  CHECK(uploaded == decoder.uploaded_bytes());
  CHECK(filled.payload_bytes > 4096 && uploaded < batch.size() * 8192 + tiles * 32);
  CHECK(cache->statistics().hits == batch.size() && cache->statistics().misses == filled.misses);
}

// An image is kept whole, whatever window asked for it.
void CacheServesAnyWindow() {
  Pictures batch = MakeOneOfEachMode();
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
  const Outputs outputs(&gpu, batch);
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
  const Window windows[] = {{270, 150, 20, 50}, {3, 5, 290, 7}, {0, 0, 300, 200}, {9, 9, 0, 0}};
  for (const Window& window : windows) {
    std::vector<WindowedImage> images = MakeCachedImages(batch, outputs, cache.get());
    for (WindowedImage& image : images) {
      CHECK((image.cached != nullptr) == (&window != windows));
      image.plans[0].window = window;
      image.plans[0].y_stride_bytes = 3 * window.width_px;
    }
    decoder.Launch(JobsOf(images), stream.get());
    CHECK(AllOk(decoder.Wait()));
    for (size_t i = 0; i < batch.size(); ++i) {
      const size_t row_bytes = 3 * window.width_px;
      const Bytes rows = outputs.Read(i, row_bytes * window.height_px);
      for (uint32_t y = 0; y < window.height_px; ++y) {
        const uint8_t* expected =
            batch[i]->samples.data() + 3 * (300 * (window.y_px + y) + window.x_px);
        CHECK(std::memcmp(rows.data() + row_bytes * y, expected, row_bytes) == 0);
      }
    }
  }
}

// The uploads of a decoder that fills the cache are late, those of others are not: one that
// reads, and one that fills it too before that.
void CacheServesNothingBeforeItIsThere() {
  const Pictures batch = MakeMixedBatch(4);
  const Pictures other = MakeMixedBatch(30);
  for (const bool others_fill : {false, true}) {
    EmulatedGpu gpu;
    const auto late = gpu.MakeStream(Pace::kLazy);
    const auto early = gpu.MakeStream(Pace::kEager);
    const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
    const Outputs first(&gpu, batch);
    const Outputs second(&gpu, batch);
    const Outputs third(&gpu, other);
    BatchDecoder filling(gpu.MakeDevice(Pace::kLazy), cache);
    BatchDecoder filling_too(gpu.MakeDevice(Pace::kEager), cache);
    BatchDecoder reading(gpu.MakeDevice(Pace::kEager), cache);
    filling.Launch(JobsOf(MakeCachedImages(batch, first, cache.get())), late.get());
    if (others_fill) {
      filling_too.Launch(JobsOf(MakeCachedImages(other, third, cache.get())), early.get());
      CHECK(AllOk(filling_too.Wait()) && third.AreRight(other));
    }
    const std::vector<WindowedImage> images = MakeCachedImages(batch, second, cache.get());
    CHECK(images[0].cached != nullptr);
    reading.Launch(JobsOf(images), early.get());
    CHECK(AllOk(reading.Wait()) && second.AreRight(batch));
    CHECK(AllOk(filling.Wait()) && first.AreRight(batch));
  }
}

void CacheNoticesChangedFiles() {
  const auto make_batch = [](uint32_t seed) {
    Pictures batch;
    batch.push_back(MakePicture({300, 200, 3, 8, Coding::kRans, 4}, seed));
    batch.push_back(MakePicture({300, 200, 3, 8, Coding::kPacked, 4}, seed));
    batch.push_back(MakePicture({300, 200, 3, 8, Coding::kPacked, 0}, seed));
    for (size_t i = 0; i < batch.size(); ++i) batch[i]->name = std::to_string(i) + ".l3";
    return batch;
  };
  const Pictures batch = make_batch(5);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
  const Outputs outputs(&gpu, batch);
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
  decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
  decoder.Wait();

  const Pictures changed = make_batch(7);
  const Outputs new_outputs(&gpu, changed);
  const std::vector<WindowedImage> images = MakeCachedImages(changed, new_outputs, cache.get());
  // Constant tiles, the last image's, stay as long as they were.
  for (const WindowedImage& image : images) {
    CHECK(image.cached == nullptr && image.cache_key == nullptr);
  }
  decoder.Launch(JobsOf(images), stream.get());
  CHECK(AllOk(decoder.Wait()) && new_outputs.AreRight(changed));

  const Bytes& file = batch[0]->file;
  CHECK(cache->Find("0.l3", file.data(), file.size(), file.size()) != nullptr);
  CHECK(cache->Find("0.l3", file.data(), file.size() - 1, file.size() - 1) == nullptr);
  CHECK(cache->Find("0.l3", file.data(), 10, 10) == nullptr);
  CHECK(cache->Find("0.l3", nullptr, 0, 0) == nullptr);
  CHECK(cache->Find("3.l3", file.data(), file.size(), file.size()) == nullptr);
  CHECK(cache->Find("3.l3", nullptr, 0, 0) == nullptr);
}

// A file that was damaged when it was read, also where no window looked, is not kept; once it is
// repaired, it is.
void CacheKeepsNoDamage() {
  for (const bool whole : {true, false}) {
    Pictures batch = MakeOneOfEachMode();
    EmulatedGpu gpu;
    const auto stream = gpu.MakeStream(Pace::kLazy);
    const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
    const Outputs outputs(&gpu, batch);
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
    DamageLastTile(batch[1].get());
    std::vector<WindowedImage> images = MakeCachedImages(batch, outputs, cache.get());
    CHECK(images[1].cache_key != nullptr);
    if (!whole) images[1].plans[0].window = {0, 0, 10, 10};
    decoder.Launch(JobsOf(images), stream.get(), kOnTwoThreads);
    CHECK((decoder.Wait()[1].status == Status::kOk) == !whole);
    CHECK(cache->Peek(batch[0]->name) != nullptr && cache->Peek(batch[1]->name) == nullptr);

    DamageLastTile(batch[1].get());  // flips the bit back
    for (const bool cached : {false, true}) {
      images = MakeCachedImages(batch, outputs, cache.get());
      CHECK((images[1].cached != nullptr) == cached);
      decoder.Launch(JobsOf(images), stream.get());
      CHECK(AllOk(decoder.Wait()) && outputs.AreRight(batch));
    }
  }
}

void CacheStaysInItsMemory() {
  Pictures batch;
  uint64_t payload_bytes = 0;
  for (uint32_t i = 0; i < 12; ++i) {
    batch.push_back(MakePicture({60 + i, 50, 3, 8, Coding::kPacked, 7}, i));
    payload_bytes += batch.back()->view.payloads_bytes;
  }
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const Outputs outputs(&gpu, batch);
  const auto fill = [&](const std::shared_ptr<EncodedCache>& cache) {
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
    for (int epoch = 0; epoch < 2; ++epoch) {
      decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
      CHECK(AllOk(decoder.Wait()) && outputs.AreRight(batch));
    }
    return cache->statistics();
  };
  const uint64_t before = gpu.live_device_bytes();
  for (uint64_t capacity = 0; capacity < 2 * payload_bytes; capacity += payload_bytes / 3) {
    const auto cache = MakeCache(&gpu, {capacity, CachePolicy::kThreshold, 0});
    CHECK(gpu.live_device_bytes() == before);  // nothing up front
    const CacheStatistics statistics = fill(cache);
    CHECK(gpu.live_device_bytes() - before == statistics.memory_bytes);
    CHECK(statistics.memory_bytes <= capacity);
    // Each ends with its own padding.
    CHECK(statistics.payload_bytes + statistics.entries * kPayloadPaddingBytes <=
          statistics.memory_bytes);
    CHECK(statistics.hits == statistics.entries);
    CHECK((statistics.entries == batch.size()) ==
          (capacity >= payload_bytes + batch.size() * kPayloadPaddingBytes));
  }
  CHECK(gpu.live_device_bytes() == before);

  const uint64_t threshold = batch[6]->file.size();
  CHECK(fill(MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, threshold})).entries == 6);

  // A device without memory for it: the batch is decoded all the same.
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
  decoder.Launch(JobsOf(MakeImages(batch, outputs)), stream.get());
  decoder.Launch(JobsOf(MakeImages(batch, outputs)), stream.get());
  gpu.FailAllocations(0, 1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
    decoder.Wait();
    CHECK(AllOk(decoder.Wait()) && outputs.AreRight(batch));
  }
  CHECK(cache->statistics().entries == 0 && cache->statistics().memory_bytes == 0);
}

void CacheKeepsTheLargest() {
  Pictures batch;
  for (uint32_t i = 0; i < 9; ++i) {
    batch.push_back(MakePicture({40 + 10 * (i * 5 % 9), 50, 3, 8, Coding::kPacked, 8}, i));
  }
  std::vector<size_t> by_size(batch.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::sort(by_size.begin(), by_size.end(),
            [&](size_t a, size_t b) { return batch[a]->file.size() > batch[b]->file.size(); });
  uint64_t capacity = 0;
  for (const size_t i : {by_size[0], by_size[1], by_size[2], by_size[8]}) {
    capacity += batch[i]->view.payloads_bytes + kPayloadPaddingBytes;
  }
  --capacity;  // no room for the smallest either

  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const auto cache = MakeCache(&gpu, {capacity, CachePolicy::kLargest, 0});
  BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
  const Outputs outputs(&gpu, batch);
  for (int epoch = 0; epoch < 3; ++epoch) {
    CHECK(cache->statistics().entries == (epoch < 2 ? 0 : 3));
    decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
    CHECK(AllOk(decoder.Wait()) && outputs.AreRight(batch));
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const Picture& picture = *batch[by_size[i]];
    const auto* found =
        cache->Find(picture.name, picture.file.data(), picture.file.size(), picture.file.size());
    CHECK((found != nullptr) == (i < 3));
  }
}

// Two decoders that read the same files do not make it an epoch that each file came twice.
void LargestForTwoDecoders() {
  Pictures batch;
  for (uint32_t i = 0; i < 5; ++i) {
    batch.push_back(MakePicture({40 + 10 * i, 50, 3, 8, Coding::kPacked, 8}, i));
  }
  EmulatedGpu gpu;
  const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kLargest, 0});
  const int first = 0, second = 0;
  const auto wanted = [&](const void* who) {
    return std::count_if(batch.begin(), batch.end(), [&](const auto& picture) {
      return cache->Wants(picture->name, picture->view, who);
    });
  };
  CHECK(wanted(&first) == 0 && wanted(&second) == 0);
  CHECK(wanted(&second) == 0);  // the first one saw them first
  CHECK(wanted(&first) == 5 && wanted(&second) == 5);
}

// The host has no memory for what it remembers of images: the next fills are not disturbed.
void HostOutOfMemoryInTheCache() {
  const Pictures batch = MakeMixedBatch(4);
  EmulatedGpu gpu;
  const auto stream = gpu.MakeStream(Pace::kLazy);
  const Outputs outputs(&gpu, batch);
  for (uint64_t failing = 0;; ++failing) {
    // Anew: the emulated GPU takes memory of the host, and a cache asks a full GPU no more.
    const auto cache = MakeCache(&gpu, {1 << 20, CachePolicy::kThreshold, 0});
    BatchDecoder decoder(gpu.MakeDevice(Pace::kLazy), cache);
    const std::vector<WindowedImage> images = MakeCachedImages(batch, outputs, cache.get());
    const std::vector<WindowJob> jobs = JobsOf(images);
    decoder.Launch({}, stream.get());
    failing_allocation = allocations + failing;
    try {
      decoder.Launch(jobs, stream.get());
    } catch (const std::bad_alloc&) {
    }
    failing_allocation = ~uint64_t{0};
    decoder.Wait();
    const CacheStatistics statistics = cache->statistics();
    CHECK(statistics.entries == 0 || statistics.entries == batch.size());
    CHECK((statistics.payload_bytes == 0) == (statistics.entries == 0));
    const bool is_full = MakeCachedImages(batch, outputs, cache.get())[0].cache_key == nullptr;
    for (int i = 0; i < 2; ++i) {
      decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
      CHECK(AllOk(decoder.Wait()) && outputs.AreRight(batch));
      CHECK(cache->statistics().entries == (is_full ? statistics.entries : batch.size()));
    }
    if (statistics.entries != 0) return;
  }
}

void CacheIsSharedByADevice() {
  EmulatedGpu gpu;
  const auto make_device = [&] { return gpu.MakeDevice(Pace::kLazy); };
  const CacheOptions options = {1 << 20, CachePolicy::kThreshold, 0};
  CacheOptions others = options;
  others.threshold_bytes = 1;
  auto cache = EncodedCache::OfDevice(0, options, make_device);
  CHECK(EncodedCache::OfDevice(0, options, make_device) == cache);
  CHECK(EncodedCache::OfDevice(1, others, make_device) != cache);
  bool refused = false;
  try {
    EncodedCache::OfDevice(0, others, make_device);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
  cache = nullptr;
  cache = EncodedCache::OfDevice(0, others, make_device);
}

// Decoders on threads, which share a GPU and a cache that fills up on the way.
void DecodersOnThreads() {
  const Pictures batch = MakeMixedBatch(4);
  EmulatedGpu gpu;
  const auto cache = MakeCache(&gpu, {24 << 10, CachePolicy::kThreshold, 0});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = gpu.MakeStream(kPaces[t % 2]);
      BatchDecoder decoder(gpu.MakeDevice(kPaces[t / 2]), cache);
      for (int i = 0; i < 4; ++i) {
        const Outputs outputs(&gpu, batch);
        decoder.Launch(JobsOf(MakeCachedImages(batch, outputs, cache.get())), stream.get());
        if (AllOk(decoder.Wait()) && outputs.AreRight(batch)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 12);
  const CacheStatistics statistics = cache->statistics();
  CHECK(statistics.hits + statistics.misses == 12 * batch.size() && statistics.hits > 0);
  CHECK(statistics.memory_bytes <= 24 << 10);
}

void ThreadsRunEachTaskOnce() {
  for (const unsigned threads : {0u, 1u, 2u, 3u, 7u, 300u}) {
    for (const uint64_t count : {0u, 1u, 2u, 5u, 64u, 257u}) {
      std::vector<std::atomic<int>> runs(count);
      ParallelFor(count, threads, [&](uint64_t i) { ++runs[i]; });
      for (const std::atomic<int>& run : runs) CHECK(run == 1);
      if (count == 0) continue;
      // A task that throws ends the others, wherever its thread has got to.
      std::atomic<uint64_t> after{0};
      bool threw = false;
      try {
        ParallelFor(count, threads, [&](uint64_t i) {
          if (i == count / 2) throw std::runtime_error("task");
          ++after;
        });
      } catch (const std::runtime_error&) {
        threw = true;
      }
      CHECK(threw && after < count);
    }
  }
}

void ThreadsDoWithoutMemory() {
  // Of their list, and of each; tasks need none.
  for (uint64_t failing = 0; failing < 8; ++failing) {
    std::array<std::atomic<int>, 64> runs = {};
    bool threw = false;
    failing_allocation = allocations + failing;
    try {
      ParallelFor(runs.size(), 4, [&](uint64_t i) { ++runs[i]; });
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    failing_allocation = ~uint64_t{0};
    CHECK(threw == (failing == 0));
    for (const std::atomic<int>& run : runs) CHECK(run == (threw ? 0 : 1));
  }
}

const Tests kTests = {
    {"batches_in_flight", BatchesInFlight},
    {"cache_validates_what_it_keeps", CacheValidatesWhatItKeeps},
    {"cache_is_shared_by_a_device", CacheIsSharedByADevice},
    {"cache_keeps_no_damage", CacheKeepsNoDamage},
    {"cache_keeps_the_largest", CacheKeepsTheLargest},
    {"cache_notices_changed_files", CacheNoticesChangedFiles},
    {"cache_serves_any_window", CacheServesAnyWindow},
    {"cache_serves_handles", CacheServesHandles},
    {"cache_serves_nothing_before_it_is_there", CacheServesNothingBeforeItIsThere},
    {"cache_serves_unread_files", CacheServesUnreadFiles},
    {"cache_stays_in_its_memory", CacheStaysInItsMemory},
    {"decoders_on_threads", DecodersOnThreads},
    {"destruction_waits_for_its_own_work", DestructionWaitsForItsOwnWork},
    {"failed_staging", FailedStaging},
    {"files_that_change", FilesThatChange},
    {"few_tiles_in_teams", FewTilesInTeams},
    {"growing_in_flight", GrowingInFlight},
    {"many_tiny_images", ManyTinyImages},
    {"host_out_of_memory_in_the_cache", HostOutOfMemoryInTheCache},
    {"index_changes_while_planned", IndexChangesWhilePlanned},
    {"index_that_overlaps_stages_no_more", IndexThatOverlapsStagesNoMore},
    {"largest_for_two_decoders", LargestForTwoDecoders},
    {"out_of_memory", OutOfMemory},
    {"objects_are_asked_for_at_once", ObjectsAreAskedForAtOnce},
    {"pinned_files_are_not_staged", PinnedFilesAreNotStaged},
    {"rans_tile_without_tables", RansTileWithoutTables},
    {"reserved_memory_is_enough", ReservedMemoryIsEnough},
    {"results_in_order", ResultsInOrder},
    {"steady_state_allocates_nothing", SteadyStateAllocatesNothing},
    {"threads_do_without_memory", ThreadsDoWithoutMemory},
    {"threads_run_each_task_once", ThreadsRunEachTaskOnce},
    {"tiles_of_files_are_read", TilesOfFilesAreRead},
    {"value_table_changes_while_staged", ValueTableChangesWhileStaged},
    {"windows_of_one_file", WindowsOfOneFile},
};

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::RunTest(l3::kTests, argc, argv); }
