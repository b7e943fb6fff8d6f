// Reads the fields of a chunk in turn (format.md 4). Layer: format.
#pragma once

#include <cstdint>

#include "base/portable.h"

namespace l3 {

// A read past the end gives 0 and leaves ok() false.
class ByteReader {
 public:
  ByteReader(const uint8_t* data, uint32_t size) : data_(data), size_(size) {}

  bool ok() const { return ok_; }
  uint32_t pos() const { return pos_; }
  bool at_end() const { return ok_ && pos_ == size_; }

  uint32_t ReadByte() {
    if (pos_ == size_) {
      ok_ = false;
      return 0;
    }
    return ReadOnce(data_[pos_++]);
  }

  // The next `size` bytes; null if there are fewer.
  const uint8_t* ReadBytes(uint32_t size) {
    if (size > size_ - pos_) {
      ok_ = false;
      return nullptr;
    }
    pos_ += size;
    return data_ + pos_ - size;
  }

  // A number in base 128: seven bits a byte, the least significant first. More
  // than `max_bytes` bytes leave ok() false.
  template <typename Number = uint32_t>
  Number ReadBase128(uint32_t max_bytes) {
    Number value = 0;
    for (uint32_t i = 0; i < max_bytes; ++i) {
      const Number byte = ReadByte();
      value |= (byte & 0x7F) << (7 * i);
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }

 private:
  const uint8_t* data_;
  uint32_t size_;
  uint32_t pos_ = 0;
  bool ok_ = true;
};

}  // namespace l3
