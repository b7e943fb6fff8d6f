// The payloads that a job needs of a file that is not in memory: engines of all kinds get them
// here, and decode what they get as any file in memory. Layer: output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/for_each.h"
#include "format/payload_source.h"
#include "output/payload_ranges.h"
#include "output/window_job.h"

namespace l3 {

// Bytes [begin, begin + bytes) of ImageView::payloads, and where they go.
struct PayloadRead {
  PayloadSource* source;
  uint64_t begin;
  size_t bytes;
  uint8_t* to;
};

// Reads what is listed, source by source, and closes each source; or begins to: Wait() of a source
// says whether its bytes are there.
void ReadPayloads(const std::vector<PayloadRead>& reads, const ForEach& for_each);

class NeededPayloads {
 public:
  // Finds the payloads, in ranges as the job's source likes them.
  void Find(const WindowJob& job);
  uint64_t bytes() const { return view_.payloads_bytes; }
  // Places them in memory of bytes(), one behind the other, and appends how they are read. Returns
  // a view of them: its index says where they lie now. Payloads that are not needed have no bytes.
  // The view holds until the next Find().
  const ImageView* Place(uint8_t* memory, std::vector<PayloadRead>* reads);

 private:
  PayloadSource* source_ = nullptr;
  std::vector<ByteRange> ranges_;
  std::vector<uint8_t> index_;
  ImageView view_;
};

}  // namespace l3
