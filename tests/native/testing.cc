#include "testing.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "cuda/emulated_decoder.h"
#include "encoder/encoder.h"
#include "format/image_view.h"

namespace {

using l3::Status;

// An array without spare capacity behind it.
class ExactBytes {
 public:
  ExactBytes(const uint8_t* data, size_t size) : bytes_(new uint8_t[size]), size_(size) {
    if (size != 0) std::memcpy(bytes_.get(), data, size);
  }
  uint8_t* data() { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_;
};

template <typename Call>
uint32_t StatusOf(const Call& call) {
  try {
    return static_cast<uint32_t>(call());
  } catch (...) {
    return L3_TEST_EXCEPTION;
  }
}

Status DecodeOnCpu(l3::CpuEngine engine, const l3::ImageView& view, const l3::ImageOutput& output,
                   unsigned threads, uint32_t* bad_tile) {
  const l3::DecodeResult result = l3::CpuDecoder(view, engine).DecodeImage(output, threads);
  *bad_tile = result.tile;
  return result.status;
}

Status Decode(uint32_t engine, const l3::ImageView& view, const l3::ImageOutput& output,
              unsigned threads, uint32_t* bad_tile) {
  switch (engine) {
    case kL3TestScalar:
      return DecodeOnCpu(l3::CpuEngine::kScalar, view, output, threads, bad_tile);
    case kL3TestAvx2:
      return DecodeOnCpu(l3::CpuEngine::kAvx2, view, output, threads, bad_tile);
    case kL3TestEmulatedCuda:
      return l3::DecodeImageEmulated(view, output, bad_tile);
    case kL3TestAvx512:
      return DecodeOnCpu(l3::CpuEngine::kAvx512, view, output, threads, bad_tile);
    default:
      return Status::kInvalidArgument;
  }
}

}  // namespace

const char* l3_test_status_name(uint32_t status) {
  return l3::StatusName(static_cast<Status>(status));
}

int l3_test_engine_available(uint32_t engine) {
  switch (engine) {
    case kL3TestScalar:
      return l3::IsAvailable(l3::CpuEngine::kScalar);
    case kL3TestAvx2:
      return l3::IsAvailable(l3::CpuEngine::kAvx2);
    case kL3TestEmulatedCuda:
      return true;
    case kL3TestAvx512:
      return l3::IsAvailable(l3::CpuEngine::kAvx512);
    default:
      return false;
  }
}

uint32_t l3_test_parse(const uint8_t* data, size_t size, L3TestInfo* info) {
  return StatusOf([&] {
    ExactBytes input(data, size);
    l3::ImageView view;
    const Status status = l3::ParseImage(input.data(), input.size(), &view);
    if (status == Status::kOk) {
      *info = L3TestInfo{view.info.width_px,
                         view.info.height_px,
                         view.info.channels,
                         view.info.sample_bits,
                         view.info.used_bits,
                         view.info.shift,
                         view.info.tile_width_log2,
                         view.info.tile_height_log2,
                         static_cast<uint32_t>(view.info.meaning),
                         view.value_count,
                         view.info.tile_count(),
                         view.info.image_bytes()};
    }
    return status;
  });
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
    status = Decode(engine, view, target, threads, bad_tile);
    std::memcpy(output, pixels.data(), output_bytes);
    return status;
  });
}

uint32_t l3_test_encode(const uint8_t* pixels, size_t pixels_bytes, uint32_t width_px,
                        uint32_t height_px, uint32_t channels, uint32_t sample_bits,
                        uint64_t row_stride_bytes, const L3TestEncodeOptions* options,
                        uint8_t** encoded, size_t* encoded_bytes) {
  return StatusOf([&] {
    ExactBytes input(pixels, pixels_bytes);
    const l3::PixelView view{input.data(), width_px,    height_px,
                             channels,     sample_bits, row_stride_bytes};
    l3::EncodeOptions encode_options;
    encode_options.mode = options->mode == 0 ? l3::EncodeMode::kPacked : l3::EncodeMode::kRans;
    encode_options.effort = options->effort;
    encode_options.threads = options->threads;
    encode_options.tile_width_log2 = options->tile_width_log2;
    encode_options.tile_height_log2 = options->tile_height_log2;
    encode_options.meaning = static_cast<l3::Meaning>(options->meaning);
    encode_options.icc = {options->icc.data, options->icc.size};
    encode_options.exif = {options->exif.data, options->exif.size};
    encode_options.palette = {options->palette.data, options->palette.size};
    std::vector<uint8_t> bytes;
    const Status status = l3::EncodeImage(view, encode_options, &bytes);
    if (status != Status::kOk) return status;
    *encoded = static_cast<uint8_t*>(std::malloc(bytes.size()));
    if (*encoded == nullptr) throw std::bad_alloc();
    std::memcpy(*encoded, bytes.data(), bytes.size());
    *encoded_bytes = bytes.size();
    return status;
  });
}

void l3_test_free(uint8_t* encoded) { std::free(encoded); }
