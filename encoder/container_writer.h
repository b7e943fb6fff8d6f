// Writes the parts of a file around the tiles (format.md 2 to 5). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/pixel_view.h"
#include "format/channel_groups.h"
#include "format/image_view.h"
#include "format/status.h"

namespace l3 {

// A chunk's header, data and padding, appended to `chunks`.
void AppendChunk(uint32_t type, Bytes data, std::vector<uint8_t>* chunks);

// The list of groups, as chunk data.
std::vector<uint8_t> SerializeChannelGroups(const std::vector<ChannelGroup>& groups);

// The value table of `values` (rising), as chunk data.
std::vector<uint8_t> SerializeValueTable(const std::vector<uint16_t>& values);

// Pads the payload that starts at `begin` to whole units and fills in its check.
void FinishPayload(size_t begin, std::vector<uint8_t>* payloads);

// A file in parts.
struct EncodedFile {
  std::vector<uint8_t> head;                       // all before the payloads
  std::vector<std::vector<uint8_t>> payload_runs;  // back to back
  uint64_t bytes;
};

// `info.chunks_bytes` is set here; payload_sizes are those of tile after tile, in each group after
// group, and `payload_runs` hold all payloads in that order.
EncodedFile AssembleFile(ImageInfo info, const std::vector<uint8_t>& chunks,
                         const std::vector<uint32_t>& payload_sizes,
                         std::vector<std::vector<uint8_t>> payload_runs,
                         uint32_t version = kVersion);

// Puts the parts together, on up to `threads` threads. Returns kOutputTooSmall if there is no
// memory for them.
Status WriteFile(EncodedFile file, unsigned threads, const AllocateFile& allocate);

}  // namespace l3
