#include "nvimgcodec/parser.h"

#include <cstring>
#include <string>

#include "files/file_handle.h"
#include "format/constants.h"
#include "format/image_view.h"
#include "nvimgcodec/image_request.h"

namespace l3 {
namespace {

// A parser has no state but the log, so its description serves as its instance.
nvimgcodecStatus_t Create(void* instance, nvimgcodecParser_t* parser) {
  if (parser == nullptr) return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  *parser = static_cast<nvimgcodecParser_t>(instance);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t Destroy(nvimgcodecParser_t) { return NVIMGCODEC_STATUS_SUCCESS; }

nvimgcodecStatus_t CanParse(void* log, int* result, nvimgcodecCodeStreamDesc_t* code_stream) {
  if (result == nullptr || !IsWhole(code_stream) || !IsWhole(code_stream->io_stream)) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  return Guarded(NVIMGCODEC_STATUS_EXTENSION_INTERNAL_ERROR, [&] {
    const StreamBytes begin(code_stream->io_stream, sizeof(kSignature));
    *result = begin.size() == sizeof(kSignature) &&
              std::memcmp(begin.data(), kSignature, sizeof(kSignature)) == 0;
    if (log != nullptr && IsHandle(begin.data(), begin.size())) {
      static_cast<Log*>(log)->Fail("a lazy handle: use lazy=False, or the operators of fn.l3");
    }
    return NVIMGCODEC_STATUS_SUCCESS;
  });
}

nvimgcodecStatus_t GetCodeStreamInfo(nvimgcodecParser_t, nvimgcodecCodeStreamInfo_t* info,
                                     nvimgcodecCodeStreamDesc_t* code_stream) {
  // A struct that is older has no room for what is written.
  if (!IsWhole(info) || !IsWhole(code_stream) || !IsWhole(code_stream->io_stream)) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  std::memcpy(info->codec_name, kCodec, sizeof(kCodec));
  info->num_images = 1;
  return code_stream->io_stream->size(code_stream->io_stream->instance, &info->size);
}

void Describe(const PeekedImage& image, nvimgcodecImageInfo_t* described) {
  const ImageInfo& info = image.info;
  std::memcpy(described->codec_name, kCodec, sizeof(kCodec));
  const bool has_color = info.channels >= 3;
  described->color_spec = has_color ? NVIMGCODEC_COLORSPEC_SRGB : NVIMGCODEC_COLORSPEC_GRAY;
  described->chroma_subsampling = has_color ? NVIMGCODEC_SAMPLING_NONE : NVIMGCODEC_SAMPLING_GRAY;
  constexpr nvimgcodecSampleFormat_t kFormats[kMaxChannels] = {
      NVIMGCODEC_SAMPLEFORMAT_P_Y, NVIMGCODEC_SAMPLEFORMAT_I_YA, NVIMGCODEC_SAMPLEFORMAT_I_RGB,
      NVIMGCODEC_SAMPLEFORMAT_I_RGBA};
  described->sample_format = kFormats[info.channels - 1];
  described->orientation = ToNvimgcodec(image.orientation);
  described->num_planes = 1;
  auto plane = Tagged<nvimgcodecImagePlaneInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_PLANE_INFO);
  plane.width = info.width_px;
  plane.height = info.height_px;
  plane.row_stride = info.row_bytes();
  plane.num_channels = info.channels;
  constexpr nvimgcodecSampleDataType_t kTypes[kSampleTypes] = {
      NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8,   NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16,
      NVIMGCODEC_SAMPLE_DATA_TYPE_INT8,    NVIMGCODEC_SAMPLE_DATA_TYPE_INT16,
      NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32,  NVIMGCODEC_SAMPLE_DATA_TYPE_INT32,
      NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT16, NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32};
  plane.sample_type = kTypes[static_cast<uint8_t>(info.sample_type)];
  plane.precision = static_cast<uint8_t>(
      info.sample_bits());  // values count as they are, however many bits are used
  described->plane_info[0] = plane;
}

nvimgcodecStatus_t GetImageInfo(nvimgcodecParser_t parser, nvimgcodecImageInfo_t* image_info,
                                nvimgcodecCodeStreamDesc_t* code_stream) {
  if (parser == nullptr || !IsWhole(image_info) || !IsWhole(code_stream) ||
      !IsWhole(code_stream->io_stream)) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  return Guarded(NVIMGCODEC_STATUS_EXTENSION_INTERNAL_ERROR, [&] {
    PeekedImage image = {};
    const Status status = Peek(code_stream->io_stream, &image);
    if (status == Status::kOk) {
      Describe(image, image_info);
      return NVIMGCODEC_STATUS_SUCCESS;
    }
    // A parser does not get the name of the file, and DALI adds none to its error.
    const std::string reason =
        status == Status::kUnsupportedFeature
            ? std::to_string(image.info.channels) +
                  " channels, and nvImageCodec takes up to 4: use fn.l3.decode"
            : StatusMessage(status);
    reinterpret_cast<const Log*>(parser)->Fail(
        "L3 header of a file of " + std::to_string(image.file_bytes) + " bytes: " + reason + " (" +
        StatusName(status) + ").");
    const bool is_foreign =
        status == Status::kUnsupportedVersion || status == Status::kUnsupportedFeature;
    return is_foreign ? NVIMGCODEC_STATUS_CODESTREAM_UNSUPPORTED : NVIMGCODEC_STATUS_BAD_CODESTREAM;
  });
}

}  // namespace

Status Peek(nvimgcodecIoStreamDesc_t* stream, PeekedImage* image) {
  ImageInfo& info = image->info;
  const StreamBytes header(stream, kHeaderBytes);
  image->file_bytes = header.file_bytes();
  const Status status = ParseHeader(header.data(), header.size(), &info);
  if (status != Status::kOk) return status;
  if (HasTooManyChannels(info)) return Status::kUnsupportedFeature;
  const size_t head_bytes = kHeaderBytes + size_t{info.chunks_bytes};
  const bool is_long_enough =
      uint64_t{info.width_px} * info.height_px <= MostPixels(header.file_bytes(), info);
  if (!is_long_enough || header.file_bytes() < head_bytes) return Status::kTruncated;
  image->orientation = kAsStored;
  if (info.chunks_bytes == 0) return Status::kOk;
  const StreamBytes head(stream, head_bytes);
  if (head.size() < head_bytes) return Status::kTruncated;
  image->orientation =
      ReadOrientation(FindChunk(head.data() + kHeaderBytes, info.chunks_bytes, kChunkExif));
  return Status::kOk;
}

nvimgcodecParserDesc_t MakeParser(Log* log) {
  auto parser = Tagged<nvimgcodecParserDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_PARSER_DESC);
  parser.instance = log;
  parser.id = log->id();
  parser.codec = kCodec;
  parser.canParse = CanParse;
  parser.create = Create;
  parser.destroy = Destroy;
  parser.getCodeStreamInfo = GetCodeStreamInfo;
  parser.getImageInfo = GetImageInfo;
  return parser;
}

}  // namespace l3
