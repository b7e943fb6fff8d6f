// libFuzzer target: a file, with checksums made right, that changes once it was parsed to one that
// differs here and there, through every engine.
#include "fuzz/change_target.h"
#include "fuzz/target.h"

L3_FUZZ_TARGET(CheckChanging)
