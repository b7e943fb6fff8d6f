// Windows of an image, whose channels may be in groups, on their way to an engine. Layer: output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "output/output_plan.h"
#include "format/channel_groups.h"
#include "format/image_view.h"

namespace l3 {

struct TensorPlan;

// Channels of an output that are decoded together: those that it has of a group of the image's.
struct GroupShare {
  uint16_t number;         // of the group
  uint8_t group_channels;  // that the group has
  uint8_t channels;        // of the output
  uint8_t source[kMaxChannels];  // in the group
  uint16_t place[kMaxChannels];  // in the output
  float subtract[kMaxChannels];
  float multiply[kMaxChannels];
  float fill[kMaxChannels];

  ImageView ViewOf(const ImageView& image) const {
    return ViewOfGroup(image, {group_channels, {}}, number);
  }
  // What becomes of the group, from a plan of what all groups of a window have in common.
  OutputPlan PlanOf(const OutputPlan& window) const {
    OutputPlan plan = window;
    plan.channels = channels;
    for (uint32_t c = 0; c < channels; ++c) {
      plan.channel_offset_bytes[c] = place[c] * window.channel_offset_bytes[1];
      plan.source[c] = source[c];
      plan.subtract[c] = subtract[c];
      plan.multiply[c] = multiply[c];
      plan.fill[c] = fill[c];
    }
    return plan;
  }
};

// A validated file, and its groups that are wanted. A plan for each window, of none up, is what the
// groups have in common, or that of the only group: one for each group and window would take
// hundreds of times the memory of small outputs.
struct WindowJob {
  const ImageView* view;
  const std::vector<GroupShare>* groups;  // one or more
  const OutputPlan* plans;
  size_t plan_count;

  OutputPlan PlanOf(size_t group, size_t window) const {
    return groups->size() == 1 ? plans[window] : (*groups)[group].PlanOf(plans[window]);
  }
};

// The groups that have channels of the plan's output, in the order of the file. None if somebody
// changed the list of groups since ParseImage() validated it.
std::vector<GroupShare> ShareOutput(const ImageView& view, const TensorPlan& plan);

// The plan of a window in a tensor with memory, as a WindowJob has it.
OutputPlan PlaceOutput(const std::vector<GroupShare>& shares, const TensorPlan& plan, void* tensor);

}  // namespace l3
