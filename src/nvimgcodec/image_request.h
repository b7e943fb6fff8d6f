// From what nvImageCodec asks of a decoder to the plan of the store stage. Layer: adapter.
#pragma once

#include "format/image_view.h"
#include "nvimgcodec/abi.h"
#include "output/orientation.h"
#include "output/output_plan.h"

namespace l3 {

// The same orientation in nvImageCodec's terms: turned counter-clockwise, then flipped.
nvimgcodecOrientation_t ToNvimgcodec(const Orientation& orientation);

// Plans the pixels of an image for the buffer that `request` describes, which need not be there
// yet. `view` is what of the stream is asked for; null is the whole image. Returns success, or
// what of the request is not supported.
nvimgcodecProcessingStatus_t PlanRequest(const ImageInfo& info, const Orientation& orientation,
                                         const nvimgcodecImageInfo_t& request,
                                         const nvimgcodecCodeStreamView_t* view, OutputPlan* plan);

// Whether all planes are like the first.
bool HasEqualPlanes(const nvimgcodecImageInfo_t& request);

// Whether values can be stored at the buffer's address and strides.
bool IsAligned(const nvimgcodecImageInfo_t& request, OutputType type);

}  // namespace l3
