// Searches the parameters of a packed tile and writes its payload
// (format.md 5.3). Layer: encoder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "encoder/tile_planes.h"

namespace l3 {

// Working memory of AppendPackedPayload, one per thread.
struct PackedWorkspace;
struct PackedWorkspaceDeleter {
  void operator()(PackedWorkspace* workspace) const;
};
using PackedWorkspacePtr = std::unique_ptr<PackedWorkspace, PackedWorkspaceDeleter>;
PackedWorkspacePtr MakePackedWorkspace();

// Chooses transform, predictors and layouts, and appends a payload to `out`,
// but for its check and its alignment. Changes `planes` (the transform).
void AppendPackedPayload(TilePlanes* planes, PackedWorkspace* workspace, std::vector<uint8_t>* out);

}  // namespace l3
