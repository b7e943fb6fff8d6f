#include "encoder/jpeg_symbols.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "core/jpeg_tile.h"
#include "encoder/fixed_log.h"

namespace l3 {
namespace {

// About what residuals of DC cost.
struct ResidualCosts {
  uint32_t of[256];
};
ResidualCosts MakeResidualCosts() {
  ResidualCosts costs;
  for (uint32_t size = 0; size < 256; ++size) costs.of[size] = FixedLog2(3 + 2 * size);
  return costs;
}
const ResidualCosts kResidualCosts = MakeResidualCosts();
inline uint32_t CostOfResidual(uint32_t size) {
  return size < 256 ? kResidualCosts.of[size] : FixedLog2(3 + 2 * size);
}

// Finds the symbols of one tile.
class SymbolFinder {
 public:
  SymbolFinder(const ImageInfo& info, const JpegImage& image, uint32_t tile, JpegTileSymbols* out)
      : jpeg_(image.info), image_(image.blocks), out_(*out) {
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      blocks_[c] = JpegBlocksOfTile(info, jpeg_, tile, c);
    }
    out_.lanes = JpegLaneCount(jpeg_, blocks_);
  }

  bool Find() {
    uint32_t rows = 0;
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      if (!FindLast(c)) return false;
      rows += blocks_[c].height;
    }
    out_.steps = 2 * rows;
    for (uint32_t i = 0; i < kJpegClasses; ++i) {
      Sort(i);
      for (const JpegBlockGroup& group : groups_[i]) {
        out_.steps += static_cast<uint32_t>(group.last[0]);
      }
    }
    const size_t count = size_t{kRansLanes} * out_.steps;
    out_.numbers.reset(new uint16_t[count]);
    out_.contexts.reset(new uint16_t[count]);
    std::fill_n(out_.numbers.get(), 2 * rows * kRansLanes, uint16_t{0});
    std::fill_n(out_.contexts.get(), 2 * rows * kRansLanes,
                static_cast<uint16_t>(kJpegIdleContext));
    out_.signs.resize(count / 8 + 8);
    output_ = {out_.numbers.get(), out_.contexts.get(), out_.signs.data(), 0, 0};
    for (uint32_t c = 0; c < jpeg_.components; ++c) AddHeads(c);
    for (const std::vector<JpegBlockGroup>& groups : groups_) {
      for (const JpegBlockGroup& group : groups) {
        GetRansKernels().find_jpeg_symbols(group, &output_);
      }
    }
    StoreU32(output_.signs, static_cast<uint32_t>(output_.bits));
    out_.sign_count =
        8 * static_cast<uint32_t>(output_.signs - out_.signs.data()) + output_.bit_count;
    return true;
  }

 private:
  const int16_t* Block(uint32_t c, uint32_t x, uint32_t y) const {
    return image_.At(c, blocks_[c].x + x, blocks_[c].y + y);
  }

  // Validates the coefficients of a component, and finds the last one of each block.
  bool FindLast(uint32_t c) {
    int16_t limits[kJpegBlockSamples];
    for (uint32_t k = 0; k < kJpegBlockSamples; ++k) {
      const int32_t most = kMaxJpegProduct / jpeg_.quantizers[c][kJpegNaturalOrder[k]];
      limits[k] = static_cast<int16_t>(k == 0 ? std::min(most, kMaxJpegDc) : most);
    }
    int16_t over = 0;  // negative if one is
    for (uint32_t y = 0; y < blocks_[c].height; ++y) {
      for (uint32_t x = 0; x < blocks_[c].width; ++x) {
        const int16_t* block = Block(c, x, y);
        for (uint32_t k = 0; k < kJpegBlockSamples; ++k) {
          over = static_cast<int16_t>(over | (block[k] > limits[k] ? -1 : 0) |
                                      (block[k] < -limits[k] ? -1 : 0));
        }
        last_[c][y * blocks_[c].width + x] =
            static_cast<uint8_t>(63 - __builtin_clzll(FindNonzero(block) | 1));
      }
    }
    return over == 0;
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
        output_.number[x] = row[x];
        output_.context[x] = static_cast<uint16_t>(kJpegFirstLastContext + c * kJpegLastContexts +
                                                   JpegLastContext(c, is_first, above, other));
      }
      output_.number += kRansLanes;
      output_.context += kRansLanes;

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
        output_.number[x] = static_cast<uint16_t>(number);
        output_.context[x] =
            static_cast<uint16_t>(kJpegFirstDcContext + (c > 0 ? kJpegDcContexts : 0) +
                                  JpegDcContext(is_first, activity));
        output_.bits |= uint64_t{residual[x] < 0} << output_.bit_count;
        output_.bit_count += residual[x] != 0 ? 1 : 0;
      }
      output_.number += kRansLanes;
      output_.context += kRansLanes;
      output_.WriteSigns();
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
        cost += CostOfResidual(static_cast<uint32_t>(std::abs(found[x])));
      }
      if (cost >= best_cost) continue;
      best = p;
      best_cost = cost;
      std::copy_n(found, above.width, residual);
    }
    return best;
  }

  // Sorts the blocks of a class that have other coefficients, the largest last number first.
  void Sort(uint32_t number) {
    static constexpr int16_t kZeros[kJpegBlockSamples] = {};
    const JpegClass components = GetJpegClass(jpeg_, number);
    std::array<uint32_t, kJpegBlockSamples> begin{};
    for (uint32_t c = components.begin; c < components.end; ++c) {
      const uint32_t blocks = blocks_[c].width * blocks_[c].height;
      for (uint32_t i = 0; i < blocks; ++i) ++begin[last_[c][i]];
    }
    uint32_t count = 0;
    for (uint32_t k = kJpegBlockSamples - 1; k > 0; --k) {
      const uint32_t of_k = begin[k];
      begin[k] = count;
      count += of_k;
    }
    JpegBlockGroup empty = {};
    std::fill_n(empty.block, kRansLanes, kZeros);
    empty.first_context = number * kJpegBlockSamples * kJpegLevels;
    empty.idle_context = kJpegIdleContext;
    groups_[number].assign(CeilDiv(count, kRansLanes), empty);
    for (uint32_t c = components.begin; c < components.end; ++c) {
      const uint32_t width = blocks_[c].width;
      for (uint32_t i = 0; i < width * blocks_[c].height; ++i) {
        if (last_[c][i] == 0) continue;
        const uint32_t place = begin[last_[c][i]]++;
        JpegBlockGroup& group = groups_[number][place / kRansLanes];
        group.block[place % kRansLanes] = Block(c, i % width, i / width);
        group.last[place % kRansLanes] = last_[c][i];
      }
    }
  }

  const JpegInfo& jpeg_;
  const JpegBlocks<int16_t>& image_;
  JpegTileSymbols& out_;
  JpegSymbolOutput output_;
  JpegBlockRect blocks_[kMaxJpegComponents] = {};
  std::vector<JpegBlockGroup> groups_[kJpegClasses];
  uint8_t last_[kMaxJpegComponents][kMaxJpegBlocks];
};

// Puts last numbers into the states of lanes, as RansKernels::encode does other numbers.
uint8_t* EncodeLastNumbers(const RansChannelSymbols& symbols, const uint16_t* number,
                           const uint8_t* table, uint32_t* state, uint8_t* end) {
  const auto drop = [&](uint32_t lane, uint64_t limit) {
    if (state[lane] < limit) return;
    end -= 2;
    StoreU16(end, state[lane]);
    state[lane] >>= 16;
  };
  for (uint32_t lane = kRansLanes; lane-- > 0;) {
    if (number[lane] < kJpegLastDirect) continue;
    drop(lane, 1u << 30);
    state[lane] = state[lane] << 2 | number[lane] % 4;
  }
  for (uint32_t lane = kRansLanes; lane-- > 0;) {
    const uint32_t entry = symbols.entry[table[lane] * kRansTokens + JpegLastTokenOf(number[lane])];
    const uint32_t frequency = entry & 0xFFFF;
    drop(lane, uint64_t{frequency} << (32 - kRansScaleBits));
    state[lane] =
        (state[lane] / frequency << kRansScaleBits) + state[lane] % frequency + (entry >> 16);
  }
  return end;
}

}  // namespace

void JpegCounts::Add(const JpegCounts& other) {
  for (uint32_t i = 0; i < kJpegContexts; ++i) {
    for (uint32_t t = 0; t < kRansTokens; ++t) at[i][t] += other.at[i][t];
  }
}

bool FindJpegSymbols(const ImageInfo& info, const JpegImage& image, uint32_t tile,
                     JpegTileSymbols* symbols, JpegCounts* counts) {
  if (!SymbolFinder(info, image, tile, symbols).Find()) return false;
  const size_t end_of_heads = 2 * symbols->predictors.size();
  for (size_t step = 0; step < symbols->steps; ++step) {
    const uint16_t* number = symbols->numbers.get() + step * kRansLanes;
    const uint16_t* context = symbols->contexts.get() + step * kRansLanes;
    const bool is_last = step < end_of_heads && step % 2 == 0;
    for (uint32_t lane = 0; lane < kRansLanes; ++lane) {
      const uint32_t token = is_last ? JpegLastTokenOf(number[lane]) : RansTokenOf(number[lane]);
      ++counts->at[context[lane]][token];
    }
  }
  return true;
}

JpegPayloadWriter::JpegPayloadWriter(const JpegModel& model) {
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t begin = 0;
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      const uint32_t frequency = model.frequency[t][token];
      symbols_.entry[t * kRansTokens + token] = frequency | begin << 16;
      begin += frequency;
    }
  }
  symbols_.entry[kIdleLevel * kRansTokens] = kRansScale;
  std::memcpy(table_of_, model.ac, sizeof(model.ac));
  std::memcpy(table_of_ + kJpegFirstLastContext, model.last, sizeof(model.last));
  std::memcpy(table_of_ + kJpegFirstDcContext, model.dc, sizeof(model.dc));
  table_of_[kJpegIdleContext] = kIdleLevel;
}

void JpegPayloadWriter::Append(const JpegTileSymbols& tile, std::vector<uint8_t>* out) const {
  const size_t count = size_t{kRansLanes} * tile.steps;
  const std::unique_ptr<uint8_t[]> tables(new uint8_t[count]);
  for (size_t i = 0; i < count; ++i) tables[i] = table_of_[tile.contexts[i]];
  // Decoders undo the last number first. Each takes up to two words.
  const size_t word_bytes = 4 * count + kRansWordMargin;
  const std::unique_ptr<uint8_t[]> words(new uint8_t[word_bytes]);
  uint8_t* const words_end = words.get() + word_bytes;
  alignas(64) uint32_t state[kRansLanes];
  std::fill_n(state, kRansLanes, kRansStateBegin);
  const auto encode = [&](size_t begin, size_t end, uint8_t* pos) {
    return GetRansKernels().encode(&symbols_, 1, tile.numbers.get() + begin, tables.get() + begin,
                                   end - begin, /*long_raw=*/true, state, pos);
  };
  size_t step_at = 2 * kRansLanes * tile.predictors.size();
  uint8_t* pos = encode(step_at, count, words_end);
  while (step_at > 0) {
    step_at -= kRansLanes;
    pos = encode(step_at, step_at + kRansLanes, pos);
    step_at -= kRansLanes;
    pos = EncodeLastNumbers(symbols_, tile.numbers.get() + step_at, tables.get() + step_at, state,
                            pos);
  }

  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, kJpegTileCoding};
  const size_t predictors_at = out->size() + kTileHeaderBytes + 4;
  out->insert(out->end(), header, header + kTileHeaderBytes);
  out->resize(predictors_at + CeilDiv(tile.predictors.size(), 2));
  StoreU32(out->data() + predictors_at - 4, tile.sign_count);
  for (size_t i = 0; i < tile.predictors.size(); ++i) {
    uint8_t& pair = (*out)[predictors_at + i / 2];
    pair = static_cast<uint8_t>(pair | tile.predictors[i] << (i % 2 * 4));
  }
  const auto signs_end = static_cast<ptrdiff_t>(CeilDiv(tile.sign_count, 8));
  out->insert(out->end(), tile.signs.begin(), tile.signs.begin() + signs_end);
  const size_t states_at = out->size();
  out->resize(states_at + 4 * tile.lanes);
  for (uint32_t lane = 0; lane < tile.lanes; ++lane) {
    StoreU32(out->data() + states_at + 4 * lane, state[lane]);
  }
  out->insert(out->end(), pos, words_end);
}

}  // namespace l3
