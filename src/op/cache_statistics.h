// The statistics of a GPU's encoded cache as numbers, for Python. Layer: adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>

#if L3_HAVE_CUDA
#include "cuda/engine/encoded_cache.h"
#endif

namespace l3 {

// Writes hits, misses, images, bytes of their payloads and bytes of memory. False if the device
// has no cache, as while no operator with a `cache_size` exists.
inline bool GetCacheStatistics([[maybe_unused]] int device_id,
                               [[maybe_unused]] uint64_t* numbers) noexcept {
#if L3_HAVE_CUDA
  try {
    const auto cache = EncodedCache::OfDevice(device_id);
    if (cache == nullptr) return false;
    const CacheStatistics s = cache->statistics();
    const uint64_t all[] = {s.hits, s.misses, s.entries, s.payload_bytes, s.memory_bytes};
    std::copy(std::begin(all), std::end(all), numbers);
    return true;
  } catch (const std::exception&) {
    return false;
  }
#else
  return false;
#endif
}

}  // namespace l3
