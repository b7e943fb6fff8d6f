#include "encoder/tile_loader.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace l3 {
namespace {

template <typename Sample>
Sample SampleAt(const uint8_t* bytes) {
  Sample sample;
  std::memcpy(&sample, bytes, sizeof(Sample));
  return sample;
}

// Values of `count` samples.
template <typename Sample, typename Value>
void MapSamples(const ValueCoding& coding, const Sample* samples, uint32_t count, Value* values) {
  if (coding.table.empty()) {
    for (uint32_t x = 0; x < count; ++x) {
      values[x] = static_cast<Value>(coding.ShiftedValue(samples[x]));
    }
  } else {
    const uint16_t* rank = coding.rank.data();
    for (uint32_t x = 0; x < count; ++x) values[x] = static_cast<Value>(rank[samples[x]]);
  }
}

}  // namespace

template <typename Sample>
void TileLoader::SplitPixels(const ChannelGroup& group, const uint8_t* pixel, uint32_t count,
                             Sample mask, Sample* const rows[kMaxChannels]) const {
  if (has_one_group()) {
    return GetPackedKernels<Sample>().split_pixels(pixel, group.channels, count, mask, rows);
  }
  const uint64_t step = pixel_bytes();
  for (uint32_t c = 0; c < group.channels; ++c) {
    const uint8_t* sample = pixel + group.channel[c] * sizeof(Sample);
    for (uint32_t x = 0; x < count; ++x, sample += step) {
      rows[c][x] = static_cast<Sample>(SampleAt<Sample>(sample) & mask);
    }
  }
}

template <typename Sample, typename Value>
void TileLoader::LoadPixels(const ChannelGroup& group, const uint8_t* pixel, uint32_t count,
                            Value* const rows[kMaxChannels]) const {
  const bool as_is = values_.keeps_samples();
  // Samples that changed since they were scanned may have more bits.
  const Sample mask = static_cast<Sample>(as_is ? values_.mask() : ~0u);
  if constexpr (std::is_same_v<Sample, Value>) {
    if (as_is) return SplitPixels<Sample>(group, pixel, count, mask, rows);
  }
  Sample samples[kMaxChannels][kMaxPackedTileSide];
  Sample* const sample_rows[kMaxChannels] = {samples[0], samples[1], samples[2], samples[3]};
  SplitPixels<Sample>(group, pixel, count, mask, sample_rows);
  for (uint32_t c = 0; c < group.channels; ++c) {
    if (as_is) {
      for (uint32_t x = 0; x < count; ++x) rows[c][x] = static_cast<Value>(samples[c][x]);
    } else {
      MapSamples(values_, samples[c], count, rows[c]);
    }
  }
}

template <typename Planes>
void TileLoader::Load(uint64_t payload, Planes* planes) const {
  using Value = std::remove_reference_t<decltype(*planes->Row(0, 0))>;
  const TileRect rect = RectOf(payload);
  const ChannelGroup& group = GroupOf(payload);
  planes->width_px = rect.width_px;
  planes->height_px = rect.height_px;
  planes->channels = group.channels;
  planes->used_bits = values_.used_bits;
  const bool is_bytes = pixels_.sample_bits() == 8;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    Value* rows[kMaxChannels];
    for (uint32_t c = 0; c < kMaxChannels; ++c) rows[c] = planes->Row(c, static_cast<int32_t>(y));
    is_bytes ? LoadPixels<uint8_t>(group, RowOf(rect, y), rect.width_px, rows)
             : LoadPixels<uint16_t>(group, RowOf(rect, y), rect.width_px, rows);
    if constexpr (std::is_same_v<Planes, TilePlanes>) continue;
    for (uint32_t c = 0; c < group.channels; ++c) {
      std::fill(rows[c] + rect.width_px, rows[c] + kMaxPackedTileSide, rows[c][rect.width_px - 1]);
    }
  }
}

template void TileLoader::Load(uint64_t payload, TilePlanes* planes) const;
template void TileLoader::Load(uint64_t payload, PackedPlanes<uint8_t>* planes) const;
template void TileLoader::Load(uint64_t payload, PackedPlanes<uint16_t>* planes) const;

template <typename Sample>
void TileLoader::StoreValues(const ChannelGroup& group, const TileRect& rect,
                             uint8_t* stored) const {
  const uint64_t step = pixel_bytes();
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* pixel = RowOf(rect, y);
    if (values_.keeps_samples() && has_one_group()) {
      stored = std::copy(pixel, pixel + rect.width_px * step, stored);
      continue;
    }
    for (uint32_t x = 0; x < rect.width_px; ++x, pixel += step) {
      for (uint32_t c = 0; c < group.channels; ++c, stored += sizeof(Sample)) {
        const uint32_t sample = SampleAt<Sample>(pixel + group.channel[c] * sizeof(Sample));
        const Sample value = static_cast<Sample>(values_.Value(sample));
        std::memcpy(stored, &value, sizeof(value));
      }
    }
  }
}

uint64_t TileLoader::SampleBytesOf(uint64_t payload) const {
  const TileRect rect = RectOf(payload);
  const uint64_t samples = uint64_t{rect.width_px} * rect.height_px * GroupOf(payload).channels;
  return samples * pixels_.sample_bits() / 8;
}

void TileLoader::AppendStored(uint64_t payload, std::vector<uint8_t>* out) const {
  const size_t begin = out->size();
  out->resize(begin + SampleBytesOf(payload));
  uint8_t* stored = out->data() + begin;
  pixels_.sample_bits() == 8 ? StoreValues<uint8_t>(GroupOf(payload), RectOf(payload), stored)
                             : StoreValues<uint16_t>(GroupOf(payload), RectOf(payload), stored);
}

}  // namespace l3
