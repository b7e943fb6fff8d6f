#include "encoder/jpeg_restore.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "encoder/rans_statistics.h"
#include "format/byte_reader.h"
#include "format/crc32c.h"

namespace l3 {
namespace {

// Kinds of parts (format.md 4.5).
enum Part : uint8_t {
  kPartEnd = 0,
  kPartBytes = 1,
  kPartExif = 2,
  kPartIcc = 3,
  kPartXmp = 4,
  kPartQuantizers = 5,
  kPartCodes = 6,
};
// Kinds of codes.
constexpr uint32_t kOptimalCode = 2;  // below: the standard ones, by number
// Flags behind the parts.
constexpr uint32_t kZeroBits = 1;
constexpr uint32_t kPaddingOfComponent = 2;  // shifted by the component's number

// What segments of metadata begin with, zeros included.
const std::string& ExifHead() {
  static const std::string head("Exif\0", 6);
  return head;
}
const std::string& IccHead() {
  static const std::string head("ICC_PROFILE", 12);
  return head;
}
const std::string& XmpHead() {
  static const std::string head("http://ns.adobe.com/xap/1.0/", 29);
  return head;
}

void Append(const void* data, size_t size, std::vector<uint8_t>* to) {
  if (size == 0) return;
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  to->insert(to->end(), bytes, bytes + size);
}

// The marker and the length of a segment of `size` bytes behind them.
void AppendSegmentHead(uint32_t marker, size_t size, std::vector<uint8_t>* to) {
  to->push_back(0xFF);
  to->push_back(static_cast<uint8_t>(marker));
  to->push_back(static_cast<uint8_t>((size + 2) >> 8));
  to->push_back(static_cast<uint8_t>(size + 2));
}

// A DHT segment. `tables` are as in parts: number, class in bit 2, kind above. Optimal codes are
// those of `codes`; where that is null, standard ones stand for them.
void AppendCodes(const std::vector<uint8_t>& tables, const JpegCode (*codes)[4],
                 std::vector<uint8_t>* to) {
  std::vector<uint8_t> data;
  for (const uint8_t table : tables) {
    const uint32_t is_ac = table >> 2 & 1;
    const uint32_t kind = table >> 3;
    const JpegCode code = kind == kOptimalCode && codes != nullptr ? codes[is_ac][table & 3]
                                                                   : StandardCode(is_ac, kind & 1);
    data.push_back(static_cast<uint8_t>(is_ac << 4 | (table & 3)));
    Append(code.counts, sizeof(code.counts), &data);
    Append(code.symbols, code.SymbolCount(), &data);
  }
  AppendSegmentHead(kMarkerDht, data.size(), to);
  Append(data.data(), data.size(), to);
}

// By row and which of its coefficients are not 0, the bits of their places in zigzag order.
using ZigzagBits = std::array<std::array<uint64_t, 256>, 8>;
ZigzagBits MakeZigzagBits() {
  ZigzagBits bits = {};
  for (uint32_t k = 0; k < 64; ++k) {
    const uint32_t place = kJpegNaturalOrder[k];
    for (uint32_t row_bits = 0; row_bits < 256; ++row_bits) {
      if ((row_bits >> place % 8 & 1) != 0) bits[place / 8][row_bits] |= uint64_t{1} << k;
    }
  }
  return bits;
}

// Bit k: whether coefficient k in zigzag order is not 0.
uint64_t FindNonzero(const int16_t* block) {
  static const ZigzagBits zigzag_bits = MakeZigzagBits();
  uint8_t is_nonzero[64];
  for (uint32_t i = 0; i < 64; ++i) is_nonzero[i] = block[i] != 0;
  uint64_t bits = 0;
  for (uint32_t row = 0; row < 8; ++row) {
    uint64_t bytes;
    std::memcpy(&bytes, is_nonzero + 8 * row, 8);
    bits |= zigzag_bits[row][bytes * 0x0102040810204080 >> 56];
  }
  return bits;
}

// Writes the bits of a scan, each byte of FF stuffed. A copy may stay in registers.
struct BitWriter {
  uint8_t* out = nullptr;
  uint64_t bits = 0;
  uint32_t count = 0;
  bool is_sound = true;  // no symbol was without a code

  // Up to 32 bits.
  void Put(uint32_t value, uint32_t size) {
    bits = bits << size | value;
    count += size;
    if (count < 32) return;
    count -= 32;
    const uint32_t word = static_cast<uint32_t>(bits >> count);
    if (((~word - 0x01010101) & word & 0x80808080) == 0) {
      const uint32_t swapped = __builtin_bswap32(word);
      std::memcpy(out, &swapped, 4);
      out += 4;
    } else {
      for (int shift = 24; shift >= 0; shift -= 8) PutByte(static_cast<uint8_t>(word >> shift));
    }
  }
  // Fills the last byte.
  void End(bool with_zeros) {
    const uint32_t padding = (8 - count % 8) % 8;
    Put(with_zeros ? 0 : (1u << padding) - 1, padding);
    for (; count > 0; count -= 8) PutByte(static_cast<uint8_t>(bits >> (count - 8)));
  }

 private:
  void PutByte(uint8_t byte) {
    *out++ = byte;
    if (byte == 0xFF) *out++ = 0;
  }
};

// Codes blocks as libjpeg does: counts symbols, and may write their bits.
template <bool kWrites>
class ScanEncoder {
 public:
  ScanEncoder(const JpegFrame& frame, const JpegScan& scan, ScanFrequencies* frequencies)
      : frame_(frame), scan_(scan) {
    for (uint32_t i = 0; i < scan_.count; ++i) {
      dc_count_[i] = frequencies->of[0][scan_.code[0][i] & 3].data();
      ac_count_[i] = frequencies->of[1][scan_.code[1][i] & 3].data();
    }
  }
  void WriteTo(const JpegCode (*codes)[4], bool zero_bits, std::vector<uint8_t>* bytes) {
    for (uint32_t i = 0; i < scan_.count; ++i) {
      SetCode(codes[0][scan_.code[0][i] & 3], &dc_code_[i]);
      SetCode(codes[1][scan_.code[1][i] & 3], &ac_code_[i]);
    }
    zero_bits_ = zero_bits;
    bytes_ = bytes;
    writer_.out = bytes->data() + bytes->size();
  }

  bool Block(uint32_t i, int16_t* block) { return Block(i, static_cast<const int16_t*>(block)); }
  bool Block(uint32_t i, const int16_t* block) {
    if (kWrites) Grow();
    if (!frame_.is_progressive()) {
      BitWriter writer = writer_;
      PutDc(i, block[0], &writer);
      PutAc(i, block, &writer);
      writer_ = writer;
    } else if (scan_.HasDc()) {
      if (scan_.high == 0) {
        PutDc(i, block[0] >> scan_.low, &writer_);
      } else {
        PutBits(static_cast<uint32_t>(block[0] >> scan_.low) & 1, 1);
      }
    } else if (scan_.high == 0) {
      PutAcFirst(block);
    } else {
      RefineAc(block);
    }
    return is_sound();
  }

  bool Restart(uint32_t number) {
    End();
    std::fill_n(last_dc_, 3, 0);
    if (kWrites) {
      *writer_.out++ = 0xFF;
      *writer_.out++ = static_cast<uint8_t>(kMarkerRst0 + number);
    }
    return is_sound();
  }

  // Also at the end of the scan.
  void End() {
    if (kWrites) Grow();
    EndEobRun();
    if (kWrites) writer_.End(zero_bits_);
  }

  bool is_sound() const { return is_sound_ && writer_.is_sound; }
  size_t end() const {  // of what is written
    return static_cast<size_t>(writer_.out - bytes_->data());
  }

 private:
  // The longest code of a block with the bits before it, each byte stuffed.
  static constexpr size_t kBlockBytes = 2048;
  // libjpeg ends a run of blocks when so many bits of corrections wait.
  static constexpr size_t kMaxCorrections = 937;
  static constexpr uint32_t kMaxEobRun = 0x7FFF;

  struct Code {
    uint16_t bits[256];
    uint8_t size[256] = {};
  };

  static void SetCode(const JpegCode& code, Code* table) {
    uint32_t next = 0;
    uint32_t symbol = 0;
    for (uint32_t bits = 1; bits <= 16; ++bits, next <<= 1) {
      for (uint32_t i = 0; i < code.counts[bits - 1] && symbol < 256; ++i) {
        table->bits[code.symbols[symbol]] = static_cast<uint16_t>(next++);
        table->size[code.symbols[symbol++]] = static_cast<uint8_t>(bits);
      }
    }
  }

  void Grow() {
    const size_t size = end();
    if (bytes_->size() - size >= kBlockBytes) return;
    bytes_->resize(std::max<size_t>(bytes_->size() * 2, size + kBlockBytes));
    writer_.out = bytes_->data() + size;
  }
  void PutBits(uint32_t value, uint32_t size) {
    if (kWrites) writer_.Put(value, size);
  }

  void PutSymbol(uint32_t* counts, const Code& code, uint32_t symbol, uint32_t raw,
                 uint32_t raw_bits, BitWriter* writer) {
    ++counts[symbol];
    if (!kWrites) return;
    writer->is_sound &= code.size[symbol] != 0;
    writer->Put(uint32_t{code.bits[symbol]} << raw_bits | raw, code.size[symbol] + raw_bits);
  }
  // In progressive scans.
  void PutAcSymbol(uint32_t symbol, uint32_t raw, uint32_t raw_bits) {
    PutSymbol(ac_count_[0], ac_code_[0], symbol, raw, raw_bits, &writer_);
  }

  // Bits of a value after its size: of negative ones the complement.
  static uint32_t RawBits(int value, uint32_t size) {
    return static_cast<uint32_t>(value < 0 ? value - 1 : value) & ((1u << size) - 1);
  }
  uint32_t SizeOf(uint32_t magnitude) {
    const uint32_t size = BitLength(magnitude);
    if (size <= 15) return size;
    is_sound_ = false;
    return 0;
  }

  void PutDc(uint32_t i, int value, BitWriter* writer) {
    const int difference = value - last_dc_[i];
    last_dc_[i] = value;
    const uint32_t size = SizeOf(static_cast<uint32_t>(difference < 0 ? -difference : difference));
    PutSymbol(dc_count_[i], dc_code_[i], size, RawBits(difference, size), size, writer);
  }

  void PutAc(uint32_t i, const int16_t* block, BitWriter* writer) {
    uint32_t* const counts = ac_count_[i];
    const Code& code = ac_code_[i];
    uint32_t next = 1;
    for (uint64_t left = FindNonzero(block) >> 1 << 1; left != 0; left &= left - 1) {
      const uint32_t k = static_cast<uint32_t>(__builtin_ctzll(left));
      uint32_t run = k - next;
      next = k + 1;
      for (; run > 15; run -= 16) PutSymbol(counts, code, 0xF0, 0, 0, writer);
      const int value = block[kJpegNaturalOrder[k]];
      const uint32_t size = SizeOf(static_cast<uint32_t>(value < 0 ? -value : value));
      PutSymbol(counts, code, run << 4 | size, RawBits(value, size), size, writer);
    }
    if (next < 64) PutSymbol(counts, code, 0, 0, 0, writer);
  }

  // Ends a run of blocks without further new coefficients.
  void EndEobRun() {
    if (eob_run_ == 0) return;
    const uint32_t size = BitLength(eob_run_) - 1;
    PutAcSymbol(size << 4, eob_run_ & ((1u << size) - 1), size);
    eob_run_ = 0;
    PutCorrections(&corrections_);
  }
  void PutCorrections(std::vector<uint8_t>* corrections) {
    for (const uint8_t bit : *corrections) PutBits(bit, 1);
    corrections->clear();
  }

  // Those of the scan's spectrum.
  uint64_t FindOfSpectrum(const int16_t* block) const {
    return FindNonzero(block) >> scan_.begin << scan_.begin << (63 - scan_.end) >> (63 - scan_.end);
  }

  void PutAcFirst(const int16_t* block) {
    uint32_t next = scan_.begin;
    for (uint64_t left = FindOfSpectrum(block); left != 0; left &= left - 1) {
      const uint32_t k = static_cast<uint32_t>(__builtin_ctzll(left));
      const int value = block[kJpegNaturalOrder[k]];
      const int magnitude = (value < 0 ? -value : value) >> scan_.low;
      if (magnitude == 0) continue;
      uint32_t run = k - next;
      next = k + 1;
      EndEobRun();
      for (; run > 15; run -= 16) PutAcSymbol(0xF0, 0, 0);
      const uint32_t size = SizeOf(static_cast<uint32_t>(magnitude));
      PutAcSymbol(run << 4 | size, RawBits(value < 0 ? -magnitude : magnitude, size), size);
    }
    if (next <= scan_.end && ++eob_run_ == kMaxEobRun) EndEobRun();
  }

  void RefineAc(const int16_t* block) {
    const uint64_t nonzero = FindOfSpectrum(block);
    uint32_t magnitudes[64];
    uint32_t last_new = 0;
    for (uint64_t left = nonzero; left != 0; left &= left - 1) {
      const uint32_t k = static_cast<uint32_t>(__builtin_ctzll(left));
      const int value = block[kJpegNaturalOrder[k]];
      magnitudes[k] = static_cast<uint32_t>(value < 0 ? -value : value) >> scan_.low;
      if (magnitudes[k] == 1) last_new = k;
    }
    uint32_t next = scan_.begin;
    uint32_t run = 0;  // zeros since the last new coefficient
    for (uint64_t left = nonzero; left != 0; left &= left - 1) {
      const uint32_t k = static_cast<uint32_t>(__builtin_ctzll(left));
      if (magnitudes[k] == 0) continue;
      run += k - next;
      next = k + 1;
      for (; run > 15 && k <= last_new; run -= 16) {
        EndEobRun();
        PutAcSymbol(0xF0, 0, 0);
        PutCorrections(&block_corrections_);
      }
      if (magnitudes[k] > 1) {
        block_corrections_.push_back(magnitudes[k] & 1);
        continue;
      }
      EndEobRun();
      PutAcSymbol(run << 4 | 1, block[kJpegNaturalOrder[k]] < 0 ? 0 : 1, 1);
      PutCorrections(&block_corrections_);
      run = 0;
    }
    run += scan_.end + 1 - next;
    if (run == 0 && block_corrections_.empty()) return;
    ++eob_run_;
    corrections_.insert(corrections_.end(), block_corrections_.begin(), block_corrections_.end());
    block_corrections_.clear();
    if (eob_run_ == kMaxEobRun || corrections_.size() > kMaxCorrections) EndEobRun();
  }

  const JpegFrame& frame_;
  const JpegScan& scan_;
  uint32_t* dc_count_[3] = {};
  uint32_t* ac_count_[3] = {};
  Code dc_code_[3];
  Code ac_code_[3];
  int last_dc_[3] = {};
  uint32_t eob_run_ = 0;
  std::vector<uint8_t> corrections_;  // of the run of blocks
  std::vector<uint8_t> block_corrections_;
  bool is_sound_ = true;
  bool zero_bits_ = false;
  std::vector<uint8_t>* bytes_ = nullptr;
  BitWriter writer_;
};

bool CountScan(const JpegStream& stream, const JpegImage& image, JpegPadding* padding,
               ScanFrequencies* frequencies) {
  ScanEncoder<false> encoder(stream.frame, stream.scan, frequencies);
  if (!WalkScan(stream.frame, stream.scan, &image, padding, &encoder)) return false;
  encoder.End();
  return true;
}

bool WriteScan(const JpegStream& stream, const JpegImage& image, JpegPadding* padding,
               bool zero_bits, ScanFrequencies* frequencies, std::vector<uint8_t>* file) {
  ScanEncoder<true> encoder(stream.frame, stream.scan, frequencies);
  encoder.WriteTo(stream.codes, zero_bits, file);
  if (!WalkScan(stream.frame, stream.scan, &image, padding, &encoder)) return false;
  encoder.End();
  file->resize(encoder.end());
  return encoder.is_sound();
}

// The bytes of a file outside of scans.
struct Skeleton {
  // DHT segments with optimal codes, for which standard ones stand.
  struct Codes {
    size_t begin, end;
    std::vector<uint8_t> tables;
  };

  std::vector<uint8_t> bytes = {0xFF, kMarkerSoi};
  std::vector<Codes> codes;
};

// Takes the next `size` bytes of `source`.
bool AppendMetadata(uint32_t marker, const std::string& head, size_t size, Bytes* source,
                    std::vector<uint8_t>* to) {
  if (size == 0 || size > source->size || head.size() + size > 65533) return false;
  AppendSegmentHead(marker, head.size() + size, to);
  Append(head.data(), head.size(), to);
  Append(source->data, size, to);
  source->data += size;
  source->size -= size;
  return true;
}

bool AppendQuantizers(const std::vector<uint8_t>& tables, const JpegImage& image,
                      std::vector<uint8_t>* to) {
  std::vector<uint8_t> data;
  for (const uint8_t table : tables) {
    const uint32_t c = table >> 5;
    const bool is_wide = (table & 16) != 0;
    if (c >= image.components.size()) return false;
    data.push_back(table & 31);
    for (const uint8_t place : kJpegNaturalOrder) {
      const uint32_t quantizer = image.components[c].quantizer[place];
      if (is_wide) data.push_back(static_cast<uint8_t>(quantizer >> 8));
      data.push_back(static_cast<uint8_t>(quantizer));
    }
  }
  AppendSegmentHead(kMarkerDqt, data.size(), to);
  Append(data.data(), data.size(), to);
  return true;
}

bool ReadParts(const JpegImage& image, Bytes exif, Bytes icc, Bytes xmp, ByteReader* reader,
               Skeleton* skeleton) {
  std::vector<uint8_t>* bytes = &skeleton->bytes;
  const auto read_tables = [&] {
    const uint32_t count = reader->ReadByte();
    const uint8_t* tables = reader->ReadBytes(count);
    return reader->ok() ? std::vector<uint8_t>(tables, tables + count) : std::vector<uint8_t>();
  };
  while (reader->ok()) {
    bool is_sound = true;
    switch (reader->ReadByte()) {
      case kPartEnd: return reader->ok();
      case kPartBytes: {
        const uint32_t size = reader->ReadBase128(5);
        const uint8_t* data = reader->ReadBytes(size);
        if (reader->ok()) Append(data, size, bytes);
        break;
      }
      case kPartExif:
        is_sound = AppendMetadata(kMarkerApp0 + 1, ExifHead(), exif.size, &exif, bytes);
        break;
      case kPartXmp:
        is_sound = AppendMetadata(kMarkerApp0 + 1, XmpHead(), xmp.size, &xmp, bytes);
        break;
      case kPartIcc: {
        std::string head = IccHead();
        head += static_cast<char>(reader->ReadByte());
        head += static_cast<char>(reader->ReadByte());
        is_sound = AppendMetadata(kMarkerApp0 + 2, head, reader->ReadBase128(3), &icc, bytes);
        break;
      }
      case kPartQuantizers: is_sound = AppendQuantizers(read_tables(), image, bytes); break;
      case kPartCodes: {
        const size_t begin = bytes->size();
        const std::vector<uint8_t> tables = read_tables();
        AppendCodes(tables, nullptr, bytes);
        skeleton->codes.push_back({begin, bytes->size(), tables});
        break;
      }
      default: return false;
    }
    if (!is_sound) return false;
  }
  return false;
}

bool IsOfImage(const JpegFrame& frame, const JpegImage& image) {
  if (frame.width_px != image.width_px || frame.height_px != image.height_px ||
      frame.components.size() != image.components.size()) {
    return false;
  }
  for (size_t c = 0; c < frame.components.size(); ++c) {
    if (frame.components[c].width_blocks != image.components[c].width_blocks ||
        frame.components[c].height_blocks != image.components[c].height_blocks) {
      return false;
    }
  }
  return true;
}

// Blocks that differ from `usual`: for each the number of blocks
// before it that do not, the number of its coefficients, and of each its place and its value.
// Returns whether there are any.
bool AppendPadding(JpegPadding* blocks, JpegPadding* usual, uint32_t c,
                   std::vector<uint8_t>* data) {
  uint32_t alike = 0;
  for (uint32_t i = 0; i < blocks->count(c); ++i, ++alike) {
    const int16_t* block = blocks->Block(c, i);
    if (std::equal(block, block + 64, usual->Block(c, i))) continue;
    AppendBase128(alike, data);
    data->push_back(static_cast<uint8_t>(64 - std::count(block, block + 64, 0)));
    for (uint8_t k = 0; k < 64; ++k) {
      const int value = block[kJpegNaturalOrder[k]];
      if (value == 0) continue;
      data->push_back(k);
      AppendBase128(static_cast<uint32_t>(value < 0 ? -2 * value - 1 : 2 * value), data);
    }
    alike = UINT32_MAX;
  }
  AppendBase128(alike, data);
  return alike != blocks->count(c);
}

bool ReadPadding(ByteReader* bytes, uint32_t c, JpegPadding* padding) {
  for (uint32_t i = 0;; ++i) {
    const uint32_t alike = bytes->ReadBase128(4);
    if (!bytes->ok() || alike > padding->count(c) - i) return false;
    i += alike;
    if (i == padding->count(c)) return true;
    int16_t* block = padding->Block(c, i);
    std::fill_n(block, 64, int16_t{0});
    for (uint32_t n = bytes->ReadByte(); n > 0 && bytes->ok(); --n) {
      const uint32_t place = kJpegNaturalOrder[bytes->ReadByte() & 63];
      const uint32_t folded = bytes->ReadBase128(3);
      block[place] = static_cast<int16_t>(folded & 1 ? -static_cast<int>(folded >> 1) - 1
                                                     : static_cast<int>(folded >> 1));
    }
  }
}

// RestoreJpeg(), where the frequencies of scans may be `known`: then they are checked.
bool Restore(const JpegImage& image, Bytes exif, Bytes icc, Bytes xmp, Bytes restore_data,
             const std::vector<RestoredScan>* known, std::vector<uint8_t>* file) {
  file->clear();
  if (restore_data.size < 4 || restore_data.size > kMaxChunksBytes) return false;
  ByteReader reader(restore_data.data + 4, static_cast<uint32_t>(restore_data.size - 4));
  Skeleton skeleton;
  if (!ReadParts(image, exif, icc, xmp, &reader, &skeleton)) return false;
  const uint32_t flags = reader.ReadByte();

  JpegStream stream;
  JpegPadding padding;
  const Bytes bytes = {skeleton.bytes.data(), skeleton.bytes.size()};
  size_t copied = 0;
  size_t scan = 0;
  auto codes = skeleton.codes.begin();
  JpegSegment segment;
  for (size_t pos = 2; FindSegment(bytes, pos, &segment); pos = segment.end) {
    if (segment.marker == kMarkerEoi) break;
    const size_t size = segment.end - segment.data;
    if (stream.Apply(segment, bytes.data + segment.data, size) != nullptr) return false;
    if (segment.marker != kMarkerSos) continue;
    if (!IsOfImage(stream.frame, image)) return false;
    if (copied == 0) {
      padding = JpegPadding(stream.frame);
      for (uint32_t c = 0; c < image.components.size(); ++c) {
        padding.SetUsual(stream.frame, image, c);
        const bool has_own = (flags & kPaddingOfComponent << c) != 0;
        if (has_own && !ReadPadding(&reader, c, &padding)) return false;
      }
    }
    ScanFrequencies frequencies;
    bool is_counted = known != nullptr;
    if (is_counted) {
      if (scan == known->size()) return false;
      frequencies = (*known)[scan++].frequencies;
    }
    for (; codes != skeleton.codes.end() && codes->begin < segment.begin; ++codes) {
      for (const uint8_t table : codes->tables) {
        if (table >> 3 != kOptimalCode) continue;
        if (!is_counted && !CountScan(stream, image, &padding, &frequencies)) return false;
        is_counted = true;
        const uint32_t is_ac = table >> 2 & 1;
        stream.codes[is_ac][table & 3] = OptimalCode(frequencies.of[is_ac][table & 3]);
      }
      Append(bytes.data + copied, codes->begin - copied, file);
      AppendCodes(codes->tables, stream.codes, file);
      copied = codes->end;
    }
    Append(bytes.data + copied, segment.end - copied, file);
    copied = segment.end;
    ScanFrequencies written;
    if (!WriteScan(stream, image, &padding, (flags & kZeroBits) != 0, &written, file) ||
        (known != nullptr && !(written == frequencies))) {
      return false;
    }
  }
  Append(bytes.data + copied, bytes.size - copied, file);
  return reader.at_end() && stream.IsComplete() &&
         Crc32c(file->data(), file->size()) == LoadU32(restore_data.data);
}

}  // namespace

void JpegRestoreBuilder::AddSegment(const JpegSegment& segment, const JpegStream& stream) {
  const uint8_t* data = file_.data + segment.data;
  const size_t size = segment.end - segment.data;
  const auto begins_with = [&](const std::string& head) {
    return size > head.size() && std::memcmp(data, head.data(), head.size()) == 0;
  };
  std::vector<uint8_t> part;
  if (segment.marker == kMarkerApp0 + 1 && begins_with(ExifHead()) && metadata_.exif.empty()) {
    metadata_.exif.assign(data + ExifHead().size(), data + size);
    part = {kPartExif};
  } else if (segment.marker == kMarkerApp0 + 1 && begins_with(XmpHead()) && metadata_.xmp.empty()) {
    metadata_.xmp.assign(data + XmpHead().size(), data + size);
    part = {kPartXmp};
  } else if (segment.marker == kMarkerApp0 + 2 && begins_with(IccHead()) &&
             size > IccHead().size() + 2) {
    const uint8_t* numbers = data + IccHead().size();
    if (icc_number_ == 0) icc_count_ = numbers[1];
    is_icc_damaged_ |= numbers[0] != ++icc_number_ || numbers[1] != icc_count_;
    const size_t bytes = size - IccHead().size() - 2;
    Append(numbers + 2, bytes, &metadata_.icc);
    part = {kPartIcc, numbers[0], numbers[1]};
    AppendBase128(bytes, &part);
  }
  segments_.push_back({segment, part, scans_.size()});
  if (segment.marker != kMarkerSos) return;
  if (stream.scan.count == 1 || !stream.scan.HasDc()) return;
  for (uint32_t i = 0; i < stream.scan.count; ++i) has_padding_[stream.scan.component[i]] = true;
}

void JpegRestoreBuilder::TakeMetadata(JpegMetadata* metadata) {
  if (is_icc_damaged_ || icc_number_ != icc_count_) {
    metadata_.icc.clear();
    for (Segment& segment : segments_) {
      if (segment.segment.marker == kMarkerApp0 + 2) segment.part.clear();
    }
  }
  *metadata = std::move(metadata_);
}

std::vector<uint8_t> JpegRestoreBuilder::MakeCodesPart(const Segment& segment) const {
  std::vector<uint8_t> part = {kPartCodes, 0};
  const uint8_t* data = file_.data + segment.segment.data;
  const uint8_t* end = file_.data + segment.segment.end;
  while (data < end) {
    JpegCode code;
    const uint32_t is_ac = data[0] >> 4;
    const uint32_t number = data[0] & 15;
    std::memcpy(code.counts, data + 1, sizeof(code.counts));
    const uint32_t count = code.SymbolCount();
    std::memcpy(code.symbols, data + 17, count);
    data += 17 + count;
    uint32_t kind = 0;
    while (kind < kOptimalCode && !(code == StandardCode(is_ac, kind))) ++kind;
    if (kind == kOptimalCode) {
      if (segment.scan == scans_.size()) return {};
      if (!(code == OptimalCode(scans_[segment.scan].frequencies.of[is_ac][number]))) return {};
    }
    part.push_back(static_cast<uint8_t>(number | is_ac << 2 | kind << 3));
    ++part[1];
  }
  return part;
}

std::vector<uint8_t> JpegRestoreBuilder::MakeQuantizersPart(const JpegSegment& segment,
                                                            const JpegImage& image) const {
  std::vector<uint8_t> part = {kPartQuantizers, 0};
  for (size_t pos = segment.data; pos < segment.end;) {
    const uint8_t* table = file_.data + pos;
    const bool is_wide = table[0] >> 4 != 0;
    size_t c = 0;
    for (; c < image.components.size(); ++c) {
      const uint16_t* quantizer = image.components[c].quantizer;
      uint32_t k = 0;
      while (k < 64 && quantizer[kJpegNaturalOrder[k]] ==
                           (is_wide ? table[1 + 2 * k] << 8 | table[2 + 2 * k] : table[1 + k])) {
        ++k;
      }
      if (k == 64) break;
    }
    if (c == image.components.size()) return {};
    part.push_back(static_cast<uint8_t>(table[0] | c << 5));
    ++part[1];
    pos += is_wide ? 129 : 65;
  }
  return part;
}

std::vector<uint8_t> JpegRestoreBuilder::Finish(const JpegImage& image, const JpegFrame& frame,
                                                JpegPadding* padding) {
  std::vector<uint8_t> data(4);
  StoreU32(data.data(), Crc32c(file_.data, file_.size));
  size_t begin = 2;  // of bytes to be stored as they are
  std::vector<uint8_t> bytes;
  const auto append_bytes = [&](size_t end) {
    Append(file_.data + begin, end - begin, &bytes);
    begin = end;
  };
  const auto finish_bytes = [&] {
    if (bytes.empty()) return;
    data.push_back(kPartBytes);
    AppendBase128(bytes.size(), &data);
    Append(bytes.data(), bytes.size(), &data);
    bytes.clear();
  };
  for (Segment& segment : segments_) {
    if (segment.segment.marker == kMarkerSos) {
      append_bytes(segment.segment.end);
      begin = scans_[segment.scan].end;
      continue;
    }
    if (segment.segment.marker == kMarkerDht) {
      segment.part = MakeCodesPart(segment);
    } else if (segment.segment.marker == kMarkerDqt) {
      segment.part = MakeQuantizersPart(segment.segment, image);
    }
    if (segment.part.empty()) continue;
    append_bytes(segment.segment.data - 4);  // with fill bytes
    finish_bytes();
    Append(segment.part.data(), segment.part.size(), &data);
    begin = segment.segment.end;
  }
  append_bytes(file_.size);
  finish_bytes();
  data.push_back(kPartEnd);

  JpegPadding usual(frame);
  std::vector<uint8_t> blocks;
  uint32_t flags = has_zeros_ ? kZeroBits : 0;
  for (uint32_t c = 0; c < image.components.size(); ++c) {
    if (!has_padding_[c]) continue;
    usual.SetUsual(frame, image, c);
    std::vector<uint8_t> own;
    if (!AppendPadding(padding, &usual, c, &own)) continue;
    flags |= kPaddingOfComponent << c;
    Append(own.data(), own.size(), &blocks);
  }
  data.push_back(static_cast<uint8_t>(flags));
  Append(blocks.data(), blocks.size(), &data);
  return data;
}

bool JpegRestoreBuilder::Restores(const JpegImage& image, const JpegMetadata& metadata,
                                  const std::vector<uint8_t>& restore_data) const {
  const auto bytes = [](const std::vector<uint8_t>& data) {
    return Bytes{data.data(), data.size()};
  };
  std::vector<uint8_t> restored;
  return Restore(image, bytes(metadata.exif), bytes(metadata.icc), bytes(metadata.xmp),
                 bytes(restore_data), &scans_, &restored) &&
         restored.size() == file_.size && std::equal(restored.begin(), restored.end(), file_.data);
}

bool RestoreJpeg(const JpegImage& image, Bytes exif, Bytes icc, Bytes xmp, Bytes restore_data,
                 std::vector<uint8_t>* file) {
  return Restore(image, exif, icc, xmp, restore_data, nullptr, file);
}

}  // namespace l3
