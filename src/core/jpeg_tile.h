// The jpeg coding (format.md 5.6): from a payload to the coefficients of a tile. Layer: core; the
// scalar truth.
#pragma once

#include "core/bits.h"
#include "core/jpeg_layout.h"
#include "core/predictor.h"
#include "core/rans.h"
#include "core/tile.h"

namespace l3 {

// A model, ready to decode. The slots are those of RansTables: 10 bits number of the slot among
// those of its token, 11 bits token, 11 bits frequency.
struct JpegTables {
  JpegModel model;
  uint32_t slot[kMaxRansTables][kRansScale];
};

inline void BuildJpegTables(const JpegModel& model, JpegTables* tables) {
  tables->model = model;
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t* slot = tables->slot[t];
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      const uint32_t frequency = model.frequency[t][token];
      for (uint32_t i = 0; i < frequency; ++i) *slot++ = i | token << 10 | frequency << 21;
    }
  }
}

// The most blocks of a tile in a row or a column, and in one class.
constexpr uint32_t kMaxJpegBlocksOfSide = kMaxPackedTileSide / 8;
constexpr uint32_t kMaxJpegBlocks = kMaxJpegBlocksOfSide * kMaxJpegBlocksOfSide;

// Blocks of a class: components `begin` to `end`, one after the other.
struct JpegClass {
  uint32_t begin, end;
};
L3_HOST_DEVICE inline JpegClass GetJpegClass(const JpegInfo& jpeg, uint32_t number) {
  return number == 0 ? JpegClass{0, 1} : JpegClass{1, jpeg.components};
}

// Parts of one jpeg payload.
struct JpegBody {
  JpegBlockRect blocks[kMaxJpegComponents];
  uint32_t sign_count;
  uint32_t predictors_offset;
  uint32_t signs_offset;
  uint32_t states_offset;
  uint32_t words_offset;
};

// Lanes that have a block of some class: as many as a payload has states.
L3_HOST_DEVICE inline uint32_t JpegLaneCount(const JpegInfo& jpeg, const JpegBlockRect* blocks) {
  const auto area = [](const JpegBlockRect& rect) { return rect.width * rect.height; };
  const uint32_t luma = area(blocks[0]);
  const uint32_t chroma = jpeg.components > 1 ? area(blocks[1]) + area(blocks[2]) : 0;
  const uint32_t most = luma > chroma ? luma : chroma;
  return most < kRansLanes ? most : kRansLanes;
}

// Validates the header of a payload and places the parts of its body. `size` is at least 16.
L3_HOST_DEVICE inline Status ParseJpegBody(const ImageInfo& info, const JpegInfo& jpeg,
                                           uint32_t tile, const uint8_t* payload, uint32_t size,
                                           JpegBody* body) {
  *body = JpegBody{};
  const uint32_t coding = ReadOnce(payload[4]);
  const uint32_t transform = ReadOnce(payload[5]);
  if (coding > kJpegTileCoding ||
      transform > static_cast<uint32_t>(ColorTransform::kSubtractGreen)) {
    return Status::kUnsupportedFeature;
  }
  if (LoadU16(payload + 6) != 0 || transform != 0 || coding != kJpegTileCoding) {
    return Status::kCorruptTile;
  }
  uint32_t rows = 0;
  for (uint32_t c = 0; c < jpeg.components; ++c) {
    body->blocks[c] = JpegBlocksOfTile(info, jpeg, tile, c);
    rows += body->blocks[c].height;
  }
  body->sign_count = ReadOnce(LoadU32(payload + kTileHeaderBytes));
  body->predictors_offset = kTileHeaderBytes + 4;
  body->signs_offset = body->predictors_offset + (rows + 1) / 2;
  const uint32_t states_bytes = 4 * JpegLaneCount(jpeg, body->blocks);
  const uint64_t states_offset = body->signs_offset + (uint64_t{body->sign_count} + 7) / 8;
  if (states_offset + states_bytes > size) return Status::kCorruptTile;
  body->states_offset = static_cast<uint32_t>(states_offset);
  body->words_offset = body->states_offset + states_bytes;
  return Status::kOk;
}

// Tokens of the last coefficient's number.
constexpr uint32_t kJpegLastDirect = 12;
constexpr uint32_t kJpegLastTokens = 25;
L3_HOST_DEVICE constexpr RansToken GetJpegLastToken(uint32_t token) {
  if (token < kJpegLastDirect) return {token, 0};
  return {4 * token - 3 * kJpegLastDirect, 2};
}
L3_HOST_DEVICE constexpr uint32_t JpegLastTokenOf(uint32_t last) {
  return last < kJpegLastDirect ? last : (last + 3 * kJpegLastDirect) / 4;
}

// Numbers of the row of blocks above. A block outside the tile is like the next one inside.
template <typename T>
struct JpegRowAbove {
  const T* row;
  int32_t width;

  int32_t At(int32_t x) const {
    return static_cast<int32_t>(row[x < 0 ? 0 : x < width ? x : width - 1]);
  }
  // Of the block above and those next to it.
  uint32_t Weighted(int32_t x) const {
    return static_cast<uint32_t>(2 * At(x) + At(x - 1) + At(x + 1));
  }
};

// The context of a block's last number. `above` is that of the row above, weighted; `other` that of
// the component before.
L3_HOST_DEVICE inline uint32_t JpegLastContext(uint32_t component, bool is_first_row,
                                               uint32_t above, uint32_t other) {
  if (component == 0) return is_first_row ? kJpegLastContexts - 1 : above / 4;
  if (component == 1) return (is_first_row ? other / 2 : (3 * above + other) >> 2) / 4;
  return (is_first_row ? other : (above + other) >> 1) / 4;
}

// The context of a block's DC residual. `activity` is of the row above.
L3_HOST_DEVICE inline uint32_t JpegDcContext(bool is_first_row, uint32_t activity) {
  if (is_first_row) return kJpegDcContexts - 1;
  const uint32_t bits = BitLength(activity >> 1);
  return bits < kJpegDcContexts - 2 ? bits : kJpegDcContexts - 2;
}

// The level of a coefficient by the sum of the magnitudes around it.
L3_HOST_DEVICE constexpr uint32_t JpegLevel(uint32_t sum) {
  constexpr uint8_t kLow[16] = {0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8, 8, 9, 9, 9};
  constexpr uint8_t kHigh[10] = {0, 10, 11, 12, 12, 13, 13, 13, 13, 14};
  return sum < 16 ? kLow[sum] : kHigh[sum / 16 < 9 ? sum / 16 : 9];
}

// The magnitudes around coefficient k (zigzag) of a block in natural order, of which those before k
// are 0.
inline uint32_t JpegSurroundings(const int16_t* block, uint32_t k) {
  const uint32_t v = kJpegNaturalOrder[k] / 8;
  const uint32_t u = kJpegNaturalOrder[k] % 8;
  const auto at = [&](uint32_t down, uint32_t right) {
    if (v + down > 7 || u + right > 7) return 0u;  // -1 is below 0 as well
    const int32_t value = block[8 * (v + down) + u + right];
    return static_cast<uint32_t>(value < 0 ? -value : value);
  };
  return 2 * (at(0, 1) + at(1, 0)) + at(1, 1) + at(0, 2) + at(2, 0) + at(1, ~0u) + at(~0u, 1);
}

// The parts of a payload that are read in turn.
class JpegSymbols {
 public:
  JpegSymbols(const JpegTables& tables, const uint8_t* payload, const JpegBody& body)
      : tables_(tables), signs_(payload + body.signs_offset), sign_count_(body.sign_count) {}

  bool Init(const uint8_t* payload, uint32_t size, const JpegBody& body) {
    RansBody states{};
    states.states_offset = body.states_offset;
    states.words_offset = body.words_offset;
    return lanes_.Init(payload, size, states);
  }
  // The next number of each lane in [0, count): first all tokens, then all raw bits. Returns false
  // if the payload breaks a rule.
  template <typename Table, typename MakeToken, typename Store>
  bool Read(uint32_t count, const Table& table, const MakeToken& make_token, const Store& store) {
    RansToken token[kRansLanes];
    for (uint32_t lane = 0; lane < count; ++lane) {
      const uint32_t slot = lanes_.ReadSlot(lane, tables_.slot[table(lane)]);
      if (!make_token(slot >> 10 & 0x7FF, &token[lane]) || !lanes_.Refill(lane)) return false;
    }
    for (uint32_t lane = 0; lane < count; ++lane) {
      const uint32_t raw = lanes_.ReadRaw(lane, token[lane].raw_bits);
      if (!lanes_.Refill(lane) || !store(lane, token[lane].base + raw)) return false;
    }
    return true;
  }
  // Whether a number is negative that is not 0. Returns false if there is no sign left.
  bool ReadSign(bool* is_negative) {
    if (signs_read_ == sign_count_) return false;
    *is_negative = ReadBit(signs_, signs_read_++) != 0;
    return true;
  }
  bool AtEnd() const { return lanes_.AtEnd() && signs_read_ == sign_count_; }
  uint32_t pos() const { return lanes_.pos(); }

 private:
  const JpegTables& tables_;
  RansLanes lanes_;
  const uint8_t* signs_;
  uint32_t sign_count_;
  uint32_t signs_read_ = 0;
};

inline bool LastToken(uint32_t number, RansToken* token) {
  *token = GetJpegLastToken(number);
  return number < kJpegLastTokens;
}
inline bool MagnitudeToken(uint32_t number, RansToken* token) {
  *token = GetRansToken(number);
  return true;
}

// Decodes the number of the last coefficient and DC of all blocks, row by row.
inline bool DecodeJpegHeads(const JpegInfo& jpeg, const JpegTables& tables, const JpegBody& body,
                            const uint8_t* payload, JpegSymbols* symbols,
                            const JpegBlocks<int16_t>& output, uint8_t (*last)[kMaxJpegBlocks]) {
  uint32_t row_number = 0;
  for (uint32_t c = 0; c < jpeg.components; ++c) {
    const uint32_t width = body.blocks[c].width;
    const int32_t quantizer = jpeg.quantizers[c][0];
    uint16_t magnitude[2][kMaxJpegBlocksOfSide] = {};
    int16_t dc[2][kMaxJpegBlocksOfSide] = {};
    for (uint32_t y = 0; y < body.blocks[c].height; ++y, ++row_number) {
      const uint32_t predictor = ReadOnce(ReadCode4(payload + body.predictors_offset, row_number));
      if (predictor >= kNumPredictors) return false;
      const bool is_first = y == 0;
      const int32_t end = static_cast<int32_t>(width);
      uint8_t* const last_row = last[c] + y * width;
      const JpegRowAbove<uint8_t> lasts{is_first ? last_row : last_row - width, end};
      const auto last_table = [&](uint32_t x) {
        const uint32_t above = is_first ? 0 : (lasts.Weighted(static_cast<int32_t>(x)) + 2) >> 2;
        uint32_t other = 0;
        if (c == 1) {
          other = last[0][(y << jpeg.chroma_y_shift) * body.blocks[0].width +
                          (x << jpeg.chroma_x_shift)];
        }
        if (c == 2) other = last[1][y * width + x];
        return tables.model.last[c][JpegLastContext(c, is_first, above, other)];
      };
      const auto store_last = [&](uint32_t x, uint32_t number) {
        last_row[x] = static_cast<uint8_t>(number);
        return true;
      };
      if (!symbols->Read(width, last_table, LastToken, store_last)) return false;

      const JpegRowAbove<uint16_t> magnitudes{magnitude[~y & 1], end};
      const JpegRowAbove<int16_t> above{dc[~y & 1], end};
      const auto dc_table = [&](uint32_t lane) {
        const int32_t x = static_cast<int32_t>(lane);
        const auto distance = [&](int32_t dx) {
          const int32_t difference = above.At(x) - above.At(x + dx);
          return static_cast<uint32_t>(difference < 0 ? -difference : difference);
        };
        const uint32_t activity = magnitudes.Weighted(x) + distance(-1) + distance(1);
        return tables.model.dc[c > 0][JpegDcContext(is_first, activity)];
      };
      const auto store_dc = [&](uint32_t lane, uint32_t number) {
        const int32_t x = static_cast<int32_t>(lane);
        bool is_negative = false;
        if (number != 0 && !symbols->ReadSign(&is_negative)) return false;
        magnitude[y & 1][x] =
            static_cast<uint16_t>(number < kMaxRansMagnitude ? number : kMaxRansMagnitude);
        const PredictorTaps taps = GetPredictorTaps(predictor);
        const int32_t west = x > 0 ? dc[y & 1][x - 1] : above.At(0);
        const int32_t prediction =
            (taps.adds_west ? west : 0) +
            PredictFromAbove(taps, above.At(x - 1), above.At(x), above.At(x + 1));
        const int32_t residual = static_cast<int32_t>(number);
        const int32_t value =
            static_cast<int16_t>(prediction + (is_negative ? -residual : residual));
        const int32_t size = value < 0 ? -value : value;
        if (size > kMaxJpegDc || size * quantizer > kMaxJpegProduct) return false;
        dc[y & 1][x] = static_cast<int16_t>(value);
        int16_t* const block = output.At(c, lane, y);
        for (uint32_t i = 0; i < kJpegBlockSamples; ++i) block[i] = 0;
        block[0] = static_cast<int16_t>(value);
        return true;
      };
      if (!symbols->Read(width, dc_table, MagnitudeToken, store_dc)) return false;
    }
  }
  return true;
}

// Decodes the other coefficients of a class: blocks in the order of their last ones, 32 at a time.
inline bool DecodeJpegClass(const JpegInfo& jpeg, const JpegTables& tables, const JpegBody& body,
                            uint32_t number, JpegSymbols* symbols,
                            const JpegBlocks<int16_t>& output,
                            const uint8_t (*last)[kMaxJpegBlocks]) {
  struct Block {
    int16_t* coefficients;
    const uint16_t* quantizers;
    uint32_t last;
  };
  Block blocks[kRansLanes] = {};
  uint32_t count = 0;
  const auto run = [&] {
    for (uint32_t k = count > 0 ? blocks[0].last : 0; k > 0; --k) {
      uint32_t active = 0;
      while (active < count && blocks[active].last >= k) ++active;
      const bool is_sound = symbols->Read(
          active,
          [&](uint32_t lane) {
            const Block& block = blocks[lane];
            const uint32_t level = block.last == k
                                       ? kJpegLevels - 1
                                       : JpegLevel(JpegSurroundings(block.coefficients, k));
            return tables.model.ac[number][k][level];
          },
          MagnitudeToken,
          [&](uint32_t lane, uint32_t magnitude) {
            const Block& block = blocks[lane];
            const uint32_t place = kJpegNaturalOrder[k];
            magnitude += block.last == k ? 1 : 0;
            bool is_negative = false;
            if (magnitude != 0 && !symbols->ReadSign(&is_negative)) return false;
            if (magnitude * uint64_t{block.quantizers[place]} > kMaxJpegProduct) return false;
            block.coefficients[place] = static_cast<int16_t>(
                is_negative ? -static_cast<int32_t>(magnitude) : static_cast<int32_t>(magnitude));
            return true;
          });
      if (!is_sound) return false;
    }
    count = 0;
    return true;
  };
  const JpegClass components = GetJpegClass(jpeg, number);
  for (uint32_t k = kJpegBlockSamples - 1; k > 0; --k) {
    for (uint32_t c = components.begin; c < components.end; ++c) {
      const uint32_t width = body.blocks[c].width;
      for (uint32_t i = 0; i < width * body.blocks[c].height; ++i) {
        if (last[c][i] != k) continue;
        blocks[count++] = {output.At(c, i % width, i / width), jpeg.quantizers[c], k};
        if (count == kRansLanes && !run()) return false;
      }
    }
  }
  return run();
}

// Decodes the coefficients of tile `tile` from its payload of `size` bytes, all rules of the tile
// included. `output` is the tile's own: block (0, 0) is the first of the tile. On an error it holds
// unspecified numbers.
inline Status DecodeJpegTile(const ImageInfo& info, const JpegInfo& jpeg, const JpegTables& tables,
                             uint32_t tile, const uint8_t* payload, uint32_t size,
                             const JpegBlocks<int16_t>& output) {
  if (PayloadCheck(payload, size) != LoadU32(payload)) return Status::kChecksumMismatch;
  JpegBody body;
  const Status status = ParseJpegBody(info, jpeg, tile, payload, size, &body);
  if (status != Status::kOk) return status;
  JpegSymbols symbols(tables, payload, body);
  uint8_t last[kMaxJpegComponents][kMaxJpegBlocks];
  bool is_sound = symbols.Init(payload, size, body) &&
                  DecodeJpegHeads(jpeg, tables, body, payload, &symbols, output, last);
  for (uint32_t i = 0; i < kJpegClasses && is_sound; ++i) {
    is_sound = DecodeJpegClass(jpeg, tables, body, i, &symbols, output, last);
  }
  if (!is_sound || !symbols.AtEnd()) return Status::kCorruptTile;
  return CheckBodyEnd({payload, size, TileCoding::kConstant, ColorTransform::kNone}, symbols.pos());
}

}  // namespace l3
