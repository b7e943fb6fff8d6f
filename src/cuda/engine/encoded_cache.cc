#include "cuda/engine/encoded_cache.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <string>

#include "cuda/kernels/tile_batch.h"

namespace l3 {
namespace {

// Large beside an image, small beside the memory of a GPU. Images that are not small beside it
// have slabs of their own.
constexpr uint64_t kSlabBytes = 64 << 20;
constexpr uint64_t kOwnSlabBytes = kSlabBytes / 8;

// What the host keeps of an image: its head, some hundred bytes. One that is longer than this
// has an uncommon chunk, or is there to fill the host's memory.
constexpr uint64_t kMaxHeadBytes = 1 << 20;

// Files are mapped by pages: the rest of one that is read anyway costs nothing.
constexpr uint64_t kPageBytes = 4096;

// Fills in the image as it begins. Validates what was copied, as ParseImage() validated what the
// file had then: returns false if a caller has changed it.
bool CopyStart(const ImageView& view, const uint8_t* payloads, CachedImage* image) {
  const uint64_t head_bytes = PayloadsOffset(view);
  const uint8_t* head = view.chunks - kHeaderBytes;
  image->file_bytes = head_bytes + view.payloads_bytes;
  const uint64_t bytes = std::min(CeilDiv(head_bytes, kPageBytes) * kPageBytes, image->file_bytes);
  image->start.assign(head, head + head_bytes);
  image->start.insert(image->start.end(), payloads, payloads + (bytes - head_bytes));
  // ParseImage() reads no more than the head, which is as long as the header says.
  ImageInfo info;
  if (ParseHeader(image->start.data(), bytes, &info) != Status::kOk ||
      info.chunks_bytes != view.info.chunks_bytes || info.tile_count() != view.info.tile_count() ||
      info.channels != view.info.channels ||
      ParseImage(image->start.data(), image->file_bytes, &image->view) != Status::kOk ||
      image->view.payloads_bytes != view.payloads_bytes) {
    return false;
  }
  image->view.payloads = nullptr;
  return true;
}

// The caches of devices.
struct Registry {
  std::mutex mutex;
  std::map<int, std::weak_ptr<EncodedCache>> caches;
};

Registry& GetRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

EncodedCache::EncodedCache(const CacheOptions& options, std::unique_ptr<GpuDevice> device)
    : options_(options), device_(std::move(device)), filled_(device_->MakeEvent()) {}

std::shared_ptr<EncodedCache> EncodedCache::OfDevice(
    int device_id, const CacheOptions& options,
    const std::function<std::unique_ptr<GpuDevice>()>& make_device) {
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::shared_ptr<EncodedCache> cache = registry.caches[device_id].lock();
  if (cache == nullptr) {
    cache = std::make_shared<EncodedCache>(options, make_device());
    registry.caches[device_id] = cache;
  } else if (!(cache->options_ == options)) {
    throw std::invalid_argument("The L3 cache of GPU " + std::to_string(device_id) +
                                " is in use with other options. Operators of one GPU share "
                                "one cache: give all of them the same cache arguments, and the "
                                "same skip_cached_images.");
  }
  return cache;
}

std::shared_ptr<EncodedCache> EncodedCache::OfDevice(int device_id) {
  Registry& registry = GetRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto cache = registry.caches.find(device_id);
  return cache != registry.caches.end() ? cache->second.lock() : nullptr;
}

const CachedImage* EncodedCache::Find(const std::string& key, const uint8_t* start, size_t size,
                                      uint64_t file_bytes) {
  const CachedImage* image = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    image = Lookup(key);
  }
  // An entry does not change any more, so that others need not wait for this.
  if (image != nullptr) {
    const size_t compared = std::min(size, image->start.size());
    const bool is_same = file_bytes == image->file_bytes &&
                         compared >= PayloadsOffset(image->view) &&
                         std::memcmp(start, image->start.data(), compared) == 0;
    if (!is_same) image = nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return Count(image);
}

const CachedImage* EncodedCache::FindUnread(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Count(Lookup(key));
}

const CachedImage* EncodedCache::Peek(const std::string& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Lookup(key);
}

const CachedImage* EncodedCache::Lookup(const std::string& key) const {
  const auto entry = entries_.find(key);
  return entry != entries_.end() ? &entry->second : nullptr;
}

const CachedImage* EncodedCache::Count(const CachedImage* found) {
  ++(found != nullptr ? statistics_.hits : statistics_.misses);
  return found;
}

bool EncodedCache::Wants(const std::string& key, const ImageView& view, const void* who) {
  const uint64_t head_bytes = PayloadsOffset(view);
  const uint64_t file_bytes = head_bytes + view.payloads_bytes;
  // Payloads of one group lie apart: what it needs would be listed tile by tile.
  if (head_bytes > kMaxHeadBytes || view.group_count != 1) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (options_.policy == CachePolicy::kLargest &&
      !IsAmongLargest(key, view.payloads_bytes + kPayloadPaddingBytes, who)) {
    return false;
  }
  return file_bytes >= options_.threshold_bytes && entries_.count(key) == 0 &&
         HasRoom(view.payloads_bytes);
}

bool EncodedCache::IsAmongLargest(const std::string& key, uint64_t bytes, const void* who) {
  if (!seen_all_) {
    const auto [seen, is_new] = seen_.emplace(key, who);
    if (!is_new && seen->second != who) return false;
    seen_all_ = !is_new;
  }
  if (seen_all_ && !seen_.empty()) {
    seen_.clear();
    for (const auto& image : largest_) chosen_.insert(image.second);
    largest_.clear();
  }
  if (seen_all_) return chosen_.count(key) != 0;
  if (bytes > bytes_left()) return false;
  largest_.insert({bytes, key});
  largest_bytes_ += bytes;
  while (largest_bytes_ > bytes_left()) {
    largest_bytes_ -= largest_.begin()->first;
    largest_.erase(largest_.begin());
  }
  return false;
}

// Of the device memory that the cache may take, what it has not taken.
uint64_t EncodedCache::bytes_left() const {
  return options_.capacity_bytes - options_.list_bytes - statistics_.memory_bytes;
}

bool EncodedCache::HasRoom(uint64_t payload_bytes) const {
  const uint64_t needed = payload_bytes + kPayloadPaddingBytes;
  if (!is_full_ && bytes_left() >= needed) return true;
  return std::any_of(slabs_.begin(), slabs_.end(),
                     [needed](const Slab& slab) { return slab.bytes - slab.used_bytes >= needed; });
}

// Null if there is none.
uint8_t* EncodedCache::TakeRoom(uint64_t payload_bytes) {
  const uint64_t needed = payload_bytes + kPayloadPaddingBytes;
  auto slab = std::find_if(slabs_.begin(), slabs_.end(),
                           [needed](const Slab& s) { return s.bytes - s.used_bytes >= needed; });
  if (slab == slabs_.end()) {
    const uint64_t left = bytes_left();
    if (is_full_ || left < needed) return nullptr;
    const uint64_t bytes = needed >= kOwnSlabBytes ? needed : std::min(left, kSlabBytes);
    try {
      slabs_.push_back({device_->AllocateDevice(bytes), bytes, 0});
    } catch (const std::bad_alloc&) {
      is_full_ = true;
      return nullptr;
    }
    statistics_.memory_bytes += bytes;
    slab = std::prev(slabs_.end());
  }
  uint8_t* place = static_cast<uint8_t*>(slab->memory.get()) + slab->used_bytes;
  slab->used_bytes += needed;
  return place;
}

void EncodedCache::Add(const std::vector<Candidate>& images, CUstream_st* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // First all that may lack memory of the host: then nothing was queued.
  std::unordered_map<std::string, CachedImage> added;
  for (const Candidate& candidate : images) {
    if (entries_.count(*candidate.key) != 0) continue;
    CachedImage image = {};
    if (!CopyStart(*candidate.view, candidate.payloads, &image)) continue;
    for (uint32_t tile = 0; tile < image.view.info.tile_count(); ++tile) {
      image.is_rans.push_back(IsRansTile(image.view, candidate.payloads, tile));
    }
    added.emplace(*candidate.key, std::move(image));
  }
  const size_t most = entries_.size() + added.size();
  if (static_cast<float>(most) > entries_.max_load_factor() * entries_.bucket_count()) {
    entries_.reserve(2 * most);
  }

  // Then the event stands for all fills, whatever their streams.
  filled_->MakeWait(stream);
  for (const Candidate& candidate : images) {
    const auto image = added.find(*candidate.key);
    if (image == added.end() || image->second.payloads_dev != nullptr) continue;
    const uint64_t bytes = candidate.view->payloads_bytes;
    uint8_t* place = TakeRoom(bytes);
    if (place == nullptr) {
      added.erase(image);
      continue;
    }
    // With the padding, so that kernels never read unwritten memory.
    device_->Copy(place, candidate.payloads_dev, bytes + kPayloadPaddingBytes, stream);
    image->second.payloads_dev = place;
    statistics_.payload_bytes += bytes;
  }
  filled_->Record(stream);
  entries_.merge(added);
  statistics_.entries = entries_.size();
}

void EncodedCache::WaitForFills(CUstream_st* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  filled_->MakeWait(stream);
}

CacheStatistics EncodedCache::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

}  // namespace l3
