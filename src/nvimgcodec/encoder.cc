#include "nvimgcodec/encoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "encoder/encoder.h"
#include "nvimgcodec/image_request.h"

namespace l3 {
namespace {

constexpr nvimgcodecProcessingStatus_t kFail = NVIMGCODEC_PROCESSING_STATUS_FAIL;
constexpr nvimgcodecProcessingStatus_t kSuccess = NVIMGCODEC_PROCESSING_STATUS_SUCCESS;

using FilledImageInfo = Filled<nvimgcodecImageInfo_t, NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO>;

struct Encoder {
  const Log* log;
  EncodeOptions options;
};

// Pixels of the framework's: the channels in the order in which they are stored.
struct Source {
  PixelView pixels;  // without strides and data
  bool is_planar;
  std::array<uint32_t, kMaxChannels> order;
  size_t row_stride;
};

bool ReadCoding(const std::string& name, Coding* coding) {
  if (name == "rans")
    *coding = Coding::kRans;
  else if (name == "packed")
    *coding = Coding::kPacked;
  else if (name == "stored")
    *coding = Coding::kStored;
  else
    return false;
  return true;
}

// Reads "l3_encoder:coding=packed l3_encoder:effort=7"; what is for others is left to them. False,
// and `wrong`, if there is something that is not known.
bool ReadOptions(const char* text, const std::string& id, EncodeOptions* options,
                 std::string* wrong) {
  std::istringstream all(text == nullptr ? "" : text);
  const std::string prefix = id + ":";
  for (std::string option; all >> option;) {
    if (option.compare(0, prefix.size(), prefix) != 0) continue;
    const size_t equals = option.find('=');
    const std::string name = option.substr(prefix.size(), equals - prefix.size());
    const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
    const bool is_effort = value.size() == 1 && value[0] >= '1' && value[0] <= '9';
    if (name == "effort" && is_effort) {
      options->effort = static_cast<uint32_t>(value[0] - '0');
    } else if (name != "coding" || !ReadCoding(value, &options->coding)) {
      *wrong = option;
      return false;
    }
  }
  return true;
}

nvimgcodecStatus_t Create(void* instance, nvimgcodecEncoder_t* encoder,
                          const nvimgcodecExecutionParams_t*, const char* options) {
  if (instance == nullptr || encoder == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  const Log& log = *static_cast<const Log*>(instance);
  return Guarded(NVIMGCODEC_STATUS_EXTENSION_INTERNAL_ERROR, [&] {
    auto made = std::make_unique<Encoder>(Encoder{&log, {}});
    std::string wrong;
    if (!ReadOptions(options, log.id(), &made->options, &wrong)) {
      log.Fail("Unknown option \"" + wrong +
               "\": the L3 encoder takes coding=rans, packed or stored, and effort=1 to 9.");
      return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
    }
    *encoder = reinterpret_cast<nvimgcodecEncoder_t>(made.release());
    return NVIMGCODEC_STATUS_SUCCESS;
  });
}

nvimgcodecStatus_t Destroy(nvimgcodecEncoder_t encoder) {
  delete reinterpret_cast<Encoder*>(encoder);
  return NVIMGCODEC_STATUS_SUCCESS;
}

// L3 is lossless, and chooses its tiles itself.
nvimgcodecProcessingStatus_t CheckParams(const nvimgcodecEncodeParams_t* params) {
  if (params == nullptr) return kSuccess;
  if (!IsWhole(params)) return kFail;
  if (params->quality_type != NVIMGCODEC_QUALITY_TYPE_DEFAULT &&
      params->quality_type != NVIMGCODEC_QUALITY_TYPE_LOSSLESS) {
    return NVIMGCODEC_PROCESSING_STATUS_QUALITY_TYPE_UNSUPPORTED;
  }
  // All structs of a chain begin alike.
  const auto* next = static_cast<const nvimgcodecTileGeometryInfo_t*>(params->struct_next);
  for (; next != nullptr;
       next = static_cast<const nvimgcodecTileGeometryInfo_t*>(next->struct_next)) {
    if (next->struct_type != NVIMGCODEC_STRUCTURE_TYPE_TILE_GEOMETRY_INFO) continue;
    if (!IsWhole(next) ||
        (next->num_tiles_y | next->num_tiles_x | next->tile_height | next->tile_width) != 0) {
      return NVIMGCODEC_PROCESSING_STATUS_TILING_UNSUPPORTED;
    }
  }
  return kSuccess;
}

// Channels of a sample format, whether it is planar and turns red and blue around. Zero channels:
// as many as there are.
bool ReadFormat(nvimgcodecSampleFormat_t format, uint32_t* channels, bool* is_planar,
                bool* is_bgr) {
  *is_planar = *is_bgr = false;
  switch (format) {
    case NVIMGCODEC_SAMPLEFORMAT_P_UNCHANGED: *is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED: *channels = 0; return true;
    case NVIMGCODEC_SAMPLEFORMAT_P_Y: *is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_Y: *channels = 1; return true;
    case NVIMGCODEC_SAMPLEFORMAT_P_YA: *is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_YA: *channels = 2; return true;
    case NVIMGCODEC_SAMPLEFORMAT_P_BGR: *is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_BGR: *channels = 3; return *is_bgr = true;
    case NVIMGCODEC_SAMPLEFORMAT_P_RGB: *is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_RGB: *channels = 3; return true;
    case NVIMGCODEC_SAMPLEFORMAT_P_RGBA: *is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_RGBA: *channels = 4; return true;
    default: return false;
  }
}

std::optional<SampleType> ToSampleType(nvimgcodecSampleDataType_t type) {
  switch (type) {
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8: return SampleType::kUint8;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16: return SampleType::kUint16;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT8: return SampleType::kInt8;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT16: return SampleType::kInt16;
    default: return std::nullopt;
  }
}

nvimgcodecProcessingStatus_t PlanSource(const nvimgcodecImageInfo_t& image, Source* source) {
  if (image.color_spec != NVIMGCODEC_COLORSPEC_UNKNOWN &&
      image.color_spec != NVIMGCODEC_COLORSPEC_SRGB &&
      image.color_spec != NVIMGCODEC_COLORSPEC_GRAY) {
    return NVIMGCODEC_PROCESSING_STATUS_COLOR_SPEC_UNSUPPORTED;
  }
  if (image.chroma_subsampling != NVIMGCODEC_SAMPLING_NONE &&
      image.chroma_subsampling != NVIMGCODEC_SAMPLING_GRAY) {
    return NVIMGCODEC_PROCESSING_STATUS_SAMPLING_UNSUPPORTED;
  }
  uint32_t channels;
  bool is_bgr;
  if (!ReadFormat(image.sample_format, &channels, &source->is_planar, &is_bgr)) {
    return NVIMGCODEC_PROCESSING_STATUS_SAMPLE_FORMAT_UNSUPPORTED;
  }
  if (image.num_planes == 0 || image.num_planes > kMaxChannels || !HasEqualPlanes(image)) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED;
  }
  const nvimgcodecImagePlaneInfo_t& plane = image.plane_info[0];
  const uint32_t stored = std::max(image.num_planes, plane.num_channels);
  if ((image.num_planes > 1 && plane.num_channels != 1) || stored == 0 || stored > kMaxChannels ||
      (channels != 0 && channels != stored)) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED;
  }
  if (stored > 1 && source->is_planar != (image.num_planes > 1)) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED;
  }
  const std::optional<SampleType> type = ToSampleType(plane.sample_type);
  if (!type) return NVIMGCODEC_PROCESSING_STATUS_SAMPLE_TYPE_UNSUPPORTED;
  const uint64_t pixels = uint64_t{plane.width} * plane.height;
  const uint64_t row_bytes = uint64_t{plane.width} * plane.num_channels * SampleBits(*type) / 8;
  if (pixels == 0 || pixels > kMaxPixels || plane.row_stride < row_bytes) {
    return NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED;
  }
  source->pixels = {nullptr, plane.width, plane.height, stored, *type, 0};
  source->row_stride = plane.row_stride;
  source->order = {0, 1, 2, 3};
  if (is_bgr) std::swap(source->order[0], source->order[2]);
  return kSuccess;
}

nvimgcodecProcessingStatus_t Plan(const nvimgcodecImageDesc_t* image,
                                  const nvimgcodecCodeStreamDesc_t* code_stream,
                                  const nvimgcodecEncodeParams_t* params, FilledImageInfo* info,
                                  Source* source) {
  if (!IsWhole(image) || !IsWhole(code_stream) || !IsWhole(code_stream->io_stream) ||
      image->getImageInfo(image->instance, &info->value) != NVIMGCODEC_STATUS_SUCCESS ||
      !IsWhole(&info->value)) {
    return kFail;
  }
  const nvimgcodecProcessingStatus_t status = CheckParams(params);
  return status == kSuccess ? PlanSource(info->value, source) : status;
}

// Rows of interleaved samples, packed.
template <typename Sample>
void Interleave(const Source& source, const uint8_t* from, Sample* to) {
  const PixelView& pixels = source.pixels;
  const size_t plane_bytes = source.is_planar ? source.row_stride * pixels.height_px : 0;
  const size_t step = source.is_planar ? 1 : pixels.channels;
  for (size_t y = 0; y < pixels.height_px; ++y) {
    for (uint32_t c = 0; c < pixels.channels; ++c) {
      const uint32_t place = source.order[c];
      const uint8_t* row = from + y * source.row_stride + place * plane_bytes +
                           (source.is_planar ? 0 : place * sizeof(Sample));
      for (size_t x = 0; x < pixels.width_px; ++x) {
        std::memcpy(to + x * pixels.channels + c, row + x * step * sizeof(Sample), sizeof(Sample));
      }
    }
    to += size_t{pixels.width_px} * pixels.channels;
  }
}

// Pixels as the encoder takes them; in `copy` if they are not there so.
PixelView Arrange(const Source& source, const uint8_t* data, std::vector<uint16_t>* copy) {
  PixelView pixels = source.pixels;
  const size_t sample_bytes = pixels.sample_bits() / 8;
  const bool is_in_order = source.order[0] == 0 && (!source.is_planar || pixels.channels == 1);
  const bool is_aligned =
      (reinterpret_cast<uintptr_t>(data) | source.row_stride) % sample_bytes == 0;
  if (is_in_order && is_aligned) {
    pixels.data = data;
    pixels.row_stride_bytes = source.row_stride;
    return pixels;
  }
  pixels.row_stride_bytes = uint64_t{pixels.width_px} * pixels.channels * sample_bytes;
  copy->resize((pixels.row_stride_bytes * pixels.height_px + 1) / sizeof(uint16_t));
  auto* const bytes = reinterpret_cast<uint8_t*>(copy->data());
  if (sample_bytes == 1) {
    Interleave(source, data, bytes);
  } else {
    Interleave(source, data, copy->data());
  }
  pixels.data = bytes;
  return pixels;
}

bool Write(nvimgcodecIoStreamDesc_t* stream, std::vector<uint8_t>* bytes) {
  size_t written = 0;
  return stream->reserve(stream->instance, bytes->size()) == NVIMGCODEC_STATUS_SUCCESS &&
         stream->write(stream->instance, &written, bytes->data(), bytes->size()) ==
             NVIMGCODEC_STATUS_SUCCESS &&
         written == bytes->size() && stream->flush(stream->instance) == NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecProcessingStatus_t CanEncode(nvimgcodecEncoder_t encoder,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecEncodeParams_t* params, int) {
  if (encoder == nullptr) return kFail;  // its options were not understood
  return Guarded(kFail, [&] {
    FilledImageInfo info;
    Source source;
    return Plan(image, code_stream, params, &info, &source);
  });
}

nvimgcodecProcessingStatus_t EncodeOne(const Encoder& encoder,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecEncodeParams_t* params) {
  FilledImageInfo info;
  Source source;
  const nvimgcodecProcessingStatus_t planned = Plan(image, code_stream, params, &info, &source);
  if (planned != kSuccess) return planned;
  if (info.value.buffer == nullptr ||
      info.value.buffer_kind != NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST) {
    encoder.log->Fail("The L3 encoder needs the image in host memory.");
    return kFail;
  }
  std::vector<uint16_t> copy;
  std::vector<uint8_t> encoded;
  const PixelView pixels = Arrange(source, static_cast<const uint8_t*>(info.value.buffer), &copy);
  const Status status = EncodeImage(pixels, encoder.options, &encoded);
  if (status != Status::kOk) {
    encoder.log->Fail(std::string("L3 encoder: ") + StatusMessage(status) + " (" +
                      StatusName(status) + ").");
    return kFail;
  }
  if (!Write(code_stream->io_stream, &encoded)) {
    encoder.log->Fail("L3 encoder: " + std::to_string(encoded.size()) +
                      " bytes could not be written.");
    return kFail;
  }
  return kSuccess;
}

nvimgcodecStatus_t Encode(nvimgcodecEncoder_t encoder,
                          const nvimgcodecCodeStreamDesc_t* code_stream,
                          const nvimgcodecImageDesc_t* image,
                          const nvimgcodecEncodeParams_t* params, int) {
  if (encoder == nullptr || image == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  const auto& self = *reinterpret_cast<const Encoder*>(encoder);
  const auto status = Guarded(kFail, [&] { return EncodeOne(self, code_stream, image, params); });
  image->imageReady(image->instance, status);
  return status == kSuccess ? NVIMGCODEC_STATUS_SUCCESS : NVIMGCODEC_STATUS_EXECUTION_FAILED;
}

}  // namespace

nvimgcodecEncoderDesc_t MakeEncoder(Log* log) {
  auto encoder = Tagged<nvimgcodecEncoderDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_ENCODER_DESC);
  encoder.instance = log;
  encoder.id = log->id();
  encoder.codec = kCodec;
  encoder.backend_kind = NVIMGCODEC_BACKEND_KIND_CPU_ONLY;
  encoder.create = Create;
  encoder.destroy = Destroy;
  encoder.canEncode = CanEncode;
  encoder.encode = Encode;
  return encoder;
}

}  // namespace l3
