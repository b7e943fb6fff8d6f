// The check of a payload, computed on vectors. Layer: encoder.
#pragma once

#include <cstdint>

namespace l3 {

// PayloadCheck() of core/check.h.
uint32_t FastPayloadCheck(const uint8_t* payload, uint64_t size);

}  // namespace l3
