#include "cpu/image_tables.h"

#include <algorithm>

namespace l3 {

ImageTables::ImageTables(const ImageView& view, const DecodeTable& decode) {
  is_sound_ = ReadSampleJoin(view, decode, &join_);
  if (view.value_count == 0) {
    map_ = MakeSampleMap(CodedInfo(view.info));
    return;
  }
  values_ = std::make_unique<uint16_t[]>(view.value_count);
  is_sound_ = ReadValueTable(view, values_.get()) && is_sound_;
  map_ = MakeSampleMap(values_.get(), view.value_count);
}

void ImageTables::MakeRans(const ImageView& view) {
  RansModel model;
  MatchColors found;
  if (!GetRansModel(view, &model, &found)) return;
  // Not cleared: only the tables of the model are read.
  rans_.reset(new RansTables);
  BuildRansTables(model, view.info.used_bits, rans_.get());
  if (model.match_table_count == 0) return;
  rans_->colors.count = 1u << view.info.used_bits;
  const uint32_t color_count = found.count;
  if (color_count != 0) {
    colors_ = std::make_unique<uint64_t[]>(color_count);
    ReadMatchColors(found, view.info.channels, view.info.used_bits, colors_.get());
    rans_->colors = {colors_.get(), color_count};
  }
  FindPixels(view.info);
}

void ImageTables::MakeJpeg(const ImageView& view) {
  JpegInfo info;
  JpegModel model;
  if (!ReadJpegChunk(view, &info, &model)) return;
  if (info.chroma_x_shift != view.halo_x_px || info.chroma_y_shift != view.halo_y_px) {
    return;  // windows would have other tiles
  }
  jpeg_.reset(new Jpeg);  // not cleared, as above
  jpeg_->info = info;
  BuildJpegTables(model, &jpeg_->tables);
}

void ImageTables::FindPixels(const ImageInfo& info) {
  const ColorTable& all = rans_->colors;
  const bool are_values = all.color == nullptr;
  if (are_values && (map_.keeps_values() || info.used_bits > 8)) return;
  const uint32_t count = are_values ? std::min(all.count, map_.value_count) : all.count;
  pixels_ = std::make_unique<uint64_t[]>(count);
  for (uint32_t number = 0; number < count; ++number) {
    for (uint32_t c = 0; c < info.channels; ++c) {
      const uint32_t value = all.Value(number, c);
      if (value >= map_.value_count) return;  // an error of the tile that has it
      const uint32_t sample = map_(value) & ((1u << info.sample_bits()) - 1);
      pixels_[number] |= uint64_t{sample} << (info.sample_bits() * c);
    }
  }
  rans_->pixel_of_number = pixels_.get();
  rans_->pixel_count = count;
}

}  // namespace l3
