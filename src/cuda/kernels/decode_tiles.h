// The kernels' addresses, for launches. Each kind of tiles and size of samples is a unit of its
// own, so that cores share the work of compiling them. Layer: cuda.
#pragma once

#include <cstdint>

#include "cuda/kernels/tile_batch.h"

namespace l3 {

// DecodeTiles<kKind, store, kSampleBytes>, of a TileBatch.
template <TileKind kKind, uint32_t kSampleBytes>
const void* DecodeTilesOf(StoreKind store);
// DecodeTilesInTeams<store>.
const void* DecodeTilesInTeamsOf(StoreKind store);
// Of a JpegBatch: the first launch and the second.
const void* DecodeJpegTilesKernel();
const void* StoreJpegTilesKernel();

}  // namespace l3
