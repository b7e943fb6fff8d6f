#include "nvimgcodec/image_job.h"

#include <string>

#include "nvimgcodec/image_request.h"
#include "nvimgcodec/parser.h"
#include "output/request.h"

namespace l3 {
namespace {

constexpr nvimgcodecProcessingStatus_t kFail = NVIMGCODEC_PROCESSING_STATUS_FAIL;

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
class Request {
 public:
  // False if the framework's structs are not what they were in 0.7.
  bool Read(const nvimgcodecImageDesc_t* of, const nvimgcodecCodeStreamDesc_t* from,
            const nvimgcodecDecodeParams_t* params) {
    if (!IsWhole(of) || !IsWhole(from) || !IsWhole(from->io_stream)) return false;
    if (params != nullptr && !IsWhole(params)) return false;
    turns_ = params != nullptr && params->apply_exif_orientation != 0;
    return of->getImageInfo(of->instance, &image_.value) == NVIMGCODEC_STATUS_SUCCESS &&
           from->getCodeStreamInfo(from->instance, &stream_.value) == NVIMGCODEC_STATUS_SUCCESS &&
           IsWhole(&image_.value) && IsWhole(&stream_.value);
  }

  nvimgcodecProcessingStatus_t Plan(const ImageInfo& info, const Orientation& stored,
                                    OutputPlan* plan) const {
    return PlanRequest(info, turns_ ? stored : kAsStored, image(), stream_.value.code_stream_view,
                       plan);
  }

  const nvimgcodecImageInfo_t& image() const { return image_.value; }

 private:
  Filled<nvimgcodecImageInfo_t, NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO> image_;
  Filled<nvimgcodecCodeStreamInfo_t, NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_INFO> stream_;
  bool turns_ = false;
};

void LogDamage(const Log& log, const std::string& where, Status status) {
  log.Fail("L3 image" + where + ": " + StatusMessage(status) + " (" + StatusName(status) + ").");
}

nvimgcodecProcessingStatus_t Open(const Log& log, const nvimgcodecImageDesc_t* image,
                                  const nvimgcodecCodeStreamDesc_t* code_stream,
                                  const nvimgcodecDecodeParams_t* params,
                                  nvimgcodecImageBufferKind_t kind, ImageJob* job) {
  Request request;
  if (!request.Read(image, code_stream, params)) {
    log.Fail(
        "The request of nvImageCodec is incomplete, or its structs are older than those of 0.7.");
    return kFail;
  }
  const StreamBytes& file = job->file.emplace(code_stream->io_stream);
  Status status = ParseImage(file.data(), file.size(), &job->view);
  if (status == Status::kOk && HasTooManyChannels(job->view.info)) {
    status = Status::kUnsupportedFeature;
  }
  if (status != Status::kOk) {
    LogDamage(log, "", status);
    return ToProcessingStatus(status);
  }
  OutputPlan* const plan = &job->output;
  const nvimgcodecProcessingStatus_t planned =
      request.Plan(job->view.info, ReadOrientation(FindChunk(job->view, kChunkExif)), plan);
  if (planned != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) return planned;
  if (request.image().buffer == nullptr || request.image().buffer_kind != kind ||
      !IsAligned(request.image(), plan->type)) {
    const std::string where = kind == NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST ? "host" : "device";
    log.Fail("L3 needs a buffer in " + where + " memory that is aligned to its samples.");
    return kFail;
  }
  plan->PlaceIn(request.image().buffer);
  job->groups = PlanGroups({}, job->view, plan, 1);  // requests here choose no channels
  job->stream = request.image().cuda_stream;
  return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
}

}  // namespace

nvimgcodecProcessingStatus_t CanDecodeImage(const nvimgcodecImageDesc_t* image,
                                            const nvimgcodecCodeStreamDesc_t* code_stream,
                                            const nvimgcodecDecodeParams_t* params) noexcept {
  return Guarded(kFail, [&] {
    Request request;
    if (!request.Read(image, code_stream, params)) return kFail;
    PeekedImage peeked;
    const Status status = Peek(code_stream->io_stream, &peeked);
    if (status != Status::kOk) return ToProcessingStatus(status);
    OutputPlan plan;
    return request.Plan(peeked.info, peeked.orientation, &plan);
  });
}

nvimgcodecProcessingStatus_t OpenImage(const Log& log, const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecDecodeParams_t* params,
                                       nvimgcodecImageBufferKind_t kind, ImageJob* job) noexcept {
  return Guarded(kFail, [&] { return Open(log, image, code_stream, params, kind, job); });
}

nvimgcodecProcessingStatus_t ReportStatus(const Log& log, const ImageInfo& info,
                                          const DecodeResult& result) {
  if (result.status != Status::kOk) {
    LogDamage(log,
              ", tile " + std::to_string(result.tile) + " of " + std::to_string(info.tile_count()),
              result.status);
  }
  return ToProcessingStatus(result.status);
}

nvimgcodecStatus_t RefuseMetadata(nvimgcodecDecoder_t, const nvimgcodecCodeStreamDesc_t*,
                                  nvimgcodecMetadata_t**, int*) {
  return NVIMGCODEC_STATUS_IMPLEMENTATION_UNSUPPORTED;
}

}  // namespace l3
