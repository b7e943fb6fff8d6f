// Work that a part hands to its caller's threads. Layer: base.
#pragma once

#include <cstddef>
#include <functional>

namespace l3 {

// Calls task(i) for i in [0, count), in any order, maybe in parallel.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& task)>;
inline const ForEach kOnThisThread;

// The same on this thread where `for_each` is null.
inline void RunForEach(const ForEach& for_each, size_t count,
                       const std::function<void(size_t)>& task) {
  if (for_each) return for_each(count, task);
  for (size_t i = 0; i < count; ++i) task(i);
}

}  // namespace l3
