#include "encoder/container_writer.h"

#include <cstring>
#include <utility>

#include "base/parallel.h"
#include "encoder/payload_check.h"
#include "format/crc32c.h"

namespace l3 {

void AppendChunk(uint32_t type, Bytes data, std::vector<uint8_t>* chunks) {
  const size_t begin = chunks->size();
  chunks->resize(begin + 8 + CeilDiv(data.size, 4) * 4);
  uint8_t* p = chunks->data() + begin;
  StoreU32(p, type);
  StoreU32(p + 4, static_cast<uint32_t>(data.size));
  if (data.size != 0) std::memcpy(p + 8, data.data, data.size);
}

std::vector<uint8_t> SerializeChannelGroups(const std::vector<ChannelGroup>& groups) {
  std::vector<uint8_t> data(2);
  StoreU16(data.data(), static_cast<uint32_t>(groups.size()));
  for (const ChannelGroup& group : groups) {
    data.push_back(static_cast<uint8_t>(group.channels));
    for (uint32_t i = 0; i < group.channels; ++i) {
      data.push_back(static_cast<uint8_t>(group.channel[i]));
      data.push_back(static_cast<uint8_t>(group.channel[i] >> 8));
    }
  }
  return data;
}

std::vector<uint8_t> SerializeValueTable(const std::vector<uint16_t>& values) {
  std::vector<uint8_t> data(4);
  StoreU32(data.data(), static_cast<uint32_t>(values.size()));
  uint32_t next = 0;
  for (const uint16_t value : values) {
    uint32_t gap = value - next;
    for (; gap >= 0x80; gap >>= 7) data.push_back(static_cast<uint8_t>(gap | 0x80));
    data.push_back(static_cast<uint8_t>(gap));
    next = value + 1u;
  }
  return data;
}

void FinishPayload(size_t begin, std::vector<uint8_t>* payloads) {
  const uint64_t size = CeilDiv(payloads->size() - begin, kPayloadAlignment) * kPayloadAlignment;
  payloads->resize(begin + size);
  uint8_t* payload = payloads->data() + begin;
  StoreU32(payload, FastPayloadCheck(payload, size));
}

EncodedFile AssembleFile(ImageInfo info, const std::vector<uint8_t>& chunks,
                         const std::vector<uint32_t>& payload_sizes,
                         std::vector<std::vector<uint8_t>> payload_runs, uint32_t version) {
  info.chunks_bytes = static_cast<uint32_t>(chunks.size());
  const size_t checked_bytes = chunks.size() + 4 * payload_sizes.size();
  const size_t head_bytes =
      CeilDiv(kHeaderBytes + checked_bytes + 4, kPayloadAlignment) * kPayloadAlignment;
  EncodedFile file;
  file.head.resize(head_bytes);
  uint8_t* p = file.head.data();
  std::memcpy(p, kSignature, sizeof(kSignature));
  p[8] = static_cast<uint8_t>(version);
  p[9] = static_cast<uint8_t>(static_cast<uint32_t>(info.sample_type) |
                              static_cast<uint32_t>(info.holding) << kHoldingShift);
  StoreU16(p + 10, info.channels);
  p[12] = info.used_bits;
  p[13] = info.shift;
  p[14] = static_cast<uint8_t>(info.tile_width_log2 | info.tile_height_log2 << 4);
  p[15] = static_cast<uint8_t>(info.meaning);
  StoreU32(p + 16, info.width_px);
  StoreU32(p + 20, info.height_px);
  StoreU32(p + 24, info.chunks_bytes);
  StoreU32(p + 28, Crc32c(p, 28));

  uint8_t* checked = p + kHeaderBytes;
  if (!chunks.empty()) std::memcpy(checked, chunks.data(), chunks.size());
  uint8_t* index = checked + chunks.size();
  uint32_t end = 0;
  for (size_t tile = 0; tile < payload_sizes.size(); ++tile) {
    end += payload_sizes[tile] / kPayloadAlignment;
    StoreU32(index + 4 * tile, end);
  }
  StoreU32(checked + checked_bytes, Crc32c(checked, checked_bytes));
  file.payload_runs = std::move(payload_runs);
  file.bytes = head_bytes + uint64_t{end} * kPayloadAlignment;
  return file;
}

Status WriteFile(EncodedFile file, unsigned threads, const AllocateFile& allocate) {
  uint8_t* out = allocate(file.bytes);
  if (out == nullptr) return Status::kOutputTooSmall;
  std::memcpy(out, file.head.data(), file.head.size());
  std::vector<uint64_t> begins;
  uint64_t begin = file.head.size();
  for (const auto& run : file.payload_runs) {
    begins.push_back(begin);
    begin += run.size();
  }
  // Threads pay off from 1 MiB on: they share the copying and the page faults.
  constexpr uint64_t kMinThreadBytes = 1 << 20;
  if (file.bytes < kMinThreadBytes) threads = 1;
  ParallelFor(begins.size(), threads, [&](uint64_t i) {
    std::vector<uint8_t> run = std::move(file.payload_runs[i]);
    if (!run.empty()) std::memcpy(out + begins[i], run.data(), run.size());
  });
  return Status::kOk;
}

}  // namespace l3
