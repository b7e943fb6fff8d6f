#include "format/channel_groups.h"

#include "format/byte_reader.h"

namespace l3 {

std::vector<ChannelGroup> ReadChannelGroups(const ImageView& view) {
  const uint32_t channels = view.info.channels;
  if (view.is_group()) return {{channels, {0, 1, 2, 3}}};
  std::vector<ChannelGroup> groups;
  std::vector<bool> seen(channels);
  ByteReader reader(view.groups.data, view.groups.size);
  uint32_t count = 0;  // of the channels so far
  for (uint32_t g = 0; g < view.group_count; ++g) {
    ChannelGroup group = {reader.ReadByte(), {}};
    if (group.channels < 1 || group.channels > view.info.most_group_channels()) return {};
    for (uint32_t i = 0; i < group.channels; ++i) {
      const uint32_t low = reader.ReadByte();
      const uint32_t channel = low | reader.ReadByte() << 8;
      if (!reader.ok() || channel >= channels || seen[channel]) return {};
      seen[channel] = true;
      group.channel[i] = static_cast<uint16_t>(channel);
    }
    count += group.channels;
    groups.push_back(group);
  }
  if (count != channels || !reader.at_end()) groups.clear();
  return groups;
}

ImageView ViewOfGroup(const ImageView& view, const ChannelGroup& group, uint32_t number) {
  ImageView of_group = view;
  of_group.info.channels = static_cast<uint16_t>(group.channels);
  of_group.group = static_cast<uint16_t>(number);
  return of_group;
}

}  // namespace l3
