// Times nvCOMP's decompressors on the pixels of .l3 files, device-resident.
//
//   l3_bench_nvcomp [--batch 1,32,256] [--repeat 50] [--json FILE] FILE.l3...
//
// Each codec gets an image as it is ("raw") and as planes: green subtracted from red
// and blue, each row the differences from its left neighbour. Turning planes back
// into pixels is not timed, in nvCOMP's favour. Chunks of 64 KiB, as nvCOMP's
// documentation advises; its low-level batched API; one call a batch. Compiles with nvCOMP 5,
// which DALI 2.4 brings, and with nvCOMP 6.
#include <nvcomp/ans.h>
#include <nvcomp/bitcomp.h>
#include <nvcomp/cascaded.h>
#include <nvcomp/deflate.h>
#include <nvcomp/gdeflate.h>
#include <nvcomp/lz4.h>
#include <nvcomp/version.h>
#include <nvcomp/zstd.h>

#include <functional>

#include "benchmarks/gpu/kernel_bench.h"

#define L3_NVCOMP_CHECK(call) ::l3::CheckNvcomp((call), #call)

namespace l3 {

inline void CheckNvcomp(nvcompStatus_t status, const char* call) {
  if (status != nvcompSuccess) {
    throw std::runtime_error(std::string(call) + " failed: nvCOMP status " +
                             std::to_string(static_cast<int>(status)));
  }
}

namespace {

// Functions for the size of temporary memory: nvCOMP 6 renamed them, and added a stream.
#if NVCOMP_VER_MAJOR >= 6
constexpr char kNvcomp[] = "nvCOMP 6 ";
#define L3_NVCOMP_TEMP(name, direction)                                        \
  [](auto... arguments) {                                                      \
    return nvcompBatched##name##direction##GetTempSize(arguments..., nullptr); \
  }
#else
constexpr char kNvcomp[] = "nvCOMP ";
#define L3_NVCOMP_TEMP(name, direction) nvcompBatched##name##direction##GetTempSizeAsync
#endif

constexpr size_t kChunkBytes = size_t{64} << 10;
constexpr size_t kAlignment = 256;  // more than any codec asks for

// Chunks in GPU memory: pointers and sizes, as nvCOMP takes them.
struct Chunks {
  void** data;
  size_t* bytes;
};

// What is the same for all of nvCOMP's codecs.
struct Codec {
  std::string name;
  std::function<size_t(size_t chunks)> compress_temp_bytes;
  std::function<size_t()> max_chunk_bytes;
  std::function<void(Chunks from, size_t chunks, void* temp, size_t temp_bytes, Chunks to,
                     nvcompStatus_t* statuses, cudaStream_t stream)>
      compress;
  std::function<size_t(size_t chunks)> decompress_temp_bytes;
  // Writes the sizes it found to `sizes`.
  std::function<void(Chunks from, Chunks to, size_t* sizes, size_t chunks, void* temp,
                     size_t temp_bytes, nvcompStatus_t* statuses, cudaStream_t stream)>
      decompress;
};

template <typename CompressOptions, typename DecompressOptions, typename CompressTemp,
          typename DecompressTemp>
Codec MakeCodec(const std::string& name, const CompressOptions& compress_options,
                const DecompressOptions& decompress_options, CompressTemp compress_temp,
                nvcompStatus_t (*max_chunk)(size_t, CompressOptions, size_t*),
                nvcompStatus_t (*compress)(const void* const*, const size_t*, size_t, size_t, void*,
                                           size_t, void* const*, size_t*, CompressOptions,
                                           nvcompStatus_t*, cudaStream_t),
                DecompressTemp decompress_temp,
                nvcompStatus_t (*decompress)(const void* const*, const size_t*, const size_t*,
                                             size_t*, size_t, void*, size_t, void* const*,
                                             DecompressOptions, nvcompStatus_t*, cudaStream_t)) {
  Codec codec;
  codec.name = kNvcomp + name;
  codec.compress_temp_bytes = [=](size_t chunks) {
    size_t bytes = 0;
    L3_NVCOMP_CHECK(
        compress_temp(chunks, kChunkBytes, compress_options, &bytes, chunks * kChunkBytes));
    return bytes;
  };
  codec.max_chunk_bytes = [=] {
    size_t bytes = 0;
    L3_NVCOMP_CHECK(max_chunk(kChunkBytes, compress_options, &bytes));
    return bytes;
  };
  codec.compress = [=](Chunks from, size_t chunks, void* temp, size_t temp_bytes, Chunks to,
                       nvcompStatus_t* statuses, cudaStream_t stream) {
    L3_NVCOMP_CHECK(compress(from.data, from.bytes, kChunkBytes, chunks, temp, temp_bytes, to.data,
                             to.bytes, compress_options, statuses, stream));
  };
  codec.decompress_temp_bytes = [=](size_t chunks) {
    size_t bytes = 0;
    L3_NVCOMP_CHECK(
        decompress_temp(chunks, kChunkBytes, decompress_options, &bytes, chunks * kChunkBytes));
    return bytes;
  };
  codec.decompress = [=](Chunks from, Chunks to, size_t* sizes, size_t chunks, void* temp,
                         size_t temp_bytes, nvcompStatus_t* statuses, cudaStream_t stream) {
    L3_NVCOMP_CHECK(decompress(from.data, from.bytes, to.bytes, sizes, chunks, temp, temp_bytes,
                               to.data, decompress_options, statuses, stream));
  };
  return codec;
}

// The functions of one codec have its name in theirs.
#define L3_NVCOMP_CODEC(name, compress_options)                                                 \
  MakeCodec(#name, compress_options, nvcompBatched##name##DecompressDefaultOpts,                \
            L3_NVCOMP_TEMP(name, Compress), nvcompBatched##name##CompressGetMaxOutputChunkSize, \
            nvcompBatched##name##CompressAsync, L3_NVCOMP_TEMP(name, Decompress),               \
            nvcompBatched##name##DecompressAsync)

// nvCOMP's default options, and the type of the samples where a codec asks for it.
std::vector<Codec> Codecs(uint32_t sample_bits) {
  const nvcompType_t type = sample_bits == 8 ? NVCOMP_TYPE_UCHAR : NVCOMP_TYPE_USHORT;
  nvcompBatchedBitcompCompressOpts_t bitcomp = nvcompBatchedBitcompCompressDefaultOpts;
  bitcomp.data_type = type;
  nvcompBatchedCascadedCompressOpts_t cascaded = nvcompBatchedCascadedCompressDefaultOpts;
#if NVCOMP_VER_MAJOR >= 6
  cascaded.common_opts.data_type = type;
#else
  cascaded.type = type;
#endif
  return {L3_NVCOMP_CODEC(ANS, nvcompBatchedANSCompressDefaultOpts),
          L3_NVCOMP_CODEC(Bitcomp, bitcomp),
          L3_NVCOMP_CODEC(Cascaded, cascaded),
          L3_NVCOMP_CODEC(LZ4, nvcompBatchedLZ4CompressDefaultOpts),
          L3_NVCOMP_CODEC(Gdeflate, nvcompBatchedGdeflateCompressDefaultOpts),
          L3_NVCOMP_CODEC(Deflate, nvcompBatchedDeflateCompressDefaultOpts),
          L3_NVCOMP_CODEC(Zstd, nvcompBatchedZstdCompressDefaultOpts)};
}

template <typename Sample>
void WritePlanes(const Sample* pixels, const ImageInfo& info, Sample* planes) {
  const size_t count = size_t{info.width_px} * info.height_px;
  for (uint32_t c = 0; c < info.channels; ++c) {
    const bool is_red_or_blue = info.channels >= 3 && (c == 0 || c == 2);
    const auto value = [&](size_t i) {
      const Sample* pixel = pixels + i * info.channels;
      return static_cast<Sample>(pixel[c] - (is_red_or_blue ? pixel[1] : 0));
    };
    for (size_t i = 0; i < count; ++i) {
      const Sample left = i % info.width_px == 0 ? Sample{0} : value(i - 1);
      planes[c * count + i] = static_cast<Sample>(value(i) - left);
    }
  }
}

std::vector<uint8_t> Planes(const BenchImage& image) {
  std::vector<uint8_t> planes(image.pixels.size());
  const ImageInfo& info = image.view.info;
  if (info.sample_bits() == 8) {
    WritePlanes(image.pixels.data(), info, planes.data());
  } else {
    WritePlanes(reinterpret_cast<const uint16_t*>(image.pixels.data()), info,
                reinterpret_cast<uint16_t*>(planes.data()));
  }
  return planes;
}

// Where chunks lie in GPU memory.
class ChunkTable {
 public:
  // Of `count` images of `image_bytes`, `stride` apart.
  static ChunkTable OfImages(uint8_t* memory, size_t stride, size_t image_bytes, size_t count) {
    std::vector<void*> data;
    std::vector<size_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      for (size_t begin = 0; begin < image_bytes; begin += kChunkBytes) {
        data.push_back(memory + i * stride + begin);
        bytes.push_back(std::min(kChunkBytes, image_bytes - begin));
      }
    }
    return ChunkTable(data, bytes);
  }
  // Of `count` chunks, `stride` apart, whose sizes nvCOMP will write.
  static ChunkTable OfUnknownSizes(uint8_t* memory, size_t stride, size_t count) {
    std::vector<void*> data;
    for (size_t i = 0; i < count; ++i) data.push_back(memory + i * stride);
    return ChunkTable(data, std::vector<size_t>(count));
  }

  size_t size() const { return size_; }
  Chunks get() const {
    return {reinterpret_cast<void**>(data_.data()), reinterpret_cast<size_t*>(bytes_.data())};
  }
  std::vector<size_t> DownloadBytes() const {
    std::vector<size_t> bytes(size_);
    L3_CUDA_CHECK(
        cudaMemcpy(bytes.data(), bytes_.data(), size_ * sizeof(size_t), cudaMemcpyDeviceToHost));
    return bytes;
  }

 private:
  ChunkTable(const std::vector<void*>& data, const std::vector<size_t>& bytes)
      : size_(data.size()), data_(size_ * sizeof(void*)), bytes_(size_ * sizeof(size_t)) {
    L3_CUDA_CHECK(
        cudaMemcpy(data_.data(), data.data(), size_ * sizeof(void*), cudaMemcpyHostToDevice));
    L3_CUDA_CHECK(
        cudaMemcpy(bytes_.data(), bytes.data(), size_ * sizeof(size_t), cudaMemcpyHostToDevice));
  }

  size_t size_;
  DeviceMemory data_;
  DeviceMemory bytes_;
};

void CheckStatuses(const DeviceMemory& statuses_dev, size_t count, const std::string& what) {
  std::vector<nvcompStatus_t> statuses(count);
  L3_CUDA_CHECK(cudaMemcpy(statuses.data(), statuses_dev.data(), count * sizeof(nvcompStatus_t),
                           cudaMemcpyDeviceToHost));
  for (nvcompStatus_t status : statuses) CheckNvcomp(status, what.c_str());
}

// `samples`: the image's pixels or planes, `count` times.
BenchRow TimeCodec(GpuTimer* timer, const Codec& codec, const std::string& form,
                   const BenchImage& image, const std::vector<uint8_t>& samples, size_t count,
                   int repeat) {
  const size_t image_stride = CeilDiv(samples.size(), kAlignment) * kAlignment;
  const DeviceMemory input(image_stride * count);
  for (size_t i = 0; i < count; ++i) {
    L3_CUDA_CHECK(cudaMemcpy(input.data() + i * image_stride, samples.data(), samples.size(),
                             cudaMemcpyHostToDevice));
  }
  const ChunkTable from = ChunkTable::OfImages(input.data(), image_stride, samples.size(), count);
  const size_t chunks = from.size();
  const size_t chunk_stride = CeilDiv(codec.max_chunk_bytes(), kAlignment) * kAlignment;
  const DeviceMemory compressed(chunk_stride * chunks);
  const ChunkTable packed = ChunkTable::OfUnknownSizes(compressed.data(), chunk_stride, chunks);
  const DeviceMemory statuses(chunks * sizeof(nvcompStatus_t));
  L3_CUDA_CHECK(cudaMemset(statuses.data(), 0, chunks * sizeof(nvcompStatus_t)));
  const auto statuses_dev = reinterpret_cast<nvcompStatus_t*>(statuses.data());
  {
    const CudaStream stream;
    const size_t temp_bytes = codec.compress_temp_bytes(chunks);
    const DeviceMemory temp(std::max<size_t>(temp_bytes, 1));
    codec.compress(from.get(), chunks, temp.data(), temp_bytes, packed.get(), statuses_dev,
                   stream.get());
    stream.Synchronize();
    CheckStatuses(statuses, chunks, codec.name + " compression");
  }

  // Over the input, which must come back.
  L3_CUDA_CHECK(cudaMemset(input.data(), 0xA5, image_stride * count));
  const DeviceMemory sizes(chunks * sizeof(size_t));
  const size_t temp_bytes = codec.decompress_temp_bytes(chunks);
  const DeviceMemory temp(std::max<size_t>(temp_bytes, 1));
  const double median_us = timer->Run(repeat, [&](cudaStream_t stream) {
    codec.decompress(packed.get(), from.get(), reinterpret_cast<size_t*>(sizes.data()), chunks,
                     temp.data(), temp_bytes, statuses_dev, stream);
  });
  CheckStatuses(statuses, chunks, codec.name + " decompression");
  std::vector<uint8_t> output(samples.size());
  L3_CUDA_CHECK(cudaMemcpy(output.data(), input.data() + (count - 1) * image_stride, samples.size(),
                           cudaMemcpyDeviceToHost));
  if (output != samples) throw std::runtime_error(codec.name + " is not lossless");

  uint64_t encoded_bytes = 0;
  for (size_t bytes : packed.DownloadBytes()) encoded_bytes += bytes;
  return {codec.name + ", " + form, image.name, image.view.info, count, encoded_bytes, median_us};
}

void Run(const BenchOptions& options) {
  const std::vector<BenchImage> images = ReadBenchImages(options.files);
  std::vector<std::vector<uint8_t>> planes;
  for (const BenchImage& image : images) planes.push_back(Planes(image));
  BenchReport report(options.json, RequireGpu());
  nvcompProperties_t properties = {};
  L3_NVCOMP_CHECK(nvcompGetProperties(&properties));
  report.Set("nvcomp", std::to_string(properties.version));
  PrintHeading(report.gpu());
  GpuTimer timer;
  for (size_t i = 0; i < images.size(); ++i) {
    for (const Codec& codec : Codecs(images[i].view.info.sample_bits())) {
      for (size_t batch : options.batches) {
        const auto time = [&](const char* form, const std::vector<uint8_t>& samples) {
          const std::string what = codec.name + ", " + form + ", " + images[i].name;
          report.Try(what + ", batch " + std::to_string(batch), [&] {
            report.Add(TimeCodec(&timer, codec, form, images[i], samples, batch, options.repeat));
          });
        };
        time("raw", images[i].pixels);
        time("planes", planes[i]);
      }
    }
  }
  report.RequireSound();
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::BenchMain(argc, argv, l3::Run); }
