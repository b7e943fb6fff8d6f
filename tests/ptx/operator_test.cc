// The mixed operator's part of the CUDA path, src/op/mixed_backend.h, over the stand-in runtime.
// DALI's part is played by dali.h, and the operator's by this: it reads a batch, decodes it, and
// what comes out must be what the CPU decodes.
//
//   l3_simulated_operator FILE.l3...
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cpu/cpu_decoder.h"
#include "op/mixed_backend.h"
#include "output/output_plan.h"

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #condition); \
    }                                                                                 \
  } while (false)

namespace l3 {
namespace {

using Bytes = std::vector<uint8_t>;
using Input = dali::TensorList<dali::CPUBackend>;

struct File {
  std::string name;
  Bytes bytes;
};

// The operator's arguments, as its schema has them.
dali::OpSpec Spec() {
  return dali::OpSpec()
      .Set("device_id", 0)
      .Set("num_threads", 3)
      .Set("affine", false)
      .Set<int64_t>("device_memory_padding", 0)
      .Set<int64_t>("host_memory_padding", 0)
      .Set<int64_t>("cache_size", 0)
      .Set<int64_t>("cache_threshold", 0)
      .Set<std::string>("cache_type", "")
      .Set("cache_debug", false)
      .Set("skip_cached_images", false);
}

// What a call throws; empty if it does not.
template <class Call>
std::string MessageOf(Call call) {
  try {
    call();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}
bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

Bytes DecodedByCpu(const ImageView& view) {
  Bytes pixels(view.info.image_bytes());
  const OutputPlan plan = WholeImagePlan(view.info, pixels.data());
  const TileSpan span = TilesOfWindow(view.info, plan.window);
  CHECK(CpuDecoder(view).DecodeWindows(&plan, 1, span, 0, span.tile_count()).status == Status::kOk);
  return pixels;
}

enum class From { kHost, kPinned };

// Runs the operator on a batch. Files of `unread` come without bytes. Returns how many came from
// the cache; throws unless all sound ones are right.
size_t Run(MixedBackend* backend, const std::vector<File>& files, From from = From::kHost,
           bool unread = false, const std::string& damaged = "") {
  const std::unique_ptr<GpuDevice> device(L3MakeCudaDevice(0, nullptr));
  const auto stream = device->MakeStream();
  size_t input_bytes = 16;
  for (const File& file : files) input_bytes += (file.bytes.size() + 15) / 16 * 16;
  std::shared_ptr<void> pinned = device->AllocatePinned(input_bytes);
  Bytes pageable(input_bytes);
  auto* place = from == From::kPinned ? static_cast<uint8_t*>(pinned.get()) : pageable.data();
  std::vector<Input::Tensor> tensors;
  for (const File& file : files) {
    std::memcpy(place, file.bytes.data(), file.bytes.size());
    if (file.name == damaged) place[file.bytes.size() - 1] ^= 0x40;
    tensors.push_back({place, unread ? 0 : static_cast<int64_t>(file.bytes.size()), {file.name}});
    place += (file.bytes.size() + 15) / 16 * 16;
  }
  dali::Workspace ws(Input(tensors, from == From::kPinned), stream.get());

  const size_t count = files.size();
  std::vector<ImageView> views(count);
  std::vector<const CachedImage*> cached(count);
  std::vector<Status> statuses(count);
  backend->ForEach(count, [&](size_t i) {
    const auto bytes = static_cast<size_t>(tensors[i].bytes);
    statuses[i] = backend->Read(files[i].name, tensors[i].data, bytes, &views[i], &cached[i]);
  });
  for (const Status status : statuses) CHECK(status == Status::kOk);
  std::vector<std::shared_ptr<void>> outputs;
  std::vector<OutputPlan> plans(count);
  std::vector<std::vector<GroupShare>> groups(count, std::vector<GroupShare>(1));
  std::vector<WindowJob> jobs;
  std::vector<int> samples;
  for (size_t i = 0; i < count; ++i) {
    outputs.push_back(device->AllocateDevice(views[i].info.image_bytes()));
    plans[i] = WholeImagePlan(views[i].info, static_cast<uint8_t*>(outputs[i].get()));
    groups[i][0].group_channels = static_cast<uint8_t>(views[i].info.channels);
    jobs.push_back({&views[i], &groups[i], &plans[i], 1, cached[i]});
    samples.push_back(static_cast<int>(i));
  }
  jobs.push_back({&views[0], &groups[0], nullptr, 0});  // no windows
  samples.push_back(0);
  const std::vector<DecodeResult> results = backend->Decode(ws, samples, &jobs);

  const auto finished = device->MakeEvent();
  const auto wait = [&] {
    finished->Record(stream.get());
    finished->Synchronize();
  };
  for (size_t i = 0; i < count; ++i) {
    const bool is_damaged = files[i].name == damaged;
    CHECK((results[i].status == Status::kOk) == !is_damaged);
    ImageView view;
    CHECK(ParseImage(files[i].bytes.data(), files[i].bytes.size(), &view) == Status::kOk);
    Bytes expected = DecodedByCpu(view), got(expected.size());
    if (is_damaged) {
      MixedBackend::Clear(ws, outputs[i].get(), got.size());
      std::fill(expected.begin(), expected.end(), uint8_t{0});
    }
    device->Copy(got.data(), outputs[i].get(), got.size(), stream.get());
    wait();
    CHECK(got == expected);
  }
  const std::shared_ptr<void> told = device->AllocateDevice(sizeof(Status) * count);
  MixedBackend::Copy(ws, told.get(), statuses.data(), sizeof(Status) * count);
  wait();
  return static_cast<size_t>(
      std::count_if(cached.begin(), cached.end(), [](const auto* image) { return image; }));
}

void WithoutACache(const std::vector<File>& files) {
  for (const bool restricts : {false, true}) {
    dali::restricts_pinned = restricts;
    MixedBackend backend(Spec().Set<int64_t>("device_memory_padding", 1 << 16));
    CHECK(Run(&backend, files, From::kHost) == 0);
    if (!restricts) CHECK(Run(&backend, files, From::kPinned) == 0);
    CHECK(Run(&backend, files, From::kHost, false, files[0].name) == 0);
    std::vector<WindowJob> none;
    dali::Workspace ws(Input({}, false), nullptr);
    backend.Decode(ws, {}, &none);
  }
  dali::restricts_pinned = false;
  MixedBackend one_thread(Spec().Set("num_threads", 1));
  CHECK(Run(&one_thread, files) == 0);
}

void WithACache(const std::vector<File>& files) {
  for (const char* type : {"", "threshold", "largest"}) {
    MixedBackend backend(Spec()
                             .Set<int64_t>("cache_size", 1)
                             .Set<std::string>("cache_type", type)
                             .Set("cache_debug", true));
    const bool is_largest = std::strcmp(type, "largest") == 0;
    CHECK(Run(&backend, files, From::kHost, false, files[0].name) == 0);
    // The damaged file was not kept; the largest are, once they are known. Nothing is filled beside
    // hits: kernels read past a payload in the cache, and drop what they find, where the next fill
    // goes. The machine would report that.
    CHECK(Run(&backend, is_largest ? files : std::vector<File>{files[0]}, From::kPinned) == 0);
    CHECK(Run(&backend, files) == files.size());
  }
}

void ThatReadersSkip(const std::vector<File>& files) {
  const dali::OpSpec spec = Spec().Set<int64_t>("cache_size", 1).Set("skip_cached_images", true);
  // A reader has the list too, beside the operator, and for longer.
  std::shared_ptr<dali::ImageCache> list;
  {
    MixedBackend backend(spec);
    list = dali::ImageCacheFactory::Instance().Get(0);
    CHECK(Run(&backend, files) == 0);
    for (const File& file : files) CHECK(list->IsCached(file.name));
    CHECK(Run(&backend, files, From::kHost, true) == files.size());
  }
  MixedBackend backend(spec);
  CHECK(Has(MessageOf([&] { Run(&backend, files, From::kHost, true); }), "The reader skipped"));
}

void Refusals() {
  const auto message = [](dali::OpSpec spec) { return MessageOf([&] { MixedBackend b(spec); }); };
  CHECK(Has(message(Spec().Set<int64_t>("cache_size", -1)), "`cache_size` is negative: -1."));
  dali::OpSpec caching = Spec().Set<int64_t>("cache_size", 1);
  CHECK(Has(message(dali::OpSpec(caching).Set<std::string>("cache_type", "x")), "`cache_type` is"));
  MixedBackend backend(caching);
  CHECK(Has(message(caching.Set<int64_t>("cache_threshold", 9)), "in use with other options"));
  const int64_t too_many = int64_t{1} << 50;
  CHECK(Has(message(Spec().Set("device_memory_padding", too_many)), "bytes of GPU memory: "));
  CHECK(Has(message(Spec().Set("host_memory_padding", too_many)), "bytes of pinned host memory: "));
}

int RunAll(int argc, char** argv) {
  std::vector<File> files;
  for (int i = 1; i < argc; ++i) {
    std::ifstream stream(argv[i], std::ios::binary);
    files.push_back({argv[i], {std::istreambuf_iterator<char>(stream), {}}});
    CHECK(!files.back().bytes.empty());
  }
  CHECK(!files.empty());
  WithoutACache(files);
  WithACache(files);
  ThatReadersSkip(files);
  Refusals();
  return 0;
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  try {
    return l3::RunAll(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "operator: %s\n", error.what());
    return 1;
  }
}
