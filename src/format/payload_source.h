// Payloads that are not in memory, as engines read them. Layer: format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace l3 {

// Threads may share it.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;

  // How reads are best planned.
  struct Traits {
    bool is_remote;           // reads take no thread's time: all of a batch are begun at once
    uint64_t max_gap_bytes;   // ranges with so much between them are read as one
    uint64_t max_read_bytes;  // longer ranges are several reads
  };
  virtual Traits traits() const = 0;

  // Looks whether there is such a file, with a head of its own.
  virtual bool Check() = 0;
  // Reads bytes [begin, begin + bytes) of ImageView::payloads, or begins to.
  virtual void Read(uint64_t begin, size_t bytes, uint8_t* to) = 0;
  // Waits for what was begun. Returns false if something failed.
  virtual bool Wait() = 0;
  // To be called after the last read, so that a batch takes few descriptors; not during a read.
  virtual void Close() = 0;
  // What failed first, a sentence with the file's name. Empty if nothing did.
  virtual std::string error() = 0;
  // Whether that is no fault of the file: the network is down, or access is denied.
  virtual bool must_raise() { return false; }
};

}  // namespace l3
