// The coefficients of an image of jpeg tiles: what gives a JPEG file back, and what checks an
// encoder. Layer: cpu.
#pragma once

#include <cstdint>

#include "core/jpeg_layout.h"
#include "format/image_view.h"
#include "format/status.h"

namespace l3 {

// Decodes all tiles of a view from ParseImage() on `threads` threads, by the fastest engine.
// `output` is the image's, in zigzag order: its coefficients become what they were, exclusive or
// those of the tiles before they are multiplied. So zeros become coefficients, and equal ones
// zeros. Returns the status of the first bad tile, but takes products beyond kMaxJpegProduct.
Status DecodeJpegCoefficients(const ImageView& view, unsigned threads,
                              const JpegBlocks<int16_t>& output);

}  // namespace l3
