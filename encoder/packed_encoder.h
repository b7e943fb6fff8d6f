// Searches the parameters of a packed tile and writes its payload
// (format.md 5.3). Layer: encoder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/color.h"
#include "format/constants.h"

namespace l3 {

// The values of one tile, plane by plane, before the colour transform.
// Row y of channel c starts at plane[c] + y * kMaxPackedTileSide.
struct TilePlanes {
  uint16_t plane[kMaxChannels][kMaxPackedTileSide * kMaxPackedTileSide];
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t used_bits;
};

// Working memory of EncodePackedTile, one per thread.
struct PackedWorkspace;
struct PackedWorkspaceDeleter {
  void operator()(PackedWorkspace* workspace) const;
};
using PackedWorkspacePtr = std::unique_ptr<PackedWorkspace, PackedWorkspaceDeleter>;
PackedWorkspacePtr MakePackedWorkspace();

// Chooses transform, predictors and layouts, and appends a payload to `out`,
// but for its check and its alignment. Changes `planes` (the transform).
void AppendPackedPayload(TilePlanes* planes, PackedWorkspace* workspace,
                         std::vector<uint8_t>* out);

}  // namespace l3
