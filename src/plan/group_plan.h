// Outputs of images whose channels are in groups: what of an output each group has. Layer: plan.
#pragma once

#include <cstdint>
#include <vector>

#include "core/output.h"
#include "format/image_view.h"
#include "plan/tensor_plan.h"

namespace l3 {

// Channels of an output that are decoded together.
struct GroupShare {
  ImageView view;  // of their group
  uint32_t channels;
  uint8_t source[kMaxChannels];  // in the group
  uint16_t place[kMaxChannels];  // in the output
};

// The groups that have channels of the plan's output, in the order of the file. None if somebody
// changed the list of groups since ParseImage() judged it.
std::vector<GroupShare> ShareOutput(const ImageView& view, const TensorPlan& plan);

// What becomes of a group, in a tensor with memory.
OutputPlan PlanOfShare(const GroupShare& share, const TensorPlan& plan, void* tensor);

}  // namespace l3
