#include "encoder/encode_options.h"

#include <algorithm>

namespace l3 {
namespace {

// The index addresses fewer than 2^36 bytes of payloads. They take up to twice the bytes of the
// samples (16 for 8 rows of one column), and up to 16 more in each channel of 4,096.
constexpr uint64_t kMaxRawBytes = (uint64_t{1} << 35) - (1 << 16);

// Whether `groups` have each channel once, or there are none.
bool AreGroups(const std::vector<std::vector<uint32_t>>& groups, uint32_t channels) {
  if (groups.empty()) return true;
  std::vector<bool> seen(channels);
  uint32_t count = 0;
  for (const std::vector<uint32_t>& group : groups) {
    if (group.empty() || group.size() > kMaxChannels) return false;
    for (const uint32_t channel : group) {
      if (channel >= channels || seen[channel]) return false;
      seen[channel] = true;
      ++count;
    }
  }
  return channels > kMaxChannels && count == channels;
}

// Whether all of `chunks` are optional chunks of unknown types.
bool AreOtherChunks(Bytes chunks) {
  uint64_t pos = 0;
  for (uint64_t end = 0; end < chunks.size; end = pos) {
    ChunkView whole;
    if (!NextOtherChunk(chunks.data, chunks.size, &pos, &whole)) return false;
    if (whole.data != chunks.data + end) return false;  // it skipped a known one
  }
  return true;
}

}  // namespace

uint64_t MetadataBytes(const EncodeOptions& options) {
  uint64_t bytes = 0;
  for (const Bytes& part : {options.icc, options.exif, options.palette, options.xmp,
                            options.metadata, options.other_chunks}) {
    bytes += part.size;
  }
  return bytes;
}

bool IsValid(const PixelView& pixels, const EncodeOptions& options) {
  const bool tile_width_ok =
      options.tile_width_log2 == 0 || (options.tile_width_log2 >= kMinTileWidthLog2 &&
                                       options.tile_width_log2 <= kMaxPackedTileLog2);
  const bool tile_height_ok =
      options.tile_height_log2 == 0 || (options.tile_height_log2 >= kMinTileHeightLog2 &&
                                        options.tile_height_log2 <= kMaxPackedTileLog2);
  const uint64_t pixel_bytes = uint64_t{pixels.channels} * (pixels.sample_bits() / 8);
  return uint64_t{pixels.width_px} * pixels.height_px <=
             kMaxRawBytes / std::max<uint64_t>(1, pixel_bytes) &&
         pixels.width_px >= 1 && pixels.height_px >= 1 &&
         uint64_t{pixels.width_px} * pixels.height_px <= kMaxPixels && pixels.channels >= 1 &&
         pixels.channels <= kMaxImageChannels && AreGroups(options.groups, pixels.channels) &&
         static_cast<uint32_t>(pixels.sample_type) < kSampleTypes &&
         pixels.row_stride_bytes >=
             uint64_t{pixels.width_px} * pixels.channels * pixels.sample_bits() / 8 &&
         MetadataBytes(options) <= kMaxMetadataBytes && options.palette.size % 4 == 0 &&
         options.palette.size <= 1024 && AreOtherChunks(options.other_chunks) && tile_width_ok &&
         tile_height_ok && options.effort >= 1 && options.effort <= 9;
}

ImageInfo MakeInfo(const PixelView& pixels, const EncodeOptions& options) {
  ImageInfo info{};
  info.width_px = pixels.width_px;
  info.height_px = pixels.height_px;
  info.channels = static_cast<uint16_t>(pixels.channels);
  info.sample_type = pixels.sample_type;
  info.meaning = options.meaning;
  return info;
}

}  // namespace l3
