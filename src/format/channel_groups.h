// The channels of an image that are decoded together (format.md 4). Layer: format.
#pragma once

#include <cstdint>
#include <vector>

#include "format/constants.h"
#include "format/image_view.h"

namespace l3 {

struct ChannelGroup {
  uint32_t channels;               // 1 to kMaxChannels
  uint16_t channel[kMaxChannels];  // their numbers in the image
};

// The groups of a view from ParseImage(); one of all channels where the file has no list. Read
// again and judged again: somebody may have changed the list. None if it breaks a rule now.
std::vector<ChannelGroup> ReadChannelGroups(const ImageView& view);

// The image as what decodes takes it: one of its groups, whose channels are numbered from 0 on.
ImageView ViewOfGroup(const ImageView& view, const ChannelGroup& group, uint32_t number);

}  // namespace l3
