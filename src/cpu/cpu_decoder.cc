#include "cpu/cpu_decoder.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/parallel.h"
#include "cpu/store_neon.h"
#include "cpu/store_x86.h"
#include "cpu/tile_neon.h"
#include "cpu/tile_x86.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace l3 {
namespace {

void DecodeTilesByCore(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                       TileJob* jobs, uint32_t count) {
  for (TileJob* job = jobs; job < jobs + count; ++job) {
    if (job->status != Status::kOk) continue;
    job->status = DecodeTile(info, map, rans, job->tile, job->payload, job->size, job->output);
  }
}

#if defined(__x86_64__)
// Clang 14 does not know it by name. Asked once: a virtual machine answers slowly.
bool HasF16c() {
  static const bool has_f16c = [] {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has_f16c;
}
#endif

uint32_t PayloadCheckByCore(const uint8_t* payload, uint32_t size) {
  return PayloadCheck(payload, size);
}

// The core leaves no planes.
void StoreGroupsByCore(const GroupPart* groups, size_t count, const TileRect& rect) {
  for (const GroupPart* group = groups; group < groups + count; ++group) {
    const DecodedSamples& samples = group->samples;  // nobody writes through it
    StoreRect(*group->info, group->plan, rect,
              {const_cast<uint8_t*>(samples.data), samples.row_bytes});
  }
}

}  // namespace

struct EngineFunctions {
  decltype(&DecodeTilesByCore) decode_tiles;
  decltype(&PayloadCheckByCore) check_payload;
  decltype(&StoreRect) store_rect;
  decltype(&StoreGroupsByCore) store_groups;
};

namespace {

// Of `engine`, or null.
const EngineFunctions* FindEngine(CpuEngine engine) {
  static constexpr EngineFunctions kCore = {DecodeTilesByCore, PayloadCheckByCore, StoreRect,
                                            StoreGroupsByCore};
  const bool any = engine == CpuEngine::kAuto;
#if defined(__x86_64__)
  static constexpr EngineFunctions kWithAvx2 = {DecodeTilesAvx2, PayloadCheckAvx2, StoreRectAvx2,
                                                StoreGroupsAvx2};
  static constexpr EngineFunctions kWithAvx512 = {DecodeTilesAvx512, PayloadCheckAvx2,
                                                  StoreRectAvx2, StoreGroupsAvx2};
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && HasF16c();
  const bool has_avx512 =
      has_avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  if (has_avx512 && (any || engine == CpuEngine::kAvx512)) return &kWithAvx512;
  if (has_avx2 && (any || engine == CpuEngine::kAvx2)) return &kWithAvx2;
#endif
#if defined(__aarch64__)
  static constexpr EngineFunctions kWithNeon = {DecodeTilesNeon, PayloadCheckNeon, StoreRectNeon,
                                                StoreGroupsNeon};
  if (any || engine == CpuEngine::kNeon) return &kWithNeon;
#endif
  return any || engine == CpuEngine::kScalar ? &kCore : nullptr;
}

// The samples of a large tile that are decoded at a time.
constexpr uint32_t kPiecePixels = 4096;

// Bytes of the samples of a tile, or of a piece of it.
size_t ScratchBytes(const ImageInfo& info) {
  if (info.has_large_tiles()) return size_t{kPiecePixels} * info.pixel_bytes();
  const TileRect first = GetTileRect(info, 0);
  return size_t{first.width_px} * first.height_px * info.pixel_bytes();
}

template <uint32_t kBytes>
void FillBands(const OutputPlan& plan) {
  for (uint32_t c = 0; c < plan.channels; ++c) {
    alignas(8) uint8_t value[8];
    StoreValue(plan.type, plan.fill[c], value);
    for (uint32_t i = 0; i < kBorderBands; ++i) {
      const BorderBand band = GetBorderBand(plan, i);
      for (uint32_t y = 0; y < band.height; ++y) {
        for (uint32_t x = 0; x < band.width; ++x) {
          std::memcpy(plan.Place(band.x + x, band.y + y, c), value, kBytes);
        }
      }
    }
  }
}

// The pages that a large tile is read from and written to come one by one, out of a file or as new
// memory, while somebody may interrupt: what follows is deaf to that, and quick.
constexpr uint32_t kPageBytes = 4096;
void ReadPages(const uint8_t* payload, uint32_t size) {
  const volatile uint8_t* const bytes = payload;
  for (uint64_t at = 0; at < size; at += kPageBytes) {
    if (at % (1024 * kPageBytes) == 0) CheckInterrupt();
    static_cast<void>(bytes[at]);
  }
}
void WritePages(const ImageOutput& output, uint64_t row_bytes, uint32_t rows) {
  uint64_t written = 0;
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint64_t x = 0; x < row_bytes; x += kPageBytes) {
      if (written++ % 1024 == 0) CheckInterrupt();
      output.Row(y)[x] = 0;
    }
  }
}

// Keeps the first bad tile.
void Note(const TileJob& job, DecodeResult* result) {
  if (job.status == Status::kOk) return;
  if (result->status == Status::kOk || job.tile < result->tile) *result = {job.status, job.tile};
}

}  // namespace

bool IsAvailable(CpuEngine engine) { return FindEngine(engine) != nullptr; }

// Of an image.
struct CpuDecoder::Tables {
  std::unique_ptr<uint16_t[]> values;
  SampleMap map;
  bool is_sound = true;  // false if somebody changed the value table since ParseImage() judged it
  std::once_flag once;
  std::unique_ptr<RansTables> rans;
  std::unique_ptr<uint64_t[]> colors;  // of match tiles
  std::unique_ptr<uint64_t[]> pixels;  // of them, as samples

  explicit Tables(const ImageView& view) {
    if (view.value_count == 0) {
      map = MakeSampleMap(view.info);
      return;
    }
    values = std::make_unique<uint16_t[]>(view.value_count);
    is_sound = ReadValueTable(view, values.get());
    map = MakeSampleMap(values.get(), view.value_count);
  }

  // Null if somebody changed the model since ParseImage() judged it.
  const RansTables* GetRans(const ImageView& view) {
    std::call_once(once, [&] {
      RansModel model;
      MatchColors found;
      if (!GetRansModel(view, &model, &found)) return;
      // Not cleared: of its tables only those of the model are read.
      rans.reset(new RansTables);
      BuildRansTables(model, view.info.used_bits, rans.get());
      if (model.match_table_count == 0) return;
      rans->colors.count = 1u << view.info.used_bits;
      const uint32_t color_count = found.count;
      if (color_count != 0) {
        colors = std::make_unique<uint64_t[]>(color_count);
        ReadMatchColors(found, view.info.channels, view.info.used_bits, colors.get());
        rans->colors = {colors.get(), color_count};
      }
      FindPixels(view.info);
    });
    return rans.get();
  }

 private:
  void FindPixels(const ImageInfo& info) {
    const ColorTable& all = rans->colors;
    const bool are_values = all.color == nullptr;
    if (are_values && (map.keeps_values() || info.used_bits > 8)) return;
    const uint32_t count = are_values ? std::min(all.count, map.value_count) : all.count;
    pixels = std::make_unique<uint64_t[]>(count);
    for (uint32_t number = 0; number < count; ++number) {
      for (uint32_t c = 0; c < info.channels; ++c) {
        const uint32_t value = all.Value(number, c);
        if (value >= map.value_count) return;  // found where a tile has it
        const uint32_t sample = map(value) & ((1u << info.sample_bits()) - 1);
        pixels[number] |= uint64_t{sample} << (info.sample_bits() * c);
      }
    }
    rans->pixel_of_number = pixels.get();
    rans->pixel_count = count;
  }
};

CpuDecoder::CpuDecoder(const ImageView& view, CpuEngine engine)
    : view_(view),
      engine_(FindEngine(IsAvailable(engine) ? engine : CpuEngine::kScalar)),
      tables_(std::make_shared<Tables>(view)) {}

CpuDecoder::CpuDecoder(const ImageView& view, const CpuDecoder& other)
    : view_(view), engine_(other.engine_), tables_(other.tables_) {}

CpuDecoder::~CpuDecoder() = default;
CpuDecoder::CpuDecoder(CpuDecoder&&) noexcept = default;
CpuDecoder& CpuDecoder::operator=(CpuDecoder&&) noexcept = default;

TileJob CpuDecoder::MakeJob(uint32_t tile, const ImageOutput& output) const {
  uint64_t begin;
  uint32_t bytes;
  if (!tables_->is_sound || !view_.FindPayload(tile, &begin, &bytes)) {
    return {tile, nullptr, 0, output, Status::kCorruptHeader};
  }
  return {tile, view_.payloads + begin, bytes, output, Status::kOk};
}

void CpuDecoder::RunJobs(TileJob* jobs, uint32_t count) const {
  const bool any_model = std::any_of(jobs, jobs + count, [](const TileJob& job) {
    return job.status == Status::kOk && HasModel(job.payload[4]);
  });
  engine_->decode_tiles(view_.info, tables_->map, any_model ? tables_->GetRans(view_) : nullptr,
                        jobs, count);
}

// Large tiles are stored ones (format.md 5).
Status CpuDecoder::DecodeLargeTile(uint32_t tile, const PlanList& plans, uint8_t* scratch) const {
  const TileJob job = MakeJob(tile, {});
  if (job.status != Status::kOk) return job.status;
  const ImageInfo& info = view_.info;
  ReadPages(job.payload, job.size);
  if (engine_->check_payload(job.payload, job.size) != LoadU32(job.payload)) {
    return Status::kChecksumMismatch;
  }
  TilePayload parsed;
  Status status = ParseTilePayload(info, job.payload, job.size, &parsed);
  if (status != Status::kOk) return status;
  const TileRect rect = GetTileRect(info, tile);
  const uint64_t row_bytes = uint64_t{rect.width_px} * info.pixel_bytes();
  status = CheckBodyEnd(parsed, kTileHeaderBytes + row_bytes * rect.height_px);
  if (status != Status::kOk) return status;

  const uint8_t* in = job.payload + kTileHeaderBytes;
  const bool any_value = tables_->map.value_count == 1u << info.sample_bits();
  RowSweep rows;
  rows.Start(plans);
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    CheckInterrupt();
    const PlanList& takers = rows.At(rect.y_px + y, 1);
    if (takers.empty() && any_value) {  // nothing to judge
      in += row_bytes;
      continue;
    }
    for (uint32_t x = 0; x < rect.width_px; x += kPiecePixels) {
      const uint32_t width = std::min(kPiecePixels, rect.width_px - x);
      if (!DecodeStoredSamples(info, tables_->map, in, width * info.channels, scratch)) {
        return Status::kCorruptTile;
      }
      in += uint64_t{width} * info.pixel_bytes();
      for (const OutputPlan* plan : takers) {
        engine_->store_rect(info, *plan, {rect.x_px + x, rect.y_px + y, width, 1}, {scratch, 0});
      }
    }
  }
  return Status::kOk;
}

DecodeResult CpuDecoder::DecodeTiles(uint32_t begin, uint32_t end,
                                     const ImageOutput& output) const {
  DecodeResult result{Status::kOk, 0};
  for (uint32_t tile = begin; tile < end;) {
    TileJob jobs[kMaxTileJobs];
    uint32_t count = 0;
    for (; count < kMaxTileJobs && tile < end; ++tile) {
      const TileRect rect = GetTileRect(view_.info, tile);
      jobs[count++] = MakeJob(tile, OutputOfTile(view_.info, output, rect));
    }
    RunJobs(jobs, count);
    for (uint32_t k = 0; k < count; ++k) Note(jobs[k], &result);
  }
  return result;
}

DecodeResult CpuDecoder::DecodeWindows(const OutputPlan* plans, size_t count, const TileSpan& span,
                                       uint32_t begin, uint32_t end) const {
  const ImageInfo& info = view_.info;
  const size_t scratch_bytes = ScratchBytes(info);
  std::unique_ptr<uint8_t[]> scratch;
  const auto get_scratch = [&](uint32_t i) {
    if (!scratch) scratch.reset(new uint8_t[kMaxTileJobs * scratch_bytes]);
    return scratch.get() + i * scratch_bytes;
  };
  DecodeResult result{Status::kOk, 0};
  TileJob jobs[kMaxTileJobs];
  bool in_scratch[kMaxTileJobs];
  PlanList wanted[kMaxTileJobs];  // the plans whose windows a job's tile touches
  uint32_t job_count = 0;
  const auto run = [&] {
    RunJobs(jobs, job_count);
    for (uint32_t k = 0; k < job_count; ++k) {
      if (jobs[k].status == Status::kOk && in_scratch[k]) {
        const TileRect rect = GetTileRect(info, jobs[k].tile);
        for (size_t i = 0; i < wanted[k].size(); ++i) {
          CheckInterrupt();  // each may be the first to touch hundreds of pages
          engine_->store_rect(info, *wanted[k][i], rect, jobs[k].output);
        }
      }
      Note(jobs[k], &result);
    }
    job_count = 0;
  };
  WindowsOfTiles windows(info, plans, count, span, begin, end);
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t tile = TileOfSpan(info, span, i);
    const PlanList& takers = wanted[job_count] = windows.At(tile);
    if (takers.empty()) continue;
    const TileRect rect = GetTileRect(info, tile);
    const OutputPlan& plan = *takers[0];
    const TileRect part = ClipToWindow(plan.window, rect);
    const bool whole = part.width_px == rect.width_px && part.height_px == rect.height_px;
    const bool stored = HasStoredRows(info, plan) && plan.y_stride_bytes >= 0;
    in_scratch[job_count] = takers.size() != 1 || !stored || !whole;
    ImageOutput output;
    if (!in_scratch[job_count]) {
      output = {plan.Place(rect.x_px - plan.window.x_px, rect.y_px - plan.window.y_px, 0),
                static_cast<uint64_t>(plan.y_stride_bytes)};
    } else if (info.has_large_tiles()) {
      Note({tile, nullptr, 0, {}, DecodeLargeTile(tile, takers, get_scratch(0))}, &result);
      continue;
    } else {
      output = {get_scratch(job_count), uint64_t{rect.width_px} * info.pixel_bytes()};
    }
    jobs[job_count] = MakeJob(tile, output);
    if (info.has_large_tiles() && jobs[job_count].status == Status::kOk) {
      ReadPages(jobs[job_count].payload, jobs[job_count].size);
      WritePages(output, uint64_t{rect.width_px} * info.pixel_bytes(), rect.height_px);
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
  RunJobs(jobs, count);
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

void CpuDecoder::StoreParts(const GroupPart* parts, size_t count, uint32_t tile) const {
  engine_->store_groups(parts, count, GetTileRect(view_.info, tile));
}

DecodeResult CpuDecoder::DecodeImage(const ImageOutput& output, unsigned threads) const {
  constexpr uint32_t kTilesPerTask = 4;
  const uint32_t tiles = view_.info.tile_count();
  const uint64_t tasks = CeilDiv(tiles, kTilesPerTask);
  std::vector<DecodeResult> results(tasks);
  ParallelFor(tasks, threads, [&](uint64_t task) {
    const uint32_t begin = static_cast<uint32_t>(task) * kTilesPerTask;
    const uint32_t end = std::min(begin + kTilesPerTask, tiles);
    results[task] = DecodeTiles(begin, end, output);
  });
  for (const DecodeResult& result : results) {
    if (result.status != Status::kOk) return result;
  }
  return {Status::kOk, 0};
}

TileSpan TilesOfWindows(const ImageInfo& info, const OutputPlan* plans, size_t count) {
  TileSpan all = {0, 0, 0, 0};
  for (const OutputPlan* plan = plans; plan < plans + count; ++plan) {
    const TileSpan tiles = TilesOfWindow(info, plan->window);
    if (tiles.tile_count() == 0) continue;
    if (all.tile_count() == 0) all = tiles;
    all = {std::min(all.column_begin, tiles.column_begin),
           std::max(all.column_end, tiles.column_end), std::min(all.row_begin, tiles.row_begin),
           std::max(all.row_end, tiles.row_end)};
  }
  return all;
}

void FillBorder(const OutputPlan& plan) {
  switch (OutputBytes(plan.type)) {
    case 1: return FillBands<1>(plan);
    case 2: return FillBands<2>(plan);
    case 8: return FillBands<8>(plan);
    default: return FillBands<4>(plan);
  }
}

}  // namespace l3
