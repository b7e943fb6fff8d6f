// The vector operations of NEON for store_stage.inc, which is the store stage; store_x86.cc
// explains each. Layer: cpu.
#include "cpu/cpu_engine.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "cpu/neon_planes.h"
#include "cpu/store_stage.h"

namespace l3 {
namespace {

#define L3_STORE
struct Floats {
  float32x4_t low, high;
};

template <uint32_t kChannels, typename Stored>
inline uint32_t SplitBlocks(const Stored* samples, uint32_t width, Stored* const* channels) {
  return neon::SplitVectors<kChannels>(samples, width, channels);
}

inline Floats LoadFloats(uint16x8_t words) {
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), vcvtq_f32_u32(vmovl_high_u16(words))};
}
inline Floats LoadFloats(int16x8_t words) {
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))};
}
inline Floats LoadFloats(const uint16_t* samples) { return LoadFloats(vld1q_u16(samples)); }
inline Floats LoadFloats(const uint8_t* samples) { return LoadFloats(vmovl_u8(vld1_u8(samples))); }
inline Floats LoadFloats(const int16_t* samples) { return LoadFloats(vld1q_s16(samples)); }
inline Floats LoadFloats(const int8_t* samples) { return LoadFloats(vmovl_s8(vld1_s8(samples))); }
inline Floats LoadFloats(const int32_t* samples) {
  return {vcvtq_f32_s32(vld1q_s32(samples)), vcvtq_f32_s32(vld1q_s32(samples + 4))};
}
inline Floats LoadFloats(const uint32_t* samples) {
  return {vcvtq_f32_u32(vld1q_u32(samples)), vcvtq_f32_u32(vld1q_u32(samples + 4))};
}
inline Floats LoadFloats(const float* samples) {
  return {vld1q_f32(samples), vld1q_f32(samples + 4)};
}
inline void ExpandHalves(const uint16_t* halves, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; i += 8) {
    const float16x8_t values = vreinterpretq_f16_u16(vld1q_u16(halves + i));
    vst1q_f32(out + i, vcvt_f32_f16(vget_low_f16(values)));
    vst1q_f32(out + i + 4, vcvt_high_f32_f16(values));
  }
}
inline Floats FillFloats(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
inline Floats Plus(const Floats& a, const Floats& b) {
  return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}
inline Floats Minus(const Floats& a, const Floats& b) {
  return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}
inline Floats Times(const Floats& a, const Floats& b) {
  return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}

// Conversions to integers round halves away from zero, saturate, and make 0 of NaN, as
// RoundToRange does; narrowing saturates.
template <OutputType kType>
inline void ConvertFloats(const Floats& v, OutputValueType<kType>* out) {
  if constexpr (kType == OutputType::kF32) {
    vst1q_f32(out, v.low);
    vst1q_f32(out + 4, v.high);
  } else if constexpr (kType == OutputType::kF16) {
    const float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high);
    vst1q_u16(out, vreinterpretq_u16_f16(halves));
  } else if constexpr (kType == OutputType::kU32) {
    vst1q_u32(out, vcvtaq_u32_f32(v.low));
    vst1q_u32(out + 4, vcvtaq_u32_f32(v.high));
  } else if constexpr (kType == OutputType::kI64) {
    vst1q_s64(out, vcvtaq_s64_f64(vcvt_f64_f32(vget_low_f32(v.low))));
    vst1q_s64(out + 2, vcvtaq_s64_f64(vcvt_high_f64_f32(v.low)));
    vst1q_s64(out + 4, vcvtaq_s64_f64(vcvt_f64_f32(vget_low_f32(v.high))));
    vst1q_s64(out + 6, vcvtaq_s64_f64(vcvt_high_f64_f32(v.high)));
  } else {
    const int32x4_t low = vcvtaq_s32_f32(v.low);
    const int32x4_t high = vcvtaq_s32_f32(v.high);
    if constexpr (kType == OutputType::kI32) {
      vst1q_s32(out, low);
      vst1q_s32(out + 4, high);
    } else if constexpr (kType == OutputType::kU16) {
      vst1q_u16(out, vqmovun_high_s32(vqmovun_s32(low), high));
    } else if constexpr (kType == OutputType::kU8) {
      vst1_u8(out, vqmovn_u16(vqmovun_high_s32(vqmovun_s32(low), high)));
    } else {
      const int16x8_t words = vqmovn_high_s32(vqmovn_s32(low), high);
      if constexpr (kType == OutputType::kI16) {
        vst1q_s16(out, words);
      } else {
        vst1_s8(out, vqmovn_s16(words));
      }
    }
  }
}

template <typename Value>
inline void StoreReversed(const Value* values, Value* out) {
  // Each half, then the halves.
  uint8x16_t v = vld1q_u8(reinterpret_cast<const uint8_t*>(values));
  if constexpr (sizeof(Value) == 1) {
    v = vrev64q_u8(v);
  } else if constexpr (sizeof(Value) == 4) {
    v = vreinterpretq_u8_u32(vrev64q_u32(vreinterpretq_u32_u8(v)));
  } else {
    v = vreinterpretq_u8_u16(vrev64q_u16(vreinterpretq_u16_u8(v)));
  }
  vst1q_u8(reinterpret_cast<uint8_t*>(out), vextq_u8(v, v, 8));
}

constexpr int64_t kMaxInterleavedBytes = 4;
using neon::Interleave;

using Block = uint8x16_t;
using BlockHalf = uint8x16_t;  // all of it
template <typename Value>
constexpr uint32_t kMostLanes = sizeof(Value) == 1 ? 8 : 16 / sizeof(Value);

inline Block LoadBlock(const void* values) { return vld1q_u8(static_cast<const uint8_t*>(values)); }
inline BlockHalf HalfOf(Block v, uint32_t) { return v; }
template <uint32_t kBytes>
inline Block ZipLow(Block a, Block b) {
  if constexpr (kBytes == 1) {
    return vzip1q_u8(a, b);
  } else if constexpr (kBytes == 2) {
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  } else if constexpr (kBytes == 8) {
    return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
  } else {
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  }
}
template <uint32_t kBytes>
inline Block ZipHigh(Block a, Block b) {
  if constexpr (kBytes == 1) {
    return vzip2q_u8(a, b);
  } else if constexpr (kBytes == 2) {
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  } else if constexpr (kBytes == 8) {
    return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
  } else {
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  }
}
template <uint32_t kBytes, uint32_t kIndex>
inline void StoreField(BlockHalf v, uint8_t* out) {
  if constexpr (kBytes == 16) {
    vst1q_u8(out, v);
  } else if constexpr (kBytes == 8) {
    const uint64_t field = vgetq_lane_u64(vreinterpretq_u64_u8(v), kIndex);
    std::memcpy(out, &field, kBytes);
  } else if constexpr (kBytes == 4) {
    const uint32_t field = vgetq_lane_u32(vreinterpretq_u32_u8(v), kIndex);
    std::memcpy(out, &field, kBytes);
  } else {
    const uint16_t field = vgetq_lane_u16(vreinterpretq_u16_u8(v), kIndex);
    std::memcpy(out, &field, kBytes);
  }
}

#include "cpu/store_stage.inc"

#undef L3_STORE

}  // namespace

void StoreRectNeon(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels) {
  StoreRectInRuns(info, plan, rect, pixels);
}

void StoreGroupsNeon(const GroupPart* groups, size_t count, const TileRect& rect) {
  StoreGroupsInRuns(groups, count, rect);
}

}  // namespace l3

#endif  // defined(__aarch64__)
