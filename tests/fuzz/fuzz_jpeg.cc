// libFuzzer target: JPEG files, read and restored.
#include "fuzz/checks.h"
#include "fuzz/target.h"

L3_FUZZ_TARGET(CheckJpeg)
