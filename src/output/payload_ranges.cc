#include "output/payload_ranges.h"

#include <algorithm>

namespace l3 {

bool FindPayloadRanges(const WindowJob& job, uint64_t max_gap_bytes,
                       std::vector<ByteRange>* ranges) {
  const ImageView& view = *job.view;
  const size_t first_range = ranges->size();
  bool is_sound = true;
  // Of `count` payloads that follow each other in the index.
  const auto add = [&](uint64_t first, uint64_t count) {
    const uint64_t begin = first == 0 ? 0 : view.IndexEntry(first - 1);
    const uint64_t end = view.IndexEntry(first + count - 1);
    is_sound = is_sound && begin < end && end <= view.payloads_bytes;
    ranges->push_back({begin, end});
  };
  const uint64_t groups = view.group_count;
  for (const OutputPlan* plan = job.plans; plan < job.plans + job.plan_count; ++plan) {
    const TileSpan span = TilesOfWindow(view, plan->window);
    for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
      const uint64_t first = uint64_t{row} * view.info.tile_columns() + span.column_begin;
      if (job.end_of_groups() - job.group_begin == groups) {
        add(first * groups, span.columns() * groups);
        continue;
      }
      for (uint64_t tile = first; tile < first + span.columns(); ++tile) {
        for (size_t g = job.group_begin; g < job.end_of_groups(); ++g) {
          add(tile * groups + (*job.groups)[g].number, 1);
        }
      }
    }
  }
  if (!is_sound) ranges->resize(first_range);
  const auto begin = ranges->begin() + static_cast<std::ptrdiff_t>(first_range);
  std::sort(begin, ranges->end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  auto last = begin;
  for (auto range = begin; range < ranges->end(); ++range) {
    const bool joins = range->begin <= last->end || range->begin - last->end <= max_gap_bytes;
    if (!joins) *++last = *range;
    last->end = std::max(last->end, range->end);
  }
  if (begin != ranges->end()) ranges->erase(last + 1, ranges->end());
  return is_sound;
}

std::vector<ByteRange> FindFileRanges(const WindowJob& job, uint64_t max_gap_bytes) {
  const uint64_t payloads = PayloadsOffset(*job.view);
  std::vector<ByteRange> ranges;
  if (!FindPayloadRanges(job, max_gap_bytes, &ranges)) return {};
  for (ByteRange& range : ranges) range = {payloads + range.begin, payloads + range.end};
  if (!ranges.empty() && ranges[0].begin - payloads <= max_gap_bytes) {
    ranges[0].begin = 0;
  } else {
    ranges.insert(ranges.begin(), {0, payloads});
  }
  return ranges;
}

}  // namespace l3
