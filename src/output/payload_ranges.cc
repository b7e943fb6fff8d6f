#include "output/payload_ranges.h"

#include <algorithm>

namespace l3 {

std::vector<ByteRange> FindPayloadRanges(const WindowJob& job, uint64_t max_gap_bytes) {
  const ImageView& view = *job.view;
  const uint64_t payloads = PayloadsOffset(view);
  std::vector<ByteRange> ranges = {{0, payloads}};
  bool is_sound = true;
  // Of `count` payloads that follow each other in the index.
  const auto add = [&](uint64_t first, uint64_t count) {
    const uint64_t begin = first == 0 ? 0 : view.IndexEntry(first - 1);
    const uint64_t end = view.IndexEntry(first + count - 1);
    is_sound = is_sound && begin < end && end <= view.payloads_bytes;
    ranges.push_back({payloads + begin, payloads + end});
  };
  const uint64_t groups = view.group_count;
  for (const OutputPlan* plan = job.plans; plan < job.plans + job.plan_count; ++plan) {
    const TileSpan span = TilesOfWindow(view.info, plan->window);
    for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
      const uint64_t first = uint64_t{row} * view.info.tile_columns() + span.column_begin;
      if (job.groups->size() == groups) {
        add(first * groups, span.columns() * groups);
        continue;
      }
      for (uint64_t tile = first; tile < first + span.columns(); ++tile) {
        for (const GroupOutput& group : *job.groups) add(tile * groups + group.number, 1);
      }
    }
  }
  if (!is_sound) return {};
  const auto before = [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; };
  std::sort(ranges.begin(), ranges.end(), before);
  size_t last = 0;
  for (const ByteRange& range : ranges) {
    const bool joins =
        range.begin <= ranges[last].end || range.begin - ranges[last].end <= max_gap_bytes;
    if (!joins) ranges[++last] = range;
    ranges[last].end = std::max(ranges[last].end, range.end);
  }
  ranges.resize(last + 1);
  return ranges;
}

}  // namespace l3
