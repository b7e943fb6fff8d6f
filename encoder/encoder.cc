#include "encoder/encoder.h"

#include <algorithm>
#include <utility>

#include "encoder/channel_grouping.h"
#include "encoder/container_writer.h"
#include "encoder/image_encoder.h"
#include "encoder/sample_holding.h"
#include "encoder/tile_sizes.h"

namespace l3 {
namespace {

// Where coded tiles make a larger file, stored ones are tried.
uint64_t CodedBytesLimit(const PixelView& pixels, const EncodeOptions& options) {
  const uint64_t raw_bytes = MakeInfo(pixels, options).image_bytes();
  return raw_bytes + raw_bytes / 1000 + 128 + MetadataBytes(options);
}

// No file of stored tiles has more.
uint64_t StoredBytesLimit(const PixelView& pixels, const EncodeOptions& options) {
  ImageInfo info = MakeInfo(pixels, options);
  const std::vector<ChannelGroup> groups = ChooseChannelGroups(pixels, options, /*predicts=*/false);
  ChooseStoredTiles(options, groups[0].channels, &info);
  constexpr uint64_t kChunkFrame = 8 + 3;  // header and padding
  const uint64_t groups_bytes = groups.size() > 1 ? 2 + groups.size() + 2 * info.channels : 0;
  const uint64_t chunks = groups_bytes + MetadataBytes(options) + 6 * kChunkFrame;
  const uint64_t payloads = uint64_t{info.tile_count()} * groups.size();
  return kHeaderBytes + chunks + 4 + kPayloadAlignment + info.image_bytes() +
         payloads * (4 + kTileHeaderBytes + kPayloadAlignment);
}

}  // namespace

Status BoundFile(const PixelView& pixels, const EncodeOptions& options, uint64_t* bytes) {
  if (!IsValid(pixels, options)) return Status::kInvalidArgument;
  if (pixels.sample_type >= SampleType::kUint32) {
    *bytes = HeldBytesLimit(pixels, options);
    return Status::kOk;
  }
  *bytes = StoredBytesLimit(pixels, options);
  if (options.coding != Coding::kStored) {
    *bytes = std::max(*bytes, CodedBytesLimit(pixels, options));
  }
  return Status::kOk;
}

Status EncodeImage(const PixelView& pixels, const EncodeOptions& options,
                   const AllocateFile& allocate) {
  if (pixels.data == nullptr || !IsValid(pixels, options)) return Status::kInvalidArgument;
  if (pixels.sample_type >= SampleType::kUint32) {
    return WriteFile(EncodeHeld(pixels, options), options.threads, allocate);
  }
  return WriteFile(EncodeBest(pixels, options, nullptr), options.threads, allocate);
}

EncodedFile EncodeBest(const PixelView& pixels, const EncodeOptions& options,
                       const SampleHolding* samples) {
  ImageEncoder encoder(pixels, options, samples);
  if (options.coding == Coding::kStored) {
    return encoder.EncodeStored();
  }
  EncodedFile file = encoder.EncodeCoded();
  if (file.bytes > CodedBytesLimit(pixels, options)) {
    EncodedFile stored = encoder.EncodeStored();
    if (stored.bytes < file.bytes) file = std::move(stored);
  }
  return file;
}

Status EncodeImage(const PixelView& pixels, const EncodeOptions& options,
                   std::vector<uint8_t>* encoded) {
  return EncodeImage(pixels, options, [encoded](size_t bytes) {
    encoded->resize(bytes);
    return encoded->data();
  });
}

}  // namespace l3
