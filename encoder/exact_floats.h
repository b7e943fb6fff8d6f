// Floating point that rounds alike on every machine. Layer: encoder.
//
// Every file of the encoder includes this. Some choices between encodings are made in float and
// double. IEEE 754 defines +, -, *, /, square root, floor and conversions exactly, and the encoder
// uses nothing else: no logarithm and no power of a library. The build adds -ffp-contract=off
// (CMakeLists.txt), since a fused multiply-add rounds once where two operations round twice.
#pragma once

#include <cfloat>

#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__)
#error "The encoder needs IEEE 754: compile it without -ffast-math, -Ofast and their parts"
#endif
#if FLT_EVAL_METHOD != 0
#error "The encoder needs float and double without excess precision: -msse2 -mfpmath=sse"
#endif
