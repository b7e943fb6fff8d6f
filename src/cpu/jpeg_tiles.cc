#include "cpu/jpeg_tiles.h"

#include <memory>

#include "cpu/cpu_engine.h"

namespace l3 {
namespace {

// One tile, a block at a time.
Status DecodeTileByCore(const JpegTileImage& image, JpegGroupFunction* take, uint32_t block_bytes,
                        const JpegTileJob& job) {
  JpegBlockRect rects[kMaxJpegComponents];
  size_t block_count = 0;
  for (uint32_t c = 0; c < image.jpeg.components; ++c) {
    rects[c] = JpegBlocksOfTile(image.info, image.jpeg, job.tile, c);
    block_count += size_t{rects[c].width} * rects[c].height;
  }
  const std::unique_ptr<int16_t[]> memory(new int16_t[block_count * kJpegBlockSamples]);
  JpegBlocks<int16_t> blocks = {};
  int16_t* next = memory.get();
  for (uint32_t c = 0; c < image.jpeg.components; ++c) {
    blocks.data[c] = next;
    blocks.row_blocks[c] = rects[c].width;
    next += size_t{rects[c].width} * rects[c].height * kJpegBlockSamples;
  }
  const Status status =
      DecodeJpegTile(image.info, image.jpeg, image.tables, job.tile, job.payload, job.size, blocks);
  if (status != Status::kOk) return status;
  JpegGroup group = {};
  group.count = 1;
  group.last = kJpegBlockSamples - 1;
  for (uint32_t c = 0; c < image.jpeg.components; ++c) {
    for (uint32_t i = 0; i < rects[c].width * rects[c].height; ++i) {
      const uint32_t x = i % rects[c].width;
      const uint32_t y = i / rects[c].width;
      for (uint32_t k = 0; k < kJpegBlockSamples; ++k) {
        group.coefficient[k][0] =
            static_cast<int16_t>(blocks.At(c, x, y)[k] * image.jpeg.quantizers[c][k]);
      }
      group.block[0] = job.blocks[c] + y * job.row_bytes[c] + size_t{x} * block_bytes;
      take(group);
    }
  }
  return Status::kOk;
}

}  // namespace

void DecodeJpegTilesByCore(const JpegTileImage& image, JpegGroupFunction* take,
                           uint32_t block_bytes, JpegTileJob* jobs, uint32_t count) {
  for (JpegTileJob* job = jobs; job < jobs + count; ++job) {
    if (job->status == Status::kOk) job->status = DecodeTileByCore(image, take, block_bytes, *job);
  }
}

}  // namespace l3
