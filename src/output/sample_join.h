// From what tiles hold to samples of 32 bits (format.md 4.6). Layer: output.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "format/image_view.h"
#include "format/sample_chunk.h"

namespace l3 {

// Decodes an image of two channels of 16 bits to `samples`, pixel by pixel. False if it is damaged.
using DecodeTable = std::function<bool(const ImageView& table, uint16_t* samples)>;
// That of the scalar core.
bool DecodeTableByCore(const ImageView& table, uint16_t* samples);

struct SampleJoin {
  // By rank, as many as there are numbers of 8 or 16 bits; empty where samples are halves.
  std::vector<uint32_t> table;
  SampleHalves halves = {};

  L3_HOST_DEVICE static uint32_t Join(const SampleHalves& halves, uint32_t high, uint32_t low) {
    return ((high << 16 | low) << halves.zeros) + halves.minimum;
  }
};

// That of a view from ParseImage(), whose samples are held in one of the ways; does nothing for
// other images. False if the chunk changed, or its table is damaged.
bool ReadSampleJoin(const ImageView& view, const DecodeTable& decode, SampleJoin* join);

}  // namespace l3
