// libFuzzer target: images made of any bytes, encoded and decoded.
#include "fuzz/checks.h"
#include "fuzz/target.h"

L3_FUZZ_TARGET(CheckEncode)
