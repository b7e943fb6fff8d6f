// Floats and samples of 32 bits in a batch: kernels decode what tiles hold to planes in memory of
// the device, and a last kernel joins them (sample_join.h). Layer: cuda; plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/for_each.h"
#include "cuda/kernels/sample_join.h"
#include "output/window_job.h"

namespace l3 {

class SampleJoins {
 public:
  // Replaces jobs of such images by jobs that decode to planes. Reads their tables.
  void Plan(std::vector<WindowJob>* jobs, const ForEach& for_each);

  // Tasks and tables, which are staged, and planes, which do not go up.
  uint64_t staged_bytes() const { return staged_bytes_; }
  uint64_t planes_bytes() const { return planes_bytes_; }
  // Writes tasks and tables, which kernels will see at `device`, and tells the planned jobs where
  // their planes are.
  void Write(uint8_t* staging, uint8_t* device, uint8_t* planes);
  size_t task_count() const { return tasks_.size(); }

 private:
  // What stands in place of a job: coded groups and plans, which jobs point at.
  struct Coded {
    std::vector<GroupOutput> groups;
    std::vector<OutputPlan> plans;
    std::vector<uint64_t> offsets;  // of the planes of each plan, from the first planes
    SampleJoin join;
    uint64_t table_offset;
  };
  struct TaskPlace {
    size_t coded, plan;
  };

  void PlanJob(WindowJob* job, size_t number);

  std::deque<Coded> coded_;
  std::vector<JoinTask> tasks_;
  std::vector<TaskPlace> places_;  // of each task
  uint64_t planes_bytes_ = 0;
  uint64_t staged_bytes_ = 0;
};

}  // namespace l3
