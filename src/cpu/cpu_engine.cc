#include "cpu/cpu_engine.h"

#include <vector>

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
// Clang 14 has no name for it. Asked once: a virtual machine answers slowly.
bool HasF16c() {
  static const bool has_f16c = [] {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has_f16c;
}
#endif

// The core leaves no planes, but joined samples are.
void StoreGroupsByCore(const GroupPart* groups, size_t count, const TileRect& rect) {
  for (const GroupPart* group = groups; group < groups + count; ++group) {
    const DecodedSamples& samples = group->samples;  // StoreRect only reads it
    const ImageInfo& info = *group->info;
    ImageOutput pixels = {const_cast<uint8_t*>(samples.data), samples.row_bytes};
    std::vector<uint32_t> interleaved;
    if (samples.plane_bytes != 0) {
      for (uint64_t i = 0; i < uint64_t{rect.width_px} * rect.height_px; ++i) {
        for (uint32_t c = 0; c < info.channels; ++c) {
          interleaved.push_back(LoadU32(samples.data + c * samples.plane_bytes + 4 * i));
        }
      }
      pixels = {reinterpret_cast<uint8_t*>(interleaved.data()),
                uint64_t{rect.width_px} * info.pixel_bytes()};
    }
    StoreRect(info, group->plan, rect, pixels);
  }
}

}  // namespace

const EngineFunctions* FindEngine(CpuEngine engine) {
  constexpr auto kCheck = [](const uint8_t* p, uint32_t size) { return PayloadCheck(p, size); };
  static constexpr EngineFunctions kCore = {
      DecodeTilesByCore,     kCheck,           StoreRect, StoreGroupsByCore,
      DecodeJpegTilesByCore, &kJpegKernelsCore};
  const bool any = engine == CpuEngine::kAuto;
#if defined(__x86_64__)
  static constexpr EngineFunctions kWithAvx2 = {DecodeTilesAvx2,     PayloadCheckAvx2,
                                                StoreRectAvx2,       StoreGroupsAvx2,
                                                DecodeJpegTilesAvx2, &kJpegKernelsAvx2};
  static constexpr EngineFunctions kWithAvx512 = {DecodeTilesAvx512,     PayloadCheckAvx2,
                                                  StoreRectAvx2,         StoreGroupsAvx2,
                                                  DecodeJpegTilesAvx512, &kJpegKernelsAvx512};
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && HasF16c();
  const bool has_avx512 =
      has_avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  if (has_avx512 && (any || engine == CpuEngine::kAvx512)) return &kWithAvx512;
  if (has_avx2 && (any || engine == CpuEngine::kAvx2)) return &kWithAvx2;
#endif
#if defined(__aarch64__)
  static constexpr EngineFunctions kWithNeon = {DecodeTilesNeon,     PayloadCheckNeon,
                                                StoreRectNeon,       StoreGroupsNeon,
                                                DecodeJpegTilesNeon, &kJpegKernelsNeon};
  if (any || engine == CpuEngine::kNeon) return &kWithNeon;
#endif
  return any || engine == CpuEngine::kScalar ? &kCore : nullptr;
}

bool IsAvailable(CpuEngine engine) { return FindEngine(engine) != nullptr; }

}  // namespace l3
