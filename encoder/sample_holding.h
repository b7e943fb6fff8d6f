// Samples of 32 bits as tiles hold them: ranks in a table, or halves (format.md 4.6). Layer:
// encoder.
#pragma once

#include <cstdint>

#include "encoder/container_writer.h"
#include "encoder/encode_options.h"
#include "encoder/image_encoder.h"

namespace l3 {

// The smallest file of floats, or of integers of 32 bits.
EncodedFile EncodeHeld(const PixelView& pixels, const EncodeOptions& options);

// No such file has more bytes.
uint64_t HeldBytesLimit(const PixelView& pixels, const EncodeOptions& options);

// The smallest file of what tiles hold, coded or stored (encoder.cc).
EncodedFile EncodeBest(const PixelView& pixels, const EncodeOptions& options,
                       const SampleHolding* samples);

}  // namespace l3
