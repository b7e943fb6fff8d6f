// Windows of an image, whose channels may be in groups, on their way to an engine. Layer: output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/channel_groups.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

class PayloadSource;

// An image whose payloads are in device memory.
struct DeviceImage {
  ImageView view;               // its payloads are null
  std::vector<bool> is_rans;    // of each tile, as IsRansTile() says
  const uint8_t* payloads_dev;  // 16-byte aligned, readable kPayloadPaddingBytes past their end
};

// Channels of an output that are decoded together: those that it has of a group of the image's.
struct GroupOutput {
  uint16_t number;         // of the group
  uint8_t group_channels;  // that the group has
  uint8_t channels;        // of the output; 0 if a plan has those of all groups (`is_merged`)
  uint8_t source[kMaxChannels];  // in the group
  uint16_t place[kMaxChannels];  // in the output
  float subtract[kMaxChannels];
  float multiply[kMaxChannels];
  float fill[kMaxChannels];
  bool is_merged;  // the image has up to kMaxChannels, of which `place` are the group's

  ImageView ViewOf(const ImageView& image) const {
    return ViewOfGroup(image, {group_channels, {}}, number);
  }
  // The plan of the group, from a plan of what all groups of a window have in common.
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

// What an engine gets of an image: a validated file, its groups that are wanted, and a plan for
// each of any number of windows. A plan is what the groups have in common, or that of the only
// group: one for each group and window would take hundreds of times the memory of small outputs.
struct WindowJob {
  const ImageView* view;
  const std::vector<GroupOutput>* groups;  // one or more
  const OutputPlan* plans;
  size_t plan_count;
  // For GPUs only. Not null: the payloads are there, and `view` is this one.
  const DeviceImage* cached = nullptr;
  // Not null: the cache shall keep the image, of one group, under this name; all payloads go up.
  const std::string* cache_key = nullptr;
  // Not null: the view has no payloads. They are read from this source (needed_payloads.h).
  PayloadSource* source = nullptr;
  bool is_pinned = false;  // the file is in pinned memory, and stays there until the work is done
  bool is_damaged = false;  // a table of samples is: kCorruptHeader
  bool is_lost = false;  // reading from the source failed: the payloads are any bytes
  // The groups of the list that a launch decodes, where many windows need several.
  size_t group_begin = 0;
  size_t group_end = ~size_t{0};

  size_t end_of_groups() const { return group_end < groups->size() ? group_end : groups->size(); }
  // Whether a plan has channels of several groups, which are joined before they are stored.
  bool is_merged() const { return (*groups)[0].is_merged; }
  OutputPlan PlanOf(size_t group, size_t window) const {
    return groups->size() == 1 || is_merged() ? plans[window]
                                              : (*groups)[group].PlanOf(plans[window]);
  }
};

// The only group of a view that is one.
inline GroupOutput GroupOfView(const ImageView& view) {
  GroupOutput group = {};  // without a plan of its own
  group.number = view.group;
  group.group_channels = static_cast<uint8_t>(view.info.channels);
  return group;
}

}  // namespace l3
