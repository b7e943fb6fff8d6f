// Stores pixels of jpeg tiles, from the samples of their components in planes: upsampling and
// colour by core/jpeg_pixels.h, then the plan of a window. Layer: cuda. Written against a warp
// (warp.h) and the store policy of plan_store.cuh.
//
//   warp -> some rows of a window, one after the other; lane -> eight pixels
//
// Two pixels or samples share a word, as SampleGroup has them.
#pragma once

#include "core/jpeg_pixels.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/jpeg_batch.h"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/plan_store.cuh"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/warp.h"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {

constexpr uint32_t kByteFields = 0x00FF00FF;

// Where eight samples of each row of a plane lie, from any one on. The rows are whole blocks; bytes
// outside of them are any.
struct EightPlaces {
  uint32_t word[3];
  uint32_t shift;

  L3_DEVICE EightPlaces(uint32_t row_bytes, int32_t begin) : shift(8 * (begin & 3)) {
    const int32_t end = static_cast<int32_t>(row_bytes) - 4;
    L3_UNROLL
    for (int32_t k = 0; k < 3; ++k) {
      const int32_t at = (begin & ~3) + 4 * k;
      word[k] = static_cast<uint32_t>(at < 0 ? 0 : at < end ? at : end);
    }
  }
};
struct EightBytes {
  uint32_t low, high;

  // Of memory that the launch before has written.
  L3_DEVICE EightBytes(const uint8_t* row, const EightPlaces& places) {
    const uint32_t middle = LoadConstantWord(row + places.word[1]);
    low = FunnelShift(LoadConstantWord(row + places.word[0]), middle, places.shift);
    high = FunnelShift(middle, LoadConstantWord(row + places.word[2]), places.shift);
  }
  L3_DEVICE SampleGroup Group() const {
    SampleGroup group;
    group.word[0] = PermuteBytes(low, high, 0x4400) & kByteFields;
    group.word[1] = PermuteBytes(low, high, 0x5511) & kByteFields;
    group.word[2] = PermuteBytes(low, high, 0x6622) & kByteFields;
    group.word[3] = PermuteBytes(low, high, 0x7733) & kByteFields;
    return group;
  }
  L3_DEVICE uint32_t Byte(uint32_t i) const { return ByteAt(i < 4 ? low : high, i % 4); }
  L3_DEVICE void SetByte(uint32_t i, uint32_t value) {
    const uint32_t shift = 8 * (i % 4);
    uint32_t& word = i < 4 ? low : high;
    word = (word & ~(0xFFu << shift)) | value << shift;
  }
};

// What is the same for all rows that a lane makes pixels of, from pixel x of the image on: copied,
// as what is stored may change memory that it is read from.
struct JpegPixelSource {
  uint8_t* plane[kMaxJpegComponents];
  uint32_t row_bytes[2];  // of luma, of chroma
  uint32_t first_y[2];    // rows of samples that the planes begin with
  JpegColor color;
  uint32_t chroma_x_shift, chroma_y_shift;
  uint32_t last_chroma_y;
  bool is_smooth;  // chroma
  EightPlaces luma, chroma;
  bool is_odd;     // x
  bool is_first;   // of the first sample
  uint32_t beyond;  // of the samples from the one before on, the first that there is not

  L3_DEVICE JpegPixelSource(const JpegUnit& unit, uint32_t x)
      : row_bytes{unit.row_bytes[0], unit.row_bytes[1]},
        first_y{unit.y_px, unit.y_px >> unit.image->info.chroma_y_shift},
        luma(unit.row_bytes[0], static_cast<int32_t>(x - unit.x_px)),
        chroma(luma),
        is_odd(x % 2 != 0) {
    const JpegInfo& info = unit.image->info;
    L3_UNROLL
    for (uint32_t c = 0; c < kMaxJpegComponents; ++c) plane[c] = GlobalPointer(unit.plane[c]);
    color = info.color;
    chroma_x_shift = info.chroma_x_shift;
    chroma_y_shift = info.chroma_y_shift;
    if (info.components == 1) return;
    last_chroma_y = JpegRows(info, 1) - 1;
    is_smooth = HasSmoothChroma(info);
    const uint32_t i = x >> chroma_x_shift;
    if (chroma_x_shift != 0) {
      chroma = EightPlaces(row_bytes[1], static_cast<int32_t>(i - unit.x_px / 2) - 1);
    }
    is_first = i == 0;
    beyond = JpegColumns(info, 1) - i + 1;
  }
  L3_DEVICE const uint8_t* Row(uint32_t c, uint32_t y) const {
    const uint32_t k = c == 0 ? 0 : 1;
    return PlaceAt(plane[c], static_cast<int32_t>(y - first_y[k]),
                   static_cast<int32_t>(row_bytes[k]));
  }
};

// The rows of chroma that a row of pixels needs.
struct ChromaRow {
  uint32_t near_y, far_y;
  bool has_far;  // which is mixed with the near one

  L3_DEVICE ChromaRow(const JpegPixelSource& source, uint32_t y)
      : near_y(y >> source.chroma_y_shift),
        far_y(near_y),
        has_far(source.chroma_y_shift != 0 && source.is_smooth) {
    if (!has_far) return;
    const bool is_above = y % 2 == 0;
    if (near_y != (is_above ? 0 : source.last_chroma_y)) far_y += is_above ? ~0u : 1;
  }
};

// Chroma of eight pixels of a row, of a component with half the columns. `near` and `far` are its
// rows.
L3_DEVICE SampleGroup UpsampleColumns(const JpegPixelSource& source, const ChromaRow& row,
                                      const uint8_t* near, const uint8_t* far) {
  // Samples i - 1 to i + 6, where that of the first pixel is sample i.
  const auto load = [&](const uint8_t* from) {
    EightBytes bytes(from, source.chroma);
    // Beyond the edges the last sample is repeated.
    if (source.is_first) bytes.low = PermuteBytes(bytes.low, 0, 0x3211);
    if (source.beyond < 6) bytes.SetByte(source.beyond, bytes.Byte(source.beyond - 1));
    return bytes;
  };
  const EightBytes n = load(near);
  uint32_t v[4] = {n.low & kByteFields, n.low >> 8 & kByteFields, n.high & kByteFields,
                   n.high >> 8 & kByteFields};
  if (row.has_far) {
    const EightBytes f = load(far);
    v[0] = v[0] * 3 + (f.low & kByteFields);
    v[1] = v[1] * 3 + (f.low >> 8 & kByteFields);
    v[2] = v[2] * 3 + (f.high & kByteFields);
    v[3] = v[3] * 3 + (f.high >> 8 & kByteFields);
  }
  // Words of two samples: those of numbers i + a and i + a + 2.
  const uint32_t at_m1 = v[0], at_0 = v[1];
  const uint32_t at_1 = PermuteBytes(v[0], v[2], 0x5432);
  const uint32_t at_2 = PermuteBytes(v[1], v[3], 0x5432);
  const bool is_odd = source.is_odd;
  if (!source.is_smooth) {
    return is_odd ? SampleGroup{{at_0, at_1, at_1, at_2}} : SampleGroup{{at_0, at_0, at_1, at_1}};
  }
  const uint32_t shift = row.has_far ? 4 : 2;
  const uint32_t round_even = (row.has_far ? 8 : 1) * SampleGroup::kOnes;
  const uint32_t round_odd = (row.has_far ? 7 : 2) * SampleGroup::kOnes;
  const auto mix = [shift](uint32_t own, uint32_t other, uint32_t round) {
    return (own * 3 + other + round) >> shift & kByteFields;
  };
  SampleGroup group;
  if (is_odd) {
    group.word[0] = mix(at_0, at_1, round_odd);
    group.word[1] = mix(at_1, at_0, round_even);
    group.word[2] = mix(at_1, at_2, round_odd);
    group.word[3] = mix(at_2, at_1, round_even);
  } else {
    group.word[0] = mix(at_0, at_m1, round_even);
    group.word[1] = mix(at_0, at_1, round_odd);
    group.word[2] = mix(at_1, at_0, round_even);
    group.word[3] = mix(at_1, at_2, round_odd);
  }
  return group;
}

// The same of a component with all columns; y is the row of pixels.
L3_DEVICE SampleGroup UpsampleRows(const JpegPixelSource& source, const ChromaRow& row,
                                   const uint8_t* near, const uint8_t* far, uint32_t y) {
  SampleGroup group = EightBytes(near, source.chroma).Group();
  if (!row.has_far) return group;
  const SampleGroup other = EightBytes(far, source.chroma).Group();
  const uint32_t round = (1 + y % 2) * SampleGroup::kOnes;
  L3_UNROLL
  for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
    group.word[k] = (group.word[k] * 3 + other.word[k] + round) >> 2 & kByteFields;
  }
  return group;
}

// A byte of a word as a signed number.
L3_DEVICE int32_t SignedByteAt(uint32_t word, uint32_t i) {
#if defined(__CUDA_ARCH__)
  return static_cast<int32_t>(PermuteBytes(word, 0, i * 0x1111 | 0x8880));
#else
  return static_cast<int8_t>(ByteAt(word, i));
#endif
}

// ConvertYcbcr() of eight pixels. Of each it calls put(k, i, r, g, b) with what is red, green and
// blue before it is limited, times 2^16: of value k + 4 * i.
template <class Put>
L3_DEVICE void ConvertYcbcrGroups(const SampleGroup (&planes)[3], const Put& put) {
  L3_UNROLL
  for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
    const uint32_t luma = planes[0].word[k];
    const uint32_t blues = planes[1].word[k] ^ 0x00800080;  // less 128
    const uint32_t reds = planes[2].word[k] ^ 0x00800080;
    L3_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      // Luma and a half.
      const int32_t y = static_cast<int32_t>(PermuteBytes(luma, 0x8000, i == 0 ? 0x4054 : 0x4254));
      const int32_t cb = SignedByteAt(blues, 2 * i);
      const int32_t cr = SignedByteAt(reds, 2 * i);
      put(k, i, y + 91881 * cr, y - 22554 * cb - 46802 * cr, y + 116130 * cb);
    }
  }
}

// The samples of the components of eight pixels of row y of the image.
template <uint32_t kChannels>
L3_DEVICE void LoadJpegSamples(const JpegPixelSource& source, uint32_t y,
                               SampleGroup (&planes)[kChannels]) {
  planes[0] = EightBytes(source.Row(0, y), source.luma).Group();
  if constexpr (kChannels == 3) {
    const ChromaRow chroma(source, y);
    L3_UNROLL
    for (uint32_t c = 1; c < 3; ++c) {
      const uint8_t* const near = source.Row(c, chroma.near_y);
      const uint8_t* const far = source.Row(c, chroma.far_y);
      planes[c] = source.chroma_x_shift != 0 ? UpsampleColumns(source, chroma, near, far)
                                             : UpsampleRows(source, chroma, near, far, y);
    }
  }
}

// The samples of these pixels. `is_luma`: all channels are luma.
template <uint32_t kChannels>
L3_DEVICE void MakeJpegPixels(const JpegPixelSource& source, bool is_luma, uint32_t y,
                              SampleGroup (&planes)[kChannels]) {
  if constexpr (kChannels == 3) {
    if (is_luma) {
      planes[0] = EightBytes(source.Row(0, y), source.luma).Group();
      planes[1] = planes[2] = planes[0];
      return;
    }
  }
  LoadJpegSamples<kChannels>(source, y, planes);
  if constexpr (kChannels == 3) {
    if (source.color != JpegColor::kYcbcr) return;
    constexpr int32_t kMost = 0xFFFFFF;  // 255 and a fraction, of 16 bits
    uint32_t first[3] = {};
    SampleGroup rgb[3];
    ConvertYcbcrGroups(planes, [&](uint32_t k, uint32_t i, int32_t r, int32_t g, int32_t b) {
      const uint32_t limited[3] = {static_cast<uint32_t>(Clamp(r, kMost)),
                                   static_cast<uint32_t>(Clamp(g, kMost)),
                                   static_cast<uint32_t>(Clamp(b, kMost))};
      L3_UNROLL
      for (uint32_t c = 0; c < 3; ++c) {
        if (i == 1) rgb[c].word[k] = HighHalves(first[c], limited[c]);
        first[c] = limited[c];
      }
    });
    L3_UNROLL
    for (uint32_t c = 0; c < 3; ++c) planes[c] = rgb[c];
  }
}

// The same as words, channels interleaved.
template <uint32_t kChannels>
L3_DEVICE void MakeJpegWords(const JpegPixelSource& source, uint32_t y,
                             uint32_t (&words)[kInterleavedWords<kChannels, 1>]) {
  SampleGroup planes[kChannels];
  LoadJpegSamples<kChannels>(source, y, planes);
  if constexpr (kChannels == 3) {
    if (source.color == JpegColor::kYcbcr) {
      int32_t samples[3 * kGroupSize];
      ConvertYcbcrGroups(planes, [&](uint32_t k, uint32_t i, int32_t r, int32_t g, int32_t b) {
        int32_t* const pixel = samples + 3 * (k + SampleGroup::kWords * i);
        pixel[0] = r >> 16;
        pixel[1] = g >> 16;
        pixel[2] = b >> 16;
      });
      L3_UNROLL
      for (uint32_t k = 0; k < kInterleavedWords<kChannels, 1>; ++k) {
        const int32_t* const four = samples + 4 * k;
        words[k] = PackBytes(four[0], four[1], PackBytes(four[2], four[3], 0));
      }
      return;
    }
  }
  Interleave<kChannels, 1>(planes, words);
}

// Stores words at any address.
template <uint32_t kWords>
L3_DEVICE void PutWords(const uint32_t (&words)[kWords], uint8_t* out) {
  const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 8);
  if (misaligned == 0) {
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; k += 2) PutTwoWords(out + 4 * k, words[k], words[k + 1]);
  } else if (misaligned == 4) {
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) PutWord(out + 4 * k, words[k]);
  } else {
    HwcStore<1>(out, 0).StorePixels(words, 0, 0);
  }
}

// Stores rows as they are stored.
template <uint32_t kChannels, class Warp>
L3_DEVICE void StoreJpegRows(Warp& warp, const JpegUnit& unit, const OutputPlan& plan,
                             const TileRect& rect) {
  // A lane with fewer than eight pixels left makes the last eight of the row. It stores them behind
  // the lane that has some of them, too.
  const uint32_t last = rect.width_px - kGroupSize;
  const bool has_rest = rect.width_px % kGroupSize != 0;
  const uint32_t own = kGroupSize * warp.lane();
  const uint32_t first = own < last ? own : last;
  const JpegPixelSource source(unit, rect.x_px + first);
  uint8_t* out = GlobalPointer(
      plan.PixelPlace(rect.x_px - plan.window.x_px + first, rect.y_px - plan.window.y_px));
  const int64_t y_stride_bytes = plan.y_stride_bytes;
  L3_NO_UNROLL
  for (uint32_t y = rect.y_px; y < rect.y_px + rect.height_px; ++y, out += y_stride_bytes) {
    uint32_t words[kInterleavedWords<kChannels, 1>];
    MakeJpegWords<kChannels>(source, y, words);
    if (own <= last) PutWords(words, out);
    if (!has_rest) continue;
    warp.Sync();
    if (own > last && own < rect.width_px) PutWords(words, out);
  }
}

// Stores rows by any plan.
template <uint32_t kChannels, class Warp>
L3_DEVICE void StoreJpegPixels(Warp& warp, const JpegUnit& unit, const TilePlans& plans,
                               const TileRect& rect, WarpScratch* scratch) {
  using Store = PlansStore<kChannels, 1>;
  const uint32_t number = plans.numbers[0];
  if (GlobalPointer(plans.windows)[number].path == StorePath::kStored &&
      rect.width_px >= kGroupSize) {
    return StoreJpegRows<kChannels>(warp, unit, GlobalPointer(plans.plans)[number], rect);
  }
  const Store store(PlannedRows<1>{plans, rect.x_px, rect.y_px, kChannels});
  typename Store::Halves halves(warp, store, true, rect.width_px, scratch);
  // Lanes beyond the last pixel make those of the first lane.
  const uint32_t first = kGroupSize * warp.lane();
  const JpegPixelSource source(unit, rect.x_px + (first < rect.width_px ? first : 0));
  const bool is_luma =
      source.color == JpegColor::kYcbcr && GlobalPointer(plans.plans)[number].HasLuma();
  L3_NO_UNROLL
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    SampleGroup planes[kChannels];
    MakeJpegPixels<kChannels>(source, is_luma, rect.y_px + y, planes);
    if (halves.serves()) {
      halves.StoreRow(warp, planes, 0xFF, y);
      continue;
    }
    uint32_t words[kInterleavedWords<kChannels, 1>];
    Interleave<kChannels, 1>(planes, words);
    uint8_t* const place = scratch->row + first * kChannels;
    warp.Sync();  // the row before has been stored
    L3_UNROLL
    for (uint32_t i = 0; i < kInterleavedWords<kChannels, 1>; ++i) {
      StoreWord(place + 4 * i, words[i]);
    }
    warp.Sync();
    store.StoreRareRow(warp, scratch->row, 0, y, rect.width_px);
  }
}

// Does a task of the second launch.
template <class Warp>
L3_DEVICE void RunJpegPixels(Warp& warp, const JpegBatch& batch, uint32_t number,
                             WarpScratch* scratch) {
  const JpegPixelTask& task = batch.pixels[number];
  const JpegUnit& unit = batch.units[task.unit];
  if (unit.image->info.components == 0) return;  // the file has changed; its windows have results
  const TilePlans plans = {batch.plans, batch.windows, &task.window, 1};
  TileRect rect = ClipToWindow(batch.plans[task.window].window, unit.rect);
  rect = ClipToWindow({rect.x_px, rect.y_px, rect.width_px, rect.height_px},
                      {task.x_px, task.y_px, kRowSpan, kJpegTaskRows});
  if (unit.image->info.components == 1) {
    StoreJpegPixels<1>(warp, unit, plans, rect, scratch);
  } else {
    StoreJpegPixels<3>(warp, unit, plans, rect, scratch);
  }
}

}  // namespace l3
