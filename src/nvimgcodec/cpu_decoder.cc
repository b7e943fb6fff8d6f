#include "nvimgcodec/cpu_decoder.h"

#include "cpu/border.h"
#include "cpu/cpu_decoder.h"
#include "nvimgcodec/image_job.h"

namespace l3 {
namespace {

constexpr nvimgcodecProcessingStatus_t kFail = NVIMGCODEC_PROCESSING_STATUS_FAIL;

// A decoder has no state, so its description serves as its instance.
nvimgcodecStatus_t Create(void* instance, nvimgcodecDecoder_t* decoder,
                          const nvimgcodecExecutionParams_t*, const char*) {
  if (instance == nullptr || decoder == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  *decoder = static_cast<nvimgcodecDecoder_t>(instance);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t Destroy(nvimgcodecDecoder_t) { return NVIMGCODEC_STATUS_SUCCESS; }

nvimgcodecProcessingStatus_t CanDecode(nvimgcodecDecoder_t, const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecDecodeParams_t* params, int) {
  return CanDecodeImage(image, code_stream, params);
}

nvimgcodecProcessingStatus_t DecodeImage(const Log& log, const ImageJob& job) {
  FillBorder(job.output);
  const TileSpan tiles = TilesOfWindows(job.view, &job.output, 1);
  return ReportStatus(
      log, job.view.info,
      CpuDecoder(job.view).DecodeWindows(&job.output, 1, tiles, 0, tiles.tile_count()));
}

nvimgcodecStatus_t Decode(nvimgcodecDecoder_t decoder, const nvimgcodecImageDesc_t* image,
                          const nvimgcodecCodeStreamDesc_t* code_stream,
                          const nvimgcodecDecodeParams_t* params, int) {
  if (decoder == nullptr || image == nullptr || code_stream == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  const Log& log = *reinterpret_cast<const Log*>(decoder);
  const auto status = Guarded(kFail, [&] {
    ImageJob job;
    const nvimgcodecProcessingStatus_t opened =
        OpenImage(log, image, code_stream, params, NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST, &job);
    return opened == NVIMGCODEC_PROCESSING_STATUS_SUCCESS ? DecodeImage(log, job) : opened;
  });
  image->imageReady(image->instance, status);
  return status == NVIMGCODEC_PROCESSING_STATUS_SUCCESS ? NVIMGCODEC_STATUS_SUCCESS
                                                        : NVIMGCODEC_STATUS_EXECUTION_FAILED;
}

}  // namespace

nvimgcodecDecoderDesc_t MakeCpuDecoder(Log* log) {
  auto decoder = Tagged<nvimgcodecDecoderDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODER_DESC);
  decoder.instance = log;
  decoder.id = log->id();
  decoder.codec = kCodec;
  decoder.backend_kind = NVIMGCODEC_BACKEND_KIND_CPU_ONLY;
  decoder.create = Create;
  decoder.destroy = Destroy;
  decoder.getMetadata = RefuseMetadata;
  decoder.canDecode = CanDecode;
  decoder.decode = Decode;
  return decoder;
}

}  // namespace l3
