#include "encoder/jpeg_stream.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace l3 {
namespace {

uint32_t LoadBigU16(const uint8_t* p) { return static_cast<uint32_t>(p[0] << 8 | p[1]); }

constexpr const char* kOtherSampling = "its sampling is not 4:4:4, 4:2:2, 4:2:0 or 4:4:0";

bool StartsWith(const uint8_t* data, size_t size, const char* text, size_t text_size) {
  return size >= text_size && std::memcmp(data, text, text_size) == 0;
}

// T.81, annex K.3.
constexpr uint8_t kStandardCounts[2][2][16] = {
    {{0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0},
     {0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0}},
    {{0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125},
     {0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119}}};
constexpr uint8_t kStandardAc[2][162] = {
    {0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
     0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52,
     0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0A, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x25,
     0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45,
     0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64,
     0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83,
     0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
     0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6,
     0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3,
     0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8,
     0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA},
    {0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
     0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33,
     0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18,
     0x19, 0x1A, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44,
     0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63,
     0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A,
     0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
     0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4,
     0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA,
     0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7,
     0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA}};

}  // namespace

uint32_t JpegCode::SymbolCount() const {
  uint32_t sum = 0;
  for (const uint8_t count : counts) sum += count;
  return sum;
}

bool JpegCode::IsSound() const {
  uint32_t left = 1;
  for (const uint8_t count : counts) {
    left *= 2;
    if (count > left) return false;
    left -= count;
  }
  return SymbolCount() != 0;
}

bool JpegCode::operator==(const JpegCode& other) const {
  return std::memcmp(counts, other.counts, sizeof(counts)) == 0 &&
         std::memcmp(symbols, other.symbols, SymbolCount()) == 0;
}

JpegCode StandardCode(uint32_t is_ac, uint32_t table) {
  JpegCode code;
  std::memcpy(code.counts, kStandardCounts[is_ac][table], sizeof(code.counts));
  if (is_ac != 0) {
    std::memcpy(code.symbols, kStandardAc[table], sizeof(kStandardAc[table]));
  } else {
    for (uint8_t i = 0; i < 12; ++i) code.symbols[i] = i;
  }
  return code;
}

JpegCode OptimalCode(const JpegFrequencies& frequencies) {
  // The used symbols in falling order, and before all a symbol that keeps the code of ones free. Of
  // equal frequencies the first is merged first: that of the greatest symbol.
  struct Node {
    uint32_t symbol;
    uint32_t bits = 0;
    int next = -1;  // of those merged
  };
  using Tree = std::pair<uint64_t, int>;  // its frequency and its first node
  std::vector<Node> nodes = {{256}};
  std::priority_queue<Tree, std::vector<Tree>, std::greater<>> trees;
  trees.push({1, 0});
  for (uint32_t symbol = 256; symbol-- > 0;) {
    if (frequencies[symbol] == 0) continue;
    trees.push({frequencies[symbol], static_cast<int>(nodes.size())});
    nodes.push_back({symbol});
  }
  while (trees.size() > 1) {
    const Tree least = trees.top();
    trees.pop();
    const Tree second = trees.top();
    trees.pop();
    int last = least.second;
    for (; nodes[last].next >= 0; last = nodes[last].next) ++nodes[last].bits;
    ++nodes[last].bits;
    nodes[last].next = second.second;
    for (int i = second.second; i >= 0; i = nodes[i].next) ++nodes[i].bits;
    trees.push({least.first + second.first, least.second});  // in the place of the least
  }
  // Codes of more than 16 bits: a pair becomes one shorter, beside a longer one of fewer bits.
  uint32_t counts[257] = {};
  for (const Node& node : nodes) ++counts[node.bits];
  for (uint32_t bits = 256; bits > 16; --bits) {
    while (counts[bits] > 0) {
      uint32_t shorter = bits - 2;
      while (counts[shorter] == 0) --shorter;
      counts[bits] -= 2;
      ++counts[bits - 1];
      counts[shorter + 1] += 2;
      --counts[shorter];
    }
  }
  uint32_t longest = 16;
  while (counts[longest] == 0) --longest;
  --counts[longest];  // the code of ones
  JpegCode code;
  for (uint32_t bits = 1; bits <= 16; ++bits) {
    code.counts[bits - 1] = static_cast<uint8_t>(counts[bits]);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
    return a.bits != b.bits ? a.bits < b.bits : a.symbol < b.symbol;
  });
  uint8_t* symbol = code.symbols;
  for (const Node& node : nodes) {
    if (node.symbol < 256) *symbol++ = static_cast<uint8_t>(node.symbol);
  }
  return code;
}

bool FindSegment(Bytes file, size_t pos, JpegSegment* segment) {
  segment->begin = pos;
  if (pos >= file.size || file.data[pos] != 0xFF) return false;
  while (pos < file.size && file.data[pos] == 0xFF) ++pos;
  if (pos == file.size) return false;
  segment->marker = file.data[pos++];
  segment->data = {};
  segment->end = pos;
  const bool is_alone = (segment->marker >= kMarkerRst0 && segment->marker <= kMarkerEoi);
  if (is_alone) return true;
  if (file.size - pos < 2) return false;
  const uint32_t length = LoadBigU16(file.data + pos);
  if (length < 2 || length > file.size - pos) return false;
  segment->data = {file.data + pos + 2, length - 2};
  segment->end = pos + length;
  return true;
}

const char* JpegStream::Apply(const JpegSegment& segment) {
  const uint32_t marker = segment.marker;
  const uint8_t* data = segment.data.data;
  const size_t size = segment.data.size;
  switch (marker) {
    case kMarkerSof0:
    case kMarkerSof1:
    case kMarkerSof2: return ReadFrame(segment.marker, data, size);
    case kMarkerDht: return ReadCodes(data, size);
    case kMarkerSos: return ReadScan(data, size);
    case kMarkerDqt: return ReadQuantizers(data, size);
    case kMarkerDri:
      if (size != 2) return "its restart interval is damaged";
      restart_interval_ = LoadBigU16(data);
      return nullptr;
    case 0xC3: return "it is a lossless JPEG";
    case 0xDC: return "its height is in a DNL segment";
    case kMarkerSoi: return "it begins twice";
    default: break;
  }
  if (marker >= 0xC5 && marker <= 0xC7) return "it is a hierarchical JPEG";
  if (marker >= 0xC9 && marker <= 0xCF && marker != 0xCC) return "it is arithmetic-coded";
  if (marker >= kMarkerApp0 && marker < kMarkerApp0 + 16) {
    return ReadApp(segment.marker, data, size);
  }
  if ((marker >= kMarkerRst0 && marker < kMarkerSoi) || marker == kMarkerCom) return nullptr;
  return "it has an unknown marker";
}

const char* JpegStream::ReadFrame(uint8_t marker, const uint8_t* data, size_t size) {
  if (frame.marker != 0) return "it has several frames";
  if (size < 6) return "its frame is damaged";
  if (data[0] != 8) return data[0] == 12 ? "it has 12 bits per sample" : "its frame is damaged";
  const uint32_t count = data[5];
  if (size != 6 + 3 * size_t{count}) return "its frame is damaged";
  if (count == 4) return "it has 4 components";
  if (count != 1 && count != 3) return "it has neither 1 nor 3 components";
  info.height_px = LoadBigU16(data + 1);
  info.width_px = LoadBigU16(data + 3);
  info.components = static_cast<uint8_t>(count);
  if (info.height_px == 0) return "its height is in a DNL segment";
  if (info.width_px == 0) return "it has no width";
  for (uint32_t c = 0; c < count; ++c) {
    const uint8_t* p = data + 6 + 3 * c;
    const JpegFrameComponent component = {p[0], static_cast<uint8_t>(p[1] >> 4),
                                          static_cast<uint8_t>(p[1] & 15), p[2]};
    const auto is_factor = [](uint32_t n) { return n == 1 || n == 2 || n == kMaxJpegFactor; };
    if (component.quantizer > 3) return "its frame is damaged";
    if (!is_factor(component.h) || !is_factor(component.v)) return kOtherSampling;
    for (uint32_t other = 0; other < c; ++other) {
      if (frame.components[other].id == component.id) return "two components have the same number";
    }
    frame.components[c] = component;
  }
  const JpegFrameComponent& luma = frame.components[0];
  const JpegFrameComponent& chroma = frame.components[count - 1];
  info.chroma_x_shift = luma.h == 2 * chroma.h ? 1 : 0;
  info.chroma_y_shift = luma.v == 2 * chroma.v ? 1 : 0;
  for (uint32_t c = 0; c < count; ++c) {
    if (frame.components[c].h << info.x_shift(c) != luma.h ||
        frame.components[c].v << info.y_shift(c) != luma.v) {
      return kOtherSampling;
    }
  }
  frame.width_mcus = static_cast<uint32_t>(CeilDiv(info.width_px, 8 * luma.h));
  frame.height_mcus = static_cast<uint32_t>(CeilDiv(info.height_px, 8 * luma.v));
  frame.marker = marker;
  std::memset(low_bit_, kNoBit, sizeof(low_bit_));
  return nullptr;
}

const char* JpegStream::ReadCodes(const uint8_t* data, size_t size) {
  constexpr const char* kDamaged = "a Huffman table is damaged";
  while (size > 0) {
    JpegCode code;
    if (size < 17 || data[0] >> 4 > 1 || (data[0] & 15) > 3) return kDamaged;
    std::memcpy(code.counts, data + 1, 16);
    const uint32_t count = code.SymbolCount();
    if (count > 256 || size - 17 < count) return kDamaged;
    std::memcpy(code.symbols, data + 17, count);
    codes[data[0] >> 4][data[0] & 15] = code;
    data += 17 + count;
    size -= 17 + count;
  }
  return nullptr;
}

const char* JpegStream::ReadQuantizers(const uint8_t* data, size_t size) {
  while (size > 0) {
    const uint32_t is_wide = data[0] >> 4;
    const uint32_t number = data[0] & 15;
    const size_t bytes = 1 + 64 * (1 + size_t{is_wide});
    if (is_wide > 1 || number > 3 || size < bytes) return "a quantizer table is damaged";
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t quantizer = is_wide ? LoadBigU16(data + 1 + 2 * i) : data[1 + i];
      if (quantizer == 0) return "a quantizer is 0";
      tables_[number][kJpegNaturalOrder[i]] = static_cast<uint16_t>(quantizer);
    }
    data += bytes;
    size -= bytes;
  }
  return nullptr;
}

const char* JpegStream::ReadScan(const uint8_t* data, size_t size) {
  constexpr const char* kDamaged = "the header of a scan is damaged";
  if (frame.marker == 0) return "a scan is before the frame";
  if (size < 1 || data[0] < 1 || data[0] > info.components || size != 4 + 2 * size_t{data[0]}) {
    return kDamaged;
  }
  scan = JpegScan();
  scan.count = data[0];
  scan.restart_interval = restart_interval_;
  const uint8_t* spectrum = data + 1 + 2 * scan.count;
  scan.begin = spectrum[0];
  scan.end = spectrum[1];
  scan.high = spectrum[2] >> 4;
  scan.low = spectrum[2] & 15;
  if (frame.is_progressive()) {
    if (scan.end > 63 || scan.begin > scan.end || scan.low > 13 ||
        (scan.high != 0 && scan.high != scan.low + 1) ||
        (scan.begin == 0 ? scan.end != 0 : scan.count != 1)) {
      return kDamaged;
    }
  } else if (scan.begin != 0 || scan.end != 63 || scan.high != 0 || scan.low != 0) {
    return kDamaged;
  }
  if (!is_started_ && !SetColor()) return "its Adobe marker names an unknown colour transform";
  is_started_ = true;
  uint32_t next = 0;
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < scan.count; ++i) {
    const uint8_t* p = data + 1 + 2 * i;
    uint32_t c = next;
    while (c < info.components && frame.components[c].id != p[0]) ++c;
    if (c == info.components) return kDamaged;
    next = c + 1;
    const JpegFrameComponent& component = frame.components[c];
    blocks += component.h * component.v;
    scan.component[i] = static_cast<uint8_t>(c);
    scan.code[0][i] = p[1] >> 4;
    scan.code[1][i] = p[1] & 15;
    const bool needs_dc = scan.HasDc() && scan.high == 0;
    if ((needs_dc && (p[1] >> 4 > 3 || !codes[0][p[1] >> 4].IsSound())) ||
        (scan.HasAc(frame) && ((p[1] & 15) > 3 || !codes[1][p[1] & 15].IsSound()))) {
      return "a scan has no valid Huffman table";
    }
    uint16_t* const quantizers = info.quantizers[c];
    if (quantizers[0] == 0) {
      std::copy_n(tables_[component.quantizer], kJpegBlockSamples, quantizers);
      if (quantizers[0] == 0) return "a quantizer table is missing";
    }
    // Each bit of a coefficient comes once, from the highest down, and that of DC first.
    if (scan.begin != 0 && low_bit_[c][0] == kNoBit) return "its progression is damaged";
    for (uint32_t k = scan.begin; k <= scan.end; ++k) {
      const bool is_first = low_bit_[c][k] == kNoBit;
      if (is_first ? scan.high != 0 : scan.high == 0 || scan.high != low_bit_[c][k]) {
        return "its progression is damaged";
      }
      low_bit_[c][k] = scan.low;
    }
  }
  return scan.count > 1 && blocks > 10 ? "an MCU has more than 10 blocks" : nullptr;
}

const char* JpegStream::ReadApp(uint8_t marker, const uint8_t* data, size_t size) {
  if (marker == kMarkerApp0 && size >= 14 && StartsWith(data, size, "JFIF", 5)) {
    if (data[5] != 1) return "it has an unknown version of JFIF";
    has_jfif_ = true;
  }
  if (marker == kMarkerApp0 + 14 && size >= 12 && StartsWith(data, size, "Adobe", 5)) {
    has_adobe_ = true;
    adobe_transform_ = data[11];
  }
  return nullptr;
}

bool JpegStream::IsComplete() const {
  for (uint32_t c = 0; c < info.components; ++c) {
    if (std::any_of(low_bit_[c], low_bit_[c] + 64, [](uint8_t bit) { return bit != 0; })) {
      return false;
    }
  }
  return frame.marker != 0;
}

bool JpegStream::SetColor() {
  if (info.components == 1) return true;
  info.color = JpegColor::kYcbcr;
  if (has_jfif_) return true;
  const JpegFrameComponent* components = frame.components;
  const bool has_rgb_ids =
      components[0].id == 'R' && components[1].id == 'G' && components[2].id == 'B';
  if (has_adobe_ ? adobe_transform_ == 0 : has_rgb_ids) info.color = JpegColor::kRgb;
  return !has_adobe_ || adobe_transform_ <= 1;
}

}  // namespace l3
