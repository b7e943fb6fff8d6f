// The engines of processors: which there are, and their functions. Layer: cpu.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/group_part.h"
#include "cpu/jpeg_kernels.h"
#include "cpu/jpeg_tiles.h"
#include "cpu/tile_job.h"
#include "output/store_pixel.h"

namespace l3 {

enum class CpuEngine {
  kAuto,    // the fastest this machine has
  kScalar,  // the core itself
  kAvx2,    // with F16C
  kAvx512,  // with VBMI and VBMI2
  kNeon,    // all 64-bit ARM processors have it
};

// Whether this build and this machine can run `engine`.
bool IsAvailable(CpuEngine engine);

// Decodes `count` jobs (0 to kMaxTileJobs) as DecodeTile of core/tile.h does; skips those whose
// status is not kOk. Reads nothing outside the payloads.
using DecodeTilesFunction = void(const ImageInfo& info, const SampleMap& map,
                                 const RansTables* rans, TileJob* jobs, uint32_t count);
// The same for jobs (1 to kMaxTileJobs) of rans tiles, or of match tiles.
using DecodeModelTilesFunction = void(const RansImage& image, RansTileJob* jobs, uint32_t count);
// The result of PayloadCheck of core/check.h.
using PayloadCheckFunction = uint32_t(const uint8_t* payload, uint32_t size);
// Stores the same bits as StoreRect of output/store_pixel.h.
using StoreRectFunction = void(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                               const ImageOutput& pixels);
// The same for several groups at once, in outputs where the samples of a pixel are together.
using StoreGroupsFunction = void(const GroupPart* groups, size_t count, const TileRect& rect);

struct EngineFunctions {
  DecodeTilesFunction* decode_tiles;
  PayloadCheckFunction* payload_check;
  StoreRectFunction* store_rect;
  StoreGroupsFunction* store_groups;
  DecodeJpegTilesFunction* decode_jpeg_tiles;
  const JpegKernels* jpeg;
};

// The functions of `engine`; null if it is not available.
const EngineFunctions* FindEngine(CpuEngine engine);

DecodeJpegTilesFunction DecodeJpegTilesByCore;

// On the vectors of x86-64 and 64-bit ARM.
DecodeTilesFunction DecodeTilesAvx2, DecodeTilesAvx512, DecodeTilesNeon;
DecodeModelTilesFunction DecodeModelTilesAvx2, DecodeModelTilesAvx512, DecodeModelTilesNeon;
PayloadCheckFunction PayloadCheckAvx2, PayloadCheckNeon;
DecodeJpegTilesFunction DecodeJpegTilesAvx2, DecodeJpegTilesAvx512, DecodeJpegTilesNeon;
StoreRectFunction StoreRectAvx2, StoreRectNeon;
StoreGroupsFunction StoreGroupsAvx2, StoreGroupsNeon;

}  // namespace l3
