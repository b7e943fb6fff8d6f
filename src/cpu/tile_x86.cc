// Tiles 32 bytes at a time, in the steps of core/tile.h. Layer: cpu.
#include "cpu/cpu_engine.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>
#include <iterator>

#include "cpu/x86_interleave.h"
#include "cpu/x86_lanes.h"
#include "cpu/x86_unpack.h"

namespace l3 {
namespace x86 {
namespace {

// CheckMix of core/check.h in eight lanes.
L3_AVX2 inline __m256i MixWords(__m256i x) {
  x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
  x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7FEB352D));
  x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
  x = _mm256_mullo_epi32(x, _mm256_set1_epi32(static_cast<int>(0x846CA68B)));
  return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

// PayloadCheck of core/check.h. Sums the terms of whole vectors and takes that
// of the first word, which is the check itself, out again.
L3_AVX2 uint32_t PayloadCheck(const uint8_t* payload, uint32_t size) {
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i place = _mm256_mullo_epi32(numbers, _mm256_set1_epi32(static_cast<int>(kCheckStep)));
  const __m256i next_place = _mm256_set1_epi32(static_cast<int>(8 * kCheckStep));
  __m256i sum = _mm256_setzero_si256();
  uint32_t pos = 0;
  for (; size - pos >= kVectorBytes; pos += kVectorBytes) {
    sum = _mm256_add_epi32(sum, MixWords(_mm256_add_epi32(Load(payload + pos), place)));
    place = _mm256_add_epi32(place, next_place);
  }
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  if (pos < size) {
    const __m256i last = _mm256_castsi128_si256(LoadHalf(payload + pos));
    half = _mm_add_epi32(half, _mm256_castsi256_si128(MixWords(_mm256_add_epi32(last, place))));
  }
  half = _mm_add_epi32(half, _mm_srli_si128(half, 8));
  half = _mm_add_epi32(half, _mm_srli_si128(half, 4));
  const uint32_t total = static_cast<uint32_t>(_mm_cvtsi128_si32(half));
  return CheckFinish(total - CheckMix(LoadU32(payload)), size / 4 - 1);
}

// A payload whose end needs no care: from any place in it a whole row, of any
// layout, can be read. What is behind the payload reads as 0.
class PayloadReader {
 public:
  explicit PayloadReader(const TilePayload& tile)
      : data_(tile.data), tail_begin_(tile.size - std::min(tile.size, kReadableBytes)) {
    std::memcpy(tail_, data_ + tail_begin_, tile.size - tail_begin_);
  }

  const uint8_t* At(uint32_t pos) const {
    return pos < tail_begin_ ? data_ + pos : tail_ + (pos - tail_begin_);
  }

 private:
  // For a sparse row: flags, widths, masks and fields; then slack.
  static constexpr uint32_t kReadableBytes = kMaxGroupsPerRow / 8 + kMaxGroupsPerRow / 2 +
                                             kMaxGroupsPerRow + 2 * kMaxPackedTileSide +
                                             kUnpackSlackBytes;
  const uint8_t* data_;
  uint32_t tail_begin_;
  uint8_t tail_[2 * kReadableBytes] = {};
};

// Widths of a row's groups, one in each byte. `max_width` is 0 for groups that
// the row does not have. 16 bytes of codes can be read.
L3_AVX2 inline __m256i AbsoluteWidths(const uint8_t* codes, __m256i max_width) {
  const __m256i bytes = _mm256_cvtepu8_epi16(LoadHalf(codes));
  const __m256i code =
      _mm256_and_si256(_mm256_or_si256(bytes, _mm256_slli_epi16(bytes, 4)), _mm256_set1_epi8(15));
  const __m256i is_15 = _mm256_cmpeq_epi8(code, _mm256_set1_epi8(15));
  return _mm256_min_epu8(_mm256_sub_epi8(code, is_15), max_width);
}

L3_AVX2 inline __m256i DeltaWidths(__m256i widths, const uint8_t* codes, __m256i max_width) {
  __m256i code = _mm256_cvtepu8_epi32(LoadHalf(codes));
  code = _mm256_or_si256(code, _mm256_slli_epi32(code, 6));
  code = _mm256_or_si256(code, _mm256_slli_epi32(code, 12));
  code = _mm256_and_si256(code, _mm256_set1_epi8(3));
  const __m256i next = _mm256_subs_epu8(_mm256_add_epi8(widths, code), _mm256_set1_epi8(1));
  return _mm256_min_epu8(next, max_width);
}

L3_AVX2 inline uint32_t SumBytes(__m256i v) {
  const __m256i sums = _mm256_sad_epu8(v, _mm256_setzero_si256());
  const __m128i half =
      _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(half) + _mm_extract_epi16(half, 4));
}

// ReadSparseRow of core/packed.h for a row that is coded, from `row`, which
// reads on as 0. `folded` must be 0. Returns the bytes of the row.
template <typename Value>
L3_AVX2 uint32_t ReadSparseRow(const uint8_t* row, uint32_t groups, uint32_t used_bits,
                               Value* folded) {
  uint32_t flags = ReadOnce(LoadU32(row)) & (0xFFFFFFFFu >> (kMaxGroupsPerRow - groups));
  const uint32_t coded_groups = static_cast<uint32_t>(__builtin_popcount(flags));
  const uint8_t* widths = row + (groups + 7) / 8;
  const uint8_t* masks = widths + (coded_groups + 1) / 2;
  const uint8_t* fields = masks + coded_groups;
  uint32_t bit = 0;
  for (uint32_t k = 0; k < coded_groups; ++k, flags &= flags - 1) {
    const uint32_t width = std::min(ReadCode4(widths, k) + 1, used_bits);
    const uint32_t group = static_cast<uint32_t>(__builtin_ctz(flags));
    const uint32_t mask = ReadOnce(masks[k]);
    UnpackSparseGroup(fields, bit, width, mask, folded + kGroupSize * group);
    bit += width * static_cast<uint32_t>(__builtin_popcount(mask));
  }
  return static_cast<uint32_t>(fields - row) + (bit + 7) / 8;
}

// A row of values, with its first one once more before it and its last one
// behind it: what NW and NE see there, and what fills up the last vector.
template <typename Lanes>
class Row {
 public:
  using Value = typename Lanes::Value;

  Value* values() { return storage_ + Lanes::kCount; }
  const Value* values() const { return storage_ + Lanes::kCount; }

  L3_AVX2 void Fill(uint32_t value) {
    for (Value* p = storage_; p != std::end(storage_); p += Lanes::kCount) {
      Store(p, Lanes::Broadcast(value));
    }
  }
  L3_AVX2 void ExtendEnds(uint32_t width) {
    values()[-1] = values()[0];
    Store(values() + width, Lanes::Broadcast(values()[width - 1]));
  }

 private:
  alignas(kVectorBytes) Value storage_[kMaxPackedTileSide + 2 * Lanes::kCount];
};

// What the row above contributes to a prediction, from its values at x + a,
// x + b and x + c. Two roundings by one bit give those of format.md, and no sum
// leaves its lane.
enum class FromAbove : uint8_t {
  kAverage,         // (((a + b) >> 1) + c + 1) >> 1
  kHalfDifference,  // (((a + b) >> 1) - c + 1) >> 1, to which W is added
  kDifference,      // a - c, to which W is added
};

struct PredictorPlan {
  FromAbove from_above;
  int8_t a, b, c;
};

constexpr PredictorPlan kPredictorPlans[kNumPredictors] = {
    {FromAbove::kHalfDifference, 0, 0, 0},   // W
    {FromAbove::kAverage, 0, 0, 0},          // N
    {FromAbove::kAverage, -1, 1, 0},         // (NW + 2N + NE + 2) >> 2
    {FromAbove::kDifference, 0, 0, -1},      // W + N - NW
    {FromAbove::kHalfDifference, 0, 1, -1},  // W + ((N - 2NW + NE + 2) >> 2)
    {FromAbove::kAverage, 0, 0, 1},          // (N + NE + 1) >> 1
    {FromAbove::kAverage, -1, -1, 0},        // (NW + N + 1) >> 1
    {FromAbove::kHalfDifference, 1, 1, -1},  // W + ((NE - NW + 1) >> 1)
};

template <typename Lanes, FromAbove kFromAbove>
L3_AVX2 inline __m256i PredictFromAbove(__m256i a, __m256i b, __m256i c) {
  if constexpr (kFromAbove == FromAbove::kDifference) return Lanes::Sub(a, c);
  const __m256i ab = AverageDown<Lanes>(a, b);
  if constexpr (kFromAbove == FromAbove::kAverage) return Lanes::AverageUp(ab, c);
  return HalfDifference<Lanes>(ab, c);
}

template <typename Lanes, FromAbove kFromAbove>
L3_AVX2 void ReconstructRow(const PredictorPlan& plan, const Row<Lanes>& above,
                            const typename Lanes::Value* folded, uint32_t width, uint32_t mask,
                            Row<Lanes>* row) {
  const typename Lanes::Value* a = above.values() + plan.a;
  const typename Lanes::Value* b = above.values() + plan.b;
  const typename Lanes::Value* c = above.values() + plan.c;
  const __m256i lane_mask = Lanes::Broadcast(mask);
  __m256i west = Lanes::Broadcast(above.values()[0]);
  for (uint32_t x = 0; x < width; x += Lanes::kCount) {
    const __m256i prediction =
        PredictFromAbove<Lanes, kFromAbove>(Load(a + x), Load(b + x), Load(c + x));
    __m256i v = Lanes::Add(prediction, Unfold<Lanes>(Load(folded + x)));
    if constexpr (kFromAbove != FromAbove::kAverage) {
      v = Lanes::PrefixSums(v);
      const __m256i sums = Lanes::SpreadLast(v);
      const __m256i low_sum_in_high = _mm256_permute2x128_si256(sums, sums, 0x08);
      const __m256i swapped_sums = _mm256_permute2x128_si256(sums, sums, 0x01);
      v = Lanes::Add(Lanes::Add(v, low_sum_in_high), west);
      west = Lanes::Add(west, Lanes::Add(sums, swapped_sums));
    }
    Store(row->values() + x, _mm256_and_si256(v, lane_mask));
  }
  row->ExtendEnds(width);
}

template <typename Lanes>
L3_AVX2 void ReconstructRow(uint32_t predictor, const Row<Lanes>& above,
                            const typename Lanes::Value* folded, uint32_t width, uint32_t mask,
                            Row<Lanes>* row) {
  const PredictorPlan& plan = kPredictorPlans[predictor];
  switch (plan.from_above) {
    case FromAbove::kAverage:
      ReconstructRow<Lanes, FromAbove::kAverage>(plan, above, folded, width, mask, row);
      break;
    case FromAbove::kHalfDifference:
      ReconstructRow<Lanes, FromAbove::kHalfDifference>(plan, above, folded, width, mask, row);
      break;
    case FromAbove::kDifference:
      ReconstructRow<Lanes, FromAbove::kDifference>(plan, above, folded, width, mask, row);
      break;
  }
}

// The steps from planes to samples read and write whole vectors.

// AddGreen of core/color.h over a row.
template <typename Lanes>
L3_AVX2 void AddGreenRow(const typename Lanes::Value* plane, const typename Lanes::Value* green,
                         uint32_t width, uint32_t used_bits, typename Lanes::Value* values) {
  const __m256i half = Lanes::Broadcast(1u << (used_bits - 1));
  const __m256i mask = Lanes::Broadcast((1u << used_bits) - 1);
  for (uint32_t x = 0; x < width; x += Lanes::kCount) {
    const __m256i sum = Lanes::Add(Load(plane + x), Load(green + x));
    Store(values + x, _mm256_and_si256(Lanes::Sub(sum, half), mask));
  }
}

// SampleMap over a row. Values and samples may be the same row. False if a
// value is not below map.value_count.
template <typename Lanes>
L3_AVX2 bool MapRow(const SampleMap& map, const typename Lanes::Value* values, uint32_t width,
                    typename Lanes::Value* samples) {
  const __m256i max = Lanes::Broadcast(map.value_count - 1);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(map.shift));
  const __m256i offset = Lanes::Broadcast(map.offset);
  __m256i excess = _mm256_setzero_si256();
  for (uint32_t x = 0; x < width; x += Lanes::kCount) {
    const __m256i v = Load(values + x);
    excess = _mm256_or_si256(excess, Lanes::Excess(v, max));
    // Two bytes shift as one word: a valid value does not leave its byte.
    Store(samples + x, Lanes::Sub(_mm256_sll_epi16(v, shift), offset));
  }
  if (!IsZero(excess)) return false;
  if (map.table != nullptr) {
    for (uint32_t x = 0; x < width; ++x) {
      samples[x] = static_cast<typename Lanes::Value>(map.table[samples[x]]);
    }
  }
  return true;
}

L3_AVX2 Status DecodeConstant(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                              const TilePayload& tile, const ImageOutput& output) {
  TileRect first_row = rect;
  first_row.height_px = 1;
  const Status status = DecodeConstantTile(info, map, first_row, tile, output);
  if (status != Status::kOk) return status;
  const uint8_t* row = output.Row(0);
  for (uint32_t y = 1; y < rect.height_px; ++y) {
    std::memcpy(output.Row(y), row, size_t{rect.width_px} * info.pixel_bytes());
  }
  return Status::kOk;
}

template <typename Lanes>
L3_AVX2 Status DecodeStored(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                            const TilePayload& tile, const ImageOutput& output) {
  using Value = typename Lanes::Value;
  constexpr uint32_t kBlockBytes = 1024;
  const uint64_t row_bytes = uint64_t{rect.width_px} * info.pixel_bytes();
  const Status status = CheckBodyEnd(tile, kTileHeaderBytes + row_bytes * rect.height_px);
  if (status != Status::kOk) return status;
  // Every number is a sample.
  if (map.keeps_values() && info.used_bits == info.sample_bits()) {
    for (uint32_t y = 0; y < rect.height_px; ++y) {
      std::memcpy(output.Row(y), tile.data + kTileHeaderBytes + row_bytes * y, row_bytes);
    }
    return Status::kOk;
  }
  Value values[kBlockBytes / sizeof(Value)] = {};
  Value samples[kBlockBytes / sizeof(Value)];
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const uint8_t* in = tile.data + kTileHeaderBytes + row_bytes * y;
    uint8_t* out = output.Row(y);
    for (uint64_t i = 0; i < row_bytes; i += kBlockBytes) {
      const uint32_t bytes = static_cast<uint32_t>(std::min<uint64_t>(kBlockBytes, row_bytes - i));
      std::memcpy(values, in + i, bytes);
      if (!MapRow<Lanes>(map, values, bytes / sizeof(Value), samples)) {
        return Status::kCorruptTile;
      }
      std::memcpy(out + i, samples, bytes);
    }
  }
  return Status::kOk;
}

// With `plane_bytes`, from a plane to the next, the tile leaves as planes: `output` is the first.
// Of rows that are not wanted only the bytes are counted.
template <typename Lanes>
L3_AVX2 Status DecodePacked(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                            const TilePayload& tile, UnpackRow<typename Lanes::Value>* unpack_row,
                            const ImageOutput& output, uint64_t plane_bytes, const RowsAhead& ahead,
                            uint32_t rows_wanted) {
  using Value = typename Lanes::Value;
  PackedBody body;
  const Status status = ParsePackedBody(tile.data, tile.size, info.channels, info.used_bits,
                                        rect.width_px, rect.height_px, &body);
  if (status != Status::kOk) return status;

  const uint32_t groups = (rect.width_px + kGroupSize - 1) / kGroupSize;
  const uint32_t mask = (1u << info.used_bits) - 1;
  const bool maps_values = !map.keeps_values();
  if (map.value_count <= mask) rows_wanted = rect.height_px;  // a value may be too large
  alignas(kVectorBytes) uint8_t row_widths[kMaxGroupsPerRow] = {};
  std::fill_n(row_widths, groups, info.used_bits);
  const __m256i max_width = Load(row_widths);

  Row<Lanes> rows[2][kMaxChannels];
  Row<Lanes> samples[kMaxChannels];
  alignas(kVectorBytes) Value folded[kMaxPackedTileSide];
  __m256i widths[kMaxChannels];
  for (uint32_t c = 0; c < info.channels; ++c) {
    rows[0][c].Fill(body.channel[c].base);
    rows[1][c].Fill(body.channel[c].base);
    const char start_width = static_cast<char>(body.channel[c].start_width);
    widths[c] = _mm256_min_epu8(_mm256_set1_epi8(start_width), max_width);
  }

  const PayloadReader reader(tile);
  uint32_t pos = body.residuals_offset;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const Row<Lanes>* above = rows[y & 1];
    Row<Lanes>* current = rows[(y & 1) ^ 1];
    const bool is_wanted = y < rows_wanted;
    uint8_t* out = output.Row(y);
    if (y + 1 < rect.height_px && plane_bytes == 0) {
      // A store that misses the cache holds up all those after it.
      for (uint32_t i = 0; i < rect.width_px * info.pixel_bytes(); i += 64) {
        __builtin_prefetch(out + output.row_stride_bytes + i, 1);
      }
    }
    ahead.Prefetch(y);
    for (uint32_t c = 0; c < info.channels; ++c) {
      const PackedChannel& channel = body.channel[c];
      if (channel.layout == ChannelLayout::kConstant) continue;
      uint32_t row_bytes = 0;
      if (channel.layout == ChannelLayout::kSparse) {
        std::memset(folded, 0, sizeof(folded));
        if (ReadBit(tile.data + channel.widths_offset, y)) {
          row_bytes = ReadSparseRow(reader.At(pos), groups, info.used_bits, folded);
        }
      } else {
        const uint8_t* codes = reader.At(channel.widths_offset + y * channel.width_row_bytes);
        widths[c] = channel.layout == ChannelLayout::kDelta
                        ? DeltaWidths(widths[c], codes, max_width)
                        : AbsoluteWidths(codes, max_width);
        row_bytes = SumBytes(widths[c]);
        if (is_wanted) {
          Store(row_widths, widths[c]);
          unpack_row(reader.At(pos), row_widths, groups, folded);
        }
      }
      if (tile.size - pos < row_bytes) return Status::kCorruptTile;
      pos += row_bytes;
      const uint32_t predictor = ReadOnce(ReadCode4(tile.data + channel.predictors_offset, y));
      if (predictor >= kNumPredictors) return Status::kCorruptTile;
      if (!is_wanted) continue;
      ReconstructRow<Lanes>(predictor, above[c], folded, rect.width_px, mask, &current[c]);
    }
    if (!is_wanted) continue;

    const Value* planes[kMaxChannels];
    for (uint32_t c = 0; c < info.channels; ++c) {
      planes[c] = current[c].values();
      Value* values = samples[c].values();
      if (tile.transform == ColorTransform::kSubtractGreen && (c == 0 || c == 2)) {
        AddGreenRow<Lanes>(planes[c], current[1].values(), rect.width_px, info.used_bits, values);
        planes[c] = values;
      }
      if (maps_values) {
        if (!MapRow<Lanes>(map, planes[c], rect.width_px, values)) return Status::kCorruptTile;
        planes[c] = values;
      }
    }
    if (plane_bytes == 0) {
      StoreRow<Lanes>(planes, info.channels, rect.width_px, out);
      continue;
    }
    for (uint32_t c = 0; c < info.channels; ++c) {
      std::memcpy(out + c * plane_bytes, planes[c], rect.width_px * sizeof(Value));
    }
  }
  return CheckBodyEnd(tile, pos);
}

template <UnpackRow<uint8_t>* kUnpackBytes>
L3_AVX2 Status DecodePackedAs(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                              const TilePayload& tile, const ImageOutput& output,
                              uint64_t plane_bytes, const RowsAhead& ahead, uint32_t rows) {
  return info.sample_bits() == 8 ? DecodePacked<ByteLanes>(info, map, rect, tile, kUnpackBytes,
                                                           output, plane_bytes, ahead, rows)
                                 : DecodePacked<WordLanes>(info, map, rect, tile, UnpackWordsAvx2,
                                                           output, plane_bytes, ahead, rows);
}

// Planes as TileJob has them.
template <UnpackRow<uint8_t>* kUnpackBytes>
L3_AVX2 Status DecodePlanes(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                            const TilePayload& tile, const RowsAhead& ahead, uint8_t* planes) {
  const uint64_t row_bytes = uint64_t{rect.width_px} * info.sample_bytes();
  return DecodePackedAs<kUnpackBytes>(info, map, rect, tile, {planes, row_bytes},
                                      row_bytes * rect.height_px + kPlaneGapBytes, ahead,
                                      rect.height_px);
}

template <UnpackRow<uint8_t>* kUnpackBytes>
L3_AVX2 Status DecodeSimpleTile(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                                const TilePayload& tile, uint32_t rows, const ImageOutput& output) {
  const bool bytes = info.sample_bits() == 8;
  switch (tile.coding) {
    case TileCoding::kConstant: return DecodeConstant(info, map, rect, tile, output);
    case TileCoding::kStored:
      return bytes ? DecodeStored<ByteLanes>(info, map, rect, tile, output)
                   : DecodeStored<WordLanes>(info, map, rect, tile, output);
    default: return DecodePackedAs<kUnpackBytes>(info, map, rect, tile, output, 0, {}, rows);
  }
}

}  // namespace
}  // namespace x86

L3_AVX2 uint32_t PayloadCheckAvx2(const uint8_t* payload, uint32_t size) {
  return x86::PayloadCheck(payload, size);
}

void DecodeTilesAvx2(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                     TileJob* jobs, uint32_t count) {
  DecodeTilesBy<x86::PayloadCheck, x86::DecodeSimpleTile<x86::UnpackBytesAvx2>,
                DecodeModelTilesAvx2, x86::DecodePlanes<x86::UnpackBytesAvx2>>(info, map, rans,
                                                                               jobs, count);
}

void DecodeTilesAvx512(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                       TileJob* jobs, uint32_t count) {
  DecodeTilesBy<x86::PayloadCheck, x86::DecodeSimpleTile<x86::UnpackBytesAvx512>,
                DecodeModelTilesAvx512, x86::DecodePlanes<x86::UnpackBytesAvx512>>(info, map, rans,
                                                                                   jobs, count);
}

}  // namespace l3

#endif  // defined(__x86_64__)
