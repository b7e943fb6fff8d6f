// Handles: a few KB that stand for an L3 file, and the reads of its tiles. Layer: files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "files/open_file.h"
#include "format/image_view.h"
#include "format/payload_source.h"
#include "format/status.h"

namespace l3 {

// What a handle says. Points into its bytes.
struct FileHandle {
  const char* path;  // absolute, or the URI of an object
  FileIdentity identity;
  uint64_t offset, bytes;  // of the image in the file: part of it if that is a tar
  const uint8_t* head;  // the image's first bytes, up to its payloads; none without such a file
  size_t head_bytes;
  bool is_direct = false;  // read past the page cache
  int64_t max_gap_bytes = -1;  // of an object: PayloadSource::Traits; -1 as measured
};

constexpr size_t kHandleMagicBytes = 8;
// Whether bytes begin as a handle does, of this process or another: with so many bytes.
bool IsHandle(const uint8_t* data, size_t size);
// Reads a handle that this process made. False for all other bytes: they cannot be taken for one,
// since it holds a random number of the process.
bool ReadHandle(const uint8_t* data, size_t size, FileHandle* handle);

// Bytes of a handle with a path of so many characters and such a head.
size_t HandleBytes(size_t path_bytes, size_t head_bytes);
// Writes HandleBytes() bytes.
void WriteHandle(const FileHandle& handle, uint8_t* to);

// Validates the head, and that the image is as long as it says, as ParseImage() does. `view` points
// into the handle; its payloads are null.
Status ParseHandle(const FileHandle& handle, ImageView* view);

// Reads payloads of a handle's file.
class PayloadReader final : public PayloadSource {
 public:
  // The handle's bytes must outlive it.
  explicit PayloadReader(const FileHandle& handle) : handle_(handle) {}

  // A gap of a page is as fast to read as to skip; half a MiB is enough for full speed.
  Traits traits() const override { return {false, 4096, 512 << 10}; }
  // Opens the file and compares it with the handle. Returns false if that fails; error() then says
  // why.
  bool Check() override;
  // The first call is Check(), too.
  void Read(uint64_t begin, size_t bytes, uint8_t* to) override;
  bool Wait() override { return error().empty(); }
  void Close() override;
  std::string error() override;

 private:
  std::string Open();

  const FileHandle handle_;
  std::mutex mutex_;  // of what follows
  OpenFile file_;
  std::string error_;
};

}  // namespace l3
