// The kernels of jpeg tiles. Layer: cuda.
#include <cuda_runtime_api.h>

#include "cuda/kernels/decode_tiles.h"
#include "cuda/kernels/jpeg_pixel_kernel.cuh"
#include "cuda/kernels/jpeg_tile_kernel.cuh"

namespace l3 {
namespace {

// Warps that an SM shall hold at once.
constexpr int kJpegTileWarpsPerSm = 16;
constexpr int kJpegPixelWarpsPerSm = 16;

// Block -> some tiles of an image, a row of threads -> tile; the shared memory has the image's
// tables, then each warp's scratch.
__global__ void __launch_bounds__(kWarpLanes* kJpegTileWarpsPerSm, 1)
    DecodeJpegTiles(JpegBatch batch) {
  extern __shared__ uint4 shared[];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(shared);
  JpegLookup* const lookup = reinterpret_cast<JpegLookup*>(memory);
  DeviceWarp warp;
  const uint32_t warp_index = warp.Shuffle(threadIdx.y, 0);
  const uint32_t number = blockIdx.x * batch.warps_per_block + warp_index;
  BuildJpegLookup(warp, warp_index, batch.warps_per_block,
                  *batch.units[batch.tiles[number].unit].image, lookup);
  __syncthreads();
  RunJpegTile(warp, batch, number, *lookup,
              memory + sizeof(JpegLookup) + warp_index * batch.scratch_bytes,
              [](uint64_t* result, uint64_t bad) {
                atomicMin(reinterpret_cast<unsigned long long*>(result), bad);
              });
}

// Block -> some rows of a window: a block is one warp.
__global__ void __launch_bounds__(kWarpLanes, kJpegPixelWarpsPerSm)
    StoreJpegTiles(JpegBatch batch) {
  extern __shared__ uint4 shared[];
  DeviceWarp warp;
  RunJpegPixels(warp, batch, blockIdx.x, reinterpret_cast<WarpScratch*>(shared));
}

}  // namespace

const void* DecodeJpegTilesKernel() { return reinterpret_cast<const void*>(&DecodeJpegTiles); }
const void* StoreJpegTilesKernel() { return reinterpret_cast<const void*>(&StoreJpegTiles); }

}  // namespace l3
