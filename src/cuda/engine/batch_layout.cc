#include "cuda/engine/batch_layout.h"

#include <cstring>

#include "cuda/engine/encoded_cache.h"
#include "cuda/kernels/store_path.h"

namespace l3 {
namespace {

uint64_t Align16(uint64_t bytes) { return CeilDiv(bytes, 16) * 16; }

}  // namespace

void BatchLayout::Plan(std::vector<WindowJob>* jobs, const GpuLimits& limits,
                       const ForEach& for_each, const UploadPolicy& policy) {
  joins_.Plan(jobs, for_each);
  ListImages(*jobs, &images_);
  uploads_.PlanParts(images_, policy.part_bytes);
  tasks_.Find(images_, for_each);
  tasks_.PlanLaunches(uploads_.parts(), limits);
  jpegs_.Plan(images_, tasks_, uploads_.parts(), limits);

  const bool has_plans = tasks_.has_plans();
  windows_offset_ = Align16(results_bytes());
  plans_offset_ = Align16(windows_offset_ + window_count() * sizeof(DeviceWindow));
  tasks_offset_ = plans_offset_ + (has_plans ? Align16(window_count() * sizeof(OutputPlan)) : 0);
  lists_offset_ = tasks_offset_ + tasks_.task_count() * sizeof(TileTask);
  const bool has_lists = tasks_.store() == StoreKind::kPlans;
  numbers_offset_ = lists_offset_ + (has_lists ? tasks_.task_count() * sizeof(WindowList) : 0);
  uint64_t offset = numbers_offset_;
  if (has_plans) offset = Align16(offset + tasks_.number_count() * sizeof(uint32_t));
  joins_offset_ = PlaceJpegs(PlaceTables(offset));
  uploads_.Place(joins_offset_ + joins_.staged_bytes(), policy.direct_bytes);
}

// The same for images of jpeg tiles.
uint64_t BatchLayout::PlaceJpegs(uint64_t offset) {
  jpegs_offset_ = offset;
  units_offset_ = Align16(jpegs_offset_ + jpegs_.image_count() * sizeof(DeviceJpeg));
  jpeg_tiles_offset_ = Align16(units_offset_ + jpegs_.unit_count() * sizeof(JpegUnit));
  jpeg_pixels_offset_ = Align16(jpeg_tiles_offset_ + jpegs_.tile_count() * sizeof(JpegTileTask));
  return Align16(jpeg_pixels_offset_ + jpegs_.pixel_count() * sizeof(JpegPixelTask));
}

// Lays the tables of images from `offset` on; returns where they end.
uint64_t BatchLayout::PlaceTables(uint64_t offset) {
  tables_.resize(images_.size());
  for (size_t i = 0; i < images_.size(); ++i) {
    if (images_[i].shares_table) {
      tables_[i].values_offset = tables_[i - 1].values_offset;
      continue;
    }
    tables_[i].values_offset = offset;
    offset = Align16(offset + 2 * uint64_t{images_[i].view.value_count});
  }
  for (size_t i = 0; i < images_.size(); ++i) {
    if (!tasks_.has_rans(i)) continue;
    tables_[i].rans_offset = offset;
    offset = Align16(offset + sizeof(RansModel));
    tables_[i].colors_offset = offset;
    offset = Align16(offset + sizeof(uint64_t) * uint64_t{images_[i].view.color_count});
  }
  return offset;
}

void BatchLayout::WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const {
  if (piece < images_.size()) return WriteImage(piece, staging, device);
  uploads_.Stage(piece - images_.size(), staging);
}

// Planes are aligned, since payloads end at multiples of 16 bytes.
void BatchLayout::WriteJoins(uint8_t* staging, uint8_t* device) {
  joins_.Write(staging + joins_offset_, device + joins_offset_, device + uploads_.total_bytes());
}

// All that an image has besides payloads.
void BatchLayout::WriteImage(size_t i, uint8_t* staging, uint8_t* device) const {
  const BatchImage& image = images_[i];
  const ImageView& view = image.view;
  const Tables& tables = tables_[i];
  bool is_sound = true;
  if (view.value_count != 0 && !image.shares_table) {
    is_sound = ReadValueTable(view, reinterpret_cast<uint16_t*>(staging + tables.values_offset));
  }
  if (i == 0 && uploads_.has_zeros()) {
    std::memset(staging + uploads_.zeros_offset(), 0, kPayloadPaddingBytes);
  }
  if (tasks_.has_rans(i)) {
    RansModel model;
    MatchColors colors;
    is_sound = GetRansModel(view, &model, &colors) && is_sound;
    std::memcpy(staging + tables.rans_offset, &model, sizeof(model));
    ReadMatchColors(colors, view.info.channels, view.info.used_bits,
                    reinterpret_cast<uint64_t*>(staging + tables.colors_offset));
  }
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    WriteWindow(i, w, staging, device);
  }
  const Status status = image.job->is_lost                   ? Status::kTruncated
                        : is_sound && !image.job->is_damaged ? Status::kOk
                                                             : Status::kCorruptHeader;
  tasks_.Write(
      i, status, uploads_,
      {staging, staging + tasks_offset_, staging + lists_offset_, staging + numbers_offset_});
  jpegs_.Write(
      i, status, uploads_,
      {staging, staging + jpegs_offset_, staging + units_offset_, staging + jpeg_tiles_offset_,
       staging + jpeg_pixels_offset_, device + jpegs_offset_, jpeg_scratch_});
}

void BatchLayout::WriteWindow(size_t i, size_t w, uint8_t* staging, uint8_t* device) const {
  const BatchImage& image = images_[i];
  const ImageView& view = image.view;
  const Tables& tables = tables_[i];
  const OutputPlan plan = image.PlanOf(w);
  DeviceWindow window = {};
  window.info = view.info;
  const auto* values = reinterpret_cast<const uint16_t*>(device + tables.values_offset);
  window.map =
      view.value_count == 0 ? MakeSampleMap(view.info) : MakeSampleMap(values, view.value_count);
  if (tasks_.has_rans(i)) {
    window.rans = reinterpret_cast<const RansModel*>(device + tables.rans_offset);
    window.colors = {nullptr, 1u << view.info.used_bits};
    if (view.color_count != 0) {
      window.colors = {reinterpret_cast<const uint64_t*>(device + tables.colors_offset),
                       view.color_count};
    }
  }
  const DeviceImage* cached = image.job->cached;
  window.payloads = cached != nullptr ? cached->payloads_dev : device + uploads_.payloads_offset(i);
  if (tasks_.has_plans()) {
    const OutputPlan sorted = SortChannels(plan);
    window.path = GetStorePath(view.info, sorted);
    window.row_order = GetRowOrder(sorted);
    window.top_bit = TopBitOf(view.info);
    std::memcpy(staging + plans_offset_ + w * sizeof(sorted), &sorted, sizeof(sorted));
  }
  window.output = {plan.data, static_cast<uint64_t>(plan.y_stride_bytes)};
  std::memcpy(staging + windows_offset_ + w * sizeof(window), &window, sizeof(window));
}

TileBatch BatchLayout::Batch(uint8_t* device, size_t launch) const {
  TileBatch batch = tasks_.Batch(launch, reinterpret_cast<const TileTask*>(device + tasks_offset_),
                                 reinterpret_cast<const WindowList*>(device + lists_offset_));
  batch.windows = reinterpret_cast<const DeviceWindow*>(device + windows_offset_);
  batch.results = reinterpret_cast<uint64_t*>(device);
  if (tasks_.store() == StoreKind::kPlans) {
    batch.plans = reinterpret_cast<const OutputPlan*>(device + plans_offset_);
    batch.window_numbers = reinterpret_cast<const uint32_t*>(device + numbers_offset_);
  }
  return batch;
}

JpegBatch BatchLayout::Round(uint8_t* device, size_t round) const {
  JpegBatch batch =
      jpegs_.Batch(round, reinterpret_cast<const JpegUnit*>(device + units_offset_),
                   reinterpret_cast<const JpegTileTask*>(device + jpeg_tiles_offset_),
                   reinterpret_cast<const JpegPixelTask*>(device + jpeg_pixels_offset_));
  batch.windows = reinterpret_cast<const DeviceWindow*>(device + windows_offset_);
  batch.plans = reinterpret_cast<const OutputPlan*>(device + plans_offset_);
  batch.window_numbers = reinterpret_cast<const uint32_t*>(device + numbers_offset_);
  batch.results = reinterpret_cast<uint64_t*>(device);
  return batch;
}

}  // namespace l3
