#include "encoder/jpeg_transcode.h"

#include <algorithm>

#include "encoder/jpeg_encoder.h"
#include "encoder/jpeg_file.h"

namespace l3 {
namespace {

Bytes ToBytes(const ChunkView& chunk) { return {chunk.data, chunk.size}; }

// Whether an image decodes to these coefficients and quantizers. The coefficients are lost.
bool DecodesTo(const ImageView& view, unsigned threads, DecodeJpegFunction* decode,
               JpegImage* image) {
  JpegInfo info;
  if (!ReadJpegChunk(view, &info, nullptr) || decode(view, threads, image->blocks) != Status::kOk) {
    return false;
  }
  for (uint32_t c = 0; c < info.components; ++c) {
    const uint16_t* quantizers = info.quantizers[c];
    const JpegBlockRect rect = JpegBlocksOfImage(info, c);
    int16_t rest =
        std::equal(quantizers, quantizers + kJpegBlockSamples, image->info.quantizers[c]) ? 0 : 1;
    for (uint32_t y = 0; y < rect.height; ++y) {
      const int16_t* row = image->blocks.At(c, 0, y);
      for (uint32_t i = 0; i < rect.width * kJpegBlockSamples; ++i) rest |= row[i];
    }
    if (rest != 0) return false;
  }
  return true;
}

}  // namespace

Status TranscodeJpeg(Bytes jpeg, EncodeOptions options, DecodeJpegFunction* decode,
                     const AllocateFile& allocate, const char** reason, bool* is_restored) {
  JpegFile file;
  *reason = ReadJpeg(jpeg, &file);
  if (*reason != nullptr) return Status::kInvalidArgument;
  *is_restored = !file.restore_data.empty();
  options.exif = file.metadata.exif;
  options.icc = file.metadata.icc;
  options.xmp = file.metadata.xmp;
  std::vector<uint8_t> encoded;
  const Bytes restore_data = {file.restore_data.data(), file.restore_data.size()};
  const Status status =
      EncodeJpeg(file.image, jpeg.size, restore_data, options, [&](uint64_t bytes) {
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
  if (ParseImage(encoded.data(), encoded.size(), &view) != Status::kOk ||
      !DecodesTo(view, options.threads, decode, &file.image)) {
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
  if (restore_data.data == nullptr || view.jpeg.data == nullptr) {
    return Status::kUnsupportedFeature;
  }
  JpegImage image;
  if (!ReadJpegChunk(view, &image.info, nullptr)) return Status::kCorruptHeader;
  image.Allocate();
  const Status status = decode(view, threads, image.blocks);
  if (status != Status::kOk) return status;
  const JpegMetadata metadata = {ToBytes(FindChunk(view, kChunkExif)),
                                 ToBytes(FindChunk(view, kChunkIcc)),
                                 ToBytes(FindChunk(view, kChunkXmp))};
  const bool is_restored = RestoreJpeg(image, metadata, ToBytes(restore_data), jpeg);
  return is_restored ? Status::kOk : Status::kCorruptHeader;
}

}  // namespace l3
