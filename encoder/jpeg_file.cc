#include "encoder/jpeg_file.h"

#include <algorithm>
#include <cstring>

#include "encoder/jpeg_restore.h"
#include "encoder/jpeg_stream.h"

namespace l3 {
namespace {

constexpr uint32_t kLookupBits = 10;

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

  JpegFrequencies frequencies = {};  // of the symbols that were read

 private:
  void Fill(uint32_t code, uint32_t bits, uint8_t symbol, bool with_values) {
    const uint32_t free_bits = kLookupBits - bits;
    const uint32_t size = symbol & 15;
    Entry* entry = entries_ + (code << free_bits);
    const bool has_value = with_values && size != 0 && size <= free_bits;
    for (uint32_t rest = 0; rest < 1u << free_bits; ++rest) {
      if (has_value) {
        const int raw = static_cast<int>(rest >> (free_bits - size));
        const int value = raw >> (size - 1) != 0 ? raw : raw - (1 << size) + 1;
        entry[rest] = {static_cast<int16_t>(value), symbol,
                       static_cast<uint8_t>(kHasValue | (bits + size))};
      } else {
        entry[rest] = {0, symbol, static_cast<uint8_t>(bits)};
      }
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
  // A coefficient of `size` bits, 1 to 15.
  int TakeValue(uint32_t size) {
    const int raw = static_cast<int>(Take(size));
    return raw >> (size - 1) != 0 ? raw : raw - (1 << size) + 1;
  }
};

// The bits of a scan between two markers, without stuffed bytes. Behind the end come zeros.
class BitReader {
 public:
  BitReader(Bytes file, size_t pos) : file_(file), pos_(pos) {}

  // At least 32 bits after it: a symbol and its value.
  void Refill(Bits* bits) {
    if (bits->count >= 32) return;
    if (pos_ + 8 <= file_.size) {
      uint64_t word;
      std::memcpy(&word, file_.data + pos_, 8);
      // A byte of FF: any of ~word that is 0.
      if (((~word - 0x0101010101010101) & word & 0x8080808080808080) == 0) {
        bits->next |= __builtin_bswap64(word) >> bits->count;
        const uint32_t bytes = (63 - bits->count) >> 3;
        pos_ += bytes;
        bits->count += 8 * bytes;
        return;
      }
    }
    *bits = RefillByBytes(*bits);
  }

  // Whether zeros behind the end were taken.
  bool IsPastEnd(const Bits& bits) const { return bits.count < behind_; }

  // Ends before a marker, at which `pos()` is then. Only padding bits may be left.
  bool End(Bits* bits) {
    Refill(bits);
    if (IsPastEnd(*bits) || bits->count - behind_ > 7) return false;
    const uint32_t padding = bits->count - behind_;
    const uint32_t ones = (1u << padding) - 1;
    const uint32_t value = bits->Take(padding);
    if (value != ones) has_zeros = true;
    if (padding != 0 && value != 0) has_ones = true;
    *bits = Bits();
    behind_ = 0;
    return true;
  }
  size_t pos() const { return pos_; }
  // After End().
  bool SkipMarker(uint32_t marker) {
    if (file_.size - pos_ < 2 || file_.data[pos_ + 1] != marker) return false;
    pos_ += 2;
    return true;
  }

  bool has_zeros = false;  // as padding
  bool has_ones = false;

 private:
  __attribute__((noinline)) Bits RefillByBytes(Bits bits) {
    while (bits.count <= 56) {
      uint64_t byte = 0;
      if (behind_ == 0 && pos_ < file_.size && file_.data[pos_] != 0xFF) {
        byte = file_.data[pos_++];
      } else if (behind_ == 0 && pos_ + 1 < file_.size && file_.data[pos_ + 1] == 0) {
        byte = 0xFF;
        pos_ += 2;
      } else {
        behind_ += 8;
      }
      bits.next |= byte << (56 - bits.count);
      bits.count += 8;
    }
    return bits;
  }

  Bytes file_;
  size_t pos_;
  uint32_t behind_ = 0;  // bits that are behind the end
};

// Decodes the blocks of a scan. Its functions return false where data is damaged.
class ScanDecoder {
 public:
  ScanDecoder(const JpegStream& stream, BitReader* reader)
      : frame_(stream.frame), scan_(stream.scan), reader_(*reader) {
    for (uint32_t i = 0; i < scan_.count; ++i) {
      const bool is_sequential = !frame_.is_progressive();
      if (scan_.HasDc() && scan_.high == 0) dc_[i].Set(stream.codes[0][scan_.code[0][i]], true);
      if (scan_.HasAc(frame_)) ac_[i].Set(stream.codes[1][scan_.code[1][i]], is_sequential);
    }
  }

  bool Restart(uint32_t number) {
    std::fill_n(last_dc_, 3, 0);
    eob_run_ = 0;
    return End() && reader_.SkipMarker(kMarkerRst0 + number);
  }
  bool End() { return reader_.End(&bits_); }
  // Of the symbols that were read.
  ScanFrequencies Frequencies() const {
    ScanFrequencies frequencies;
    const auto add = [](const DecodeTable& table, JpegFrequencies* to) {
      for (size_t symbol = 0; symbol < to->size(); ++symbol) {
        (*to)[symbol] += table.frequencies[symbol];
      }
    };
    for (uint32_t i = 0; i < scan_.count; ++i) {
      add(dc_[i], &frequencies.of[0][scan_.code[0][i] & 3]);
      add(ac_[i], &frequencies.of[1][scan_.code[1][i] & 3]);
    }
    return frequencies;
  }

  bool Block(uint32_t i, int16_t* block) {
    Bits bits = bits_;
    const bool is_sound = !reader_.IsPastEnd(bits) && ReadBlock(i, block, &bits);
    bits_ = bits;
    return is_sound;
  }

 private:
  bool ReadBlock(uint32_t i, int16_t* block, Bits* bits) {
    if (!frame_.is_progressive()) return ReadDc(i, block, bits) && ReadAc(&ac_[i], block, bits);
    if (scan_.HasDc()) {
      if (scan_.high == 0) return ReadDc(i, block, bits);
      reader_.Refill(bits);
      block[0] = static_cast<int16_t>(block[0] | bits->Take(1) << scan_.low);
      return true;
    }
    return scan_.high == 0 ? ReadAcFirst(block, bits) : RefineAc(block, bits);
  }

  // Refills before.
  bool FindSymbol(DecodeTable* table, Bits* bits, DecodeTable::Entry* entry) {
    reader_.Refill(bits);
    *entry = table->Find(bits->next);
    if (entry->bits == 0) *entry = table->FindLong(bits->next);
    ++table->frequencies[entry->symbol];
    bits->Skip(entry->bits & ~DecodeTable::kHasValue);
    return entry->bits != 0;
  }

  bool ReadDc(uint32_t i, int16_t* block, Bits* bits) {
    DecodeTable::Entry entry;
    if (!FindSymbol(&dc_[i], bits, &entry) || entry.symbol > 15) return false;
    int difference = entry.value;
    if ((entry.bits & DecodeTable::kHasValue) == 0 && entry.symbol != 0) {
      difference = bits->TakeValue(entry.symbol);
    }
    last_dc_[i] += difference;
    const int value = last_dc_[i] * (1 << scan_.low);
    block[0] = static_cast<int16_t>(value);
    return block[0] == value;
  }

  bool ReadAc(DecodeTable* table, int16_t* block, Bits* bits) {
    for (uint32_t k = 1; k < 64; ++k) {
      DecodeTable::Entry entry;
      if (!FindSymbol(table, bits, &entry)) return false;
      const uint32_t size = entry.symbol & 15;
      k += entry.symbol >> 4;
      if (size == 0) {
        if (entry.symbol == 0xF0) continue;
        return true;
      }
      if (k > 63) return false;
      block[kJpegNaturalOrder[k]] = (entry.bits & DecodeTable::kHasValue) != 0
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
      if (!FindSymbol(&ac_[0], bits, &entry)) return false;
      const uint32_t run = entry.symbol >> 4;
      const uint32_t size = entry.symbol & 15;
      if (size == 0 && run < 15) {
        eob_run_ = (1u << run) + bits->Take(run) - 1;
        return true;
      }
      k += run;
      if (size == 0) continue;
      if (k > scan_.end || size + scan_.low > 15) return false;
      block[kJpegNaturalOrder[k]] = static_cast<int16_t>(bits->TakeValue(size) * (1 << scan_.low));
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
      if (!FindSymbol(&ac_[0], bits, &entry)) return false;
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
        int16_t* coefficient = block + kJpegNaturalOrder[k];
        if (*coefficient != 0) {
          RefineValue(coefficient, bits);
        } else if (run-- == 0) {
          break;
        }
      }
      if (value != 0) {
        if (k > scan_.end) return false;
        block[kJpegNaturalOrder[k]] = value;
      }
      ++k;
    }
    if (eob_run_ == 0) return true;
    for (; k <= scan_.end; ++k) {
      int16_t* coefficient = block + kJpegNaturalOrder[k];
      if (*coefficient != 0) RefineValue(coefficient, bits);
    }
    --eob_run_;
    return true;
  }

  const JpegFrame& frame_;
  const JpegScan& scan_;
  BitReader& reader_;
  Bits bits_;
  DecodeTable dc_[3];
  DecodeTable ac_[3];
  int last_dc_[3] = {};
  uint32_t eob_run_ = 0;
};

// Sets the image's sizes and allocates it, once the frame is known.
const char* StartImage(const JpegStream& stream, size_t file_bytes, JpegImage* image) {
  const JpegFrame& frame = stream.frame;
  uint64_t blocks = 0;
  for (const JpegFrameComponent& component : frame.components) {
    blocks += uint64_t{component.width_blocks} * component.height_blocks;
  }
  // Each has at least a bit in a scan.
  if (blocks > 8 * uint64_t{file_bytes}) return "it is truncated";
  image->width_px = frame.width_px;
  image->height_px = frame.height_px;
  image->color = stream.color;
  image->components.resize(frame.components.size());
  const JpegFrameComponent& least = frame.components.back();
  for (size_t c = 0; c < frame.components.size(); ++c) {
    image->components[c].h = frame.components[c].h / least.h;
    image->components[c].v = frame.components[c].v / least.v;
  }
  if (image->color == JpegColor::kRgb && (frame.h_max != least.h || frame.v_max != least.v)) {
    return "it is RGB with subsampling";
  }
  AllocateCoefficients(image);
  return nullptr;
}

}  // namespace

void AllocateCoefficients(JpegImage* image) {
  const uint32_t h_max = image->components.front().h;
  const uint32_t v_max = image->components.front().v;
  const uint64_t width_mcus = CeilDiv(image->width_px, 8 * h_max);
  const uint64_t height_mcus = CeilDiv(image->height_px, 8 * v_max);
  for (JpegComponent& component : image->components) {
    component.width_blocks =
        static_cast<uint32_t>(CeilDiv(CeilDiv(uint64_t{image->width_px} * component.h, h_max), 8));
    component.height_blocks =
        static_cast<uint32_t>(CeilDiv(CeilDiv(uint64_t{image->height_px} * component.v, v_max), 8));
    component.stride_blocks = static_cast<uint32_t>(width_mcus * component.h);
    component.rows_blocks = static_cast<uint32_t>(height_mcus * component.v);
    component.coefficients.assign(64 * uint64_t{component.stride_blocks} * component.rows_blocks,
                                  0);
  }
}

const char* ReadJpeg(Bytes file, bool with_restore_data, JpegFile* jpeg) {
  *jpeg = JpegFile();
  if (file.size < 4 || file.data[0] != 0xFF || file.data[1] != kMarkerSoi) return "it is no JPEG";
  JpegStream stream;
  JpegPadding padding;
  JpegRestoreBuilder restore(file);
  size_t pos = 2;
  for (;;) {
    JpegSegment segment;
    if (!FindSegment(file, pos, &segment)) {
      return pos < file.size && file.data[pos] != 0xFF ? "bytes lie between its segments"
                                                       : "it is truncated";
    }
    pos = segment.end;
    if (segment.marker == kMarkerEoi) break;
    const uint8_t* data = file.data + segment.data;
    const size_t size = segment.end - segment.data;
    if (const char* reason = stream.Apply(segment, data, size)) return reason;
    restore.AddSegment(segment, stream);
    if (segment.marker != kMarkerSos) continue;
    if (jpeg->image.components.empty()) {
      if (const char* reason = StartImage(stream, file.size, &jpeg->image)) return reason;
      padding = JpegPadding(stream.frame);
    }
    BitReader bits(file, pos);
    ScanDecoder decoder(stream, &bits);
    if (!WalkScan(stream.frame, stream.scan, &jpeg->image, &padding, &decoder) || !decoder.End()) {
      return "its data is damaged or truncated";
    }
    pos = bits.pos();
    if (with_restore_data) {
      restore.EndScan({pos, decoder.Frequencies()}, bits.has_zeros && !bits.has_ones);
    }
  }
  if (!stream.IsComplete()) return "scans are missing";
  for (size_t c = 0; c < jpeg->image.components.size(); ++c) {
    std::memcpy(jpeg->image.components[c].quantizer, stream.quantizers[c],
                sizeof(stream.quantizers[c]));
  }
  restore.TakeMetadata(&jpeg->metadata);
  if (!with_restore_data) return nullptr;
  jpeg->restore_data = restore.Finish(jpeg->image, stream.frame, &padding);
  if (!restore.Restores(jpeg->image, jpeg->metadata, jpeg->restore_data)) {
    jpeg->restore_data.clear();
  }
  return nullptr;
}

}  // namespace l3
