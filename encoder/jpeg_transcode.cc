#include "encoder/jpeg_transcode.h"

#include <algorithm>

#include "encoder/jpeg_encoder.h"
#include "encoder/jpeg_file.h"

namespace l3 {
namespace {

Bytes ToBytes(const std::vector<uint8_t>& bytes) { return {bytes.data(), bytes.size()}; }
Bytes ToBytes(const ChunkView& chunk) { return {chunk.data, chunk.size}; }

// Decodes the coefficients of all tiles, with the quantizers.
Status DecodeImage(const ImageView& view, unsigned threads, DecodeJpegFunction* decode,
                   JpegImage* image) {
  JpegInfo jpeg;
  if (view.jpeg.data == nullptr) return Status::kUnsupportedFeature;
  if (!ReadJpegChunk(view, &jpeg, nullptr)) return Status::kCorruptHeader;
  image->width_px = jpeg.width_px;
  image->height_px = jpeg.height_px;
  image->color = jpeg.color;
  image->components.resize(jpeg.components);
  for (uint32_t c = 0; c < jpeg.components; ++c) {
    JpegComponent& component = image->components[c];
    component.h = c == 0 ? 1 + jpeg.chroma_x_shift : 1;
    component.v = c == 0 ? 1 + jpeg.chroma_y_shift : 1;
    std::copy_n(jpeg.quantizers[c], kJpegBlockSamples, component.quantizer);
  }
  AllocateCoefficients(image);
  JpegBlocks<int16_t> blocks{};
  for (uint32_t c = 0; c < jpeg.components; ++c) {
    blocks.data[c] = image->components[c].coefficients.data();
    blocks.row_blocks[c] = image->components[c].stride_blocks;
  }
  return decode(view, threads, blocks);
}

bool AreEqual(const JpegImage& a, const JpegImage& b) {
  for (size_t c = 0; c < a.components.size(); ++c) {
    if (!std::equal(a.components[c].quantizer, a.components[c].quantizer + kJpegBlockSamples,
                    b.components[c].quantizer) ||
        a.components[c].coefficients != b.components[c].coefficients) {
      return false;
    }
  }
  return true;
}

}  // namespace

Status TranscodeJpeg(Bytes jpeg, EncodeOptions options, DecodeJpegFunction* decode,
                     const AllocateFile& allocate, const char** reason, bool* is_restored) {
  JpegFile file;
  *reason = ReadJpeg(jpeg, true, &file);
  if (*reason != nullptr) return Status::kInvalidArgument;
  *is_restored = !file.restore_data.empty();
  options.exif = ToBytes(file.metadata.exif);
  options.icc = ToBytes(file.metadata.icc);
  options.xmp = ToBytes(file.metadata.xmp);
  std::vector<uint8_t> encoded;
  const Status status =
      EncodeJpeg(file.image, jpeg.size, ToBytes(file.restore_data), options, [&](uint64_t bytes) {
        encoded.resize(bytes);
        return encoded.data();
      });
  if (status == Status::kInvalidArgument) *reason = "a coefficient is too large";
  if (status != Status::kOk) return status;
  if (encoded.size() >= jpeg.size) {
    *reason = "it would not become smaller";
    return Status::kInvalidArgument;
  }
  ImageView view;
  JpegImage decoded;
  Status check = ParseImage(encoded.data(), encoded.size(), &view);
  if (check == Status::kOk) check = DecodeImage(view, options.threads, decode, &decoded);
  if (check != Status::kOk || !AreEqual(decoded, file.image)) {
    *reason = "its result decodes to other coefficients";
    return Status::kCorruptTile;
  }
  uint8_t* const out = allocate(encoded.size());
  if (out == nullptr) return Status::kOutputTooSmall;
  std::copy(encoded.begin(), encoded.end(), out);
  return Status::kOk;
}

Status RestoreJpegFile(const ImageView& view, unsigned threads, DecodeJpegFunction* decode,
                       std::vector<uint8_t>* jpeg) {
  const ChunkView restore_data = FindChunk(view, kChunkJpegRest);
  if (restore_data.data == nullptr) return Status::kUnsupportedFeature;
  JpegImage image;
  const Status status = DecodeImage(view, threads, decode, &image);
  if (status != Status::kOk) return status;
  const bool is_restored =
      RestoreJpeg(image, ToBytes(FindChunk(view, kChunkExif)), ToBytes(FindChunk(view, kChunkIcc)),
                  ToBytes(FindChunk(view, kChunkXmp)), ToBytes(restore_data), jpeg);
  return is_restored ? Status::kOk : Status::kCorruptHeader;
}

}  // namespace l3
