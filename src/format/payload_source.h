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

  // Reads bytes [begin, begin + bytes) of ImageView::payloads. Returns false if that fails.
  virtual bool Read(uint64_t begin, size_t bytes, void* to) = 0;
  // To be called after the last read, so that a batch takes few descriptors; not during a read.
  virtual void Close() = 0;
  // What failed first, a sentence with the file's name. Empty if nothing did.
  virtual std::string error() = 0;
};

}  // namespace l3
