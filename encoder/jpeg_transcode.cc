#include "encoder/jpeg_transcode.h"

#include <algorithm>
#include <memory>

#include "base/parallel.h"
#include "core/jpeg_tile.h"
#include "encoder/jpeg_encoder.h"
#include "encoder/jpeg_file.h"

namespace l3 {
namespace {

Bytes ToBytes(const std::vector<uint8_t>& bytes) { return {bytes.data(), bytes.size()}; }
Bytes ToBytes(const ChunkView& chunk) { return {chunk.data, chunk.size}; }

// Decodes the coefficients of all tiles, with the quantizers.
Status DecodeImage(const ImageView& view, unsigned threads, JpegImage* image) {
  JpegInfo jpeg;
  const auto tables = std::make_unique<JpegTables>();
  JpegModel model;
  if (view.jpeg.data == nullptr) return Status::kUnsupportedFeature;
  if (!ReadJpegChunk(view, &jpeg, &model)) return Status::kCorruptHeader;
  BuildJpegTables(model, tables.get());
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
  std::vector<Status> statuses(view.info.tile_count(), Status::kOk);
  ParallelFor(statuses.size(), threads, [&](uint64_t i) {
    const uint32_t tile = static_cast<uint32_t>(i);
    uint64_t begin;
    uint32_t bytes;
    if (!view.FindPayload(tile, &begin, &bytes)) {
      statuses[i] = Status::kCorruptHeader;
      return;
    }
    JpegBlocks<int16_t> blocks{};
    for (uint32_t c = 0; c < jpeg.components; ++c) {
      JpegComponent& component = image->components[c];
      const JpegBlockRect rect = JpegBlocksOfTile(view.info, jpeg, tile, c);
      blocks.data[c] = component.Block(rect.x, rect.y);
      blocks.row_blocks[c] = component.stride_blocks;
    }
    statuses[i] =
        DecodeJpegTile(view.info, jpeg, *tables, tile, view.payloads + begin, bytes, blocks);
  });
  const auto bad = std::find_if(statuses.begin(), statuses.end(),
                                [](Status status) { return status != Status::kOk; });
  return bad == statuses.end() ? Status::kOk : *bad;
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

Status TranscodeJpeg(Bytes jpeg, EncodeOptions options, const AllocateFile& allocate,
                     const char** reason, bool* is_restored) {
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
  if (check == Status::kOk) check = DecodeImage(view, options.threads, &decoded);
  if (check != Status::kOk || !AreEqual(decoded, file.image)) {
    *reason = "its result decodes to other coefficients";
    return Status::kCorruptTile;
  }
  uint8_t* const out = allocate(encoded.size());
  if (out == nullptr) return Status::kOutputTooSmall;
  std::copy(encoded.begin(), encoded.end(), out);
  return Status::kOk;
}

Status RestoreJpegFile(const ImageView& view, unsigned threads, std::vector<uint8_t>* jpeg) {
  const ChunkView restore_data = FindChunk(view, kChunkJpegRest);
  if (restore_data.data == nullptr) return Status::kUnsupportedFeature;
  JpegImage image;
  const Status status = DecodeImage(view, threads, &image);
  if (status != Status::kOk) return status;
  const bool is_restored =
      RestoreJpeg(image, ToBytes(FindChunk(view, kChunkExif)), ToBytes(FindChunk(view, kChunkIcc)),
                  ToBytes(FindChunk(view, kChunkXmp)), ToBytes(restore_data), jpeg);
  return is_restored ? Status::kOk : Status::kCorruptHeader;
}

}  // namespace l3
