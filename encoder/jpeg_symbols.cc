#include "encoder/jpeg_symbols.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/jpeg_tile.h"
#include "encoder/fixed_log.h"

namespace l3 {
namespace {

bool IsLastContext(uint32_t context) {
  return context >= kJpegFirstLastContext && context < kJpegFirstDcContext;
}

// The token and the raw bits of a symbol.
struct CodedSymbol {
  uint32_t token, raw, raw_bits;
};
inline CodedSymbol CodeSymbol(const JpegSymbol& symbol) {
  if (symbol.number < kJpegLastDirect) return {symbol.number, 0, 0};
  const bool is_last = IsLastContext(symbol.context);
  const uint32_t token = is_last ? JpegLastTokenOf(symbol.number) : RansTokenOf(symbol.number);
  const RansToken parts = is_last ? GetJpegLastToken(token) : GetRansToken(token);
  return {token, symbol.number - parts.base, parts.raw_bits};
}

// Of coefficients in natural order: their numbers in zigzag order. By those numbers: their places
// in rows of ten, with zeros around.
struct JpegPlaces {
  int16_t zigzag[kJpegBlockSamples];
  uint8_t padded[kJpegBlockSamples];
};
constexpr JpegPlaces MakeJpegPlaces() {
  JpegPlaces places{};
  for (uint32_t k = 0; k < kJpegBlockSamples; ++k) {
    const uint32_t natural = kJpegNaturalOrder[k];
    places.zigzag[natural] = static_cast<int16_t>(k);
    places.padded[k] = static_cast<uint8_t>(11 + natural / 8 * 10 + natural % 8);
  }
  return places;
}
constexpr JpegPlaces kPlaces = MakeJpegPlaces();

// JpegLevel() of sums up to the least that gives the highest level.
constexpr uint32_t kMostSum = 144;
struct JpegLevels {
  uint8_t of[kMostSum + 1];
};
constexpr JpegLevels MakeJpegLevels() {
  JpegLevels levels{};
  for (uint32_t sum = 0; sum <= kMostSum; ++sum) {
    levels.of[sum] = static_cast<uint8_t>(JpegLevel(sum));
  }
  return levels;
}
constexpr JpegLevels kLevels = MakeJpegLevels();

// Finds the symbols of one tile.
class SymbolFinder {
 public:
  SymbolFinder(const ImageInfo& info, const JpegInfo& jpeg, const JpegBlocks<const int16_t>& image,
               uint32_t tile, JpegTileSymbols* out)
      : jpeg_(jpeg), image_(image), out_(*out) {
    out_.symbols.clear();
    out_.steps.clear();
    out_.predictors.clear();
    for (uint32_t c = 0; c < jpeg.components; ++c) {
      blocks_[c] = JpegBlocksOfTile(info, jpeg, tile, c);
    }
    out_.lane_count = JpegLaneCount(jpeg, blocks_);
  }

  bool Find() {
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      if (!FindLast(c)) return false;
      AddHeads(c);
    }
    for (uint32_t i = 0; i < kJpegClasses; ++i) AddClass(i);
    return true;
  }

 private:
  const int16_t* Block(uint32_t c, uint32_t x, uint32_t y) const {
    return image_.At(c, blocks_[c].x + x, blocks_[c].y + y);
  }

  // Validates the coefficients of a component, and finds the last one of each block.
  bool FindLast(uint32_t c) {
    const uint16_t* quantizers = jpeg_.quantizers[c];
    int16_t limits[kJpegBlockSamples];
    for (uint32_t i = 0; i < kJpegBlockSamples; ++i) {
      limits[i] = static_cast<int16_t>(kMaxJpegProduct / quantizers[i]);
    }
    limits[0] = std::min(limits[0], static_cast<int16_t>(kMaxJpegDc));
    for (uint32_t y = 0; y < blocks_[c].height; ++y) {
      for (uint32_t x = 0; x < blocks_[c].width; ++x) {
        const int16_t* block = Block(c, x, y);
        int16_t over = 0;  // negative if one is
        int16_t last = 0;
        for (uint32_t i = 0; i < kJpegBlockSamples; ++i) {
          const int16_t number = block[i] != 0 ? kPlaces.zigzag[i] : int16_t{0};
          last = number > last ? number : last;
          over = static_cast<int16_t>(over | (block[i] > limits[i] ? -1 : 0) |
                                      (block[i] < -limits[i] ? -1 : 0));
        }
        if (over != 0) return false;
        last_[c][y * blocks_[c].width + x] = static_cast<uint8_t>(last);
      }
    }
    return true;
  }

  void Add(uint32_t context, uint32_t number, bool has_sign, bool is_negative) {
    out_.symbols.push_back({static_cast<uint16_t>(number), static_cast<uint16_t>(context & 0xFFF),
                            static_cast<uint16_t>(has_sign), static_cast<uint16_t>(is_negative)});
  }

  // Numbers of last coefficients and DC.
  void AddHeads(uint32_t c) {
    const uint32_t width = blocks_[c].width;
    const int32_t end = static_cast<int32_t>(width);
    uint16_t magnitude[2][kMaxJpegBlocksOfSide] = {};
    int16_t dc[2][kMaxJpegBlocksOfSide] = {};
    for (uint32_t y = 0; y < blocks_[c].height; ++y) {
      const bool is_first = y == 0;
      const uint8_t* row = last_[c] + y * width;
      const JpegRowAbove<uint8_t> lasts{is_first ? row : row - width, end};
      for (uint32_t x = 0; x < width; ++x) {
        const uint32_t above = is_first ? 0 : (lasts.Weighted(static_cast<int32_t>(x)) + 2) >> 2;
        uint32_t other = 0;
        if (c == 1) {
          other = last_[0][(y << jpeg_.chroma_y_shift) * blocks_[0].width +
                           (x << jpeg_.chroma_x_shift)];
        }
        if (c == 2) other = last_[1][y * width + x];
        Add(kJpegFirstLastContext + c * kJpegLastContexts +
                JpegLastContext(c, is_first, above, other),
            row[x], false, false);
      }
      out_.steps.push_back(static_cast<uint8_t>(width));

      const JpegRowAbove<uint16_t> magnitudes{magnitude[~y & 1], end};
      const JpegRowAbove<int16_t> above{dc[~y & 1], end};
      int16_t* const current = dc[y & 1];
      for (uint32_t x = 0; x < width; ++x) current[x] = Block(c, x, y)[0];
      int32_t residual[kMaxJpegBlocksOfSide];
      out_.predictors.push_back(static_cast<uint8_t>(Predict(above, current, is_first, residual)));
      for (uint32_t x = 0; x < width; ++x) {
        const int32_t at = static_cast<int32_t>(x);
        const uint32_t activity = magnitudes.Weighted(at) +
                                  static_cast<uint32_t>(std::abs(above.At(at) - above.At(at - 1)) +
                                                        std::abs(above.At(at) - above.At(at + 1)));
        const uint32_t number = static_cast<uint32_t>(std::abs(residual[x]));
        magnitude[y & 1][x] = static_cast<uint16_t>(std::min(number, kMaxRansMagnitude));
        Add(kJpegFirstDcContext + (c > 0 ? kJpegDcContexts : 0) + JpegDcContext(is_first, activity),
            number, number != 0, residual[x] < 0);
      }
      out_.steps.push_back(static_cast<uint8_t>(width));
    }
  }

  // Chooses the predictor of a row; writes its residuals.
  static uint32_t Predict(const JpegRowAbove<int16_t>& above, const int16_t* current, bool is_first,
                          int32_t* residual) {
    uint32_t best = 0;
    uint64_t best_cost = ~uint64_t{0};
    for (uint32_t p = 0; p < (is_first ? 1 : kNumPredictors); ++p) {
      const PredictorTaps taps = GetPredictorTaps(p);
      int32_t found[kMaxJpegBlocksOfSide];
      uint64_t cost = 0;
      for (int32_t x = 0; x < above.width; ++x) {
        const int32_t west = !taps.adds_west ? 0 : x > 0 ? current[x - 1] : above.At(0);
        found[x] = current[x] - west -
                   PredictFromAbove(taps, above.At(x - 1), above.At(x), above.At(x + 1));
        cost += FixedLog2(3 + 2 * static_cast<uint32_t>(std::abs(found[x])));
      }
      if (cost >= best_cost) continue;
      best = p;
      best_cost = cost;
      std::copy_n(found, above.width, residual);
    }
    return best;
  }

  // The other coefficients of a class.
  void AddClass(uint32_t number) {
    const JpegClass components = GetJpegClass(jpeg_, number);
    std::array<uint32_t, kJpegBlockSamples> begin{};  // by descending number of the last one
    uint32_t count = 0;
    for (uint32_t c = components.begin; c < components.end; ++c) {
      const uint32_t blocks = blocks_[c].width * blocks_[c].height;
      for (uint32_t i = 0; i < blocks; ++i) ++begin[last_[c][i]];
    }
    for (uint32_t k = kJpegBlockSamples - 1; k > 0; --k) {
      const uint32_t of_k = begin[k];
      begin[k] = count;
      count += of_k;
    }
    struct Place {
      const int16_t* block;
      uint32_t last;
    };
    std::vector<Place> order(count);
    for (uint32_t c = components.begin; c < components.end; ++c) {
      const uint32_t width = blocks_[c].width;
      for (uint32_t i = 0; i < width * blocks_[c].height; ++i) {
        const uint32_t last = last_[c][i];
        if (last > 0) order[begin[last]++] = {Block(c, i % width, i / width), last};
      }
    }
    for (uint32_t first = 0; first < count; first += kRansLanes) {
      const uint32_t lanes = std::min(count - first, kRansLanes);
      // Where the step of each k begins.
      uint32_t place[kJpegBlockSamples];
      uint32_t pos = static_cast<uint32_t>(out_.symbols.size());
      uint32_t active = 0;
      for (uint32_t k = order[first].last; k > 0; --k) {
        while (active < lanes && order[first + active].last >= k) ++active;
        place[k] = pos;
        pos += active;
        out_.steps.push_back(static_cast<uint8_t>(active));
      }
      out_.symbols.resize(pos);
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        AddBlock(number, order[first + lane].block, order[first + lane].last, lane, place);
      }
    }
  }

  void AddBlock(uint32_t number, const int16_t* block, uint32_t last, uint32_t lane,
                const uint32_t* place) {
    // Magnitudes with zeros around, 10 in a row.
    uint16_t padded[11 * 10 + 2] = {};
    for (uint32_t k = last; k > 0; --k) {
      uint16_t* at = padded + kPlaces.padded[k];
      const int32_t value = block[kJpegNaturalOrder[k]];
      const uint32_t magnitude = static_cast<uint32_t>(std::abs(value));
      const uint32_t sum = 2u * (at[1] + at[10]) + at[11] + at[2] + at[20] + at[9] + *(at - 9);
      const uint32_t level = k == last ? kJpegLevels - 1 : kLevels.of[std::min(sum, kMostSum)];
      *at = static_cast<uint16_t>(magnitude);
      out_.symbols[place[k] + lane] = {
          static_cast<uint16_t>(magnitude - (k == last ? 1 : 0)),
          static_cast<uint16_t>(((number * kJpegBlockSamples + k) * kJpegLevels + level) & 0xFFF),
          static_cast<uint16_t>(magnitude != 0), static_cast<uint16_t>(value < 0)};
    }
  }

  const JpegInfo& jpeg_;
  const JpegBlocks<const int16_t>& image_;
  JpegTileSymbols& out_;
  JpegBlockRect blocks_[kMaxJpegComponents] = {};
  uint8_t last_[kMaxJpegComponents][kMaxJpegBlocks];
};

}  // namespace

void JpegCounts::Add(const JpegCounts& other) {
  for (uint32_t i = 0; i < kJpegContexts; ++i) {
    for (uint32_t t = 0; t < kRansTokens; ++t) at[i][t] += other.at[i][t];
  }
}

bool FindJpegSymbols(const ImageInfo& info, const JpegInfo& jpeg,
                     const JpegBlocks<const int16_t>& image, uint32_t tile,
                     JpegTileSymbols* symbols, JpegCounts* counts) {
  if (!SymbolFinder(info, jpeg, image, tile, symbols).Find()) return false;
  for (const JpegSymbol& symbol : symbols->symbols) {
    ++counts->at[symbol.context][CodeSymbol(symbol).token];
  }
  return true;
}

JpegPayloadWriter::JpegPayloadWriter(const JpegModel& model) {
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t sum = 0;
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      const uint32_t frequency = model.frequency[t][token];
      slots_[t][token] = {frequency == 0 ? 0 : (uint64_t{1} << 32) / frequency, frequency, sum};
      sum += frequency;
    }
  }
  std::memcpy(table_of_, model.ac, sizeof(model.ac));
  std::memcpy(table_of_ + kJpegFirstLastContext, model.last, sizeof(model.last));
  std::memcpy(table_of_ + kJpegFirstDcContext, model.dc, sizeof(model.dc));
}

void JpegPayloadWriter::Append(const JpegTileSymbols& tile, std::vector<uint8_t>* out) const {
  // Decoders undo the last number first. Each takes up to two words.
  uint32_t state[kRansLanes];
  std::fill_n(state, kRansLanes, kRansStateBegin);
  const size_t most_words = 2 * tile.symbols.size();
  const std::unique_ptr<uint16_t[]> words(new uint16_t[most_words + 1]);
  uint16_t* next_word = words.get() + most_words;  // a word that is not taken lies here
  const auto take_words = [&next_word](uint32_t s, uint64_t limit) {
    *next_word = static_cast<uint16_t>(s);
    const uint32_t is_taken = s >= limit ? 1 : 0;
    next_word -= is_taken;
    return s >> (16 * is_taken);
  };
  const JpegSymbol* next = tile.symbols.data() + tile.symbols.size();
  for (size_t step = tile.steps.size(); step-- > 0;) {
    const uint32_t lanes = tile.steps[step];
    next -= lanes;
    CodedSymbol coded[kRansLanes];
    for (uint32_t lane = lanes; lane-- > 0;) {
      coded[lane] = CodeSymbol(next[lane]);
      if (coded[lane].raw_bits == 0) continue;
      const uint32_t s = take_words(state[lane], uint64_t{1} << (32 - coded[lane].raw_bits));
      state[lane] = s << coded[lane].raw_bits | coded[lane].raw;
    }
    for (uint32_t lane = lanes; lane-- > 0;) {
      const Slots& of = slots_[table_of_[next[lane].context]][coded[lane].token];
      const uint32_t s = take_words(state[lane], uint64_t{of.frequency} << (32 - kRansScaleBits));
      // s / frequency, or 1 less
      uint32_t quotient = static_cast<uint32_t>(s * of.inverse >> 32);
      uint32_t rest = s - quotient * of.frequency;
      const uint32_t is_less = rest >= of.frequency ? 1 : 0;
      quotient += is_less;
      rest -= is_less * of.frequency;
      state[lane] = (quotient << kRansScaleBits) + rest + of.begin;
    }
  }
  ++next_word;
  const size_t word_count = static_cast<size_t>(words.get() + most_words + 1 - next_word);

  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, kJpegTileCoding};
  out->insert(out->end(), header, header + kTileHeaderBytes);
  const size_t count_at = out->size();
  out->resize(count_at + 4);
  for (size_t i = 0; i < tile.predictors.size(); i += 2) {
    const uint32_t high = i + 1 < tile.predictors.size() ? tile.predictors[i + 1] : 0;
    out->push_back(static_cast<uint8_t>(tile.predictors[i] | high << 4));
  }
  uint32_t sign_count = 0;
  uint64_t bits = 0;
  uint32_t have = 0;
  const size_t signs_at = out->size();
  for (const JpegSymbol& symbol : tile.symbols) {
    bits |= uint64_t{symbol.is_negative} << have;
    have += symbol.has_sign;
    if (have < 32) continue;
    sign_count += 32;
    out->resize(out->size() + 4);
    StoreU32(out->data() + out->size() - 4, static_cast<uint32_t>(bits));
    bits >>= 32;
    have -= 32;
  }
  sign_count += have;
  for (; out->size() < signs_at + (sign_count + 7) / 8; bits >>= 8) {
    out->push_back(static_cast<uint8_t>(bits));
  }
  StoreU32(out->data() + count_at, sign_count);
  const size_t states_at = out->size();
  out->resize(states_at + 4 * tile.lane_count + 2 * word_count);
  uint8_t* p = out->data() + states_at;
  for (uint32_t lane = 0; lane < tile.lane_count; ++lane, p += 4) StoreU32(p, state[lane]);
  for (size_t i = 0; i < word_count; ++i) StoreU16(p + 2 * i, next_word[i]);
}

}  // namespace l3
