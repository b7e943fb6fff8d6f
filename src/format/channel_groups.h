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

// The groups of a view from ParseImage(); one group of all channels if the file has no list. The
// list is read and validated again, as it may have changed. Returns none if it breaks a rule now.
std::vector<ChannelGroup> ReadChannelGroups(const ImageView& view);

// One group of the image as an image of its own: its channels are numbered from 0.
ImageView ViewOfGroup(const ImageView& view, const ChannelGroup& group, uint32_t number);

}  // namespace l3
