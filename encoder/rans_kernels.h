// The loops of the rans search that vectors speed up. Layer: encoder. Compiled
// for several instruction sets from rans_kernels.inc; all give the same result.
#pragma once

#include <cstdint>

#include "core/rans_model.h"
#include "format/constants.h"

namespace l3 {

// Rows are worked on in whole blocks: buffers must have room, and inputs
// something to read, up to the next multiple.
constexpr uint32_t kRansRowBlock = 32;

// Columns of the products below: unknowns, then the target.
constexpr uint32_t kMaxRansColumns = kMaxRansTaps;
// Rows of products that are added up at a time.
constexpr uint32_t kRansProductBlock = 512;
// Differences in columns lie within +-2^11, so that a block's sums fit 31 bits.
constexpr int32_t kMaxRansDifference = 255;

struct RansKernels {
  // prediction[x] = clamp((32 + sum of coefficient[i] * tap[i][x]) >> 6, 0, max_value)
  void (*predict)(const uint16_t* const* tap, const int8_t* coefficient, uint32_t taps,
                  uint32_t width, int32_t max_value, uint16_t* prediction);
  // The same for the gradient predictor: W, N, NW of the channel itself, then,
  // for other roles than kFirst, of the first channel, then that channel's own sample.
  void (*predict_gradient)(const uint16_t* const* tap, bool alone, uint32_t width,
                           int32_t max_value, uint16_t* prediction);
  // folded[x] = FoldResidual(value[x] - prediction[x]), and its magnitude
  void (*fold)(const uint16_t* value, const uint16_t* prediction, uint32_t width,
               uint32_t used_bits, uint16_t* folded, uint16_t* magnitude);
  // RansGradient of each place in a row, `above` being the row above.
  void (*gradients)(const uint16_t* row, const uint16_t* above, uint32_t width,
                    uint16_t* gradient);
  // level[x] = RansLevel(3 * west[x] + 2 * northeast[x] + weight_a * a[x] + weight_b * b[x])
  void (*levels)(const uint16_t* west, const uint16_t* northeast, const uint16_t* a,
                 uint32_t weight_a, const uint16_t* b, uint32_t weight_b, uint32_t width,
                 uint8_t* level);
  // selected[x] = weight[x] where level[x] is in [begin, end), else 0
  void (*select)(const int16_t* weight, const uint8_t* level, uint32_t width, uint32_t begin,
                 uint32_t end, int16_t* selected);
  // weighted[x] = clamp((a[x] - b[x]) >> shift) * weight[x] >> 4
  void (*weigh)(const uint16_t* a, const uint16_t* b, const int16_t* weight, uint32_t width,
                uint32_t shift, int16_t* weighted);
  // sum[i][j] += products of columns i and j <= i over a block.
  void (*add_products)(const int16_t (*column)[kRansProductBlock], uint32_t columns,
                       int64_t (*sum)[kMaxRansColumns]);
};

// The fastest this machine has.
const RansKernels& GetRansKernels();

}  // namespace l3
