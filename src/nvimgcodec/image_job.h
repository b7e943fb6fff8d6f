// What both decoders do before and after they decode an image. Layer: adapter.
#pragma once

#include <optional>
#include <vector>

#include "core/tile.h"
#include "format/image_view.h"
#include "nvimgcodec/abi.h"
#include "nvimgcodec/log.h"
#include "nvimgcodec/stream_bytes.h"
#include "output/window_job.h"

namespace l3 {

// An image to decode: a validated file, and where its pixels go.
struct ImageJob {
  std::optional<StreamBytes> file;  // the view is of its bytes
  ImageView view;
  std::vector<GroupOutput> groups;  // one: the parser refuses images with more
  OutputPlan output;
  cudaStream_t stream;  // to decode on, where that is a GPU's
};

// Whether an image can be decoded as it is asked for. Reads header and orientation alone.
nvimgcodecProcessingStatus_t CanDecodeImage(const nvimgcodecImageDesc_t* image,
                                            const nvimgcodecCodeStreamDesc_t* code_stream,
                                            const nvimgcodecDecodeParams_t* params) noexcept;

// Validates the file, and plans its output to memory of `kind`. What is wrong is returned and
// logged.
nvimgcodecProcessingStatus_t OpenImage(const Log& log, const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecDecodeParams_t* params,
                                       nvimgcodecImageBufferKind_t kind, ImageJob* job) noexcept;

// The framework's status of a decoded image; damage is logged.
nvimgcodecProcessingStatus_t ReportStatus(const Log& log, const ImageInfo& info,
                                          const DecodeResult& result);

// Of a decoder that reads no metadata.
nvimgcodecStatus_t RefuseMetadata(nvimgcodecDecoder_t decoder,
                                  const nvimgcodecCodeStreamDesc_t* code_stream,
                                  nvimgcodecMetadata_t** metadata, int* metadata_count);

}  // namespace l3
