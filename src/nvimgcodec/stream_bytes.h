// The bytes of a code stream. Layer: adapter.
#pragma once

#include <cstdio>
#include <vector>

#include "nvimgcodec/abi.h"

namespace l3 {

// A file or its beginning in memory: mapped if the stream can, else read.
class StreamBytes {
 public:
  static constexpr size_t kWhole = SIZE_MAX;

  // At most `bytes` bytes; none if the stream cannot be read.
  explicit StreamBytes(nvimgcodecIoStreamDesc_t* stream, size_t bytes = kWhole) : stream_(stream) {
    if (stream->size(stream->instance, &file_bytes_) != NVIMGCODEC_STATUS_SUCCESS) file_bytes_ = 0;
    size_ = bytes < file_bytes_ ? bytes : file_bytes_;
    if (size_ == 0) return;
    void* mapped = nullptr;
    if (stream->map(stream->instance, &mapped, 0, size_) == NVIMGCODEC_STATUS_SUCCESS &&
        mapped != nullptr) {
      data_ = mapped_ = static_cast<uint8_t*>(mapped);
    } else {
      Read();
    }
  }
  ~StreamBytes() {
    if (mapped_ != nullptr) stream_->unmap(stream_->instance, mapped_, size_);
  }
  StreamBytes(const StreamBytes&) = delete;
  StreamBytes& operator=(const StreamBytes&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Of the whole file.
  size_t file_bytes() const { return file_bytes_; }

 private:
  void Read() {
    copy_.resize(size_);
    size_t read = 0;
    const bool sound =
        stream_->seek(stream_->instance, 0, SEEK_SET) == NVIMGCODEC_STATUS_SUCCESS &&
        stream_->read(stream_->instance, &read, copy_.data(), size_) == NVIMGCODEC_STATUS_SUCCESS;
    if (!sound || read < size_) size_ = sound ? read : 0;
    data_ = copy_.data();
  }

  nvimgcodecIoStreamDesc_t* stream_;
  size_t file_bytes_ = 0;
  size_t size_ = 0;
  const uint8_t* data_ = nullptr;
  uint8_t* mapped_ = nullptr;
  std::vector<uint8_t> copy_;
};

}  // namespace l3
