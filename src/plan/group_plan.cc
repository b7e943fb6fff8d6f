#include "plan/group_plan.h"

#include "format/channel_groups.h"

namespace l3 {
namespace {

constexpr uint32_t kNoPlace = ~0u;

// One value for all channels, or one a channel, or nothing.
float ValueOf(const std::vector<float>& values, uint32_t channel) {
  if (values.empty()) return 0;
  return values.size() == 1 ? values[0] : values[channel];
}

}  // namespace

std::vector<GroupShare> ShareOutput(const ImageView& view, const TensorPlan& plan) {
  if (plan.wide == nullptr) return {{view, plan.output.channels, {}, {}}};
  const std::vector<uint16_t>& source = plan.wide->source;
  std::vector<uint32_t> place_of(view.info.channels, kNoPlace);
  for (uint32_t place = 0; place < source.size(); ++place) place_of[source[place]] = place;

  std::vector<GroupShare> shares;
  const std::vector<ChannelGroup> groups = ReadChannelGroups(view);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    GroupShare share = {ViewOfGroup(view, groups[g], g), 0, {}, {}};
    for (uint32_t i = 0; i < groups[g].channels; ++i) {
      const uint32_t place = place_of[groups[g].channel[i]];
      if (place == kNoPlace) continue;
      share.source[share.channels] = static_cast<uint8_t>(i);
      share.place[share.channels++] = static_cast<uint16_t>(place);
    }
    if (share.channels != 0) shares.push_back(share);
  }
  return shares;
}

OutputPlan PlanOfShare(const GroupShare& share, const TensorPlan& plan, void* tensor) {
  OutputPlan output = plan.At(tensor);
  if (plan.wide == nullptr) return output;
  output.channels = static_cast<uint8_t>(share.channels);
  for (uint32_t c = 0; c < share.channels; ++c) {
    const uint32_t place = share.place[c];
    output.source[c] = share.source[c];
    output.channel_offset_bytes[c] = place * plan.channel_stride_bytes;
    output.subtract[c] = ValueOf(plan.wide->subtract, place);
    output.multiply[c] = ValueOf(plan.wide->multiply, place);
    output.fill[c] = ValueOf(plan.wide->fill, place);
  }
  return output;
}

}  // namespace l3
