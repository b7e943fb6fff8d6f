#include "nvimgcodec/decoder.h"

#include <string>

#include "cpu/cpu_decoder.h"
#include "nvimgcodec/encoded_file.h"
#include "nvimgcodec/image_request.h"
#include "nvimgcodec/parser.h"

namespace l3 {
namespace {

constexpr char kDecoderId[] = "l3_cpu_decoder";

// A decoder keeps nothing from image to image: it is its own description's instance.
nvimgcodecStatus_t Create(void* instance, nvimgcodecDecoder_t* decoder,
                          const nvimgcodecExecutionParams_t*, const char*) {
  if (decoder == nullptr) return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  *decoder = static_cast<nvimgcodecDecoder_t>(instance);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t Destroy(nvimgcodecDecoder_t) { return NVIMGCODEC_STATUS_SUCCESS; }

nvimgcodecStatus_t GetMetadata(nvimgcodecDecoder_t, const nvimgcodecCodeStreamDesc_t*,
                               nvimgcodecMetadata_t**, int*) {
  return NVIMGCODEC_STATUS_IMPLEMENTATION_UNSUPPORTED;
}

nvimgcodecProcessingStatus_t ToProcessingStatus(Status status) {
  switch (status) {
    case Status::kOk: return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
    case Status::kBadMagic: return NVIMGCODEC_PROCESSING_STATUS_CODEC_UNSUPPORTED;
    case Status::kUnsupportedVersion:
    case Status::kUnsupportedFeature: return NVIMGCODEC_PROCESSING_STATUS_CODESTREAM_UNSUPPORTED;
    default: return NVIMGCODEC_PROCESSING_STATUS_IMAGE_CORRUPTED;
  }
}

// What is asked for: how the image shall look, and which part of it.
struct Request {
  nvimgcodecImageInfo_t image = Tagged<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  nvimgcodecCodeStreamInfo_t stream =
      Tagged<nvimgcodecCodeStreamInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_INFO);

  bool Read(const nvimgcodecImageDesc_t& of, const nvimgcodecCodeStreamDesc_t& from) {
    return of.getImageInfo(of.instance, &image) == NVIMGCODEC_STATUS_SUCCESS &&
           from.getCodeStreamInfo(from.instance, &stream) == NVIMGCODEC_STATUS_SUCCESS;
  }
};

Orientation ShownOrientation(const nvimgcodecDecodeParams_t* params, const Orientation& stored) {
  return params != nullptr && params->apply_exif_orientation != 0 ? stored : kAsStored;
}

nvimgcodecProcessingStatus_t CanDecode(nvimgcodecDecoder_t, const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecDecodeParams_t* params, int) {
  if (image == nullptr || code_stream == nullptr) return NVIMGCODEC_PROCESSING_STATUS_FAIL;
  return Guarded(nvimgcodecProcessingStatus_t{NVIMGCODEC_PROCESSING_STATUS_FAIL}, [&] {
    Request request;
    if (!request.Read(*image, *code_stream)) {
      return nvimgcodecProcessingStatus_t{NVIMGCODEC_PROCESSING_STATUS_FAIL};
    }
    PeekedImage peeked;
    const Status status = Peek(code_stream->io_stream, &peeked);
    if (status != Status::kOk) return ToProcessingStatus(status);
    TensorPlan plan;
    return PlanRequest(peeked.info, ShownOrientation(params, peeked.orientation), request.image,
                       request.stream.code_stream_view, &plan);
  });
}

nvimgcodecProcessingStatus_t DecodeImage(const Log& log, const Request& request,
                                         nvimgcodecIoStreamDesc_t* stream,
                                         const nvimgcodecDecodeParams_t* params) {
  const EncodedFile file(stream);
  ImageView view;
  Status status = ParseImage(file.data(), file.size(), &view);
  std::string where;
  if (status == Status::kOk) {
    const Orientation orientation =
        ShownOrientation(params, ReadOrientation(FindChunk(view, kChunkExif)));
    TensorPlan plan;
    const nvimgcodecProcessingStatus_t planned =
        PlanRequest(view.info, orientation, request.image, request.stream.code_stream_view, &plan);
    if (planned != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) return planned;
    if (request.image.buffer == nullptr || !IsAligned(request.image, plan.output.type) ||
        request.image.buffer_kind != NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST) {
      log.Fail(kDecoderId, "L3 needs a buffer in host memory that is aligned to its samples.");
      return NVIMGCODEC_PROCESSING_STATUS_FAIL;
    }
    const OutputPlan output = plan.At(request.image.buffer);
    FillBorder(output);
    const TileSpan tiles = TilesOfWindows(view.info, &output, 1);
    const DecodeResult result =
        CpuDecoder(view).DecodeWindows(&output, 1, tiles, 0, tiles.tile_count());
    status = result.status;
    where =
        ", tile " + std::to_string(result.tile) + " of " + std::to_string(view.info.tile_count());
  }
  if (status != Status::kOk) {
    log.Fail(kDecoderId, std::string("L3 image") + where + ": " + StatusMessage(status) + " (" +
                             StatusName(status) + ").");
  }
  return ToProcessingStatus(status);
}

nvimgcodecStatus_t Decode(nvimgcodecDecoder_t decoder, const nvimgcodecImageDesc_t* image,
                          const nvimgcodecCodeStreamDesc_t* code_stream,
                          const nvimgcodecDecodeParams_t* params, int) {
  if (decoder == nullptr || image == nullptr || code_stream == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  const auto status = Guarded(nvimgcodecProcessingStatus_t{NVIMGCODEC_PROCESSING_STATUS_FAIL}, [&] {
    Request request;
    if (!request.Read(*image, *code_stream)) {
      return nvimgcodecProcessingStatus_t{NVIMGCODEC_PROCESSING_STATUS_FAIL};
    }
    return DecodeImage(*reinterpret_cast<const Log*>(decoder), request, code_stream->io_stream,
                       params);
  });
  image->imageReady(image->instance, status);
  return status == NVIMGCODEC_PROCESSING_STATUS_SUCCESS ? NVIMGCODEC_STATUS_SUCCESS
                                                        : NVIMGCODEC_STATUS_EXECUTION_FAILED;
}

}  // namespace

nvimgcodecDecoderDesc_t MakeCpuDecoder(Log* log) {
  auto decoder = Tagged<nvimgcodecDecoderDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODER_DESC);
  decoder.instance = log;
  decoder.id = kDecoderId;
  decoder.codec = kCodec;
  decoder.backend_kind = NVIMGCODEC_BACKEND_KIND_CPU_ONLY;
  decoder.create = Create;
  decoder.destroy = Destroy;
  decoder.getMetadata = GetMetadata;
  decoder.canDecode = CanDecode;
  decoder.decode = Decode;
  return decoder;
}

}  // namespace l3
