// Tiles above 256 x 256, which are stored ones (format.md 5). They are decoded a piece of a row at
// a time. Layer: cpu.
#pragma once

#include <cstdint>

#include "cpu/cpu_engine.h"
#include "cpu/windows_of_tiles.h"

namespace l3 {

// The pixels of a piece.
constexpr uint32_t kPiecePixels = 4096;

// Decodes the payload of `job`, whose status is kOk, and stores what windows of `plans` touch.
// `piece` has room for the samples of one.
Status DecodeLargeTile(const EngineFunctions& engine, const ImageInfo& info, const SampleMap& map,
                       const TileJob& job, const PlanList& plans, uint8_t* piece);

// Touches the pages that decoding to the output of `job` will touch: out of a file or as new memory
// they come one by one, and decoding itself does not check for interrupts.
void TouchPages(const ImageInfo& info, const TileJob& job);

}  // namespace l3
