#include "files/file_handle.h"

#include <sys/auxv.h>

#include <cstring>

#include "base/portable.h"

namespace l3 {

namespace {

constexpr uint8_t kMagic[kHandleMagicBytes] = {0x8C, 'L', '3', 'l', 'a', 'z', 'y', '\n'};

// What a handle begins with. The path, its NUL and the head follow.
struct Prefix {
  uint8_t magic[kHandleMagicBytes];
  uint64_t nonce;
  FileIdentity identity;
  uint64_t offset, bytes;
  uint64_t path_bytes, head_bytes;
  uint64_t is_direct;
  int64_t max_gap_bytes;
};

uint64_t Mix(uint64_t v) {
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9u;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBu;
  return v ^ (v >> 31);
}

// A random number that all libraries of a process agree on, made of bytes that the kernel gives to
// each process. They guard the stack, too: those cannot be found from the sum.
uint64_t ProcessNonce() {
  static const uint64_t nonce = [] {
    uint64_t random[2] = {};
    const auto* given = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
    if (given != nullptr) std::memcpy(random, given, sizeof(random));
    return Mix(random[0]) + Mix(~random[1]);
  }();
  return nonce;
}

}  // namespace

bool IsHandle(const uint8_t* data, size_t size) {
  return size >= sizeof(kMagic) && std::memcmp(data, kMagic, sizeof(kMagic)) == 0;
}

bool ReadHandle(const uint8_t* data, size_t size, FileHandle* handle) {
  if (!IsHandle(data, size) || size < sizeof(Prefix)) return false;
  Prefix prefix;
  std::memcpy(&prefix, data, sizeof(prefix));
  if (prefix.nonce != ProcessNonce()) return false;
  if (size != HandleBytes(prefix.path_bytes, prefix.head_bytes)) return false;
  const uint8_t* const path = data + sizeof(prefix);
  *handle = {reinterpret_cast<const char*>(path),
             prefix.identity,
             prefix.offset,
             prefix.bytes,
             path + prefix.path_bytes + 1,
             static_cast<size_t>(prefix.head_bytes),
             prefix.is_direct != 0,
             prefix.max_gap_bytes};
  return true;
}

size_t HandleBytes(size_t path_bytes, size_t head_bytes) {
  return sizeof(Prefix) + path_bytes + 1 + head_bytes;
}

void WriteHandle(const FileHandle& handle, uint8_t* to) {
  Prefix prefix = {{},
                   ProcessNonce(),
                   handle.identity,
                   handle.offset,
                   handle.bytes,
                   std::strlen(handle.path),
                   handle.head_bytes,
                   handle.is_direct,
                   handle.max_gap_bytes};
  std::memcpy(prefix.magic, kMagic, sizeof(kMagic));
  std::memcpy(to, &prefix, sizeof(prefix));
  to += sizeof(prefix);
  std::memcpy(to, handle.path, prefix.path_bytes + 1);
  std::memcpy(to + prefix.path_bytes + 1, handle.head, handle.head_bytes);
}

Status ParseHandle(const FileHandle& handle, ImageView* view) {
  const Status status = ParseIndex(handle.head, handle.head_bytes, view);
  if (status != Status::kOk) return status;
  const uint64_t head_bytes = PayloadsOffset(*view);
  if (handle.head_bytes < head_bytes || handle.bytes < FileBytes(*view)) return Status::kTruncated;
  for (uint64_t i = IndexEnd(*view); i < head_bytes; ++i) {
    if (handle.head[i] != 0) return Status::kCorruptHeader;
  }
  return handle.bytes == FileBytes(*view) ? Status::kOk : Status::kCorruptHeader;
}

bool PayloadReader::Check() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.empty() && !file_.is_open()) error_ = Open();
  return error_.empty();
}

void PayloadReader::Read(uint64_t begin, size_t bytes, uint8_t* to) {
  if (!Check()) return;
  const std::string error = file_.Read(handle_.offset + handle_.head_bytes + begin, bytes, to);
  if (error.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.empty()) error_ = error;
}

void PayloadReader::Close() { file_.Close(); }

std::string PayloadReader::error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

std::string PayloadReader::Open() {
  const std::string error = file_.Open(handle_.path, handle_.is_direct);
  if (!error.empty()) return error;
  if (!(file_.identity() == handle_.identity)) {
    file_.Close();
    return std::string(handle_.path) + " changed since it was listed.";
  }
  file_.ExpectParts();
  return "";
}

}  // namespace l3
