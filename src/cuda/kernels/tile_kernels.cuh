// Kernels: one warp decodes one tile, by the rules of core/tile.h, to the same
// samples and the same Status. Layer: cuda. Written against a warp (warp.h)
// and a store policy (hwc_store.cuh, plan_store.cuh).
//
//   grid -> tiles, warp -> tile, row by row from the top, lane -> group
//
//   lane      0          1         2      ...    31
//   row y   s0..s7    s8..s15   s16..s23  ...  s248..s255
//
// The row above stays in registers. A finished row passes through shared
// memory to the store policy. A warp type may also be one of a team
// (TeamWarp), whose warps decode a channel each of the same tile.
#pragma once

#include <type_traits>

#include "core/color.h"
#include "core/packed.h"
#include "core/tile.h"
#include "cuda/kernels/border_fill.cuh"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/hwc_store.cuh"
#include "cuda/kernels/match_kernel.cuh"
#include "cuda/kernels/packed_reader.cuh"
#include "cuda/kernels/plan_store.cuh"
#include "cuda/kernels/rans_kernel.cuh"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/tile_batch.h"
#include "cuda/kernels/tile_tools.cuh"
#include "cuda/kernels/warp.h"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {

// Rows whose predictors and width codes are read at a time: 8 predictors fill a
// word, and 8 rows of 32 codes of 4 bits fill a word in each lane.
constexpr uint32_t kRowsPerRead = 8;
// Set in a word of 4-bit predictors where one is not below kNumPredictors.
constexpr uint32_t kBadPredictors = 0x88888888;

// How many of this lane's samples lie in a row of `width` pixels.
L3_DEVICE uint32_t LaneSamples(uint32_t lane, uint32_t width) {
  const uint32_t begin = kGroupSize * lane;
  if (begin >= width) return 0;
  return width - begin < kGroupSize ? width - begin : kGroupSize;
}

// Turns values into samples and puts them into scratch->row. `words` are the
// values of the lane's 8 pixels, channels interleaved. Sets *valid to false if
// a value of the first `count` pixels is no rank of the value table; values of
// the others may be anything.
template <uint32_t kChannels, uint32_t kSampleBytes, class Warp, uint32_t kWords>
L3_DEVICE void StageRow(Warp& warp, uint32_t (&words)[kWords], const SampleMap& map, uint32_t count,
                        WarpScratch* scratch, bool* valid) {
  uint8_t* place = scratch->row + warp.lane() * 4 * kWords;
  MapWords<kSampleBytes>(map, words);
  warp.Sync();  // the row before has been stored
  L3_UNROLL
  for (uint32_t i = 0; i < kWords; ++i) StoreWord(place + 4 * i, words[i]);
  const uint32_t mapped = map.table != nullptr ? count * kChannels : 0;
  L3_NO_UNROLL
  for (uint32_t i = 0; i < mapped; ++i) {
    *valid = PutSample<kSampleBytes>(map, LoadValue<kSampleBytes>(place, i), i, place) && *valid;
  }
  warp.Sync();
}

// Decodes a stored tile, whose rows are values as they are, or a constant one, which has a value
// for each of kMaxChannels channels: 0 for those that the image lacks.
template <uint32_t kSampleBytes, class Warp, class Rows>
L3_DEVICE Status DecodePlainTileWarp(Warp& warp, uint32_t channels, const SampleMap& map,
                                     const TileRect& rect, const TilePayload& tile,
                                     const Rows& rows, RunningCheck<Warp>* check, uint8_t* row) {
  const bool is_constant = tile.coding == TileCoding::kConstant;
  const uint32_t pixel_bytes = channels * kSampleBytes;
  const uint64_t row_bytes = uint64_t{rect.width_px} * pixel_bytes;
  const uint64_t bytes = is_constant ? 2 * kMaxChannels : row_bytes * rect.height_px;
  const Status status = CheckBodyEnd(tile, kTileHeaderBytes + bytes);
  if (status != Status::kOk) return status;
  const uint8_t* values = tile.data + kTileHeaderBytes;
  bool valid = true;
  for (uint32_t c = is_constant ? channels : kMaxChannels; c < kMaxChannels; ++c) {
    valid = valid && LoadU16(values + 2 * c) == 0;
  }
  L3_NO_UNROLL
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    L3_NO_UNROLL
    for (uint32_t x = 0; x < rect.width_px; x += kRowSpan) {
      const uint32_t width = rect.width_px - x < kRowSpan ? rect.width_px - x : kRowSpan;
      if (!is_constant || (x | y) == 0) {
        const uint64_t begin = row_bytes * y + x * pixel_bytes;
        check->ReadTo(kTileHeaderBytes + static_cast<uint32_t>(begin) + kReadAheadBytes);
        warp.Sync();  // the row before has been stored
        for (uint32_t i = warp.lane(); i < kRowSpan * channels; i += kWarpLanes) {
          uint32_t value = 0;
          if (is_constant) {
            value = LoadU16(values + 2 * (i % channels));
          } else if (i < width * channels) {
            value = LoadValue<kSampleBytes>(values + begin, i);
          }
          valid = PutSample<kSampleBytes>(map, value, i, row) && valid;
        }
        if (!OnAllLanes(warp, valid)) return Status::kCorruptTile;
        warp.Sync();
      }
      rows.StoreRareRow(warp, row, x, y, width);
    }
  }
  return Status::kOk;
}

// The rows of a packed tile whose plan is in `scratch`. kUsual says that every channel has the
// delta layout, as nearly all tiles of photographs do, and that rows are stored by `halves`, if
// there are plans. Nothing is called then: calls would take registers.
template <uint32_t kChannels, uint32_t kSampleBytes, bool kUsual, class Warp, class Store>
L3_DEVICE Status DecodePackedRows(Warp& warp, const ImageInfo& info, const SampleMap& map,
                                  const TileRect& rect, const TilePayload& tile, const Store& store,
                                  [[maybe_unused]] typename Store::Halves* halves,
                                  RunningCheck<Warp>* check, WarpScratch* scratch,
                                  [[maybe_unused]] TeamScratch* team) {
  constexpr bool kInTeam = kUsual && kIsInTeam<Warp>;
  const PackedBody& body = scratch->body;
  // Channels in the order of the arrays below. A warp of a team has its own channel first: it needs
  // the widths of the others to find its residuals.
  uint32_t first = 0;
  if constexpr (kInTeam) first = warp.channel();
  const auto channel = [&body, first](uint32_t c) -> const auto& {
    return body.channel[kInTeam ? (first + c) % kChannels : c];
  };
  const auto layout = [&channel](uint32_t c) {
    return kUsual ? ChannelLayout::kDelta : channel(c).layout;
  };
  const uint32_t lane = warp.lane();
  const uint32_t groups = (rect.width_px + kGroupSize - 1) / kGroupSize;
  const uint32_t count = LaneSamples(lane, rect.width_px);
  const uint32_t max_width = lane < groups ? info.used_bits : 0;
  const SampleGroup row_end = RowEnd(lane, rect.width_px);
  SampleGroup rows[kChannels];
  uint32_t width[kChannels];
  uint32_t predictors[kChannels] = {};  // of the rows to come, 4 bits each
  uint32_t codes[kChannels] = {};       // of some rows, spread over the lanes
  uint32_t code_bit[kChannels] = {};    // where this lane's next code is in them
  L3_UNROLL
  for (uint32_t c = 0; c < kChannels; ++c) {
    rows[c].Fill(channel(c).base);
    width[c] = channel(c).start_width;
  }

  const bool adds_green = kChannels >= 3 && tile.transform == ColorTransform::kSubtractGreen;
  // The same number, but the compiler cannot see that it is 0 or 1.
  [[maybe_unused]] const uint32_t green_times = warp.Shuffle(adds_green ? 1 : 0, 0);
  uint32_t pos = body.residuals_offset;
  bool valid = true;
  const auto store_row = [&](const GroupMath<kSampleBytes>& math,
                             const SampleGroup(&planes)[kChannels], uint32_t y) {
    SampleGroup values[kChannels];
    if constexpr (Store::kHasHalves) {
      if (kUsual || halves->serves()) {
        AddGreenToPlanes(math, planes, green_times, ~0u, values);
        return halves->StoreRow(warp, values, math.range.max, y);
      }
    }
    uint32_t words[kInterleavedWords<kChannels, kSampleBytes>];
    if (adds_green) {
      AddGreenToPlanes(math, planes, 1, math.range.mask, values);
      Interleave<kChannels, kSampleBytes>(values, words);
    } else {
      Interleave<kChannels, kSampleBytes>(planes, words);
    }
    StageRow<kChannels, kSampleBytes>(warp, words, map, count, scratch, &valid);
    if constexpr (kUsual && !Store::kHasHalves) {
      store.StoreRow(warp, scratch->row, 0, y, rect.width_px);
    } else {
      store.StoreRareRow(warp, scratch->row, 0, y, rect.width_px);
    }
  };
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const GroupMath<kSampleBytes> math{scratch->range};
    check->ReadTo(pos + kReadAheadBytes);
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) {
      const uint32_t at = kUsual ? 0 : c;  // delta channels have their codes at the same places
      const uint32_t row_bytes = channel(at).width_row_bytes;
      if (y % kRowsPerRead == 0) {
        predictors[c] = ReadWord(tile.data, tile.size, channel(c).predictors_offset + y / 2);
        codes[c] =
            ReadWord(tile.data, tile.size, channel(c).widths_offset + y * row_bytes + 4 * lane);
        code_bit[at] = lane * (layout(c) == ChannelLayout::kAbsolute ? 4 : 2);
        const uint32_t rows_left = rect.height_px - y;
        const uint32_t unused = rows_left < kRowsPerRead ? 4 * (kRowsPerRead - rows_left) : 0;
        if (layout(c) != ChannelLayout::kConstant &&
            (predictors[c] & (kBadPredictors >> unused)) != 0) {
          return Status::kCorruptTile;
        }
      }
      const uint32_t code = warp.Shuffle(codes[c], code_bit[at] / 32) >> (code_bit[at] % 32);
      if (!kUsual || c + 1 == kChannels) code_bit[at] += 8 * row_bytes;
      if (layout(c) == ChannelLayout::kAbsolute) {
        width[c] = WidthOfCode(code & 15, max_width);
      } else if (layout(c) == ChannelLayout::kDelta) {
        width[c] = NextDeltaWidth(width[c], code & 3, max_width);
      }
    }
    const GroupPlaces<kChannels> places(warp, width);
    // What sparse channels read past the end is found in the next row, or behind the last one.
    static_assert(kMaxChannels * kMaxSparseRowBytes < kPayloadPaddingBytes);
    if (pos + places.Total() > tile.size) return Status::kCorruptTile;
    [[maybe_unused]] const uint32_t next_pos = pos + places.Total();
    if constexpr (kInTeam) {
      if (first >= 1) pos += places.Total(kChannels - first);
      if (first == 2) pos += places.Total(2);
    }

    L3_UNROLL
    for (uint32_t c = 0; c < (kInTeam ? 1 : kChannels); ++c) {
      if (layout(c) == ChannelLayout::kConstant) continue;
      SampleGroup folded;
      if (layout(c) == ChannelLayout::kSparse) {
        folded.Fill(0);
        if (ReadBit(tile.data + channel(c).widths_offset, y) != 0) {
          ReadSparseGroups(warp, tile.data, groups, info.used_bits, &pos, &folded);
        }
      } else {
        folded = ReadDenseGroup<kSampleBytes>(tile.data, pos + places.End(c) - width[c], width[c]);
        pos += places.Total(c);
      }
      ReconstructGroup(warp, math, scratch->taps[predictors[c] % kNumPredictors], row_end, folded,
                       &rows[c]);
      predictors[c] >>= 4;
    }

    if constexpr (kInTeam) {
      pos = next_pos;
      const uint32_t row = y % kTeamChannels;
      auto& shared = team->rows[y / kTeamChannels % 2];
      const uint32_t (&word)[SampleGroup::kWords] = rows[0].word;
      shared[row][first][lane] = {{word[0], word[1], word[2], word[3]}};
      if (row + 1 != kTeamChannels && y + 1 != rect.height_px) continue;
      warp.SyncBlock();
      if (first > row) continue;
      SampleGroup planes[kChannels];
      L3_UNROLL
      for (uint32_t c = 0; c < kChannels; ++c) {
        L3_UNROLL
        for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
          planes[c].word[k] = shared[first][c][lane].word[k];
        }
      }
      store_row(math, planes, y - row + first);
    } else {
      store_row(math, rows, y);
    }
  }
  if (!OnAllLanes(warp, valid)) return Status::kCorruptTile;
  return CheckBodyEnd(tile, pos);
}

template <uint32_t kChannels, uint32_t kSampleBytes, class Warp, class Store>
L3_DEVICE Status DecodePackedTileWarp(Warp& warp, const ImageInfo& info, const SampleMap& map,
                                      const TileRect& rect, const TilePayload& tile,
                                      const Store& store, RunningCheck<Warp>* check,
                                      WarpScratch* scratch, TeamScratch* team) {
  Status status = Status::kOk;
  if (warp.lane() == 0) {
    status = ParsePackedBody(tile.data, tile.size, kChannels, info.used_bits, rect.width_px,
                             rect.height_px, &scratch->body);
    scratch->range = ValueRange(info.used_bits);
    const GroupMath<kSampleBytes> math{scratch->range};
    L3_UNROLL
    for (uint32_t p = 0; p < kNumPredictors; ++p) {
      scratch->taps[p] = math.Widen(GetPredictorTaps(p));
    }
  }
  warp.Sync();
  status = static_cast<Status>(warp.Shuffle(static_cast<uint32_t>(status), 0));
  if (status != Status::kOk) return status;

  typename Store::Halves halves(warp, store, map.keeps_values(), rect.width_px, scratch);
  bool usual = halves.serves();
  L3_UNROLL
  for (uint32_t c = 0; c < kChannels; ++c) {
    usual = usual && scratch->body.channel[c].layout == ChannelLayout::kDelta;
  }
  if (!usual && !IsFirstInTeam(warp)) return Status::kOk;
  return usual ? DecodePackedRows<kChannels, kSampleBytes, true>(warp, info, map, rect, tile, store,
                                                                 &halves, check, scratch, team)
               : DecodePackedRows<kChannels, kSampleBytes, false>(
                     warp, info, map, rect, tile, store, &halves, check, scratch, team);
}

// Where the rows of a tile go: of an image that leaves whole and as stored, or by plans.
template <uint32_t kSampleBytes>
L3_DEVICE StoredRows MakeRows(const DeviceWindow& window, const ImageOutput& image,
                              const TileRect& rect) {
  const ImageOutput output = OutputOfTile(window.info, image, rect);
  return {GlobalPointer(output.data), output.row_stride_bytes, window.info.pixel_bytes()};
}
template <uint32_t kSampleBytes>
L3_DEVICE PlannedRows<kSampleBytes> MakeRows(const DeviceWindow& window, const TilePlans& plans,
                                             const TileRect& rect) {
  return {plans, rect.x_px, rect.y_px, window.info.pixel_bytes()};
}

// The store policy of tiles with kChannels channels.
template <uint32_t kChannels, uint32_t kSampleBytes>
L3_DEVICE HwcStore<kChannels * kSampleBytes> StoreOf(const StoredRows& rows) {
  return {rows.tile, rows.row_stride_bytes};
}
template <uint32_t kChannels, uint32_t kSampleBytes>
L3_DEVICE PlansStore<kChannels, kSampleBytes> StoreOf(const PlannedRows<kSampleBytes>& rows) {
  return PlansStore<kChannels, kSampleBytes>(rows);
}

// function(channels), by a type that has their number.
template <class Function>
L3_DEVICE auto WithChannels(uint32_t channels, const Function& function) {
  switch (channels) {
    case 1: return function(std::integral_constant<uint32_t, 1>());
    case 2: return function(std::integral_constant<uint32_t, 2>());
    case 3: return function(std::integral_constant<uint32_t, 3>());
    default: return function(std::integral_constant<uint32_t, 4>());
  }
}

template <uint32_t kSampleBytes, class Warp, class Output>
L3_DEVICE Status DecodeSimpleTile(Warp& warp, const DeviceWindow& window, const Output& output,
                                  const TileRect& rect, const TilePayload& tile,
                                  RunningCheck<Warp>* check, uint8_t* memory) {
  WarpScratch* scratch = reinterpret_cast<WarpScratch*>(memory);
  TeamScratch* team = nullptr;
  if constexpr (kIsInTeam<Warp>) {
    team = reinterpret_cast<TeamScratch*>(memory);
    scratch = &team->warps[warp.channel()];
  }
  const auto rows = MakeRows<kSampleBytes>(window, output, rect);
  if (tile.coding == TileCoding::kConstant || tile.coding == TileCoding::kStored) {
    if (!IsFirstInTeam(warp)) return Status::kOk;
    return DecodePlainTileWarp<kSampleBytes>(warp, window.info.channels, window.map, rect, tile,
                                             rows, check, scratch->row);
  }
  if (tile.coding != TileCoding::kPacked) return Status::kCorruptTile;
  const auto decode = [&](auto channels) {
    constexpr uint32_t kChannels = decltype(channels)::value;
    return DecodePackedTileWarp<kChannels, kSampleBytes>(warp, window.info, window.map, rect, tile,
                                                         StoreOf<kChannels, kSampleBytes>(rows),
                                                         check, scratch, team);
  };
  if constexpr (kIsInTeam<Warp>) {
    return decode(std::integral_constant<uint32_t, kTeamChannels>());
  } else {
    return WithChannels(window.info.channels, decode);
  }
}

template <uint32_t kSampleBytes, class Warp, class Output>
L3_DEVICE Status DecodeModelTile(Warp& warp, const DeviceWindow& window, const Output& output,
                                 const TileRect& rect, const TilePayload& tile,
                                 RunningCheck<Warp>* check, const RansLookup& lookup,
                                 uint8_t* memory) {
  using Samples = std::conditional_t<kSampleBytes == 1, ByteSamples, WordSamples>;
  if (window.rans == nullptr) return Status::kCorruptTile;
  const auto rows = MakeRows<kSampleBytes>(window, output, rect);
  if (tile.coding == TileCoding::kMatch) {
    if (window.rans->match_table_count == 0) return Status::kCorruptTile;
    const auto store_run = [&](const MatchLane& lane, uint32_t steps) {
      return WithChannels(window.info.channels, [&](auto channels) {
        constexpr uint32_t kChannels = decltype(channels)::value;
        return lane.StoreRun<kChannels, kSampleBytes>(steps, window.map,
                                                      StoreOf<kChannels, kSampleBytes>(rows));
      });
    };
    return DecodeMatchTileWarp(warp, window.colors, rect, tile, lookup,
                               PixelWords(window.info.channels, kSampleBytes), store_run, check,
                               memory);
  }
  if (tile.coding != TileCoding::kRans) return Status::kCorruptTile;
  return WithChannels(window.info.channels, [&](auto channels) {
    constexpr uint32_t kChannels = decltype(channels)::value;
    return DecodeRansTileWarp<kChannels, Samples>(
        warp, window.info, window.map, rect, tile, lookup, StoreOf<kChannels, kSampleBytes>(rows),
        check, reinterpret_cast<RansScratch<kChannels, kSampleBytes>*>(memory));
  });
}

// Decodes one tile of a kind, with the image's `lookup` if that is kModel. A tile of the other
// kind was one of this when the batch was planned, and has changed: it is corrupt. The Status
// is the same on every lane.
// On an error the tile's part of the output holds unspecified samples; none is written
// outside. `output` is the ImageOutput of an image that leaves whole and as stored, or
// TilePlans. `memory` is shared by the warp or its team: batch.scratch_bytes, 16-byte aligned.
template <TileKind kKind, uint32_t kSampleBytes, class Warp, class Output>
L3_DEVICE Status DecodeTileWarp(Warp& warp, const DeviceWindow& window, const Output& output,
                                const TileTask& task, const RansLookup* lookup, uint8_t* memory) {
  const uint8_t* payload =
      GlobalPointer(window.payloads + uint64_t{task.payload_begin} * kPayloadAlignment);
  const uint32_t size = task.payload_units * kPayloadAlignment;
  RunningCheck<Warp> check(warp, payload, size);
  TilePayload tile;
  Status status = ParseTilePayload(window.info, payload, size, &tile);
  if (status == Status::kOk) {
    const TileRect rect = GetTileRect(window.info, task.tile);
    if constexpr (kKind == TileKind::kModel) {
      status =
          DecodeModelTile<kSampleBytes>(warp, window, output, rect, tile, &check, *lookup, memory);
    } else {
      status = DecodeSimpleTile<kSampleBytes>(warp, window, output, rect, tile, &check, memory);
    }
  }
  // A damaged payload is one whatever else it breaks (format.md 5).
  return check.Matches(warp, memory) ? status : Status::kChecksumMismatch;
}

// Does a task of a launch. lower(result, bad) makes a window's result `bad` if that is less.
template <TileKind kKind, StoreKind kStore, uint32_t kSampleBytes, class Warp, class Lower>
L3_DEVICE void RunTask(Warp& warp, const TileBatch& batch, uint64_t number,
                       const RansLookup* lookup, uint8_t* memory, const Lower& lower) {
  const TileTask task = batch.tasks[number];
  if constexpr (kKind == TileKind::kSimple && kStore == StoreKind::kPlans) {
    if (task.payload_units == 0 && task.tile != 0 && IsFirstInTeam(warp)) {
      FillBorderWarp(warp, batch.plans[task.window], task.tile - 1);
    }
  }
  if (task.payload_units == 0) return;
  const DeviceWindow window = batch.windows[task.window];
  const auto decode = [&](const auto& output) {
    return DecodeTileWarp<kKind, kSampleBytes>(warp, window, output, task, lookup, memory);
  };
  if constexpr (kStore == StoreKind::kPlans) {
    const TilePlans plans = PlansOfTask(batch, number);
    const Status status = decode(plans);
    for (uint32_t i = warp.lane(); status != Status::kOk && i < plans.count; i += kWarpLanes) {
      lower(&batch.results[plans.numbers[i]], BadTile(task.tile, status));
    }
  } else {
    const Status status = decode(window.output);
    if (status == Status::kOk || warp.lane() != 0) return;
    lower(&batch.results[task.window], BadTile(task.tile, status));
  }
}

}  // namespace l3
