// libFuzzer target: images made of any bytes, which become others while they are encoded.
#include "fuzz/fuzz_targets.h"
#include "fuzz/target.h"

L3_FUZZ_TARGET(CheckEncodeChanging)
