// An image of a batch on its way through an engine. Layer: adapter.
#pragma once

#include "core/tile.h"
#include "output/window_job.h"

namespace l3 {

struct CachedImage;

struct DecodeJob {
  int sample;  // of the batch
  const CachedImage* cached;  // where the view comes from; null: from the batch
  WindowJob windows;
  DecodeResult result;  // set by the engine
};

}  // namespace l3
