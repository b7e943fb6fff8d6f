// The intrinsics of x86-64, without their warnings. Layer: base, x86-64 only.
#pragma once

// GCC 12 warns of operands that its own AVX-512 intrinsics leave unset.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
