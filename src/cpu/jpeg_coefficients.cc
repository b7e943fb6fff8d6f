#include "cpu/jpeg_coefficients.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu_engine.h"

namespace l3 {
namespace {

constexpr uint32_t kBlockBytes = kJpegBlockSamples * sizeof(int16_t);

void AddCoefficients(const JpegGroup& group) {
  for (uint32_t lane = 0; lane < group.count; ++lane) {
    int16_t* const block = reinterpret_cast<int16_t*>(group.block[lane]);
    for (uint32_t k = 0; k <= group.last; ++k) {
      block[k] ^= group.coefficient[kJpegNaturalOrder[k]][lane];
    }
  }
}

}  // namespace

Status DecodeJpegCoefficients(const ImageView& view, unsigned threads,
                              const JpegBlocks<int16_t>& output) {
  JpegInfo jpeg;
  JpegModel model;
  if (!ReadJpegChunk(view, &jpeg, &model)) return Status::kCorruptHeader;
  for (auto& of_component : jpeg.quantizers)
    std::fill_n(of_component, kJpegBlockSamples, uint16_t{1});
  const auto tables = std::make_unique<JpegTables>();
  BuildJpegTables(model, tables.get());
  const EngineFunctions& engine = *FindEngine(CpuEngine::kAuto);
  const uint64_t tiles = view.info.tile_count();
  std::vector<Status> statuses(CeilDiv(tiles, kMaxTileJobs), Status::kOk);
  ParallelFor(statuses.size(), threads, [&](uint64_t task) {
    CheckInterrupt();
    JpegTileJob jobs[kMaxTileJobs] = {};
    uint32_t count = 0;
    const uint64_t end = std::min<uint64_t>(tiles, (task + 1) * kMaxTileJobs);
    for (uint64_t i = task * kMaxTileJobs; i < end; ++i) {
      JpegTileJob& job = jobs[count++];
      job.tile = static_cast<uint32_t>(i);
      uint64_t begin = 0;
      if (!view.FindPayload(job.tile, &begin, &job.size)) job.status = Status::kCorruptHeader;
      job.payload = view.payloads + begin;
      for (uint32_t c = 0; c < jpeg.components; ++c) {
        const JpegBlockRect rect = JpegBlocksOfTile(view.info, jpeg, job.tile, c);
        job.blocks[c] = reinterpret_cast<uint8_t*>(output.At(c, rect.x, rect.y));
        job.row_bytes[c] = output.row_blocks[c] * kBlockBytes;
      }
    }
    engine.decode_jpeg_tiles({view.info, jpeg, *tables}, AddCoefficients, kBlockBytes, jobs, count);
    const auto bad = std::find_if(jobs, jobs + count,
                                  [](const JpegTileJob& job) { return job.status != Status::kOk; });
    if (bad != jobs + count) statuses[task] = bad->status;
  });
  const auto bad = std::find_if(statuses.begin(), statuses.end(),
                                [](Status status) { return status != Status::kOk; });
  return bad == statuses.end() ? Status::kOk : *bad;
}

}  // namespace l3
