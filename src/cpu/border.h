// The border of an output. Layer: cpu.
#pragma once

#include "output/output_plan.h"

namespace l3 {

// Writes the border that the plan names.
void FillBorder(const OutputPlan& plan);

}  // namespace l3
