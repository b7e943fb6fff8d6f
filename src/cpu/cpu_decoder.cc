#include "cpu/cpu_decoder.h"

#include <algorithm>
#include <numeric>

#include "base/parallel.h"
#include "cpu/image_tables.h"
#include "cpu/jpeg_windows.h"
#include "cpu/large_tile.h"

namespace l3 {
namespace {

// Bytes of the samples of a tile, or of a piece of it.
size_t ScratchBytes(const ImageInfo& info) {
  if (info.has_large_tiles()) return size_t{kPiecePixels} * info.pixel_bytes();
  const TileRect first = GetTileRect(info, 0);
  return size_t{first.width_px} * first.height_px * info.pixel_bytes();
}

template <typename Rank>
void LookUp(const uint32_t* table, const Rank* ranks, size_t count, uint32_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = table[ranks[i]];
}

// The same file, as what its tiles hold.
ImageView CodedView(ImageView view) {
  view.info = CodedInfo(view.info);
  return view;
}

// Keeps the first bad tile.
void Note(const TileJob& job, DecodeResult* result) {
  *result = FirstBad(*result, {job.status, job.tile});
}

}  // namespace

CpuDecoder::CpuDecoder(const ImageView& view, CpuEngine engine)
    : info_(view.info),
      view_(CodedView(view)),
      engine_(FindEngine(IsAvailable(engine) ? engine : CpuEngine::kScalar)),
      tables_(std::make_shared<ImageTables>(view, [engine](const ImageView& table, uint16_t* out) {
        const ImageOutput output = {reinterpret_cast<uint8_t*>(out), table.info.row_bytes()};
        return CpuDecoder(table, engine).DecodeImage(output, 1).status == Status::kOk;
      })) {}

CpuDecoder::CpuDecoder(const ImageView& view, const CpuDecoder& other)
    : info_(view.info), view_(CodedView(view)), engine_(other.engine_), tables_(other.tables_) {}

CpuDecoder::~CpuDecoder() = default;
CpuDecoder::CpuDecoder(CpuDecoder&&) noexcept = default;
CpuDecoder& CpuDecoder::operator=(CpuDecoder&&) noexcept = default;

TileJob CpuDecoder::MakeJob(uint32_t tile, const ImageOutput& output) const {
  uint64_t begin;
  uint32_t bytes;
  if (!tables_->is_sound() || !view_.FindPayload(tile, &begin, &bytes)) {
    return {tile, nullptr, 0, output, Status::kCorruptHeader};
  }
  return {tile, view_.payloads + begin, bytes, output, Status::kOk};
}

void CpuDecoder::DecodeJobs(TileJob* jobs, uint32_t count) const {
  const bool any_model = std::any_of(jobs, jobs + count, [](const TileJob& job) {
    return job.status == Status::kOk && HasModel(job.payload[4]);
  });
  engine_->decode_tiles(view_.info, tables_->map(), any_model ? tables_->GetRans(view_) : nullptr,
                        jobs, count);
}

DecodeResult CpuDecoder::DecodeImage(const ImageOutput& output, unsigned threads) const {
  if (view_.jpeg.data != nullptr || info_.holding != Holding::kAsTheyAre) {
    OutputPlan plan = WholeImagePlan(info_, output.data);
    plan.y_stride_bytes = static_cast<int64_t>(output.row_stride_bytes);
    return DecodeWindows(&plan, 1, AllTiles(view_.info), 0, view_.info.tile_count());
  }
  const uint64_t tasks = CeilDiv(view_.info.tile_count(), kMaxTileJobs);
  std::vector<DecodeResult> results(tasks, {Status::kOk, 0});
  ParallelFor(tasks, threads, [&](uint64_t task) {
    TileJob jobs[kMaxTileJobs];
    uint32_t count = 0;
    for (uint32_t tile = static_cast<uint32_t>(task) * kMaxTileJobs;
         count < kMaxTileJobs && tile < view_.info.tile_count(); ++tile) {
      const TileRect rect = GetTileRect(view_.info, tile);
      jobs[count++] = MakeJob(tile, OutputOfTile(view_.info, output, rect));
    }
    DecodeJobs(jobs, count);
    for (uint32_t k = 0; k < count; ++k) Note(jobs[k], &results[task]);
  });
  return std::accumulate(results.begin(), results.end(), DecodeResult{Status::kOk, 0}, FirstBad);
}

DecodeResult CpuDecoder::DecodeWindows(const OutputPlan* plans, size_t count, const TileSpan& span,
                                       uint32_t begin, uint32_t end, JpegSeams* seams) const {
  const ImageInfo& info = info_;
  if (view_.jpeg.data != nullptr) {
    if (begin == end) return {Status::kOk, 0};
    const ImageTables::Jpeg* const jpeg = tables_->GetJpeg(view_);
    if (jpeg == nullptr) return {Status::kCorruptHeader, TileOfSpan(info, span, begin)};
    return DecodeJpegWindows({view_, jpeg->info, jpeg->tables, *engine_}, plans, count, span,
                             begin / span.columns(), end / span.columns(), seams);
  }
  const bool is_joined = info.holding != Holding::kAsTheyAre;
  const size_t scratch_bytes = ScratchBytes(view_.info);
  std::unique_ptr<uint8_t[]> scratch;
  const auto get_scratch = [&](uint32_t i) {  // those of jobs, and one of joined samples
    const size_t joined_bytes = is_joined ? ScratchBytes(info) : 0;
    if (!scratch) scratch.reset(new uint8_t[kMaxTileJobs * scratch_bytes + joined_bytes]);
    return scratch.get() + i * scratch_bytes;
  };
  DecodeResult result{Status::kOk, 0};
  TileJob jobs[kMaxTileJobs];
  bool in_scratch[kMaxTileJobs];
  ImageOutput direct[kMaxTileJobs];  // where joined samples go that leave as stored
  PlanList wanted[kMaxTileJobs];  // the plans whose windows a job's tile touches
  uint32_t job_count = 0;
  const auto run = [&] {
    DecodeJobs(jobs, job_count);
    for (uint32_t k = 0; k < job_count; ++k) {
      const TileRect rect = GetTileRect(info, jobs[k].tile);
      if (jobs[k].status == Status::kOk && is_joined) {
        ImageOutput joined = direct[k];
        if (in_scratch[k]) {
          joined = {get_scratch(kMaxTileJobs), uint64_t{rect.width_px} * info.pixel_bytes()};
        }
        JoinSamples(rect, jobs[k].rows, jobs[k].output.data, joined);
        jobs[k].output = joined;
      }
      if (jobs[k].status == Status::kOk && in_scratch[k]) {
        for (size_t i = 0; i < wanted[k].size(); ++i) {
          CheckInterrupt();  // each may be the first to touch hundreds of pages
          engine_->store_rect(info, *wanted[k][i], rect, jobs[k].output);
        }
      }
      Note(jobs[k], &result);
    }
    job_count = 0;
  };
  WindowsOfTiles windows(view_, plans, count, span, begin, end);
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t tile = TileOfSpan(info, span, i);
    const PlanList& here = wanted[job_count] = windows.At(tile);
    if (here.empty()) continue;
    const TileRect rect = GetTileRect(info, tile);
    const OutputPlan& plan = *here[0];
    const TileRect part = ClipToWindow(plan.window, rect);
    const bool whole = part.width_px == rect.width_px && part.height_px == rect.height_px;
    const bool stored = HasStoredRows(info, plan) && plan.y_stride_bytes >= 0;
    in_scratch[job_count] = here.size() != 1 || !stored || !whole;
    ImageOutput output;
    if (!in_scratch[job_count]) {
      output = {plan.Place(rect.x_px - plan.window.x_px, rect.y_px - plan.window.y_px, 0),
                static_cast<uint64_t>(plan.y_stride_bytes)};
      direct[job_count] = output;
    } else if (info.has_large_tiles()) {
      TileJob job = MakeJob(tile, {});
      if (job.status == Status::kOk) {
        job.status = DecodeLargeTile(*engine_, info, tables_->map(), job, here, get_scratch(0));
      }
      Note(job, &result);
      continue;
    } else {
      output = {get_scratch(job_count), uint64_t{rect.width_px} * info.pixel_bytes()};
    }
    if (is_joined) {
      output = {get_scratch(job_count), uint64_t{rect.width_px} * view_.info.pixel_bytes()};
    }
    jobs[job_count] = MakeJob(tile, output);
    jobs[job_count].rows = 0;
    for (const OutputPlan* each : here) {
      const TileRect seen = ClipToWindow(each->window, rect);
      const uint32_t rows = seen.y_px + seen.height_px - rect.y_px;
      jobs[job_count].rows = std::max(jobs[job_count].rows, rows);
    }
    if (info.has_large_tiles() && jobs[job_count].status == Status::kOk) {
      TouchPages(info, jobs[job_count]);
    }
    if (++job_count == kMaxTileJobs || info.has_large_tiles()) run();
  }
  run();
  return result;
}

size_t CpuDecoder::tile_bytes() const {
  return ScratchBytes(view_.info) + kMaxChannels * kPlaneGapBytes;
}

DecodeResult CpuDecoder::DecodeToMemory(const TileSpan& span, uint32_t begin, uint32_t end,
                                        uint8_t* memory, const OutputPlan* ahead, uint32_t share,
                                        uint32_t shares, DecodedSamples* samples) const {
  TileJob jobs[kMaxTileJobs];
  const uint32_t count = end - begin;
  for (uint32_t k = 0; k < count; ++k) {
    const uint32_t tile = TileOfSpan(view_.info, span, begin + k);
    const TileRect rect = GetTileRect(view_.info, tile);
    jobs[k] = MakeJob(
        tile, {memory + k * tile_bytes(), uint64_t{rect.width_px} * view_.info.pixel_bytes()});
    jobs[k].takes_planes = true;
    if (ahead == nullptr) continue;
    const TileRect part = ClipToWindow(ahead->window, rect);
    if (part.width_px != rect.width_px || part.height_px != rect.height_px) continue;
    const uint64_t row_bytes = rect.width_px * static_cast<uint64_t>(ahead->x_stride_bytes);
    const uint64_t first_byte = row_bytes * share / shares;
    jobs[k].ahead = {
        ahead->PixelPlace(rect.x_px - ahead->window.x_px, rect.y_px - ahead->window.y_px) +
            first_byte,
        ahead->y_stride_bytes,
        static_cast<uint32_t>(row_bytes * (share + 1) / shares - first_byte)};
  }
  DecodeJobs(jobs, count);
  DecodeResult result{Status::kOk, 0};
  for (uint32_t k = 0; k < count; ++k) {
    Note(jobs[k], &result);
    samples[k] = {jobs[k].output.data, jobs[k].output.row_stride_bytes, 0};
    if (!jobs[k].has_planes) continue;
    const TileRect rect = GetTileRect(view_.info, jobs[k].tile);
    samples[k].row_bytes = uint64_t{rect.width_px} * view_.info.sample_bytes();
    samples[k].plane_bytes = samples[k].row_bytes * rect.height_px + kPlaneGapBytes;
  }
  return result;
}

void CpuDecoder::JoinSamples(const TileRect& rect, uint32_t rows, const uint8_t* coded,
                             const ImageOutput& output) const {
  const SampleJoin& join = tables_->join();
  // Copies, which no output can change: so the loops become vectors.
  const SampleHalves halves = join.halves;
  const size_t width = rect.width_px;
  for (uint32_t y = 0; y < std::min(rows, rect.height_px); ++y) {
    const size_t count = width * view_.info.channels;
    const size_t at = y * count;
    const uint16_t* words = reinterpret_cast<const uint16_t*>(coded) + at;
    uint32_t* out = reinterpret_cast<uint32_t*>(output.Row(y));
    if (info_.holding == Holding::kRanks8) {
      LookUp(join.table.data(), coded + at, count, out);
    } else if (info_.holding == Holding::kRanks16) {
      LookUp(join.table.data(), words, count, out);
    } else if (info_.channels == 1) {
      for (size_t x = 0; x < width; ++x) {
        const uint32_t pair = LoadU32(reinterpret_cast<const uint8_t*>(words + 2 * x));
        out[x] = SampleJoin::Join(halves, pair & 0xFFFF, pair >> 16);
      }
    } else {
      for (size_t x = 0; x < width; ++x) {
        out[2 * x] = SampleJoin::Join(halves, words[4 * x], words[4 * x + 2]);
        out[2 * x + 1] = SampleJoin::Join(halves, words[4 * x + 1], words[4 * x + 3]);
      }
    }
  }
}

void CpuDecoder::JoinToPlanes(uint32_t tile, const DecodedSamples& samples,
                              uint8_t* const* planes) const {
  const SampleJoin& join = tables_->join();
  const SampleHalves halves = join.halves;
  const TileRect rect = GetTileRect(info_, tile);
  const size_t width = rect.width_px;
  const size_t step = samples.plane_bytes == 0 ? view_.info.channels : 1;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const auto coded = [&](uint32_t channel) {
      const uint64_t bytes =
          samples.plane_bytes == 0 ? view_.info.sample_bytes() : samples.plane_bytes;
      return samples.data + y * samples.row_bytes + channel * bytes;
    };
    for (uint32_t c = 0; c < info_.channels; ++c) {
      uint32_t* out = reinterpret_cast<uint32_t*>(planes[c]) + y * width;
      const uint8_t* bytes = coded(c);
      const uint16_t* words = reinterpret_cast<const uint16_t*>(bytes);
      if (info_.holding == Holding::kHalves) {
        const uint16_t* low = reinterpret_cast<const uint16_t*>(coded(info_.channels + c));
        for (size_t x = 0; x < width; ++x) {
          out[x] = SampleJoin::Join(halves, words[step * x], low[step * x]);
        }
      } else if (info_.holding == Holding::kRanks8) {
        for (size_t x = 0; x < width; ++x) out[x] = join.table[bytes[step * x]];
      } else {
        for (size_t x = 0; x < width; ++x) out[x] = join.table[words[step * x]];
      }
    }
  }
}

void CpuDecoder::StoreParts(const GroupPart* parts, size_t count, uint32_t tile) const {
  engine_->store_groups(parts, count, GetTileRect(view_.info, tile));
}

}  // namespace l3
