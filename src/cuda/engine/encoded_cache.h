// Keeps the encoded payloads of images in the memory of a GPU, so that an image seen
// before is decoded without a read of its payloads on the host and without an upload.
// Layer: cuda; plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cuda/engine/gpu_device.h"
#include "format/image_view.h"
#include "output/window_job.h"

namespace l3 {

enum class CachePolicy {
  kThreshold,  // every file of at least threshold_bytes, first come, first served
  kLargest,    // the largest files that fit; known once a file comes for the second time
};

struct CacheOptions {
  uint64_t capacity_bytes;  // of device memory, at most
  CachePolicy policy;
  uint64_t threshold_bytes;
  uint64_t list_bytes = 0;  // of the capacity, for a list of what is cached that others keep

  bool operator==(const CacheOptions& other) const {
    return capacity_bytes == other.capacity_bytes && policy == other.policy &&
           threshold_bytes == other.threshold_bytes && list_bytes == other.list_bytes;
  }
};

struct CacheStatistics {
  uint64_t hits;
  uint64_t misses;
  uint64_t entries;
  uint64_t payload_bytes;  // of the entries
  uint64_t memory_bytes;   // taken from the device
};

// Its view points into `start`.
struct CachedImage : DeviceImage {
  std::vector<uint8_t> start;  // of the file: header, chunks, index, and the rest of their page
  uint64_t file_bytes;         // of the whole file
};

// Images are known by the name of their source, as the reader gives it. An entry is served
// to files of its size that begin as it does, to the end of the page that the index ends
// in: small files are compared whole. More would read the payloads. So another file of the
// same name is noticed unless it has the same bytes there, and every tile is as long. It is
// then decoded as if there were no cache; its entry stays, for entries never move or leave,
// and work in flight may use them.
//
// Memory is taken in slabs as images come. Where the device has no more, the cache stays
// as it is. Threads and decoders may share it; all of them must be gone before it is.
class EncodedCache {
 public:
  EncodedCache(const CacheOptions& options, std::unique_ptr<GpuDevice> device);
  EncodedCache(const EncodedCache&) = delete;
  EncodedCache& operator=(const EncodedCache&) = delete;

  // The one of a device: made by the first caller, gone with the last. Throws
  // std::invalid_argument if it exists with other options.
  static std::shared_ptr<EncodedCache> OfDevice(
      int device_id, const CacheOptions& options,
      const std::function<std::unique_ptr<GpuDevice>()>& make_device);
  // The same; null if there is none.
  static std::shared_ptr<EncodedCache> OfDevice(int device_id);

  // The entry of `key` if it can stand for the file, else null. Counts as a hit or a miss.
  // Work that uses the entry must wait for WaitForFills().
  // Of the file, `size` bytes of its start are given: all of them, or its head.
  const CachedImage* Find(const std::string& key, const uint8_t* start, size_t size,
                          uint64_t file_bytes);
  // The same for a file that was not read, as it is cached.
  const CachedImage* FindUnread(const std::string& key);
  // The same, and counts as nothing.
  const CachedImage* Peek(const std::string& key) const;

  // Whether Add() would keep this image, which was not found. `who` tells decoders apart: a file
  // comes again when the same one asks again.
  bool Wants(const std::string& key, const ImageView& view, const void* who = nullptr);

  // An image to keep: a view from ParseImage(), and its payloads, on the host too, and in device
  // memory, readable kPayloadPaddingBytes past their end.
  struct Candidate {
    const std::string* key;
    const ImageView* view;
    const uint8_t* payloads;
    const uint8_t* payloads_dev;
  };

  // Keeps those for which there is room and no entry, and whose file has not changed meanwhile.
  // Their payloads must be in place once the work queued on `stream` so far is done; the copies are
  // queued behind it. If the host is out of memory, throws std::bad_alloc and keeps none.
  void Add(const std::vector<Candidate>& images, CUstream_st* stream);

  // Lets later work of `stream` wait for all payloads of entries found so far.
  void WaitForFills(CUstream_st* stream);

  CacheStatistics statistics() const;

 private:
  // A part of the device memory, filled from the start.
  struct Slab {
    std::shared_ptr<void> memory;
    uint64_t bytes;
    uint64_t used_bytes;
  };

  const CachedImage* Lookup(const std::string& key) const;
  const CachedImage* Count(const CachedImage* found);
  uint64_t bytes_left() const;
  bool IsAmongLargest(const std::string& key, uint64_t bytes, const void* who);
  bool HasRoom(uint64_t payload_bytes) const;
  uint8_t* TakeRoom(uint64_t payload_bytes);

  const CacheOptions options_;
  const std::unique_ptr<GpuDevice> device_;
  const std::unique_ptr<GpuEvent> filled_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, CachedImage> entries_;
  std::vector<Slab> slabs_;
  bool is_full_ = false;  // the device has no memory for another slab
  CacheStatistics statistics_ = {};
  // For kLargest: the files seen, until one comes again, and the largest that fit together;
  // then the names of these.
  std::unordered_map<std::string, const void*> seen_;
  std::set<std::pair<uint64_t, std::string>> largest_;
  uint64_t largest_bytes_ = 0;
  bool seen_all_ = false;
  std::unordered_set<std::string> chosen_;
};

}  // namespace l3
