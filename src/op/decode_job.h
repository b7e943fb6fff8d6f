// An image of a batch on its way through an engine. Layer: adapter.
#pragma once

#include <cstddef>
#include <vector>

#include "core/output.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

struct CachedImage;

struct DecodeJob {
  int sample;  // of the batch
  const ImageView* view;
  const CachedImage* cached;  // where the view comes from; null: from the batch
  std::vector<GroupJob> groups;  // with a plan for each of its windows
  size_t plan_count;
  DecodeResult result;  // set by the engine
};

}  // namespace l3
