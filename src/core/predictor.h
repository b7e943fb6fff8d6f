// The predictors of packed tiles (format.md 5.3). Layer: core.
#pragma once

#include "base/portable.h"
#include "format/constants.h"

namespace l3 {

// What the row above contributes: (nw*NW + n*N + ne*NE + round) >> shift, to
// which W is added if `adds_west`. A row of coefficients serves a whole row of
// samples, so engines need no branch per predictor.
struct PredictorTaps {
  int8_t nw, n, ne, round, shift;
  bool adds_west;
};

L3_HOST_DEVICE constexpr PredictorTaps GetPredictorTaps(uint32_t predictor) {
  constexpr PredictorTaps kTaps[kNumPredictors] = {
      {0, 0, 0, 0, 0, true},    // W
      {0, 1, 0, 0, 0, false},   // N
      {1, 2, 1, 2, 2, false},   // (NW + 2N + NE + 2) >> 2
      {-1, 1, 0, 0, 0, true},   // W + N - NW
      {-2, 1, 1, 2, 2, true},   // W + ((N - 2NW + NE + 2) >> 2)
      {0, 1, 1, 1, 1, false},   // (N + NE + 1) >> 1
      {1, 1, 0, 1, 1, false},   // (NW + N + 1) >> 1
      {-1, 0, 1, 1, 1, true},   // W + ((NE - NW + 1) >> 1)
  };
  return kTaps[predictor];
}

// The prediction without W.
L3_HOST_DEVICE inline int32_t PredictFromAbove(PredictorTaps taps, int32_t nw, int32_t n,
                                               int32_t ne) {
  return (taps.nw * nw + taps.n * n + taps.ne * ne + taps.round) >> taps.shift;
}

}  // namespace l3
