#include "output/window_job.h"

#include <algorithm>

#include "output/tensor_plan.h"

namespace l3 {
namespace {

constexpr uint32_t kNoPlace = ~0u;

// One value for all channels, or one a channel, or nothing.
float ValueOf(const std::vector<float>& values, uint32_t channel) {
  if (values.empty()) return 0;
  return values.size() == 1 ? values[0] : values[channel];
}

// Of an image of up to kMaxChannels that is held by halves.
std::vector<GroupOutput> AllGroups(const ImageView& view) {
  std::vector<GroupOutput> all;
  for (const ChannelGroup& group : ReadChannelGroups(view)) {
    GroupOutput& output = all.emplace_back();
    output.number = static_cast<uint16_t>(all.size() - 1);
    output.group_channels = static_cast<uint8_t>(group.channels);
    std::copy_n(group.channel, kMaxChannels, output.place);
    output.is_merged = true;
  }
  return all;
}

}  // namespace

std::vector<GroupOutput> SplitOutputByGroup(const ImageView& view, const TensorPlan& plan) {
  if (plan.wide == nullptr && view.is_group()) return {GroupOfView(view)};
  if (plan.wide == nullptr) return AllGroups(view);
  const std::vector<uint16_t>& source = plan.wide->source;
  std::vector<uint32_t> place_of(view.info.channels, kNoPlace);
  for (uint32_t place = 0; place < source.size(); ++place) place_of[source[place]] = place;

  std::vector<GroupOutput> shares;
  const std::vector<ChannelGroup> groups = ReadChannelGroups(view);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    GroupOutput share = {};
    share.number = static_cast<uint16_t>(g);
    share.group_channels = static_cast<uint8_t>(groups[g].channels);
    for (uint32_t i = 0; i < groups[g].channels; ++i) {
      const uint32_t place = place_of[groups[g].channel[i]];
      if (place == kNoPlace) continue;
      const uint32_t c = share.channels++;
      share.source[c] = static_cast<uint8_t>(i);
      share.place[c] = static_cast<uint16_t>(place);
      share.subtract[c] = ValueOf(plan.wide->subtract, place);
      share.multiply[c] = ValueOf(plan.wide->multiply, place);
      share.fill[c] = ValueOf(plan.wide->fill, place);
    }
    if (share.channels != 0) shares.push_back(share);
  }
  return shares;
}

OutputPlan PlaceOutput(const std::vector<GroupOutput>& shares, const TensorPlan& plan,
                       void* tensor) {
  const OutputPlan window = plan.At(tensor);
  return plan.wide != nullptr && shares.size() == 1 ? shares[0].PlanOf(window) : window;
}

}  // namespace l3
