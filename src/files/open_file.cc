#include "files/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/portable.h"

namespace l3 {

namespace {

constexpr char kEnded[] = " ended while it was read: it was truncated.";

// Calls a function of the system until no signal interrupts it.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

std::string Explain(const std::string& path, const char* what, int error) {
  return path + " cannot be " + what + ": " + std::generic_category().message(error) + ".";
}

std::string Identify(const char* path, const struct stat& status, FileIdentity* identity) {
  if (!S_ISREG(status.st_mode)) {
    return std::string(path) + " cannot be read: it is not a regular file.";
  }
  *identity = {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino),
               static_cast<uint64_t>(status.st_size),
               int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec};
  return "";
}

}  // namespace

std::string LookAt(const char* path, FileIdentity* identity) {
  struct stat status;
  if (::stat(path, &status) != 0) return Explain(path, "opened", errno);
  return Identify(path, status, identity);
}

OpenFile::OpenFile(OpenFile&& other) noexcept { *this = std::move(other); }

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_direct_, other.is_direct_);
  identity_ = other.identity_;
  path_.swap(other.path_);
  return *this;
}

std::string OpenFile::Open(const char* path, bool is_direct) {
  Close();
  path_ = path;
  // Without O_NONBLOCK a named pipe would wait for a writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  is_direct_ = is_direct;
  fd_ = Retry([&] { return ::open(path, is_direct ? kFlags | O_DIRECT : kFlags); });
  if (fd_ < 0 && is_direct && errno == EINVAL) return Open(path);
  if (fd_ < 0) return Explain(path_, "opened", errno);
  struct stat status;
  if (::fstat(fd_, &status) != 0) return Explain(path_, "opened", errno);
  return Identify(path, status, &identity_);
}

void OpenFile::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string OpenFile::Read(uint64_t begin, size_t bytes, void* to) const {
  auto* out = static_cast<uint8_t*>(to);
  if (is_direct_) return ReadDirectly(begin, bytes, out);
  while (bytes != 0) {
    const ssize_t read = Retry([&] { return ::pread(fd_, out, bytes, static_cast<off_t>(begin)); });
    if (read < 0) return Explain(path_, "read", errno);
    if (read == 0) return path_ + kEnded;
    out += read;
    begin += static_cast<uint64_t>(read);
    bytes -= static_cast<size_t>(read);
  }
  return "";
}

// Whole pages go to memory that starts at one.
std::string OpenFile::ReadDirectly(uint64_t begin, size_t bytes, uint8_t* out) const {
  constexpr uint64_t kPage = 4096;
  constexpr uint64_t kMostBytes = 1 << 20;
  static thread_local const std::unique_ptr<uint8_t, decltype(&std::free)> pages(
      static_cast<uint8_t*>(std::aligned_alloc(kPage, kMostBytes)), &std::free);
  if (pages == nullptr) return Explain(path_, "read", ENOMEM);
  while (bytes != 0) {
    const uint64_t before = begin % kPage;
    const uint64_t wanted = std::min(kMostBytes, CeilDiv(before + bytes, kPage) * kPage);
    const ssize_t read = Retry(
        [&] { return ::pread(fd_, pages.get(), wanted, static_cast<off_t>(begin - before)); });
    if (read < 0) return Explain(path_, "read", errno);
    if (static_cast<uint64_t>(read) <= before) return path_ + kEnded;
    const size_t copied = std::min<size_t>(bytes, static_cast<size_t>(read) - before);
    std::memcpy(out, pages.get() + before, copied);
    out += copied;
    begin += copied;
    bytes -= copied;
  }
  return "";
}

void OpenFile::ExpectParts() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM); }

}  // namespace l3
