// The built-in model of jpeg tiles (format.md, appendix B). Layer: format.
#pragma once

#include <cstdint>

namespace l3 {

constexpr uint8_t kJpegBuiltInModel[] = {0};

}  // namespace l3
