#include "files/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace l3 {

namespace {

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
  identity_ = other.identity_;
  path_.swap(other.path_);
  return *this;
}

std::string OpenFile::Open(const char* path) {
  Close();
  path_ = path;
  // Without O_NONBLOCK a named pipe would wait for a writer.
  fd_ = Retry([path] { return ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
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
  while (bytes != 0) {
    const ssize_t read = Retry([&] { return ::pread(fd_, out, bytes, static_cast<off_t>(begin)); });
    if (read < 0) return Explain(path_, "read", errno);
    if (read == 0) return path_ + " ended while it was read: it was truncated.";
    out += read;
    begin += static_cast<uint64_t>(read);
    bytes -= static_cast<size_t>(read);
  }
  return "";
}

void OpenFile::ExpectParts() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM); }

}  // namespace l3
