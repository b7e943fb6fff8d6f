// libFuzzer target: files that the bytes build by the rules of the format, those that no encoder
// would write included. Every engine must give the pixels that the builder knows.
#include "fuzz/checks.h"
#include "fuzz/target.h"

L3_FUZZ_TARGET(CheckBuilt)
