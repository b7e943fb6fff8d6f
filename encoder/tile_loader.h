// Copies the samples of tiles out of an image, as values. Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/packed_kernels.h"
#include "encoder/pixel_view.h"
#include "encoder/tile_planes.h"
#include "encoder/value_coding.h"
#include "format/channel_groups.h"
#include "format/image_view.h"

namespace l3 {

// Tiles have one payload for each channel group. Payloads are numbered tile after tile, in each
// group after group. Threads may share a loader; its arguments must outlive it.
class TileLoader {
 public:
  // `info` has the sides of tiles; an image of up to four channels has one group.
  TileLoader(const PixelView& pixels, const ImageInfo& info,
             const std::vector<ChannelGroup>& groups, const ValueCoding& values)
      : pixels_(pixels), info_(info), groups_(groups), values_(values) {}

  uint64_t payload_count() const { return uint64_t{info_.tile_count()} * groups_.size(); }
  uint32_t TileOf(uint64_t payload) const {
    return static_cast<uint32_t>(payload / groups_.size());
  }
  const ValueCoding& values() const { return values_; }
  // Bytes of its samples.
  uint64_t SampleBytesOf(uint64_t payload) const;

  // Fills TilePlanes or PackedPlanes, whose rows are padded, with the values of a payload. They
  // have no more bits than the planes.
  template <typename Planes>
  void Load(uint64_t payload, Planes* planes) const;
  // Appends the values in the order and the type of samples.
  void AppendStored(uint64_t payload, std::vector<uint8_t>* out) const;

 private:
  const ChannelGroup& GroupOf(uint64_t payload) const { return groups_[payload % groups_.size()]; }
  TileRect RectOf(uint64_t payload) const { return GetTileRect(info_, TileOf(payload)); }
  bool has_one_group() const { return pixels_.channels <= kMaxChannels; }
  uint64_t pixel_bytes() const { return uint64_t{pixels_.channels} * pixels_.sample_bits() / 8; }
  // The first pixel of a row of a tile.
  const uint8_t* RowOf(const TileRect& rect, uint32_t y) const {
    return pixels_.data + uint64_t{rect.y_px + y} * pixels_.row_stride_bytes +
           rect.x_px * pixel_bytes();
  }

  // Copies `count` pixels, each channel of the group to a row of its own, without the bits that are
  // not in `mask`.
  template <typename Sample>
  void SplitPixels(const ChannelGroup& group, const uint8_t* pixel, uint32_t count, Sample mask,
                   Sample* const rows[kMaxChannels]) const;
  template <typename Sample, typename Value>
  void LoadPixels(const ChannelGroup& group, const uint8_t* pixel, uint32_t count,
                  Value* const rows[kMaxChannels]) const;
  template <typename Sample>
  void StoreValues(const ChannelGroup& group, const TileRect& rect, uint8_t* stored) const;

  const PixelView& pixels_;
  const ImageInfo& info_;
  const std::vector<ChannelGroup>& groups_;
  const ValueCoding& values_;
};

}  // namespace l3
