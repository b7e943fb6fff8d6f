#include "cpu/jpeg_windows.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/parallel.h"
#include "core/jpeg_pixels.h"
#include "cpu/windows_of_tiles.h"

namespace l3 {
namespace {

constexpr uint32_t kRingRows = 16;    // of samples: two of blocks
constexpr uint32_t kStoredRows = 8;   // of pixels that are stored together
constexpr uint32_t kMarginBytes = 64;  // before and behind a row of samples

// The samples of a component that a row of tiles has, and of the pixels around its upper edge.
struct Component {
  uint32_t x_shift, y_shift;
  uint32_t first_column, columns;  // of samples
  uint32_t first_row, end_row;     // of samples in blocks
  uint32_t next_row;               // rows before it are in the ring, as far as anyone needs them
  uint32_t block_columns;
  uint8_t* blocks;  // 64 bytes each
  uint8_t* ring;    // the first sample of row 0
  size_t row_bytes;

  size_t block_row_bytes() const { return size_t{block_columns} * kJpegBlockSamples; }
  uint8_t* Row(uint32_t y) const { return ring + y % kRingRows * row_bytes; }
};

// Where a row of pixels comes from: samples of the first column.
struct RowSources {
  const uint8_t* luma;
  const uint8_t* near[2];  // of chroma
  const uint8_t* far[2];
};

class Windows {
 public:
  Windows(const JpegSource& source, const OutputPlan* plans, size_t count, const TileSpan& span,
          uint32_t row_begin, uint32_t row_end, JpegSeams* seams)
      : source_(source),
        info_(source.view.info),
        jpeg_(source.jpeg),
        plans_(plans),
        plan_count_(count),
        span_(span),
        row_begin_(row_begin),
        row_end_(row_end),
        seams_(seams) {
    Allocate();
  }

  DecodeResult Run() {
    DecodeResult result{Status::kOk, 0};
    const bool is_smooth_down = jpeg_.chroma_y_shift != 0;
    WindowsOfTiles windows(source_.view, plans_, plan_count_, span_, row_begin_ * span_.columns(),
                           row_end_ * span_.columns());
    uint32_t done = FirstPixelRow(row_begin_);
    if (is_smooth_down && row_begin_ > 0) ++done;  // those before belong to the edge
    for (uint32_t row = row_begin_; row < row_end_; ++row) {
      DecodeTiles(row, &windows, &result);
      if (row == row_begin_ && row > 0) LeaveRows(row, true);
      uint32_t end = FirstPixelRow(row + 1);
      const bool is_last = end == info_.height_px || row + 1 == span_.rows();
      if (is_smooth_down && !is_last) --end;
      while (done < end) {
        const uint32_t part_end = std::min(end, (done / kStoredRows + 1) * kStoredRows);
        StoreRows(done, part_end);
        done = part_end;
      }
      if (row + 1 == row_end_ && !is_last) LeaveRows(row + 1, false);
      if (is_smooth_down && !is_last) KeepLastRows();
    }
    return result;
  }

 private:
  // The first row of pixels of a row of tiles.
  uint32_t FirstPixelRow(uint32_t row) const {
    return std::min(info_.height_px, (span_.row_begin + row) << info_.tile_height_log2);
  }

  void Allocate() {
    first_column_ = span_.column_begin << info_.tile_width_log2;
    const uint32_t end_column = std::min(info_.width_px, span_.column_end << info_.tile_width_log2);
    size_t bytes = 64;
    const auto reserve = [&bytes](size_t size) {
      const size_t at = bytes;
      bytes += CeilDiv(size, 64) * 64;
      return at;
    };
    size_t blocks[kMaxJpegComponents];
    size_t ring[kMaxJpegComponents];
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      Component& component = components_[c];
      component = {};
      component.x_shift = jpeg_.x_shift(c);
      component.y_shift = jpeg_.y_shift(c);
      component.first_column = first_column_ >> component.x_shift;
      component.columns =
          ((end_column + component.x_shift) >> component.x_shift) - component.first_column;
      component.block_columns = (component.columns + 7) / 8;
      const uint32_t block_rows = (1u << info_.tile_height_log2 >> component.y_shift) / 8;
      blocks[c] = reserve(component.block_row_bytes() * block_rows + kJpegSpareBytes);
      component.row_bytes = 2 * kMarginBytes + CeilDiv(component.columns, 64) * 64;
      ring[c] = reserve(component.row_bytes * kRingRows + kJpegSpareBytes) + kMarginBytes;
    }
    row_bytes_ = size_t{jpeg_.components} * (end_column - first_column_);
    const size_t pixels = reserve(kStoredRows * row_bytes_ + kJpegSpareBytes);
    size_t upsampled[2];
    for (size_t& row : upsampled) row = reserve(end_column - first_column_ + kJpegSpareBytes);
    memory_.reset(new uint8_t[bytes]);
    uint8_t* const begin =
        memory_.get() + (64 - reinterpret_cast<uintptr_t>(memory_.get()) % 64) % 64;
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      components_[c].blocks = begin + blocks[c] - 64;
      components_[c].ring = begin + ring[c] - 64;
    }
    pixels_ = begin + pixels - 64;
    for (uint32_t i = 0; i < 2; ++i) upsampled_[i] = begin + upsampled[i] - 64;
  }

  // Decodes the tiles of a row that windows need.
  void DecodeTiles(uint32_t row, WindowsOfTiles* windows, DecodeResult* result) {
    const uint32_t end = FirstPixelRow(row + 1);
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      Component& component = components_[c];
      component.first_row = FirstPixelRow(row) >> component.y_shift;
      component.end_row = (end + component.y_shift) >> component.y_shift;
      component.next_row = std::max(component.next_row, component.first_row);
    }
    JpegTileJob jobs[kMaxTileJobs];
    uint32_t count = 0;
    const auto run = [&] {
      CheckInterrupt();
      source_.engine.decode_jpeg_tiles({info_, jpeg_, source_.tables},
                                       source_.engine.jpeg->transform, kJpegBlockSamples, jobs,
                                       count);
      for (uint32_t i = 0; i < count; ++i) {
        if (jobs[i].status != Status::kOk) Clear(jobs[i]);
        *result = FirstBad(*result, {jobs[i].status, jobs[i].tile});
      }
      count = 0;
    };
    for (uint32_t i = row * span_.columns(); i < (row + 1) * span_.columns(); ++i) {
      const uint32_t tile = TileOfSpan(info_, span_, i);
      if (windows->At(tile).empty()) continue;
      jobs[count++] = MakeJob(tile);
      if (count == kMaxTileJobs) run();
    }
    if (count > 0) run();
  }

  JpegTileJob MakeJob(uint32_t tile) const {
    JpegTileJob job = {};
    job.tile = tile;
    uint64_t begin;
    const bool is_sound = source_.view.FindPayload(tile, &begin, &job.size);
    job.status = is_sound ? Status::kOk : Status::kCorruptHeader;
    job.payload = source_.view.payloads + (is_sound ? begin : 0);
    const uint32_t x_px = GetTileRect(info_, tile).x_px - first_column_;
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      const Component& component = components_[c];
      job.row_bytes[c] = component.block_row_bytes();
      job.blocks[c] = component.blocks + size_t{x_px >> component.x_shift} / 8 * kJpegBlockSamples;
    }
    return job;
  }

  // Of a tile that failed, there may be blocks without samples.
  void Clear(const JpegTileJob& job) const {
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      const JpegBlockRect rect = JpegBlocksOfTile(info_, jpeg_, job.tile, c);
      for (uint32_t y = 0; y < rect.height; ++y) {
        std::memset(job.blocks[c] + y * job.row_bytes[c], 0, rect.width * kJpegBlockSamples);
      }
    }
  }

  // Sees to it that rows from `first` to `last` are in the ring. Rows before may be missing.
  void MakeRows(Component* component, uint32_t first, uint32_t last) const {
    component->next_row = std::max(component->next_row, first / 8 * 8);
    for (; component->next_row <= last; component->next_row += 8) {
      const size_t block_row = (component->next_row - component->first_row) / 8;
      uint8_t* const rows = component->Row(component->next_row);
      source_.engine.jpeg->rows(component->blocks + block_row * component->block_row_bytes(),
                                component->block_columns, rows, component->row_bytes);
      if (component->x_shift == 0) continue;
      for (uint32_t y = 0; y < 8; ++y) {  // beyond the edges the last sample is repeated
        uint8_t* const row = rows + y * component->row_bytes;
        row[-1] = row[0];
        row[component->columns] = row[component->columns - 1];
      }
    }
  }

  // The rows that the next row of tiles needs.
  void KeepLastRows() {
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      const uint32_t last = components_[c].end_row - 1;
      MakeRows(&components_[c], last, last);
    }
  }

  // Samples of rows of pixels from the ring.
  void MakeRowsFor(uint32_t begin, uint32_t end) {
    MakeRows(&components_[0], begin, end - 1);
    for (uint32_t c = 1; c < jpeg_.components; ++c) {
      Component& component = components_[c];
      const uint32_t beyond = component.y_shift;
      MakeRows(&component, (begin - std::min(begin, beyond)) >> beyond,
               std::min((end - 1 + beyond) >> beyond, component.end_row - 1));
    }
  }
  RowSources SourcesOf(uint32_t y) const {
    RowSources sources = {components_[0].Row(y), {}, {}};
    for (uint32_t c = 1; c < jpeg_.components; ++c) {
      const Component& component = components_[c];
      const uint32_t near = y >> component.y_shift;
      uint32_t far = near;
      if (component.y_shift != 0 && y % 2 == 0 && near > 0) --far;
      if (component.y_shift != 0 && y % 2 == 1 && near + 1 < JpegRows(jpeg_, c)) ++far;
      sources.near[c - 1] = component.Row(near);
      sources.far[c - 1] = component.Row(far);
    }
    return sources;
  }

  // Stores the pixels of rows that windows want; in [begin, end) are up to kStoredRows.
  void StoreRows(uint32_t begin, uint32_t end) {
    bool is_made = false;
    for (const OutputPlan* plan = plans_; plan < plans_ + plan_count_; ++plan) {
      const Window& window = plan->window;
      const uint32_t first = std::max(begin, window.y_px);
      const uint32_t last = std::min(end, window.y_px + window.height_px);
      if (first >= last || window.width_px == 0) continue;
      CheckInterrupt();
      if (!is_made) MakeRowsFor(begin, end);
      is_made = true;
      RowSources sources[kStoredRows];
      for (uint32_t y = first; y < last; ++y) sources[y - first] = SourcesOf(y);
      StoreWindow(*plan, first, last - first, sources);
    }
  }

  // Stores `count` rows of a window from row `y` of the image on.
  void StoreWindow(const OutputPlan& plan, uint32_t y, uint32_t count, const RowSources* sources) {
    const Window& window = plan.window;
    const bool is_stored = HasStoredRows(info_, plan);
    const bool is_luma = jpeg_.color == JpegColor::kYcbcr && plan.HasLuma();
    const uint64_t row_bytes = uint64_t{window.width_px} * jpeg_.components;
    for (uint32_t i = 0; i < count; ++i) {
      uint8_t* const out =
          is_stored ? plan.Place(0, y + i - window.y_px, 0) : pixels_ + i * row_bytes;
      const bool has_next = is_stored && y + i + 1 < window.y_px + window.height_px;
      const uint8_t* const next = has_next ? out + plan.y_stride_bytes : nullptr;
      MakePixels(sources[i], is_luma, window.x_px, window.width_px, (y + i) % 2, out, next);
    }
    if (is_stored) return;
    const TileRect rect = {window.x_px, y, window.width_px, count};
    source_.engine.store_rect(info_, plan, rect, {pixels_, row_bytes});
  }

  // `is_luma`: all channels are luma. `next` is where the next row goes, or null.
  void MakePixels(const RowSources& sources, bool is_luma, uint32_t x, uint32_t width, uint32_t odd,
                  uint8_t* out, const uint8_t* next) const {
    const uint32_t column = x - first_column_;
    const uint8_t* const luma = sources.luma + column;
    const uint8_t* planes[3] = {luma, luma, luma};
    if (jpeg_.components == 1) {
      std::memcpy(out, luma, width);
      return;
    }
    if (is_luma) {
      source_.engine.jpeg->color(planes, false, width, out);
      return;
    }
    for (uint32_t i = 0; i < 2; ++i) {
      // Stores that miss the cache hold up others. Half of the row at a time: more at once do, too.
      for (uint32_t at = 0; next != nullptr && at < 3 * width / 2; at += 64) {
        __builtin_prefetch(next + i * 3 * width / 2 + at, 1, 2);
      }
      const uint32_t shift = jpeg_.chroma_x_shift;
      const uint32_t first = column >> shift;
      const uint8_t* const near = sources.near[i] + first;
      const uint8_t* const far = jpeg_.chroma_y_shift != 0 ? sources.far[i] + first : nullptr;
      planes[i + 1] = upsampled_[i] + (column & shift);
      if (!HasSmoothChroma(jpeg_)) {
        for (uint32_t k = 0; k < width; ++k) {
          upsampled_[i][(column & shift) + k] = sources.near[i][(column + k) >> shift];
        }
      } else if (shift == 0 && far == nullptr) {
        planes[i + 1] = near;
      } else {
        const uint32_t count = ((column + width - 1) >> shift) + 1 - first;
        source_.engine.jpeg->upsample(near, far, shift != 0, odd, count, upsampled_[i]);
      }
    }
    source_.engine.jpeg->color(planes, jpeg_.color == JpegColor::kYcbcr, width, out);
  }

  // Leaves the rows at the edge above a row of tiles for the call on its other side, or stores the
  // pixels that need both.
  void LeaveRows(uint32_t row, bool is_below) {
    if (jpeg_.chroma_y_shift == 0) return;
    const uint32_t y = FirstPixelRow(row);
    size_t row_bytes[kMaxJpegComponents];
    size_t bytes = kMarginBytes;
    for (uint32_t c = 0; c < jpeg_.components; ++c)
      bytes += row_bytes[c] = components_[c].row_bytes;
    std::vector<uint8_t> own(bytes);
    uint8_t* to = own.data();
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      Component& component = components_[c];
      const uint32_t at = is_below ? y >> component.y_shift : component.end_row - 1;
      MakeRows(&component, at, at);
      std::memcpy(to, component.Row(at) - kMarginBytes, row_bytes[c]);
      to += row_bytes[c];
    }
    std::vector<uint8_t> other = own;
    if (!seams_->Meet(row, &other)) return;
    const uint8_t* above = (is_below ? other : own).data() + kMarginBytes;
    const uint8_t* below = (is_below ? own : other).data() + kMarginBytes;
    RowSources sources[2] = {{above, {}, {}}, {below, {}, {}}};
    for (uint32_t c = 1; c < jpeg_.components; ++c) {
      above += row_bytes[c - 1];
      below += row_bytes[c - 1];
      sources[0].near[c - 1] = sources[1].far[c - 1] = above;
      sources[1].near[c - 1] = sources[0].far[c - 1] = below;
    }
    for (const OutputPlan* plan = plans_; plan < plans_ + plan_count_; ++plan) {
      const Window& window = plan->window;
      const uint32_t first = std::max(y - 1, window.y_px);
      const uint32_t last = std::min(y + 1, window.y_px + window.height_px);
      if (first >= last || window.width_px == 0) continue;
      StoreWindow(*plan, first, last - first, sources + (first - (y - 1)));
    }
  }

  const JpegSource source_;
  const ImageInfo& info_;
  const JpegInfo& jpeg_;
  const OutputPlan* const plans_;
  const size_t plan_count_;
  const TileSpan span_;
  const uint32_t row_begin_, row_end_;
  JpegSeams* const seams_;
  uint32_t first_column_;  // of pixels
  Component components_[kMaxJpegComponents];
  std::unique_ptr<uint8_t[]> memory_;
  size_t row_bytes_;
  uint8_t* pixels_;        // rows of a window before they are stored
  uint8_t* upsampled_[2];  // a row of each chroma component
};

}  // namespace

bool JpegSeams::Meet(uint32_t tile_row, std::vector<uint8_t>* rows) {
#if !defined(L3_ONE_THREAD)
  const std::lock_guard<std::mutex> lock(mutex_);
#endif
  const auto [place, is_first] = waiting_.try_emplace(tile_row);
  if (is_first) {
    place->second = std::move(*rows);
    return false;
  }
  *rows = std::move(place->second);
  waiting_.erase(place);
  return true;
}

DecodeResult DecodeJpegWindows(const JpegSource& source, const OutputPlan* plans, size_t count,
                               const TileSpan& span, uint32_t row_begin, uint32_t row_end,
                               JpegSeams* seams) {
  if (row_begin == row_end || span.columns() == 0) return {Status::kOk, 0};
  return Windows(source, plans, count, span, row_begin, row_end, seams).Run();
}

}  // namespace l3
