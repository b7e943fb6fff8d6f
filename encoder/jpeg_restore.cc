#include "encoder/jpeg_restore.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

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
constexpr std::string_view kExifHead("Exif\0", 6);
constexpr std::string_view kIccHead("ICC_PROFILE", 12);
constexpr std::string_view kXmpHead("http://ns.adobe.com/xap/1.0/", 29);

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

// Writes the bits of a scan, each byte of FF stuffed. A copy may stay in registers.
struct BitWriter {
  uint8_t* out = nullptr;
  uint64_t bits = 0;
  uint32_t count = 0;

  // Up to 32 bits.
  void Put(uint32_t value, uint32_t size) {
    bits = bits << size | value;
    count += size;
    if (count < 32) return;
    count -= 32;
    const uint32_t word = static_cast<uint32_t>(bits >> count);
    const uint32_t swapped = __builtin_bswap32(word);
    std::memcpy(out, &swapped, 4);
    const bool has_no_ff = ((~word - 0x01010101) & word & 0x80808080) == 0;
    out = has_no_ff ? out + 4 : Stuff(out);
  }
  // Fills the last byte.
  void End(bool with_zeros) {
    const uint32_t padding = (8 - count % 8) % 8;
    Put(with_zeros ? 0 : (1u << padding) - 1, padding);
    for (; count > 0; count -= 8) {
      *out++ = static_cast<uint8_t>(bits >> (count - 8));
      if (out[-1] == 0xFF) *out++ = 0;
    }
  }

 private:
  // Stuffs the four bytes at `p`. Returns their end.
  __attribute__((noinline)) static uint8_t* Stuff(uint8_t* p) {
    uint8_t bytes[4];
    std::memcpy(bytes, p, 4);
    for (const uint8_t byte : bytes) {
      *p++ = byte;
      if (byte == 0xFF) *p++ = 0;
    }
    return p;
  }
};

// The bits of a value that follow its symbol, times 32, plus how many they are.
constexpr uint32_t ValueBits(int value) {
  uint32_t size = 0;
  while ((value < 0 ? -value : value) >> size != 0) ++size;
  return (static_cast<uint32_t>(value < 0 ? value - 1 : value) & ((1u << size) - 1)) << 5 | size;
}
// Those of values from -kSmallValues on, below kSmallValues.
constexpr int kSmallValues = 512;
struct SmallValues {
  uint16_t bits[2 * kSmallValues];
};
constexpr SmallValues MakeSmallValues() {
  SmallValues small{};
  for (int i = 0; i < 2 * kSmallValues; ++i) {
    small.bits[i] = static_cast<uint16_t>(ValueBits(i - kSmallValues));
  }
  return small;
}
constexpr SmallValues kSmall = MakeSmallValues();

// Codes blocks as libjpeg does: writes their bits, or else counts their symbols.
template <bool kWrites>
class ScanEncoder {
 public:
  ScanEncoder(const JpegStream& stream, ScanFrequencies* frequencies)
      : scan_(stream.scan), is_progressive_(stream.frame.is_progressive()) {
    for (uint32_t i = 0; i < scan_.count; ++i) {
      for (uint32_t is_ac = 0; is_ac < 2; ++is_ac) {
        const uint32_t number = scan_.code[is_ac][i] & 3;
        if (kWrites) {
          SetCode(stream.codes[is_ac][number], &codes_[is_ac][number]);
          code_[is_ac][i] = codes_[is_ac][number].data();
        } else {
          code_[is_ac][i] = frequencies->of[is_ac][number].data();
        }
      }
    }
  }
  ScanEncoder(const JpegStream& stream, bool zero_bits, std::vector<uint8_t>* bytes)
      : ScanEncoder(stream, nullptr) {
    zero_bits_ = zero_bits;
    bytes_ = bytes;
    writer_.out = bytes->data() + bytes->size();
  }

  bool Block(uint32_t i, const int16_t* block) {
    if (kWrites) Grow();
    if (!is_progressive_) {
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
    return true;
  }

  bool Restart(uint32_t number) {
    End();
    std::fill_n(last_dc_, 3, 0);
    if (kWrites) {
      *writer_.out++ = 0xFF;
      *writer_.out++ = static_cast<uint8_t>(kMarkerRst0 + number);
    }
    return true;
  }

  // Also at the end of the scan.
  void End() {
    if (kWrites) Grow();
    EndEobRun();
    if (kWrites) writer_.End(zero_bits_);
  }

  size_t end() const {  // of what is written
    return static_cast<size_t>(writer_.out - bytes_->data());
  }

 private:
  // The longest code of a block with the bits before it, each byte stuffed.
  static constexpr size_t kBlockBytes = 2048;
  // libjpeg ends a run of blocks when so many bits of corrections wait.
  static constexpr size_t kMaxCorrections = 937;
  static constexpr uint32_t kMaxEobRun = 0x7FFF;

  // By symbol: the bits of a code, times 32, plus how many they are. Or how often it occurs.
  using Code = std::array<uint32_t, 256>;

  static void SetCode(const JpegCode& code, Code* table) {
    uint32_t next = 0;
    uint32_t symbol = 0;
    for (uint32_t bits = 1; bits <= 16; ++bits, next <<= 1) {
      for (uint32_t i = 0; i < code.counts[bits - 1] && symbol < 256; ++i) {
        (*table)[code.symbols[symbol++]] = next++ << 5 | bits;
      }
    }
  }

  void Grow() {
    const size_t size = end();
    if (bytes_->size() - size >= kBlockBytes) return;
    bytes_->resize(size + 16 * kBlockBytes);
    writer_.out = bytes_->data() + size;
  }
  void PutBits(uint32_t value, uint32_t size) {
    if (kWrites) writer_.Put(value, size);
  }

  static void PutSymbol(uint32_t* code, uint32_t symbol, uint32_t raw, uint32_t raw_bits,
                        BitWriter* writer) {
    if (!kWrites) {
      ++code[symbol];
      return;
    }
    const uint32_t size = code[symbol] & 31;
    writer->Put(code[symbol] >> 5 << raw_bits | raw, size + raw_bits);
  }
  // In progressive scans.
  void PutAcSymbol(uint32_t symbol, uint32_t raw, uint32_t raw_bits) {
    PutSymbol(code_[1][0], symbol, raw, raw_bits, &writer_);
  }

  static void PutValue(uint32_t* code, uint32_t run, int value, BitWriter* writer) {
    const int place = value + kSmallValues;
    const uint32_t bits =
        place >= 0 && place < 2 * kSmallValues ? kSmall.bits[place] : ValueBits(value);
    PutSymbol(code, run << 4 | (bits & 31), bits >> 5, bits & 31, writer);
  }

  void PutDc(uint32_t i, int value, BitWriter* writer) {
    const int difference = value - last_dc_[i];
    last_dc_[i] = value;
    PutValue(code_[0][i], 0, difference, writer);
  }

  void PutAc(uint32_t i, const int16_t* block, BitWriter* writer) {
    uint32_t* const code = code_[1][i];
    uint32_t next = 1;
    for (uint64_t left = FindNonzero(block) >> 1 << 1; left != 0; left &= left - 1) {
      const uint32_t k = static_cast<uint32_t>(__builtin_ctzll(left));
      uint32_t run = k - next;
      next = k + 1;
      for (; run > 15; run -= 16) PutSymbol(code, 0xF0, 0, 0, writer);
      PutValue(code, run, block[k], writer);
    }
    if (next < 64) PutSymbol(code, 0, 0, 0, writer);
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
      const int value = block[k];
      const int magnitude = (value < 0 ? -value : value) >> scan_.low;
      if (magnitude == 0) continue;
      uint32_t run = k - next;
      next = k + 1;
      EndEobRun();
      for (; run > 15; run -= 16) PutAcSymbol(0xF0, 0, 0);
      PutValue(code_[1][0], run, value < 0 ? -magnitude : magnitude, &writer_);
    }
    if (next <= scan_.end && ++eob_run_ == kMaxEobRun) EndEobRun();
  }

  void RefineAc(const int16_t* block) {
    const uint64_t nonzero = FindOfSpectrum(block);
    uint32_t magnitudes[64];
    uint32_t last_new = 0;
    for (uint64_t left = nonzero; left != 0; left &= left - 1) {
      const uint32_t k = static_cast<uint32_t>(__builtin_ctzll(left));
      const int value = block[k];
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
      PutAcSymbol(run << 4 | 1, block[k] < 0 ? 0 : 1, 1);
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

  const JpegScan& scan_;
  const bool is_progressive_;
  Code codes_[2][4] = {};
  uint32_t* code_[2][3] = {};  // by component of the scan
  int last_dc_[3] = {};
  uint32_t eob_run_ = 0;
  std::vector<uint8_t> corrections_;  // of the run of blocks
  std::vector<uint8_t> block_corrections_;
  bool zero_bits_ = false;
  std::vector<uint8_t>* bytes_ = nullptr;
  BitWriter writer_;
};

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
bool AppendMetadata(uint32_t marker, std::string_view head, size_t size, Bytes* source,
                    std::vector<uint8_t>* to) {
  if (size == 0 || size > source->size || head.size() + size > 65533) return false;
  AppendSegmentHead(marker, head.size() + size, to);
  Append(head.data(), head.size(), to);
  Append(source->data, size, to);
  source->data += size;
  source->size -= size;
  return true;
}

bool AppendQuantizers(const std::vector<uint8_t>& tables, const JpegInfo& info,
                      std::vector<uint8_t>* to) {
  std::vector<uint8_t> data;
  for (const uint8_t table : tables) {
    const uint32_t c = table >> 5;
    const bool is_wide = (table & 16) != 0;
    if (c >= info.components) return false;
    data.push_back(table & 31);
    for (const uint8_t place : kJpegNaturalOrder) {
      const uint32_t quantizer = info.quantizers[c][place];
      if (is_wide) data.push_back(static_cast<uint8_t>(quantizer >> 8));
      data.push_back(static_cast<uint8_t>(quantizer));
    }
  }
  AppendSegmentHead(kMarkerDqt, data.size(), to);
  Append(data.data(), data.size(), to);
  return true;
}

bool ReadParts(const JpegInfo& info, JpegMetadata metadata, ByteReader* reader,
               Skeleton* skeleton) {
  std::vector<uint8_t>* bytes = &skeleton->bytes;
  const auto read_bytes = [&](uint32_t size) {
    const uint8_t* data = reader->ReadBytes(size);
    return data == nullptr ? std::vector<uint8_t>() : std::vector<uint8_t>(data, data + size);
  };
  bool is_sound = true;
  while (reader->ok() && is_sound) {
    switch (reader->ReadByte()) {
      case kPartEnd: return reader->ok();
      case kPartBytes: {
        const std::vector<uint8_t> data = read_bytes(reader->ReadBase128(5));
        Append(data.data(), data.size(), bytes);
        break;
      }
      case kPartExif:
        is_sound =
            AppendMetadata(kMarkerApp0 + 1, kExifHead, metadata.exif.size, &metadata.exif, bytes);
        break;
      case kPartXmp:
        is_sound =
            AppendMetadata(kMarkerApp0 + 1, kXmpHead, metadata.xmp.size, &metadata.xmp, bytes);
        break;
      case kPartIcc: {
        std::string head(kIccHead);
        for (int i = 0; i < 2; ++i) head += static_cast<char>(reader->ReadByte());
        is_sound =
            AppendMetadata(kMarkerApp0 + 2, head, reader->ReadBase128(3), &metadata.icc, bytes);
        break;
      }
      case kPartQuantizers:
        is_sound = AppendQuantizers(read_bytes(reader->ReadByte()), info, bytes);
        break;
      case kPartCodes: {
        const size_t begin = bytes->size();
        const std::vector<uint8_t> tables = read_bytes(reader->ReadByte());
        AppendCodes(tables, nullptr, bytes);
        skeleton->codes.push_back({begin, bytes->size(), tables});
        break;
      }
      default: return false;
    }
  }
  return false;
}

// Blocks that differ from the usual ones: for each the number of blocks
// before it that do not, the number of its coefficients, and of each its place and its value.
// Empty if there are none.
std::vector<uint8_t> MakePadding(const JpegStream& stream, const JpegImage& image, uint32_t c) {
  std::vector<uint8_t> data;
  uint32_t alike = 0;
  VisitPadding(stream, image, c, [&](const int16_t* block, int16_t dc) {
    const uint64_t nonzero = FindNonzero(block);
    if (block[0] == dc && nonzero >> 1 == 0) {
      ++alike;
      return;
    }
    AppendBase128(alike, &data);
    alike = 0;
    data.push_back(static_cast<uint8_t>(__builtin_popcountll(nonzero)));
    for (uint64_t left = nonzero; left != 0; left &= left - 1) {
      const int k = __builtin_ctzll(left);
      data.push_back(static_cast<uint8_t>(k));
      AppendBase128(static_cast<uint32_t>(block[k] < 0 ? -2 * block[k] - 1 : 2 * block[k]), &data);
    }
  });
  if (!data.empty()) AppendBase128(alike, &data);
  return data;
}

// Sets the blocks that fill MCUs. `has_own`: some differ from the usual ones, as `bytes` say.
bool SetPadding(const JpegStream& stream, const JpegImage& image, uint32_t c, bool has_own,
                ByteReader* bytes) {
  bool is_sound = true;
  uint32_t alike = has_own ? bytes->ReadBase128(4) : UINT32_MAX;
  VisitPadding(stream, image, c, [&](int16_t* block, int16_t dc) {
    std::fill_n(block, kJpegBlockSamples, int16_t{0});
    if (alike-- > 0) {
      block[0] = dc;
      return;
    }
    for (uint32_t n = bytes->ReadByte(); n > 0 && bytes->ok(); --n) {
      const uint32_t k = bytes->ReadByte() & 63;
      const uint32_t folded = bytes->ReadBase128(3);
      // A symbol has up to 15 bits of a coefficient.
      is_sound &= folded < 0xFFFF;
      const int value = static_cast<int>(folded >> 1 & 0x7FFF);
      block[k] = static_cast<int16_t>(folded & 1 ? -value - 1 : value);
    }
    alike = bytes->ReadBase128(4);
  });
  return !has_own || (is_sound && alike == 0 && bytes->ok());
}

// RestoreJpeg(), where the scans may be `known`.
bool Restore(const JpegImage& image, const JpegMetadata& metadata, Bytes restore_data,
             const std::vector<RestoredScan>* known, std::vector<uint8_t>* file) {
  if (restore_data.size < 4 || restore_data.size > kMaxChunksBytes) return false;
  ByteReader reader(restore_data.data + 4, static_cast<uint32_t>(restore_data.size - 4));
  Skeleton skeleton;
  if (!ReadParts(image.info, metadata, &reader, &skeleton)) return false;
  const uint32_t flags = reader.ReadByte();

  JpegStream stream;
  const Bytes bytes = {skeleton.bytes.data(), skeleton.bytes.size()};
  size_t copied = 0;
  size_t scan = 0;
  auto codes = skeleton.codes.begin();
  JpegSegment segment;
  for (size_t pos = 2; FindSegment(bytes, pos, &segment); pos = segment.end) {
    if (segment.marker == kMarkerEoi) break;
    if (stream.Apply(segment) != nullptr) return false;
    if (segment.marker != kMarkerSos) continue;
    if (copied == 0) {
      const JpegInfo& info = stream.info;
      if (info.width_px != image.info.width_px || info.height_px != image.info.height_px ||
          info.components != image.info.components ||
          info.chroma_x_shift != image.info.chroma_x_shift ||
          info.chroma_y_shift != image.info.chroma_y_shift) {
        return false;
      }
      for (uint32_t c = 0; c < image.info.components; ++c) {
        const bool has_own = (flags & kPaddingOfComponent << c) != 0;
        if (!SetPadding(stream, image, c, has_own, &reader)) return false;
      }
    }
    ScanFrequencies counted = {};
    const ScanFrequencies* frequencies = &counted;
    bool is_counted = known != nullptr;
    if (is_counted) {
      if (scan == known->size()) return false;
      frequencies = &(*known)[scan++].frequencies;
    }
    for (; codes != skeleton.codes.end() && codes->begin < segment.begin; ++codes) {
      for (const uint8_t table : codes->tables) {
        if (table >> 3 != kOptimalCode) continue;
        if (!is_counted) {
          ScanEncoder<false> encoder(stream, &counted);
          if (!WalkScan(stream, image, &encoder)) return false;
          encoder.End();
          is_counted = true;
        }
        const uint32_t is_ac = table >> 2 & 1;
        stream.codes[is_ac][table & 3] = OptimalCode(frequencies->of[is_ac][table & 3]);
      }
      Append(bytes.data + copied, codes->begin - copied, file);
      AppendCodes(codes->tables, stream.codes, file);
      copied = codes->end;
    }
    Append(bytes.data + copied, segment.end - copied, file);
    copied = segment.end;
    ScanEncoder<true> encoder(stream, (flags & kZeroBits) != 0, file);
    if (!WalkScan(stream, image, &encoder)) return false;
    encoder.End();
    file->resize(encoder.end());
  }
  Append(bytes.data + copied, bytes.size - copied, file);
  return reader.at_end() && stream.IsComplete() &&
         Crc32c(file->data(), file->size()) == LoadU32(restore_data.data);
}

// The rest of a segment behind `head`; empty if it is another marker's or begins otherwise.
Bytes FindBehind(const JpegSegment& segment, uint32_t marker, std::string_view head) {
  const Bytes data = segment.data;
  if (segment.marker != marker || data.size <= head.size()) return {};
  if (std::memcmp(data.data, head.data(), head.size()) != 0) return {};
  return {data.data + head.size(), data.size - head.size()};
}

// What stands for a DHT segment; empty where its bytes have to be stored.
std::vector<uint8_t> MakeCodesPart(const JpegParts& parts, const JpegParts::Segment& segment) {
  std::vector<uint8_t> part = {kPartCodes, 0};
  const uint8_t* data = segment.segment.data.data;
  const uint8_t* end = data + segment.segment.data.size;
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
      if (segment.scan == parts.scans.size()) return {};
      if (!(code == OptimalCode(parts.scans[segment.scan].frequencies.of[is_ac][number])))
        return {};
    }
    part.push_back(static_cast<uint8_t>(number | is_ac << 2 | kind << 3));
    ++part[1];
  }
  return part;
}

// The same of any segment. Sets the metadata that it has.
std::vector<uint8_t> MakePart(const JpegParts& parts, const JpegParts::Segment& segment,
                              JpegFile* jpeg) {
  if (segment.segment.marker == kMarkerDht) return MakeCodesPart(parts, segment);
  const Bytes exif = FindBehind(segment.segment, kMarkerApp0 + 1, kExifHead);
  if (exif.size != 0 && jpeg->metadata.exif.size == 0) {
    jpeg->metadata.exif = exif;
    return {kPartExif};
  }
  const Bytes xmp = FindBehind(segment.segment, kMarkerApp0 + 1, kXmpHead);
  if (xmp.size != 0 && jpeg->metadata.xmp.size == 0) {
    jpeg->metadata.xmp = xmp;
    return {kPartXmp};
  }
  const Bytes icc = FindBehind(segment.segment, kMarkerApp0 + 2, kIccHead);
  if (icc.size > 2 && jpeg->metadata.icc.size != 0) {
    std::vector<uint8_t> part = {kPartIcc, icc.data[0], icc.data[1]};
    AppendBase128(icc.size - 2, &part);
    return part;
  }
  if (segment.segment.marker != kMarkerDqt) return {};
  std::vector<uint8_t> part = {kPartQuantizers, 0};
  const uint8_t* table = segment.segment.data.data;
  for (const uint8_t* end = table + segment.segment.data.size; table < end; ++part[1]) {
    const bool is_wide = table[0] >> 4 != 0;
    uint32_t c = 0;
    for (; c < jpeg->image.info.components; ++c) {
      const uint16_t* quantizer = jpeg->image.info.quantizers[c];
      uint32_t k = 0;
      while (k < 64 && quantizer[kJpegNaturalOrder[k]] ==
                           (is_wide ? table[1 + 2 * k] << 8 | table[2 + 2 * k] : table[1 + k])) {
        ++k;
      }
      if (k == 64) break;
    }
    if (c == jpeg->image.info.components) return {};
    part.push_back(static_cast<uint8_t>(table[0] | c << 5));
    table += is_wide ? 129 : 65;
  }
  return part;
}

}  // namespace

void MakeRestoreData(Bytes file, const JpegStream& stream, const JpegParts& parts, JpegFile* jpeg) {
  // A profile whose segments are not numbered from 1 to their count is no profile.
  uint32_t icc_count = 0;
  uint32_t icc_number = 0;
  bool is_icc_damaged = false;
  for (const JpegParts::Segment& segment : parts.segments) {
    const Bytes icc = FindBehind(segment.segment, kMarkerApp0 + 2, kIccHead);
    if (icc.size <= 2) continue;
    if (icc_number == 0) icc_count = icc.data[1];
    is_icc_damaged |= icc.data[0] != ++icc_number || icc.data[1] != icc_count;
    Append(icc.data + 2, icc.size - 2, &jpeg->icc);
  }
  if (is_icc_damaged || icc_number != icc_count) jpeg->icc.clear();
  jpeg->metadata.icc = {jpeg->icc.data(), jpeg->icc.size()};

  std::vector<uint8_t>& data = jpeg->restore_data;
  data.resize(4);
  StoreU32(data.data(), Crc32c(file.data, file.size));
  size_t begin = 2;  // of bytes to be stored as they are
  std::vector<uint8_t> bytes;
  const auto append_bytes = [&](const uint8_t* end) {
    Append(file.data + begin, static_cast<size_t>(end - file.data) - begin, &bytes);
  };
  const auto finish_bytes = [&] {
    if (bytes.empty()) return;
    data.push_back(kPartBytes);
    AppendBase128(bytes.size(), &data);
    Append(bytes.data(), bytes.size(), &data);
    bytes.clear();
  };
  for (const JpegParts::Segment& segment : parts.segments) {
    if (segment.segment.marker == kMarkerSos) {
      append_bytes(file.data + segment.segment.end);
      begin = parts.scans[segment.scan].end;
      continue;
    }
    const std::vector<uint8_t> part = MakePart(parts, segment, jpeg);
    if (part.empty()) continue;
    append_bytes(segment.segment.data.data - 4);  // with fill bytes
    finish_bytes();
    Append(part.data(), part.size(), &data);
    begin = segment.segment.end;
  }
  append_bytes(file.data + file.size);
  finish_bytes();
  data.push_back(kPartEnd);

  uint32_t flags = parts.has_zeros ? kZeroBits : 0;
  const size_t flags_at = data.size();
  data.push_back(0);
  for (uint32_t c = 0; c < stream.info.components; ++c) {
    if (!parts.has_padding[c]) continue;
    const std::vector<uint8_t> padding = MakePadding(stream, jpeg->image, c);
    if (!padding.empty()) flags |= kPaddingOfComponent << c;
    Append(padding.data(), padding.size(), &data);
  }
  data[flags_at] = static_cast<uint8_t>(flags);

  std::vector<uint8_t> restored;
  restored.reserve(2 * file.size);  // its last block may need more than its bytes
  if (!Restore(jpeg->image, jpeg->metadata, {data.data(), data.size()}, &parts.scans, &restored) ||
      restored.size() != file.size || !std::equal(restored.begin(), restored.end(), file.data)) {
    data.clear();
  }
}

bool RestoreJpeg(const JpegImage& image, const JpegMetadata& metadata, Bytes restore_data,
                 std::vector<uint8_t>* file) {
  file->clear();
  return Restore(image, metadata, restore_data, nullptr, file);
}

}  // namespace l3
