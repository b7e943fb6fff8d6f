// An image of a batch on its way through an engine. Layer: adapter.
#pragma once

#include "core/output.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

struct DecodeJob {
  int sample;  // of the batch
  const ImageView* view;
  OutputPlan plan;
  DecodeResult result;  // set by the engine
};

}  // namespace l3
