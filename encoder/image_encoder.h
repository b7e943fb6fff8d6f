// Tries codings of a whole image, for the smallest file. Layer: encoder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "encoder/container_writer.h"
#include "encoder/encode_options.h"
#include "encoder/tile_payloads.h"
#include "encoder/value_coding.h"

namespace l3 {

// What a file of version 2 says of samples that its tiles hold in another way.
struct SampleHolding {
  SampleType type;
  Holding holding;
  std::vector<uint8_t> chunk;  // SMPL; empty for samples that are held as they are
};

// Its arguments are valid and outlive it.
class ImageEncoder {
 public:
  // `pixels` are what tiles hold; `samples`, if it is not null, says of which samples.
  ImageEncoder(const PixelView& pixels, const EncodeOptions& options,
               const SampleHolding* samples = nullptr)
      : pixels_(pixels), options_(options), samples_(samples) {}

  // The smallest file with coded tiles, by packed or by rans and match.
  EncodedFile EncodeCoded();
  // The file that has all samples as they are.
  EncodedFile EncodeStored() const;

 private:
  struct MatchedFile {
    EncodedFile file;          // empty if match tiles would not pay
    uint64_t saved_bytes = 0;  // by match tiles, about
  };

  // Without match tiles, with or without a value table.
  EncodedFile EncodeUnmatched() const;
  // With match tiles, of an image of one group.
  MatchedFile EncodeMatched() const;
  // A tiny image of one tile, with rans.
  EncodedFile EncodeTiny() const;

  // A float that passes a power of two changes its low half by any number: rans, which does not
  // predict modulo 2^16, may lose to packed.
  TileOptions TilesAt(uint32_t effort) const {
    const bool has_halves = samples_ != nullptr && samples_->holding == Holding::kHalves;
    return {options_.coding, effort, options_.threads, has_halves};
  }
  // `match_chunk` is empty if there are no match tiles.
  EncodedFile MakeFile(ImageInfo info, const std::vector<ChannelGroup>& groups,
                       const ValueCoding& values, const std::vector<uint8_t>& match_chunk,
                       Payloads payloads) const;

  const PixelView& pixels_;
  const EncodeOptions& options_;
  const SampleHolding* const samples_;
  // For EncodeCoded().
  ImageInfo info_{};
  std::vector<ChannelGroup> groups_;
  ValueCoding shifted_;
  std::optional<ValueCoding> ranked_;
};

}  // namespace l3
