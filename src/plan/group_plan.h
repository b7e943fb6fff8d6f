// Outputs of images whose channels are in groups: what of an output each group has. Layer: plan.
#pragma once

#include <vector>

#include "core/output.h"
#include "core/window_job.h"
#include "format/image_view.h"
#include "plan/tensor_plan.h"

namespace l3 {

// The groups that have channels of the plan's output, in the order of the file. None if somebody
// changed the list of groups since ParseImage() judged it.
std::vector<GroupShare> ShareOutput(const ImageView& view, const TensorPlan& plan);

// What becomes of a window in a tensor with memory, as a WindowJob has it.
OutputPlan PlaceOutput(const std::vector<GroupShare>& shares, const TensorPlan& plan, void* tensor);

}  // namespace l3
