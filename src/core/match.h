// The match coding (format.md 5.5): a pixel is one token, which names a neighbour of the same
// colour, or the colour's number. The lanes are those of rans tiles. Layer: core; the scalar truth.
#pragma once

#include "core/bits.h"
#include "core/rans.h"

namespace l3 {

// Where the payload has the bits of skipped blocks of steps, and in how many bytes.
constexpr uint32_t kMatchSkipsOffset = kTileHeaderBytes + kMatchBodyHeaderBytes;
L3_HOST_DEVICE constexpr uint32_t MatchSkipBytes(uint32_t steps) {
  constexpr uint32_t kStepsOfWord = 16 * kMatchBlockSteps;
  return 2 * ((steps + kStepsOfWord - 1) / kStepsOfWord);
}
L3_HOST_DEVICE inline bool IsMatchSkipped(const uint8_t* payload, uint32_t step) {
  return ReadBit(payload + kMatchSkipsOffset, step / kMatchBlockSteps) != 0;
}

// Reads the parts of a body into those of a rans body that they share. `size` is the
// payload's, at least 16; `colors` has the numbers that are valid.
L3_HOST_DEVICE inline Status ParseMatchBody(const uint8_t* payload, uint32_t size,
                                            const ColorTable& colors, uint32_t width,
                                            uint32_t height, RansBody* body) {
  const RansSchedule schedule = GetRansSchedule(width, height);
  const uint32_t lanes = schedule.lanes;
  *body = RansBody{};
  body->base[0] = static_cast<uint16_t>(ReadOnce(LoadU16(payload + kTileHeaderBytes)));
  body->states_offset = kMatchSkipsOffset + MatchSkipBytes(schedule.steps);
  body->words_offset = body->states_offset + 4 * (lanes < height ? lanes : height);
  const bool sound = body->base[0] < colors.count && body->words_offset <= size;
  return sound ? Status::kOk : Status::kCorruptTile;
}

// Which of a pixel's neighbours are alike.
L3_HOST_DEVICE inline uint32_t MatchContext(const RansNeighbors& at) {
  return static_cast<uint32_t>(at.w == at.n) | static_cast<uint32_t>(at.w == at.nw) << 1 |
         static_cast<uint32_t>(at.n == at.ne) << 2 | static_cast<uint32_t>(at.w == at.ww) << 3 |
         static_cast<uint32_t>(at.ne == at.nne) << 4 | static_cast<uint32_t>(at.nw == at.nww) << 5;
}

// The number of the colour that `folded` means.
L3_HOST_DEVICE inline uint32_t MatchedNumber(const RansNeighbors& at, uint32_t folded) {
  const int32_t neighbor[kMatchNeighbors] = {at.w, at.n, at.ne, at.nw};
  return folded < kMatchNeighbors ? static_cast<uint32_t>(neighbor[folded])
                                  : folded - kMatchNeighbors;
}

// Decodes the pixels of a match payload. Calls store(x, y, number) once for each pixel; it
// returns false to refuse it.
template <typename Store>
Status DecodeMatchPixels(const uint8_t* payload, uint32_t size, const RansTables& tables,
                         uint32_t width, uint32_t height, uint32_t* end, const Store& store) {
  RansBody body;
  const Status status = ParseMatchBody(payload, size, tables.colors, width, height, &body);
  if (status != Status::kOk) return status;
  RansLanes lanes;
  if (!lanes.Init(payload, size, body)) return Status::kCorruptTile;

  RansPlane plane;
  plane.base = body.base[0];
  plane.width = static_cast<int32_t>(width);
  struct Pixel {
    uint32_t x, y;  // the height where the lane has no pixel in this step
    RansNeighbors around;
    RansToken token;
  };
  Pixel pixels[kRansLanes];
  const RansSchedule schedule = GetRansSchedule(width, height);
  for (uint32_t step = 0; step < schedule.steps; ++step) {
    const bool skipped = IsMatchSkipped(payload, step);
    for (uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
      Pixel& pixel = pixels[lane];
      const uint32_t since = step - 2 * lane;
      pixel.x = since % schedule.period;
      pixel.y = since / schedule.period * schedule.lanes + lane;
      if (step < 2 * lane || pixel.x >= width || pixel.y >= height) pixel.y = height;
      if (pixel.y == height) continue;
      pixel.around =
          plane.NeighborsOf(static_cast<int32_t>(pixel.x), static_cast<int32_t>(pixel.y));
      if (skipped) continue;
      const uint32_t table = tables.model.table_of_context[MatchContext(pixel.around)];
      const uint32_t slot = lanes.ReadSlot(lane, tables.slot[table]);
      pixel.token = TokenOfSlot(slot, kMaxUsedBits);
      if (!lanes.Refill(lane)) return Status::kCorruptTile;
    }
    for (uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
      Pixel& pixel = pixels[lane];
      if (pixel.y == height) continue;
      uint32_t folded = 0;
      if (!skipped) {
        folded = pixel.token.base + lanes.ReadRaw(lane, pixel.token.raw_bits);
        if (!lanes.Refill(lane)) return Status::kCorruptTile;
      }
      const uint32_t number = MatchedNumber(pixel.around, folded);
      if (number >= tables.colors.count || !store(pixel.x, pixel.y, number)) {
        return Status::kCorruptTile;
      }
      plane.value[pixel.y % RansPlane::kRows][pixel.x] = static_cast<uint16_t>(number);
    }
  }
  *end = lanes.pos();
  return lanes.AtEnd() ? Status::kOk : Status::kCorruptTile;
}

}  // namespace l3
