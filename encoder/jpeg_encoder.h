// Encodes the coefficients of a JPEG image as jpeg tiles (format.md 5.6). Layer: encoder.
// Deterministic, as the encoder of pixels is.
#pragma once

#include <cstdint>

#include "encoder/encode_options.h"
#include "encoder/jpeg_file.h"

namespace l3 {

// Writes a file. `jpeg_bytes` are those of the JPEG file, which decide on the sizes of tiles that
// `options` leave open; of these also the threads and the chunks hold. `restore_data` becomes the
// chunk that restores the JPEG file; it may be empty. Returns kInvalidArgument for options, or
// coefficients, that the format cannot hold, and kOutputTooSmall where `allocate` returns null.
// Throws std::bad_alloc, and what `allocate` throws.
Status EncodeJpeg(const JpegImage& image, uint64_t jpeg_bytes, Bytes restore_data,
                  const EncodeOptions& options, const AllocateFile& allocate);

}  // namespace l3
