#include "format/jpeg_chunk.h"

#include <algorithm>

#include "format/byte_reader.h"
#include "format/image_view.h"
#include "format/jpeg_built_in.h"

namespace l3 {
namespace {

// Reads bit fields in turn. A read past the end leaves ok() false.
class BitReader {
 public:
  BitReader(const uint8_t* data, uint32_t size) : next_(data), end_(data + size) {}

  // Whether all reads were sound, and the last one ended in the last byte.
  bool at_end() const { return ok_ && next_ == end_ && have_ < 8; }
  bool ok() const { return ok_; }

  uint32_t Read(uint32_t count) {
    Fill();
    if (count > have_) ok_ = false;
    const uint32_t value = static_cast<uint32_t>(bits_) & ((1u << count) - 1);
    Drop(count);
    return value;
  }
  // Zeros up to a one, at most 31.
  uint32_t ReadUnary() {
    Fill();
    const uint32_t low = static_cast<uint32_t>(bits_);
    const uint32_t zeros = low == 0 ? 31 : static_cast<uint32_t>(__builtin_ctz(low));
    if (low == 0 || zeros >= have_) ok_ = false;
    Drop(zeros + 1);
    return zeros;
  }

 private:
  void Fill() {
    while (have_ <= 32 && next_ != end_) {
      bits_ |= uint64_t{ReadOnce(*next_++)} << have_;
      have_ += 8;
    }
  }
  void Drop(uint32_t count) {
    bits_ >>= count;
    have_ -= std::min(count, have_);
  }

  const uint8_t* next_;
  const uint8_t* end_;
  uint64_t bits_ = 0;
  uint32_t have_ = 0;  // bits
  bool ok_ = true;
};

// The tables of a row of contexts. `above` is the row that it is likely to repeat, or null.
bool ReadTablesOfRow(BitReader* reader, uint32_t table_count, const uint8_t* above, uint32_t count,
                     uint8_t* row) {
  for (uint32_t i = 0; i < count; ++i) {
    if (above != nullptr) {
      const uint32_t repeated = reader->ReadUnary();
      if (repeated > count - i) return false;
      for (const uint32_t end = i + repeated; i < end; ++i) row[i] = above[i];
      if (i == count) break;
    }
    const uint32_t left = i == 0 ? 0 : row[i - 1];
    uint32_t table = left;
    switch (reader->ReadUnary()) {
      case 0: break;
      case 1: table = left + 1; break;
      case 2: table = left - 1; break;
      case 3: table = reader->Read(5); break;
      default: return false;
    }
    if (table >= table_count) return false;
    row[i] = static_cast<uint8_t>(table);
  }
  return reader->ok();
}

// Frequencies by their bit lengths, each against the one before, and up to three bits behind the
// highest. The first of the largest gets what the sum lacks.
bool ReadFrequencies(BitReader* reader, uint32_t* first_length, uint16_t* frequency) {
  const uint32_t tokens = reader->Read(6);
  if (tokens > kRansTokens) return false;
  uint32_t length = *first_length;
  uint32_t sum = 0;
  uint32_t largest = 0;
  for (uint32_t token = 0; token < tokens; ++token) {
    const uint32_t step = reader->ReadUnary();
    // 0, 1, 2, 3, 4, 5, 6 ... are steps down of 0, 1, 2, -1, 3, -2, 4 ...
    length -= step < 3 ? step : step % 2 == 0 ? step / 2 + 1 : 0u - step / 2;
    if (length > kRansScaleBits) return false;
    if (token == 0) *first_length = length;
    uint32_t value = length;
    if (length >= 2) {
      const uint32_t more = std::min(length - 1, kJpegFrequencyBits);
      value = ((1u << more) | reader->Read(more)) << (length - 1 - more);
    }
    frequency[token] = static_cast<uint16_t>(value);
    sum += value;
    if (value > frequency[largest]) largest = token;
  }
  if (sum > kRansScale + frequency[largest] - 1) return false;
  frequency[largest] = static_cast<uint16_t>(frequency[largest] + kRansScale - sum);
  return reader->ok();
}

}  // namespace

bool ReadJpegModel(const uint8_t* data, uint32_t size, bool has_chroma, JpegModel* model) {
  *model = JpegModel{};
  BitReader reader(data, size);
  const uint32_t tables = reader.Read(5) + 1;
  model->table_count = static_cast<uint8_t>(tables);
  const uint32_t classes = has_chroma ? 2 : 1;
  for (uint32_t i = 0; i < classes; ++i) {
    for (uint32_t k = 1; k < kJpegBlockSamples; ++k) {
      const uint8_t* above = k > 1 ? model->ac[i][k - 1] : i > 0 ? model->ac[0][k] : nullptr;
      if (!ReadTablesOfRow(&reader, tables, above, kJpegLevels, model->ac[i][k])) return false;
    }
  }
  for (uint32_t c = 0; c < (has_chroma ? 3 : 1); ++c) {
    const uint8_t* above = c > 0 ? model->last[c - 1] : nullptr;
    if (!ReadTablesOfRow(&reader, tables, above, kJpegLastContexts, model->last[c])) return false;
  }
  for (uint32_t i = 0; i < classes; ++i) {
    const uint8_t* above = i > 0 ? model->dc[0] : nullptr;
    if (!ReadTablesOfRow(&reader, tables, above, kJpegDcContexts, model->dc[i])) return false;
  }
  uint32_t first_length = kJpegFirstLength;
  for (uint32_t t = 0; t < tables; ++t) {
    if (!ReadFrequencies(&reader, &first_length, model->frequency[t])) return false;
  }
  return reader.at_end();
}

JpegModel BuiltInJpegModel() {
  JpegModel model;
  ReadJpegModel(kJpegBuiltInModel, sizeof(kJpegBuiltInModel), /*has_chroma=*/true, &model);
  return model;
}

bool ReadJpegChunk(const ImageView& view, JpegInfo* info, JpegModel* model) {
  ByteReader reader(view.jpeg.data, view.jpeg.size);
  const ImageInfo& image = view.info;
  const uint32_t color = reader.ReadByte();
  const uint32_t sampling = reader.ReadByte();
  *info = JpegInfo{};
  info->width_px = image.width_px;
  info->height_px = image.height_px;
  info->color = static_cast<JpegColor>(color);
  info->components = info->color == JpegColor::kGray ? 1 : kMaxJpegComponents;
  info->chroma_x_shift = sampling & 1;
  info->chroma_y_shift = static_cast<uint8_t>(sampling >> 1);
  const bool fits_header = image.channels == info->components &&
                           image.sample_type == SampleType::kUint8 && image.used_bits == 8 &&
                           !image.has_large_tiles() &&
                           image.tile_height_log2 >= kMinTileHeightLog2 + info->chroma_y_shift;
  if (color > static_cast<uint32_t>(JpegColor::kRgb) ||
      sampling > (info->color == JpegColor::kYcbcr ? 3 : 0) || !fits_header) {
    return false;
  }
  uint32_t tables = 0;  // of quantizers
  uint32_t component_of_table[kMaxJpegComponents];
  for (uint32_t c = 0; c < info->components; ++c) {
    const uint32_t table = reader.ReadByte();
    if (table > tables) return false;
    if (table < tables) {
      const uint16_t* same = info->quantizers[component_of_table[table]];
      std::copy_n(same, kJpegBlockSamples, info->quantizers[c]);
      continue;
    }
    component_of_table[tables++] = c;
    for (const uint8_t place : kJpegNaturalOrder) {
      const uint32_t quantizer = reader.ReadBase128(3);
      if (quantizer < 1 || quantizer > 0xFFFF) return false;
      info->quantizers[c][place] = static_cast<uint16_t>(quantizer);
    }
  }
  if (!reader.ok()) return false;
  if (model == nullptr) return true;
  if (reader.pos() == view.jpeg.size) {
    *model = BuiltInJpegModel();
    return true;
  }
  return ReadJpegModel(view.jpeg.data + reader.pos(), view.jpeg.size - reader.pos(),
                       info->components > 1, model);
}

}  // namespace l3
