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
  const auto is_side = [](uint32_t log2, uint32_t least_log2) {
    return log2 == 0 || (log2 >= least_log2 && log2 <= kMaxPackedTileLog2);
  };
  const uint64_t pixel_count = uint64_t{pixels.width_px} * pixels.height_px;
  const uint64_t pixel_bytes = uint64_t{pixels.channels} * (pixels.sample_bits() / 8);
  return pixels.width_px >= 1 && pixels.height_px >= 1 && pixel_count <= kMaxPixels &&
         pixels.channels >= 1 && pixels.channels <= kMaxImageChannels &&
         static_cast<uint32_t>(pixels.sample_type) < kSampleTypes &&
         pixel_count <= kMaxRawBytes / pixel_bytes &&
         pixels.row_stride_bytes >= pixels.width_px * pixel_bytes &&
         AreGroups(options.groups, pixels.channels) &&
         MetadataBytes(options) <= kMaxMetadataBytes && options.palette.size % 4 == 0 &&
         options.palette.size <= 1024 && AreOtherChunks(options.other_chunks) &&
         is_side(options.tile_width_log2, kMinTileWidthLog2) &&
         is_side(options.tile_height_log2, kMinTileHeightLog2) && options.effort >= 1 &&
         options.effort <= 9;
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
