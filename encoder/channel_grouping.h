// Which channels of an image are coded together (format.md 4). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/pixel_view.h"
#include "format/channel_groups.h"

namespace l3 {

// As many channels in a group as there may be, in their order.
std::vector<ChannelGroup> GroupsInOrder(uint32_t channels);

// Groups of three channels that predict one another, as a sample of the pixels has it, and of one
// where none does. Of more than kMaxChannels channels.
std::vector<ChannelGroup> FindChannelGroups(const PixelView& pixels, Coding coding);

}  // namespace l3
