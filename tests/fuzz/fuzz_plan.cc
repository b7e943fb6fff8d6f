// libFuzzer target: windows, types and layouts of files that the bytes build, some of them damaged.
#include "fuzz/checks.h"
#include "fuzz/target.h"

L3_FUZZ_TARGET(CheckBuiltPlan)
