// Memory of the device: allocated blocks, and which thread touched each byte last, so that
// unordered accesses are found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace l3::ptx {

// Who touched a byte: a launch, a thread of it and that thread's count of barriers.
// 0 is none.
class Stamp {
 public:
  enum Reach : uint32_t { kThread, kWarp, kBlock, kGrid };  // how many have touched it

  Stamp() = default;
  Stamp(uint32_t launch, bool mark, Reach reach, uint32_t thread, uint32_t epoch)
      : bits_(uint64_t{launch} << 48 | uint64_t{mark} << 47 | uint64_t{reach} << 45 |
              uint64_t{thread} << 20 | epoch) {}
  static constexpr uint32_t kMaxLaunch = (1 << 16) - 1, kMaxThread = (1 << 25) - 1,
                            kMaxEpoch = (1 << 20) - 1;

  uint32_t launch() const { return static_cast<uint32_t>(bits_ >> 48); }
  // Of writers: an atomic operation; of readers: ld.global.nc.
  bool mark() const { return (bits_ >> 47 & 1) != 0; }
  Reach reach() const { return static_cast<Reach>(bits_ >> 45 & 3); }
  uint32_t thread() const { return static_cast<uint32_t>(bits_ >> 20) & kMaxThread; }
  uint32_t epoch() const { return static_cast<uint32_t>(bits_) & kMaxEpoch; }
  bool is_none() const { return bits_ == 0; }
  bool operator==(const Stamp& other) const { return bits_ == other.bits_; }

 private:
  uint64_t bits_ = 0;
};

struct ByteStamps {
  Stamp* written = nullptr;
  Stamp* read = nullptr;
};

// Device memory lies in host memory, at the same address.
class Block {
 public:
  Block(uint8_t* data, uint64_t bytes);

  uint64_t base() const { return reinterpret_cast<uint64_t>(data_); }
  uint64_t bytes() const { return bytes_; }
  bool Holds(uint64_t address, uint64_t bytes) const {
    return address - base() < bytes_ && address - base() + bytes <= bytes_;
  }
  uint8_t* data(uint64_t offset) const { return data_ + offset; }
  // Good for the bytes up to the end of the page.
  static constexpr uint64_t kPageBytes = 4096;
  ByteStamps stamps(uint64_t offset);

 private:
  struct Page {
    Stamp written[kPageBytes], read[kPageBytes];
  };
  uint8_t* data_;
  uint64_t bytes_;
  std::vector<std::unique_ptr<Page>> pages_;
};

// All that kernels may touch.
class Memory {
 public:
  void Add(uint8_t* data, uint64_t bytes);
  void Remove(uint64_t base) { blocks_.erase(base); }
  Block* Find(uint64_t address);  // null: no block holds it
  // What lies at or before an address that no block holds, in words.
  std::string Describe(uint64_t address) const;

 private:
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;
};

// What is wrong with what kernels did, each kind of finding once, with how often.
class Findings {
 public:
  // `where` names file, line and operation.
  void Add(const std::string& where, const std::string& what, const std::string& example);
  bool empty() const { return found_.empty(); }
  std::vector<std::string> Lines() const;

 private:
  struct Finding {
    uint64_t count = 0;
    std::string example;
  };
  std::map<std::tuple<std::string, std::string>, Finding> found_;
};

}  // namespace l3::ptx
