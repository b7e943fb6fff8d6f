// The rans coding (format.md 5.4): the parts of a body, and the decoding of a
// tile by 32 lanes in lockstep, one lane after the other. Layer: core; the
// scalar truth.
#pragma once

#include "base/portable.h"
#include "core/rans_model.h"
#include "core/residual.h"
#include "format/constants.h"
#include "format/status.h"

namespace l3 {

// Parts of one rans payload.
struct RansBody {
  // By channel in coding order.
  uint8_t sets[kMaxChannels];  // of coefficients; 0 for the gradient predictor
  uint16_t base[kMaxChannels];
  uint32_t coefficients_offset[kMaxChannels];  // of the parts, from the start of the payload
  uint32_t states_offset;
  uint32_t words_offset;
};

// `size` is the payload's, at least 16.
L3_HOST_DEVICE inline Status ParseRansBody(const uint8_t* payload, uint32_t size, uint32_t channels,
                                           uint32_t used_bits, uint32_t width, uint32_t height,
                                           RansBody* body) {
  const uint32_t end_of_header = kTileHeaderBytes + kRansBodyHeaderBytes;
  if (size < end_of_header) return Status::kCorruptTile;
  const uint8_t* header = payload + kTileHeaderBytes;
  uint32_t pos = end_of_header;
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    const bool exists = p < channels;
    body->sets[p] = ReadOnce(header[p]);
    body->base[p] = static_cast<uint16_t>(ReadOnce(LoadU16(header + kMaxChannels + 2 * p)));
    body->coefficients_offset[p] = pos;
    if (body->sets[p] > (exists ? kMaxRansSets : 0) || body->base[p] >> (exists ? used_bits : 0)) {
      return Status::kCorruptTile;
    }
    pos += body->sets[p] * RansTapCount(GetRansRole(channels, p));
  }
  const uint32_t lanes = GetRansSchedule(width, height).lanes;
  body->states_offset = pos;
  body->words_offset = body->states_offset + 4 * (lanes < height ? lanes : height);
  return body->words_offset <= size ? Status::kOk : Status::kCorruptTile;
}

// The interleaved states of a tile and the words that refill them.
class RansLanes {
 public:
  // Returns false if a state is too small.
  L3_HOST_DEVICE bool Init(const uint8_t* payload, uint32_t size, const RansBody& body) {
    payload_ = payload;
    size_ = size;
    pos_ = body.words_offset;
    lanes_ = (body.words_offset - body.states_offset) / 4;
    for (uint32_t lane = 0; lane < lanes_; ++lane) {
      state_[lane] = ReadOnce(LoadU32(payload + body.states_offset + 4 * lane));
      if (state_[lane] < kRansStateBegin) return false;
    }
    return true;
  }

  L3_HOST_DEVICE uint32_t lanes() const { return lanes_; }
  // Where the words end, once all samples are decoded.
  L3_HOST_DEVICE uint32_t pos() const { return pos_; }

  // Takes a token from a lane's state. Returns its slot.
  L3_HOST_DEVICE uint32_t ReadSlot(uint32_t lane, const uint32_t* table) {
    const uint32_t slot = table[state_[lane] & (kRansScale - 1)];
    state_[lane] = (slot >> 21) * (state_[lane] >> kRansScaleBits) + (slot & (kRansScale - 1));
    return slot;
  }
  L3_HOST_DEVICE uint32_t ReadRaw(uint32_t lane, uint32_t bits) {
    const uint32_t raw = state_[lane] & ((1u << bits) - 1);
    state_[lane] >>= bits;
    return raw;
  }
  // Returns false if there is no word left.
  L3_HOST_DEVICE bool Refill(uint32_t lane) {
    if (state_[lane] >= kRansStateBegin) return true;
    if (size_ - pos_ < 2) return false;
    state_[lane] = state_[lane] << 16 | LoadU16(payload_ + pos_);
    pos_ += 2;
    return true;
  }

  // Every lane must end in the state that encoders begin with.
  L3_HOST_DEVICE bool AtEnd() const {
    for (uint32_t lane = 0; lane < lanes_; ++lane) {
      if (state_[lane] != kRansStateBegin) return false;
    }
    return true;
  }

 private:
  const uint8_t* payload_;
  uint32_t size_;
  uint32_t pos_;
  uint32_t lanes_;
  uint32_t state_[kRansLanes];
};

// Neighbours of a sample in its own channel.
struct RansNeighbors {
  int32_t ne, n, nw, w, nn, ww, nne, nww;
};

// |W - NW| + |N - NW| + |N - NE|, as magnitudes are.
L3_HOST_DEVICE inline uint32_t RansGradient(const RansNeighbors& at) {
  const auto distance = [](int32_t a, int32_t b) { return a < b ? b - a : a - b; };
  const uint32_t sum =
      static_cast<uint32_t>(distance(at.w, at.nw) + distance(at.n, at.nw) + distance(at.n, at.ne));
  return sum < kMaxRansMagnitude ? sum : kMaxRansMagnitude;
}

// W + N - NW, kept between W and N.
L3_HOST_DEVICE inline int32_t PredictGradient(int32_t w, int32_t n, int32_t nw) {
  const int32_t low = w < n ? w : n;
  const int32_t high = w < n ? n : w;
  const int32_t sum = w + n - nw;
  return sum < low ? low : sum < high ? sum : high;
}

// The rows of one channel that lanes still need, with what lies around them
// (format.md 5.4, Neighbours).
struct RansPlane {
  static constexpr uint32_t kRows = 64;  // a power of two, at least kRansLanes + 2
  uint16_t value[kRows][kMaxPackedTileSide];
  uint16_t energy[kRows][kMaxPackedTileSide];
  uint16_t base;
  int32_t width;

  template <typename T>
  int32_t At(const T (&rows)[kRows][kMaxPackedTileSide], int32_t x, int32_t y,
             int32_t outside) const {
    if (x >= width) x = width - 1;
    for (; y < 0; ++y) x -= 2;
    if (x < 0 && y == 0) return outside;
    if (x < 0) return At(rows, 0, y - 1, outside);
    return rows[static_cast<uint32_t>(y) % kRows][x];
  }
  int32_t Value(int32_t x, int32_t y) const { return At(value, x, y, base); }
  uint32_t Energy(int32_t x, int32_t y) const { return static_cast<uint32_t>(At(energy, x, y, 0)); }
  RansNeighbors NeighborsOf(int32_t x, int32_t y) const {
    return {Value(x + 1, y - 1), Value(x, y - 1), Value(x - 1, y - 1), Value(x - 1, y),
            Value(x, y - 2),     Value(x - 2, y), Value(x + 1, y - 2), Value(x - 2, y - 1)};
  }
};

// One pixel of one lane, while its channels are decoded.
struct RansPixel {
  RansNeighbors around[kMaxChannels];  // in coding order
  int32_t value[kMaxChannels];
  uint32_t magnitude[kMaxChannels];
  uint32_t mixed_energy;  // of the current channel
  uint32_t level;
  RansToken token;
};

L3_HOST_DEVICE inline uint32_t RansActivity(RansRole role, const RansPixel& pixel,
                                            uint32_t position, uint32_t gradient_weight) {
  switch (role) {
    case RansRole::kFirst:
      return pixel.mixed_energy + gradient_weight * RansGradient(pixel.around[position]);
    case RansRole::kSecond: return pixel.mixed_energy + 4 * pixel.magnitude[0];
    default: return pixel.mixed_energy + 4 * pixel.magnitude[0] + 8 * pixel.magnitude[1];
  }
}

// `coefficients` are those of the channel in the sample's set; null for the
// gradient predictor.
L3_HOST_DEVICE inline int32_t PredictRans(RansRole role, const RansPixel& pixel, uint32_t position,
                                          const int8_t* coefficients, int32_t max_value) {
  const RansNeighbors& own = pixel.around[position];
  const RansNeighbors& first = pixel.around[0];
  const RansNeighbors& second = pixel.around[1];
  int32_t prediction;
  if (coefficients == nullptr) {
    if (role == RansRole::kFirst) return PredictGradient(own.w, own.n, own.nw);
    prediction =
        pixel.value[0] + PredictGradient(own.w - first.w, own.n - first.n, own.nw - first.nw);
  } else {
    int32_t taps[kMaxRansTaps] = {own.ne,  own.n,   own.nw,   own.w,   own.nn,   own.ww,
                                  own.nne, own.nww, first.ne, first.n, first.nw, first.w};
    if (role == RansRole::kSecond) taps[7] = pixel.value[0];
    if (role == RansRole::kThird) {
      taps[6] = pixel.value[0];
      taps[7] = pixel.value[1];
      taps[12] = second.ne;
      taps[13] = second.n;
      taps[14] = second.nw;
      taps[15] = second.w;
    }
    int32_t sum = 32;
    for (uint32_t i = 0; i < RansTapCount(role); ++i) sum += coefficients[i] * taps[i];
    prediction = sum >> 6;
  }
  return prediction < 0 ? 0 : prediction > max_value ? max_value : prediction;
}

// Decodes the samples of a rans payload. Calls store(x, y, values), with the
// values in coding order, once for each pixel; it returns false to refuse them.
template <typename Store>
Status DecodeRansPixels(const uint8_t* payload, uint32_t size, uint32_t channels,
                        uint32_t used_bits, const RansTables& tables, uint32_t width,
                        uint32_t height, uint32_t* end, const Store& store) {
  RansBody body;
  Status status = ParseRansBody(payload, size, channels, used_bits, width, height, &body);
  if (status != Status::kOk) return status;
  RansLanes lanes;
  if (!lanes.Init(payload, size, body)) return Status::kCorruptTile;

  const int32_t max_value = (1 << used_bits) - 1;
  const bool long_raw = used_bits > 8;
  RansPlane planes[kMaxChannels];
  for (uint32_t p = 0; p < channels; ++p) {
    planes[p].base = body.base[p];
    planes[p].width = static_cast<int32_t>(width);
  }
  RansPixel pixels[kRansLanes];

  const RansSchedule schedule = GetRansSchedule(width, height);
  for (uint32_t step = 0; step < schedule.steps; ++step) {
    uint32_t x_of[kRansLanes];
    uint32_t y_of[kRansLanes];  // height where the lane has no pixel in this step
    for (uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
      const uint32_t since = step - 2 * lane;
      x_of[lane] = since % schedule.period;
      y_of[lane] = since / schedule.period * schedule.lanes + lane;
      if (step < 2 * lane || x_of[lane] >= width || y_of[lane] >= height) y_of[lane] = height;
    }
    for (uint32_t p = 0; p < channels; ++p) {
      const RansRole role = GetRansRole(channels, p);
      for (uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
        if (y_of[lane] == height) continue;
        const int32_t x = static_cast<int32_t>(x_of[lane]);
        const int32_t y = static_cast<int32_t>(y_of[lane]);
        RansPixel& pixel = pixels[lane];
        pixel.around[p] = planes[p].NeighborsOf(x, y);
        pixel.mixed_energy =
            MixRansEnergy(planes[p].Energy(x - 1, y), planes[p].Energy(x + 1, y - 1));
        pixel.level = RansLevel(RansActivity(role, pixel, p, tables.model.gradient_weight));
        const uint32_t table = tables.model.table_of_level[p][pixel.level];
        pixel.token = TokenOfSlot(lanes.ReadSlot(lane, tables.slot[table]), used_bits);
        if (long_raw && !lanes.Refill(lane)) return Status::kCorruptTile;
      }
      for (uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
        if (y_of[lane] == height) continue;
        RansPixel& pixel = pixels[lane];
        const uint32_t folded = pixel.token.base + lanes.ReadRaw(lane, pixel.token.raw_bits);
        if (!lanes.Refill(lane)) return Status::kCorruptTile;

        const int8_t* coefficients = nullptr;
        if (body.sets[p] > 0) {
          uint32_t set = 0;
          while (set + 1 < body.sets[p] && pixel.level >= tables.model.set_begin[p][set]) ++set;
          coefficients = reinterpret_cast<const int8_t*>(payload) + body.coefficients_offset[p] +
                         set * RansTapCount(role);
        }
        const int32_t prediction = PredictRans(role, pixel, p, coefficients, max_value);
        pixel.value[p] = (prediction + UnfoldResidual(folded)) & max_value;
        pixel.magnitude[p] = RansMagnitude(folded);
        const uint32_t row = y_of[lane] % RansPlane::kRows;
        planes[p].value[row][x_of[lane]] = static_cast<uint16_t>(pixel.value[p]);
        planes[p].energy[row][x_of[lane]] =
            static_cast<uint16_t>(NextRansEnergy(pixel.mixed_energy, pixel.magnitude[p]));
      }
    }
    for (uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
      if (y_of[lane] != height && !store(x_of[lane], y_of[lane], pixels[lane].value)) {
        return Status::kCorruptTile;
      }
    }
  }
  *end = lanes.pos();
  return lanes.AtEnd() ? Status::kOk : Status::kCorruptTile;
}

}  // namespace l3
