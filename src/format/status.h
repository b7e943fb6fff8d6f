// Outcome of every call that looks at untrusted bytes (format.md 2).
// Layer: format. Values are frozen with version 1 of the format.
#pragma once

#include <cstdint>

namespace l3 {

enum class Status : uint32_t {
  kOk = 0,
  kTruncated = 1,
  kBadMagic = 2,
  kUnsupportedVersion = 3,
  kUnsupportedFeature = 4,
  kCorruptHeader = 5,
  kCorruptTile = 6,
  kChecksumMismatch = 7,
  kOutputTooSmall = 8,
  kInvalidArgument = 9,
};

// "kTruncated", ...: the name format.md uses.
const char* StatusName(Status status);
// A sentence for people: what is wrong with the data or the call.
const char* StatusMessage(Status status);

}  // namespace l3
