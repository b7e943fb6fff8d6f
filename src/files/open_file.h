// An open file of this machine, and which one it is. Layer: files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace l3 {

// Tells a file from another at its path, and from itself after a change.
struct FileIdentity {
  uint64_t device, inode, bytes;
  int64_t modified_ns;

  bool operator==(const FileIdentity& other) const {
    return device == other.device && inode == other.inode && bytes == other.bytes &&
           modified_ns == other.modified_ns;
  }
};

// Functions that can fail return what went wrong, a sentence with the path; empty if nothing did.

// Says which regular file a path leads to.
std::string LookAt(const char* path, FileIdentity* identity);

class OpenFile {
 public:
  OpenFile() = default;
  ~OpenFile() { Close(); }
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  // Opens a regular file. `is_direct` reads past the page cache, where the file system can.
  std::string Open(const char* path, bool is_direct = false);
  void Close();
  bool is_open() const { return fd_ >= 0; }
  // Of the file as it was opened.
  const FileIdentity& identity() const { return identity_; }

  // Reads `bytes` bytes from the offset `begin` on. Threads may share the file.
  std::string Read(uint64_t begin, size_t bytes, void* to) const;
  // Tells the system that small parts are read: it fetches no more of the disk than they are.
  void ExpectParts() const;

 private:
  std::string ReadDirectly(uint64_t begin, size_t bytes, uint8_t* out) const;

  int fd_ = -1;
  bool is_direct_ = false;
  FileIdentity identity_ = {};
  std::string path_;
};

}  // namespace l3
