#include "format/status.h"

namespace l3 {

const char* StatusName(Status status) {
  switch (status) {
    case Status::kOk: return "kOk";
    case Status::kTruncated: return "kTruncated";
    case Status::kBadMagic: return "kBadMagic";
    case Status::kUnsupportedVersion: return "kUnsupportedVersion";
    case Status::kUnsupportedFeature: return "kUnsupportedFeature";
    case Status::kCorruptHeader: return "kCorruptHeader";
    case Status::kCorruptTile: return "kCorruptTile";
    case Status::kChecksumMismatch: return "kChecksumMismatch";
    case Status::kOutputTooSmall: return "kOutputTooSmall";
    case Status::kInvalidArgument: return "kInvalidArgument";
  }
  return "unknown status";
}

const char* StatusMessage(Status status) {
  switch (status) {
    case Status::kOk: return "success";
    case Status::kTruncated: return "the data ends too early";
    case Status::kBadMagic: return "not an L3 image, or one damaged by a text-mode transfer";
    case Status::kUnsupportedVersion: return "a format version that this decoder does not support";
    case Status::kUnsupportedFeature:
      return "needs a chunk, tile coding or transform that this decoder does not support";
    case Status::kCorruptHeader: return "header, chunks or tile index are corrupt";
    case Status::kCorruptTile: return "a tile is corrupt";
    case Status::kChecksumMismatch: return "a checksum differs: the data is damaged";
    case Status::kOutputTooSmall: return "the output buffer is too small for the image";
    case Status::kInvalidArgument: return "invalid argument";
  }
  return "unknown status";
}

}  // namespace l3
