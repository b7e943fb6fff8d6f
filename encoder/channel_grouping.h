// Which channels of an image are coded together (format.md 4). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/encode_options.h"
#include "encoder/pixel_view.h"
#include "format/channel_groups.h"

namespace l3 {

// The groups that the options name. Without any, an image of more than kMaxChannels channels gets
// groups that predict best, if the coding `predicts`; else channels are grouped in their order.
std::vector<ChannelGroup> ChooseChannelGroups(const PixelView& pixels, const EncodeOptions& options,
                                              bool predicts);

}  // namespace l3
