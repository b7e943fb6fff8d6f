#include "encoder/jpeg_file.h"

#include <algorithm>
#include <cstring>

#include "encoder/jpeg_restore.h"
#include "encoder/jpeg_stream.h"

namespace l3 {
namespace {

constexpr uint32_t kLookupBits = 10;

// The coefficient of `size` bits, 1 to 15.
int ValueOf(uint32_t raw, uint32_t size) {
  const int value = static_cast<int>(raw);
  return raw >> (size - 1) != 0 ? value : value - (1 << size) + 1;
}

// Decodes a symbol from the next kLookupBits bits, or from up to 16.
class DecodeTable {
 public:
  // With kHasValue the symbol's raw bits are in the lookup as well.
  struct Entry {
    int16_t value;
    uint8_t symbol;
    uint8_t bits;  // 0: the code is longer
  };
  static constexpr uint8_t kHasValue = 0x80;

  // `with_values`: symbols are a run of zeros and the bits of a value, as in sequential scans.
  void Set(const JpegCode& code, bool with_values) {
    std::fill_n(entries_, 1u << kLookupBits, Entry{0, 0, 0});
    uint32_t next = 0;
    uint32_t symbol = 0;
    for (uint32_t bits = 1; bits <= 16; ++bits) {
      next <<= 1;
      const uint32_t count = code.counts[bits - 1];
      first_code_[bits] = next;
      first_symbol_[bits] = symbol;
      counts_[bits] = count;
      for (uint32_t i = 0; bits <= kLookupBits && i < count; ++i) {
        Fill(next + i, bits, code.symbols[symbol + i], with_values);
      }
      next += count;
      symbol += count;
    }
    std::memcpy(symbols_, code.symbols, sizeof(symbols_));
  }

  Entry Find(uint64_t next_bits) const { return entries_[next_bits >> (64 - kLookupBits)]; }

  // For codes of more bits. Returns `bits` 0 where no code fits.
  Entry FindLong(uint64_t next_bits) const {
    for (uint32_t bits = kLookupBits + 1; bits <= 16; ++bits) {
      const uint32_t i = static_cast<uint32_t>(next_bits >> (64 - bits)) - first_code_[bits];
      if (i < counts_[bits]) {
        return {0, symbols_[first_symbol_[bits] + i], static_cast<uint8_t>(bits)};
      }
    }
    return {0, 0, 0};
  }

 private:
  void Fill(uint32_t code, uint32_t bits, uint8_t symbol, bool with_values) {
    const uint32_t free_bits = kLookupBits - bits;
    const uint32_t size = symbol & 15;
    Entry* entry = entries_ + (code << free_bits);
    const bool has_value = with_values && size != 0 && size <= free_bits;
    for (uint32_t rest = 0; rest < 1u << free_bits; ++rest) {
      entry[rest] = {0, symbol, static_cast<uint8_t>(bits)};
      if (!has_value) continue;
      entry[rest].value = static_cast<int16_t>(ValueOf(rest >> (free_bits - size), size));
      entry[rest].bits = static_cast<uint8_t>(kHasValue | (bits + size));
    }
  }

  Entry entries_[1u << kLookupBits];
  uint32_t first_code_[17];
  uint32_t first_symbol_[17];
  uint32_t counts_[17];
  uint8_t symbols_[256];
};

// The next bits of a scan, the first of them the highest. A copy may stay in registers.
struct Bits {
  uint64_t next = 0;
  uint32_t count = 0;

  void Skip(uint32_t size) {
    next <<= size;
    count -= size;
  }
  // Up to 16 bits.
  uint32_t Take(uint32_t size) {
    const uint32_t value = static_cast<uint32_t>(next >> 1 >> (63 - size));
    Skip(size);
    return value;
  }
  int TakeValue(uint32_t size) { return ValueOf(Take(size), size); }
};

// The bits of a scan between two markers. Behind the end come zeros.
class BitReader {
 public:
  BitReader(Bytes file, size_t pos) : file_(file), pos_(pos) { CopyToMarker(); }

  // At least 56 bits after it: a symbol and its value take up to 31.
  void Refill(Bits* bits) {
    uint64_t word;
    std::memcpy(&word, next_, 8);
    bits->next |= __builtin_bswap64(word) >> bits->count;
    next_ += (63 - bits->count) >> 3;
    bits->count |= 56;
  }

  // Whether zeros behind the end were taken. Before each block, so that no more than kSpareBytes
  // are.
  bool IsPastEnd(const Bits& bits) const { return BitsLeft(bits) < 0; }

  // Ends before a marker, at which `pos()` is then. Only padding bits may be left.
  bool End(Bits* bits) {
    const int64_t padding = BitsLeft(*bits);
    if (padding < 0 || padding > 7) return false;
    Refill(bits);
    const uint32_t value = bits->Take(static_cast<uint32_t>(padding));
    if (value != (1u << padding) - 1) has_zeros = true;
    if (padding != 0 && value != 0) has_ones = true;
    *bits = Bits();
    return true;
  }
  size_t pos() const { return pos_; }
  // After End().
  bool SkipMarker(uint32_t marker) {
    if (file_.size - pos_ < 2 || file_.data[pos_ + 1] != marker) return false;
    pos_ += 2;
    CopyToMarker();
    return true;
  }

  bool has_zeros = false;  // as padding
  bool has_ones = false;

 private:
  static constexpr size_t kSpareBytes = 512;

  int64_t BitsLeft(const Bits& bits) const { return 8 * (end_ - next_) + bits.count; }

  // Copies the bytes up to the next marker, without stuffed ones.
  void CopyToMarker() {
    bytes_.clear();
    bytes_.reserve(file_.size - pos_ + kSpareBytes);
    while (pos_ < file_.size) {
      const uint8_t* begin = file_.data + pos_;
      const void* found = std::memchr(begin, 0xFF, file_.size - pos_);
      const uint8_t* end =
          found == nullptr ? file_.data + file_.size : static_cast<const uint8_t*>(found);
      bytes_.insert(bytes_.end(), begin, end);
      pos_ = static_cast<size_t>(end - file_.data);
      if (file_.size - pos_ < 2 || end[1] != 0) break;
      bytes_.push_back(0xFF);
      pos_ += 2;
    }
    const size_t size = bytes_.size();
    bytes_.resize(size + kSpareBytes);
    next_ = bytes_.data();
    end_ = next_ + size;
  }

  Bytes file_;
  size_t pos_;
  std::vector<uint8_t> bytes_;
  const uint8_t* next_;
  const uint8_t* end_;
};

// Decodes the blocks of a scan. Its functions return false where data is damaged.
class ScanDecoder {
 public:
  // `frequencies`: of the symbols that are read.
  ScanDecoder(const JpegStream& stream, BitReader* reader, ScanFrequencies* frequencies)
      : scan_(stream.scan), is_progressive_(stream.frame.is_progressive()), reader_(*reader) {
    for (uint32_t i = 0; i < scan_.count; ++i) {
      for (uint32_t is_ac = 0; is_ac < 2; ++is_ac) {
        const uint32_t number = scan_.code[is_ac][i];
        const bool is_used = is_ac ? scan_.HasAc(stream.frame) : scan_.HasDc() && scan_.high == 0;
        if (!is_used) continue;
        code_[is_ac][i] = {&tables_[is_ac][number], frequencies->of[is_ac][number].data()};
        tables_[is_ac][number].Set(stream.codes[is_ac][number], is_ac == 0 || !is_progressive_);
      }
    }
  }

  bool Restart(uint32_t number) {
    std::fill_n(last_dc_, 3, 0);
    eob_run_ = 0;
    return End() && reader_.SkipMarker(kMarkerRst0 + number);
  }
  bool End() { return reader_.End(&bits_); }

  bool Block(uint32_t i, int16_t* block) {
    Bits bits = bits_;
    const bool is_sound = !reader_.IsPastEnd(bits) && ReadBlock(i, block, &bits);
    bits_ = bits;
    return is_sound;
  }

 private:
  struct Code {
    const DecodeTable* table;
    uint32_t* frequencies;
  };

  bool ReadBlock(uint32_t i, int16_t* block, Bits* bits) {
    if (!is_progressive_) return ReadDc(i, block, bits) && ReadAc(code_[1][i], block, bits);
    if (scan_.HasDc()) {
      if (scan_.high == 0) return ReadDc(i, block, bits);
      reader_.Refill(bits);
      block[0] = static_cast<int16_t>(block[0] | bits->Take(1) << scan_.low);
      return true;
    }
    return scan_.high == 0 ? ReadAcFirst(block, bits) : RefineAc(block, bits);
  }

  // Refills before.
  bool FindSymbol(const Code& code, Bits* bits, DecodeTable::Entry* entry) {
    reader_.Refill(bits);
    *entry = code.table->Find(bits->next);
    if (entry->bits == 0) *entry = code.table->FindLong(bits->next);
    ++code.frequencies[entry->symbol];
    bits->Skip(entry->bits & ~DecodeTable::kHasValue);
    return entry->bits != 0;
  }

  bool ReadDc(uint32_t i, int16_t* block, Bits* bits) {
    DecodeTable::Entry entry;
    if (!FindSymbol(code_[0][i], bits, &entry) || entry.symbol > 15) return false;
    int difference = entry.value;
    if ((entry.bits & DecodeTable::kHasValue) == 0 && entry.symbol != 0) {
      difference = bits->TakeValue(entry.symbol);
    }
    last_dc_[i] += difference;
    const int value = last_dc_[i] * (1 << scan_.low);
    block[0] = static_cast<int16_t>(value);
    return block[0] == value;
  }

  bool ReadAc(const Code& code, int16_t* block, Bits* bits) {
    for (uint32_t k = 1; k < 64; ++k) {
      DecodeTable::Entry entry;
      if (!FindSymbol(code, bits, &entry)) return false;
      const uint32_t size = entry.symbol & 15;
      k += entry.symbol >> 4;
      if (size == 0) {
        if (entry.symbol == 0xF0) continue;
        return true;
      }
      if (k > 63) return false;
      block[k] = (entry.bits & DecodeTable::kHasValue) != 0
                     ? entry.value
                     : static_cast<int16_t>(bits->TakeValue(size));
    }
    return true;
  }

  bool ReadAcFirst(int16_t* block, Bits* bits) {
    if (eob_run_ > 0) {
      --eob_run_;
      return true;
    }
    for (uint32_t k = scan_.begin; k <= scan_.end; ++k) {
      DecodeTable::Entry entry;
      if (!FindSymbol(code_[1][0], bits, &entry)) return false;
      const uint32_t run = entry.symbol >> 4;
      const uint32_t size = entry.symbol & 15;
      if (size == 0 && run < 15) {
        eob_run_ = (1u << run) + bits->Take(run) - 1;
        return true;
      }
      k += run;
      if (size == 0) continue;
      if (k > scan_.end || size + scan_.low > 15) return false;
      block[k] = static_cast<int16_t>(bits->TakeValue(size) * (1 << scan_.low));
    }
    return true;
  }

  // A further bit of a coefficient that is not 0.
  void RefineValue(int16_t* value, Bits* bits) {
    reader_.Refill(bits);
    if (bits->Take(1) == 0) return;
    *value = static_cast<int16_t>(*value + (*value > 0 ? 1 : -1) * (1 << scan_.low));
  }

  bool RefineAc(int16_t* block, Bits* bits) {
    uint32_t k = scan_.begin;
    while (eob_run_ == 0 && k <= scan_.end) {
      DecodeTable::Entry entry;
      if (!FindSymbol(code_[1][0], bits, &entry)) return false;
      uint32_t run = entry.symbol >> 4;
      const uint32_t size = entry.symbol & 15;
      int16_t value = 0;
      if (size > 1) return false;
      if (size == 1) {
        value = static_cast<int16_t>((bits->Take(1) != 0 ? 1 : -1) * (1 << scan_.low));
      } else if (run < 15) {
        eob_run_ = (1u << run) + bits->Take(run);
        break;
      }
      // Passes `run` coefficients that are 0, and refines those between them.
      for (; k <= scan_.end; ++k) {
        int16_t* coefficient = block + k;
        if (*coefficient != 0) {
          RefineValue(coefficient, bits);
        } else if (run-- == 0) {
          break;
        }
      }
      if (value != 0) {
        if (k > scan_.end) return false;
        block[k] = value;
      }
      ++k;
    }
    if (eob_run_ == 0) return true;
    for (; k <= scan_.end; ++k) {
      int16_t* coefficient = block + k;
      if (*coefficient != 0) RefineValue(coefficient, bits);
    }
    --eob_run_;
    return true;
  }

  const JpegScan& scan_;
  const bool is_progressive_;
  BitReader& reader_;
  Bits bits_;
  DecodeTable tables_[2][4];
  Code code_[2][3] = {};  // by component of the scan
  int last_dc_[3] = {};
  uint32_t eob_run_ = 0;
};

// Allocates the image, once the frame is known.
const char* StartImage(const JpegInfo& info, size_t file_bytes, JpegImage* image) {
  uint64_t blocks = 0;
  for (uint32_t c = 0; c < info.components; ++c) {
    const JpegBlockRect rect = JpegBlocksOfImage(info, c);
    blocks += uint64_t{rect.width} * rect.height;
  }
  // Each has at least a bit in a scan.
  if (blocks > 8 * uint64_t{file_bytes}) return "it is truncated";
  if (info.color == JpegColor::kRgb && info.chroma_x_shift + info.chroma_y_shift != 0) {
    return "it is RGB with subsampling";
  }
  image->info = info;
  image->Allocate();
  return nullptr;
}

}  // namespace

void JpegImage::Allocate() {
  size_t begin[kMaxJpegComponents];
  size_t size = 0;
  for (uint32_t c = 0; c < info.components; ++c) {
    const JpegBlockRect rect = JpegBlocksOfImage(info, c);
    blocks.row_blocks[c] = CeilDiv(rect.width, kMaxJpegFactor) * kMaxJpegFactor;
    begin[c] = size;
    size += kJpegBlockSamples * blocks.row_blocks[c] * CeilDiv(rect.height, kMaxJpegFactor) *
            kMaxJpegFactor;
  }
  memory.reset(new int16_t[size]());
  for (uint32_t c = 0; c < info.components; ++c) blocks.data[c] = memory.get() + begin[c];
}

const char* ReadJpeg(Bytes file, JpegFile* jpeg) {
  *jpeg = JpegFile();
  if (file.size < 4 || file.data[0] != 0xFF || file.data[1] != kMarkerSoi) return "it is no JPEG";
  JpegStream stream;
  JpegParts parts;
  size_t pos = 2;
  for (;;) {
    JpegSegment segment;
    if (!FindSegment(file, pos, &segment)) {
      return pos < file.size && file.data[pos] != 0xFF ? "bytes lie between its segments"
                                                       : "it is truncated";
    }
    pos = segment.end;
    if (segment.marker == kMarkerEoi) break;
    if (const char* reason = stream.Apply(segment)) return reason;
    parts.segments.push_back({segment, parts.scans.size()});
    if (segment.marker != kMarkerSos) continue;
    if (jpeg->image.memory == nullptr) {
      if (const char* reason = StartImage(stream.info, file.size, &jpeg->image)) return reason;
    }
    BitReader bits(file, pos);
    RestoredScan scan = {};
    ScanDecoder decoder(stream, &bits, &scan.frequencies);
    if (!WalkScan(stream, jpeg->image, &decoder) || !decoder.End()) {
      return "its data is damaged or truncated";
    }
    scan.end = pos = bits.pos();
    parts.scans.push_back(scan);
    parts.has_zeros |= bits.has_zeros && !bits.has_ones;
    for (uint32_t i = 0; i < stream.scan.count; ++i) {
      parts.has_padding[stream.scan.component[i]] |= stream.scan.count > 1 && stream.scan.HasDc();
    }
  }
  if (!stream.IsComplete()) return "scans are missing";
  jpeg->image.info = stream.info;
  MakeRestoreData(file, stream, parts, jpeg);
  return nullptr;
}

}  // namespace l3
