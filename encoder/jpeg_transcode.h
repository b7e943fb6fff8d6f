// From a JPEG file to an L3 file of jpeg tiles, and back. Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "core/jpeg_layout.h"
#include "encoder/encode_options.h"
#include "format/image_view.h"
#include "format/status.h"

namespace l3 {

// DecodeJpegCoefficients() of cpu/jpeg_coefficients.h, of a layer beside this one.
using DecodeJpegFunction = Status(const ImageView& view, unsigned threads,
                                  const JpegBlocks<int16_t>& output);

// Encodes a JPEG file with its metadata. Of `options` threads, sides of tiles and key-value pairs
// hold. The coefficients of the result are compared with those of the JPEG file.
// `reason`: null, or why the file cannot be encoded, as ReadJpeg() says it. `is_restored`: whether
// RestoreJpegFile() gives the same bytes; if not, the caller should compare pixels. Throws
// std::bad_alloc, and what `allocate` throws.
Status TranscodeJpeg(Bytes jpeg, EncodeOptions options, DecodeJpegFunction* decode,
                     const AllocateFile& allocate, const char** reason, bool* is_restored);

// Writes the JPEG file of a view from ParseImage(). Returns kUnsupportedFeature if the image has
// none, and kCorruptHeader if what restores it is damaged. Throws std::bad_alloc.
Status RestoreJpegFile(const ImageView& view, unsigned threads, DecodeJpegFunction* decode,
                       std::vector<uint8_t>* jpeg);

}  // namespace l3
