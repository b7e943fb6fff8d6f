// The batch engine's waits, over a libcudart that runs streams late, early or by chance: batches in
// flight on two streams, buffers that grow, the cache, pinned files, ends in between, failures.
// Whatever is decoded must be what the CPU decodes.
//
//   l3_simulated_streams FILE.l3...   sound files, small ones first
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/cuda_device.h"
#include "cuda/engine/encoded_cache.h"
#include "format/channel_groups.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {
namespace {

// Small, so that batches have several parts, and copies from where pinned files are.
constexpr UploadPolicy kSmallParts = {256, 64};

struct File {
  std::string name;
  std::vector<uint8_t> bytes;
  ImageView view;
  std::vector<uint8_t> pixels;
};

std::vector<File> ReadFiles(int count, char** names) {
  std::vector<File> files;
  for (int i = 0; i < count; ++i) {
    std::ifstream stream(names[i], std::ios::binary);
    if (!stream) throw std::runtime_error(std::string("cannot read ") + names[i]);
    File file = {names[i], {std::istreambuf_iterator<char>(stream), {}}, {}, {}};
    if (ParseImage(file.bytes.data(), file.bytes.size(), &file.view) != Status::kOk ||
        file.view.group_count != 1) {
      throw std::runtime_error(file.name + " is not sound, or has groups");
    }
    file.pixels.resize(file.view.info.image_bytes());
    const OutputPlan plan = WholeImagePlan(file.view.info, file.pixels.data());
    const TileSpan span = TilesOfWindow(file.view.info, plan.window);
    const CpuDecoder decoder(file.view, CpuEngine::kScalar);
    if (decoder.DecodeWindows(&plan, 1, span, 0, span.tile_count()).status != Status::kOk) {
      throw std::runtime_error(file.name + " cannot be decoded");
    }
    files.push_back(std::move(file));
  }
  return files;
}

// A batch in flight: its outputs, and copies of its files that change once they may.
class Batch {
 public:
  Batch(GpuDevice* device, std::shared_ptr<CUstream_st> stream, std::vector<const File*> files)
      : device_(device), stream_(std::move(stream)), files_(std::move(files)) {
    for (const File* file : files_) bytes_ += Aligned(file->pixels.size());
    outputs_ = device_->AllocateDevice(bytes_);
  }

  enum class From { kHost, kPinned, kCache };

  void Launch(BatchDecoder* decoder, EncodedCache* cache, From from) {
    std::vector<CudaSample> samples;
    uint8_t* output = static_cast<uint8_t*>(outputs_.get());
    std::vector<std::vector<uint8_t>> copies;
    size_t pinned_bytes = 0;
    for (const File* file : files_) pinned_bytes += Aligned(file->bytes.size());
    if (from == From::kPinned) pinned_ = device_->AllocatePinned(pinned_bytes);
    pinned_bytes_ = pinned_bytes;
    uint8_t* place = static_cast<uint8_t*>(pinned_.get());
    for (const File* file : files_) {
      copies.push_back(file->bytes);
      const uint8_t* bytes = copies.back().data();
      if (from == From::kPinned) {
        std::memcpy(place, file->bytes.data(), file->bytes.size());
        bytes = place;
        place += Aligned(file->bytes.size());
      }
      CudaSample sample = {};
      ParseImage(bytes, file->bytes.size(), &sample.view);
      sample.plan = WholeImagePlan(sample.view.info, output);
      sample.is_pinned = from == From::kPinned;
      output += Aligned(file->pixels.size());
      if (cache != nullptr) {
        const CachedImage* cached = cache->Find(file->name, bytes, file->bytes.size());
        if (cached != nullptr) {
          sample.view = cached->view;
          sample.cached = cached;
        } else {
          sample.cache_key = &file->name;
        }
      }
      samples.push_back(sample);
    }
    decoder->Launch(samples, stream_.get());
    // Files that are not pinned may go now.
    for (auto& copy : copies) std::fill(copy.begin(), copy.end(), uint8_t{0xEE});
  }

  // Once the decoder has waited for it.
  size_t CountDifferences(const std::vector<DecodeResult>& results) {
    if (pinned_ != nullptr) std::memset(pinned_.get(), 0xEE, pinned_bytes_);
    size_t differences = results.size() == files_.size() ? 0 : 1;
    for (const DecodeResult& result : results) differences += result.status == Status::kOk ? 0 : 1;
    const std::shared_ptr<void> pixels = device_->AllocatePinned(bytes_);
    const auto copied = device_->MakeEvent();
    const auto wait = [&] {
      copied->Record(stream_.get());
      copied->Synchronize();
    };
    size_t offset = 0;
    for (const File* file : files_) {  // what lies between nobody has written
      try {
        device_->Copy(static_cast<uint8_t*>(pixels.get()) + offset,
                      static_cast<uint8_t*>(outputs_.get()) + offset, file->pixels.size(),
                      stream_.get());
      } catch (...) {
        wait();  // for those before
        throw;
      }
      offset += Aligned(file->pixels.size());
    }
    wait();
    const uint8_t* got = static_cast<const uint8_t*>(pixels.get());
    for (const File* file : files_) {
      if (std::memcmp(got, file->pixels.data(), file->pixels.size()) != 0) ++differences;
      got += Aligned(file->pixels.size());
    }
    return differences;
  }

 private:
  static size_t Aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

  GpuDevice* const device_;
  const std::shared_ptr<CUstream_st> stream_;
  const std::vector<const File*> files_;
  size_t bytes_ = 0, pinned_bytes_ = 0;
  std::shared_ptr<void> outputs_, pinned_;
};

class Test {
 public:
  explicit Test(const std::vector<File>& files)
      : files_(files),
        device_(MakeDevice()),
        streams_{device_->MakeStream(), device_->MakeStream()} {}

  size_t failures() const { return failures_; }

  // What fails may fail; what does not must be right.
  template <class Body>
  bool Try(Body body) {
    try {
      body();
      return true;
    } catch (const std::exception& error) {
      std::printf("failed: %s\n", error.what());
      return false;
    }
  }

  // Batches of growing and shrinking sizes, two in flight, on two streams in turn.
  void TwoInFlight(Batch::From from) {
    std::unique_ptr<Batch> before;  // outlives the decoder, which waits for it
    BatchDecoder decoder(MakeDevice(), nullptr, kSmallParts);
    const size_t sizes[] = {1, 2, files_.size(), 1, files_.size(), 2, files_.size()};
    for (size_t i = 0; i < std::size(sizes); ++i) {
      std::unique_ptr<Batch> batch;
      const bool is_launched = Try([&] {
        batch = MakeBatch(i, sizes[i]);
        batch->Launch(&decoder, nullptr, from);
      });
      if (before != nullptr) Check("two in flight", &decoder, before.get());
      before = is_launched ? std::move(batch) : nullptr;
    }
    if (before != nullptr) Check("two in flight", &decoder, before.get());
  }

  // Results of the first are lost to the third; its work is not. With memory of the device in
  // reserve those for results grow alone.
  void NobodyWaits(bool reserves) {
    std::vector<std::unique_ptr<Batch>> batches;
    BatchDecoder decoder(MakeDevice(), nullptr, kSmallParts);
    if (reserves) decoder.Reserve(64 << 10, 64 << 10);
    for (size_t i = 0; i < 5; ++i) {
      batches.push_back(MakeBatch(i, 1 + i % 3));
      batches.back()->Launch(&decoder, nullptr, Batch::From::kHost);
    }
    for (size_t i = batches.size() > 2 ? batches.size() - 2 : 0; i < batches.size(); ++i) {
      Check("nobody waits", &decoder, batches[i].get());
    }
  }

  // Two decoders fill the cache, a third one on another stream uses it at once.
  void Cached() {
    const auto cache = MakeCache();
    auto filling = MakeBatch(0, 2), filling_too = MakeBatch(2, 2),
         using_it = MakeBatch(1, files_.size());
    BatchDecoder first(MakeDevice(), cache, kSmallParts), second(MakeDevice(), cache, kSmallParts),
        third(MakeDevice(), cache, kSmallParts);
    const auto launch = [&](Batch* batch, BatchDecoder* decoder) {
      return Try([&] { batch->Launch(decoder, cache.get(), Batch::From::kHost); });
    };
    const bool is_filled = launch(filling.get(), &first);
    const bool is_filled_too = launch(filling_too.get(), &second);
    // Not beside a fill of its own: kernels read past a payload, and drop what they find, where the
    // next image of the cache goes. The machine would report that.
    if (is_filled && is_filled_too && launch(using_it.get(), &third)) {
      Check("cached", &third, using_it.get());
    }
    if (is_filled_too) Check("cached", &second, filling_too.get());
    if (is_filled) Check("cached", &first, filling.get());
  }

  void EndsInFlight(Batch::From from) {
    const auto cache = from == Batch::From::kCache ? MakeCache() : nullptr;
    auto first = MakeBatch(0, files_.size()), second = MakeBatch(1, 1);
    {
      BatchDecoder decoder(MakeDevice(), cache, kSmallParts);
      Try([&] { first->Launch(&decoder, cache.get(), from); });
      if (cache != nullptr) return;  // what fills it is the last work
      Try([&] { second->Launch(&decoder, nullptr, Batch::From::kHost); });
    }
  }

  // Host memory alone, then the device's too.
  void Reserves() {
    for (const size_t device_bytes : {0, 1 << 20}) {
      auto batch = MakeBatch(0, 2);
      BatchDecoder decoder(MakeDevice(), nullptr, kSmallParts);
      const bool is_launched = Try([&] { batch->Launch(&decoder, nullptr, Batch::From::kHost); });
      Try([&] { decoder.Reserve(device_bytes, 1 << 20); });
      if (is_launched) Check("reserves", &decoder, batch.get());
    }
  }

 private:
  static std::shared_ptr<EncodedCache> MakeCache() {
    const CacheOptions options = {64 << 10, CachePolicy::kThreshold, 0};
    return std::make_shared<EncodedCache>(options, MakeDevice());
  }
  static std::unique_ptr<GpuDevice> MakeDevice() {
    return MakeCudaDevice(0, MakeDefaultCudaAllocator());
  }
  std::unique_ptr<Batch> MakeBatch(size_t number, size_t size) {
    std::vector<const File*> chosen;
    for (size_t i = 0; i < size; ++i) chosen.push_back(&files_[(number + i) % files_.size()]);
    return std::make_unique<Batch>(device_.get(), streams_[number % 2], chosen);
  }
  void Check(const char* name, BatchDecoder* decoder, Batch* batch) {
    Try([&] {
      const size_t differences = batch->CountDifferences(decoder->Wait());
      if (differences == 0) return;
      ++failures_;
      std::printf("%s: %zu differences\n", name, differences);
    });
  }

  const std::vector<File>& files_;
  const std::unique_ptr<GpuDevice> device_;
  const std::shared_ptr<CUstream_st> streams_[2];
  size_t failures_ = 0;
};

int Run(int argc, char** argv) {
  const std::vector<File> files = ReadFiles(argc - 1, argv + 1);
  Test test(files);
  for (const auto from : {Batch::From::kHost, Batch::From::kPinned}) {
    test.Try([&] { test.TwoInFlight(from); });
  }
  for (const bool reserves : {false, true}) test.Try([&] { test.NobodyWaits(reserves); });
  test.Try([&] { test.Cached(); });
  for (const auto from : {Batch::From::kPinned, Batch::From::kCache}) {
    test.Try([&] { test.EndsInFlight(from); });
  }
  test.Try([&] { test.Reserves(); });
  std::printf("streams: %zu failures\n", test.failures());
  return test.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw std::runtime_error("two files at least");
    return l3::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return std::getenv("L3_CUDART_FAIL") != nullptr ? 0 : 2;  // it was made to fail
  }
}
