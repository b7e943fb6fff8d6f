#include "cuda/engine/jpeg_tasks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/jpeg_tile.h"
#include "cuda/engine/rans_grid.h"
#include "cuda/kernels/jpeg_tile_kernel.cuh"

namespace l3 {
namespace {

template <class T>
void Put(uint8_t* array, uint64_t i, const T& value) {
  std::memcpy(array + i * sizeof(value), &value, sizeof(value));
}

// Columns or rows of tiles around some, where chroma is upsampled across them.
void Widen(uint32_t halo, uint32_t limit_begin, uint32_t limit_end, uint32_t* begin,
           uint32_t* end) {
  *begin -= std::min(halo, *begin - limit_begin);
  *end += std::min(halo, limit_end - *end);
}

DeviceJpeg MakeDeviceJpeg(const JpegInfo& info, const JpegModel& model) {
  static const DeviceJpeg of_all = [] {
    DeviceJpeg made = {};
    for (uint32_t k = 0; k < kJpegBlockSamples; ++k) made.step[k] = {JpegStep::Make(k)};
    for (uint32_t sum = 0; sum <= kJpegLastSum; ++sum) {
      made.contexts.level_of_sum[sum] = static_cast<uint8_t>(JpegLevel(sum));
    }
    return made;
  }();
  DeviceJpeg device = of_all;
  device.info = info;
  device.table_count = model.table_count;
  std::memcpy(device.ac, model.ac, sizeof(device.ac));
  std::memcpy(device.contexts.last, model.last, sizeof(device.contexts.last));
  std::memcpy(device.contexts.dc, model.dc, sizeof(device.contexts.dc));
  std::memcpy(device.frequency, model.frequency, sizeof(device.frequency));
  return device;
}

// Shared memory that a tile of an image takes.
uint32_t ScratchBytesOf(const ImageInfo& info, const JpegInfo& jpeg) {
  const auto blocks = [&](uint32_t component) {
    const JpegBlockRect rect = JpegBlocksOfTile(info, jpeg, 0, component);  // no tile is larger
    return rect.width * rect.height;
  };
  const uint32_t luma = blocks(0);
  const uint32_t chroma = jpeg.components > 1 ? 2 * blocks(1) : 0;
  return JpegScratchBytes(luma + chroma, std::max(luma, chroma));
}

// Rows of whole blocks of each component, of all decoded tiles.
JpegBlockRect PlaneBlocks(const ImageInfo& info, const JpegInfo& jpeg, const TileSpan& tiles,
                          uint32_t component) {
  const uint32_t columns = info.tile_columns();
  const JpegBlockRect first =
      JpegBlocksOfTile(info, jpeg, tiles.row_begin * columns + tiles.column_begin, component);
  const JpegBlockRect last =
      JpegBlocksOfTile(info, jpeg, (tiles.row_end - 1) * columns + tiles.column_end - 1, component);
  return {first.x, first.y, last.x + last.width - first.x, last.y + last.height - first.y};
}

}  // namespace

void JpegTasks::Plan(const std::vector<BatchImage>& images, const TileTasks& windows,
                     const std::vector<UploadPart>& parts, const GpuLimits& limits) {
  const uint64_t scratch_bytes = limits.jpeg_scratch_bytes;
  images_ = &images;
  windows_ = &windows;
  jpegs_.assign(images.size(), Image{});
  units_.clear();
  rounds_.clear();
  round_ends_.clear();
  image_count_ = tile_count_ = pixel_count_ = scratch_bytes_ = 0;
  size_t image = 0;
  for (const UploadPart& part : parts) {
    size_t round_begin = units_.size();
    const auto end_round = [&] {
      if (round_begin == units_.size()) return;
      PlanBlocks(round_begin, limits);
      round_begin = units_.size();
    };
    uint64_t round_bytes = 0;
    for (; image < part.image_end; ++image) {
      const ImageView& view = images[image].view;
      if (view.jpeg.data == nullptr) continue;
      Image& jpeg = jpegs_[image];
      jpeg.number = image_count_++;
      jpeg.is_sound =
          ReadJpegChunk(view, &jpeg.jpeg, nullptr) && jpeg.jpeg.components == view.info.channels &&
          jpeg.jpeg.chroma_x_shift == view.halo_x_px && jpeg.jpeg.chroma_y_shift == view.halo_y_px;
      jpeg.unit_begin = units_.size();
      if (jpeg.is_sound) AddUnits(image, scratch_bytes);
      jpeg.unit_end = units_.size();
      // The units of an image go to rounds one by one.
      std::vector<Unit> added(units_.begin() + static_cast<std::ptrdiff_t>(jpeg.unit_begin),
                              units_.end());
      units_.resize(jpeg.unit_begin);
      for (Unit& unit : added) {
        const uint64_t bytes = PlaneBytes(unit);
        if (round_bytes + bytes > scratch_bytes) {
          end_round();
          round_bytes = 0;
        }
        unit.planes_offset = round_bytes;
        round_bytes += bytes;
        scratch_bytes_ = std::max(scratch_bytes_, round_bytes);
        units_.push_back(unit);
      }
    }
    end_round();
    round_ends_.push_back(rounds_.size());
  }
  if (std::max(tile_count_, pixel_count_) > std::numeric_limits<uint32_t>::max()) {
    throw std::length_error("The windows of a batch touch more than 2^32 - 1 tiles. Use fewer.");
  }
}

// Cuts what windows need of an image into units, each of which fits into scratch memory: rows of
// tiles, or parts of rows. Units without pixels of a window are none.
void JpegTasks::AddUnits(size_t image, uint64_t scratch_bytes) {
  const TileSpan& all = (*images_)[image].tiles;
  const JpegInfo& jpeg = jpegs_[image].jpeg;
  const auto make = [&](const TileSpan& tiles) {
    Unit unit = {};
    unit.image = image;
    unit.tiles = unit.decoded = tiles;
    Widen(jpeg.chroma_x_shift, all.column_begin, all.column_end, &unit.decoded.column_begin,
          &unit.decoded.column_end);
    Widen(jpeg.chroma_y_shift, all.row_begin, all.row_end, &unit.decoded.row_begin,
          &unit.decoded.row_end);
    return unit;
  };
  for (uint32_t row = all.row_begin, row_end; row < all.row_end; row = row_end) {
    row_end = all.row_end;
    uint32_t columns = all.columns();
    const auto fits = [&] {
      return PlaneBytes(make({all.column_begin, all.column_begin + columns, row, row_end})) <=
             scratch_bytes;
    };
    while (row_end > row + 1 && !fits()) row_end = row + (row_end - row) / 2;
    while (columns > 1 && !fits()) columns = (columns + 1) / 2;
    for (uint32_t column = all.column_begin; column < all.column_end; column += columns) {
      Unit unit = make({column, std::min(column + columns, all.column_end), row, row_end});
      ForEachPixelTask(unit, [&](const JpegPixelTask&) { ++unit.pixel_count; });
      if (unit.pixel_count == 0) continue;
      ForEachTile(unit, [&](uint32_t, uint32_t, const WindowList&) { ++unit.tile_count; });
      units_.push_back(unit);
    }
  }
}

// Ends a round: finds how many tiles its blocks have, and numbers its tasks.
void JpegTasks::PlanBlocks(size_t unit_begin, const GpuLimits& limits) {
  Round round = {unit_begin, units_.size(), 1, 0};
  std::vector<uint64_t> counts;
  for (size_t u = unit_begin; u < units_.size(); ++u) {
    const size_t image = units_[u].image;
    counts.push_back(units_[u].tile_count);
    round.scratch_bytes = std::max(round.scratch_bytes,
                                   ScratchBytesOf((*images_)[image].view.info, jpegs_[image].jpeg));
  }
  round.warps_per_block = PlanRans(counts, {counts.size()}, sizeof(JpegLookup), round.scratch_bytes,
                                   limits.jpeg, limits)
                              .warps_per_block;
  for (size_t u = unit_begin; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    unit.tile_count = CeilDiv(unit.tile_count, round.warps_per_block) * round.warps_per_block;
    unit.first_tile = tile_count_;
    unit.first_pixel = pixel_count_;
    tile_count_ += unit.tile_count;
    pixel_count_ += unit.pixel_count;
  }
  rounds_.push_back(round);
}

// The pixels of a unit's own tiles.
TileRect JpegTasks::RectOf(const Unit& unit) const {
  const ImageInfo& info = (*images_)[unit.image].view.info;
  const auto pixels = [](uint32_t tiles, uint32_t log2, uint32_t size) {
    return static_cast<uint32_t>(std::min(uint64_t{tiles} << log2, uint64_t{size}));
  };
  const uint32_t x = pixels(unit.tiles.column_begin, info.tile_width_log2, info.width_px);
  const uint32_t y = pixels(unit.tiles.row_begin, info.tile_height_log2, info.height_px);
  return {x, y, pixels(unit.tiles.column_end, info.tile_width_log2, info.width_px) - x,
          pixels(unit.tiles.row_end, info.tile_height_log2, info.height_px) - y};
}

uint64_t JpegTasks::PlaneBytes(const Unit& unit) const {
  const JpegInfo& jpeg = jpegs_[unit.image].jpeg;
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < jpeg.components; ++c) {
    const JpegBlockRect rect = PlaneBlocks((*images_)[unit.image].view.info, jpeg, unit.decoded, c);
    bytes += uint64_t{rect.width} * rect.height * kJpegBlockSamples;
  }
  return bytes;
}

// Calls function(row, column, windows) for each tile of a unit that windows need.
template <class Function>
void JpegTasks::ForEachTile(const Unit& unit, const Function& function) const {
  for (uint32_t row = unit.decoded.row_begin; row < unit.decoded.row_end; ++row) {
    for (uint32_t column = unit.decoded.column_begin; column < unit.decoded.column_end; ++column) {
      const WindowList list = windows_->WindowsOf(unit.image, row, column);
      if (list.count != 0) function(row, column, list);
    }
  }
}

// Calls function(task) for the pixels of a unit that windows want.
template <class Function>
void JpegTasks::ForEachPixelTask(const Unit& unit, const Function& function) const {
  const BatchImage& image = (*images_)[unit.image];
  const TileRect rect = RectOf(unit);
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    const TileRect part = ClipToWindow(image.SharedPlanOf(w).window, rect);
    if (part.width_px == 0 || part.height_px == 0) continue;
    for (uint32_t y = 0; y < part.height_px; y += kJpegTaskRows) {
      for (uint32_t x = 0; x < part.width_px; x += kRowSpan) {
        function(JpegPixelTask{0, static_cast<uint32_t>(w), part.x_px + x, part.y_px + y});
      }
    }
  }
}

JpegBatch JpegTasks::Batch(size_t number, const JpegUnit* units, const JpegTileTask* tiles,
                           const JpegPixelTask* pixels) const {
  const Round& round = rounds_[number];
  const Unit& first = units_[round.unit_begin];
  const Unit& last = units_[round.unit_end - 1];
  JpegBatch batch = {};
  batch.units = units;
  batch.tiles = tiles + first.first_tile;
  batch.pixels = pixels + first.first_pixel;
  batch.tile_count = static_cast<uint32_t>(last.first_tile + last.tile_count - first.first_tile);
  batch.pixel_count =
      static_cast<uint32_t>(last.first_pixel + last.pixel_count - first.first_pixel);
  batch.warps_per_block = round.warps_per_block;
  batch.scratch_bytes = round.scratch_bytes;
  batch.shared_bytes =
      static_cast<uint32_t>(sizeof(JpegLookup)) + round.warps_per_block * round.scratch_bytes;
  return batch;
}

void JpegTasks::Write(size_t i, Status status, const UploadLayout& uploads,
                      const Places& to) const {
  const Image& image = jpegs_[i];
  const BatchImage& of = (*images_)[i];
  if (of.view.jpeg.data == nullptr) return;
  JpegInfo info;
  JpegModel model;
  const bool is_sound = image.is_sound && ReadJpegChunk(of.view, &info, &model) &&
                        std::memcmp(&info, &image.jpeg, sizeof(info)) == 0;
  if (is_sound) Put(to.images, image.number, MakeDeviceJpeg(info, model));
  if (!is_sound) {
    if (status == Status::kOk) status = Status::kCorruptHeader;
    Put(to.images, image.number, DeviceJpeg{});
  }
  if (status != Status::kOk) {  // also where there are no units
    for (size_t w = of.window_begin; w < of.window_end; ++w) {
      const TileSpan span = of.TilesOf(w);
      if (span.tile_count() == 0) continue;
      const uint32_t tile = span.row_begin * of.view.info.tile_columns() + span.column_begin;
      Put(to.results, w, BadTile(tile, status));
    }
  }
  for (size_t u = image.unit_begin; u < image.unit_end; ++u) WriteUnit(u, status, uploads, to);
}

void JpegTasks::WriteUnit(size_t number, Status status, const UploadLayout& uploads,
                          const Places& to) const {
  const Unit& unit = units_[number];
  const Image& image = jpegs_[unit.image];
  const ImageInfo& info = (*images_)[unit.image].view.info;
  JpegUnit device = {};
  device.image = reinterpret_cast<const DeviceJpeg*>(to.images_dev) + image.number;
  device.x_px = unit.decoded.column_begin << info.tile_width_log2;
  device.y_px = unit.decoded.row_begin << info.tile_height_log2;
  device.rect = RectOf(unit);
  uint8_t* plane = to.scratch_dev + unit.planes_offset;
  for (uint32_t c = 0; c < image.jpeg.components; ++c) {
    const JpegBlockRect rect = PlaneBlocks(info, image.jpeg, unit.decoded, c);
    device.plane[c] = plane;
    device.row_bytes[c] = 8 * rect.width;
    plane += uint64_t{rect.width} * rect.height * kJpegBlockSamples;
  }
  Put(to.units, number, device);

  const uint32_t unit_number = static_cast<uint32_t>(number);
  uint64_t next = unit.first_tile;
  ForEachTile(unit, [&](uint32_t row, uint32_t column, const WindowList& windows) {
    const uint32_t tile = row * info.tile_columns() + column;
    TilePlace place = {};
    const bool is_found = uploads.FindTile(unit.image, row, column, &place);
    JpegTileTask task = {unit_number, tile, 0, 0, windows};
    if (status == Status::kOk && is_found) {
      task.payload_begin = static_cast<uint32_t>(place.offset / kPayloadAlignment);
      task.payload_units = place.bytes / kPayloadAlignment;
    } else {
      windows_->Note(windows, BadTile(tile, is_found ? status : Status::kCorruptHeader),
                     to.results);
    }
    Put(to.tiles, next++, task);
  });
  while (next != unit.first_tile + unit.tile_count) {
    Put(to.tiles, next++, JpegTileTask{unit_number, 0, 0, 0, {0, 0}});
  }
  next = unit.first_pixel;
  ForEachPixelTask(unit, [&](JpegPixelTask task) {
    task.unit = unit_number;
    Put(to.pixels, next++, task);
  });
}

}  // namespace l3
