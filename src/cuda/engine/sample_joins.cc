#include "cuda/engine/sample_joins.h"

#include <algorithm>
#include <cstring>

namespace l3 {
namespace {

uint64_t Align16(uint64_t bytes) { return CeilDiv(bytes, 16) * 16; }

}  // namespace

void SampleJoins::Plan(std::vector<WindowJob>* jobs, const ForEach& for_each) {
  coded_.clear();
  tasks_.clear();
  places_.clear();
  planes_bytes_ = 0;
  std::vector<WindowJob*> planned;
  for (WindowJob& job : *jobs) {
    if (job.view->info.sample_type >= SampleType::kUint32 && job.plan_count != 0) {
      planned.push_back(&job);
    }
  }
  coded_.resize(planned.size());
  RunForEach(planned.size() > 1 ? for_each : kOnThisThread, planned.size(), [&](size_t i) {
    planned[i]->is_damaged = !ReadSampleJoin(*planned[i]->view, DecodeTableByCore, &coded_[i].join);
  });
  for (size_t i = 0; i < planned.size(); ++i) PlanJob(planned[i], i);
  uint64_t offset = Align16(tasks_.size() * sizeof(JoinTask));
  for (Coded& coded : coded_) {
    coded.table_offset = offset;
    offset = Align16(offset + 4 * coded.join.table.size());
  }
  staged_bytes_ = offset;
}

void SampleJoins::PlanJob(WindowJob* job, size_t number) {
  const ImageView& view = *job->view;
  const bool has_halves = view.info.holding == Holding::kHalves;
  const uint32_t coded_bytes = CodedInfo(view.info).sample_bytes();
  Coded& coded = coded_[number];
  if (job->is_damaged && !has_halves) coded.join.table.assign(MostRanks(view.info), 0);
  // Where the planes of each group begin.
  std::vector<uint32_t> first_plane;
  uint32_t planes = 0;
  const size_t begin = job->group_begin;
  const size_t end = job->end_of_groups();
  for (size_t g = begin; g < end; ++g) {
    GroupOutput group = (*job->groups)[g];
    first_plane.push_back(planes);
    group.channels = static_cast<uint8_t>(group.group_channels * (has_halves ? 2 : 1));
    group.is_merged = false;
    for (uint32_t i = 0; i < group.channels; ++i) {
      group.source[i] = static_cast<uint8_t>(i);
      group.place[i] = static_cast<uint16_t>(planes++);
    }
    coded.groups.push_back(group);
  }
  for (size_t w = 0; w < job->plan_count; ++w) {
    const Window& window = job->plans[w].window;
    const uint64_t plane_bytes =
        Align16(uint64_t{window.width_px} * window.height_px * coded_bytes);
    OutputPlan plan = {};
    plan.x_stride_bytes = coded_bytes;
    plan.y_stride_bytes = int64_t{window.width_px} * coded_bytes;
    plan.SetChannelStride(static_cast<int64_t>(plane_bytes));
    plan.window = window;
    plan.type = coded_bytes == 1 ? OutputType::kU8 : OutputType::kU16;
    plan.op = PixelOp::kSelect;
    plan.channels = coded.groups[0].channels;
    for (uint8_t c = 0; c < kMaxChannels; ++c) plan.source[c] = c;
    plan.range = 1;
    coded.plans.push_back(plan);
    coded.offsets.push_back(planes_bytes_);
    planes_bytes_ += planes * plane_bytes;

    const auto add_channel = [&](JoinTask* task, uint32_t channel, size_t g, uint32_t i) {
      const uint32_t first = first_plane[g - begin];
      task->plane[channel] = static_cast<uint16_t>(first + i);
      task->low_plane[channel] =
          static_cast<uint16_t>(first + (*job->groups)[g].group_channels + i);
      ++task->channels;
    };
    JoinTask task = {};
    task.plane_bytes = plane_bytes;
    task.halves = coded.join.halves;
    task.type = view.info.sample_type;
    task.coded_bytes = static_cast<uint8_t>(coded_bytes);
    for (size_t g = begin; g < end; ++g) {
      const GroupOutput& group = (*job->groups)[g];
      if (!job->is_merged()) task.channels = 0;
      for (uint32_t i = 0; i < group.group_channels; ++i) {
        add_channel(&task, job->is_merged() ? group.place[i] : i, g, i);
      }
      if (job->is_merged() && g + 1 != end) continue;
      task.plan = job->PlanOf(g, w);
      tasks_.push_back(task);
      places_.push_back({number, w});
    }
  }
  job->groups = &coded.groups;
  job->plans = coded.plans.data();
  job->group_begin = 0;
  job->group_end = ~size_t{0};
}

void SampleJoins::Write(uint8_t* staging, uint8_t* device, uint8_t* planes) {
  for (Coded& coded : coded_) {
    for (size_t w = 0; w < coded.plans.size(); ++w) {
      coded.plans[w].data = planes + coded.offsets[w];
    }
    if (!coded.join.table.empty()) {
      std::memcpy(staging + coded.table_offset, coded.join.table.data(),
                  4 * coded.join.table.size());
    }
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    JoinTask task = tasks_[i];
    const Coded& coded = coded_[places_[i].coded];
    task.coded = planes + coded.offsets[places_[i].plan];
    task.table = coded.join.table.empty()
                     ? nullptr
                     : reinterpret_cast<const uint32_t*>(device + coded.table_offset);
    std::memcpy(staging + i * sizeof(task), &task, sizeof(task));
  }
}

}  // namespace l3
