// What fuzzing and replay check of a file that changes once it was parsed: whatever it becomes,
// and whenever, each engine gives an error or pixels. A check returns what went wrong, or "".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz_targets.h"

namespace l3::fuzz {

// A part of a file.
struct FilePart {
  size_t begin, bytes;
};

// The part that an edit shall hit: one of those that decoders read again after validation, or
// the whole file.
inline FilePart ChoosePart(const uint8_t* data, size_t size, std::mt19937_64* random) {
  ImageView view;
  const FilePart all = {0, size};
  if (ParseImage(data, size, &view) != Status::kOk) return all;
  const size_t index = static_cast<size_t>(view.tile_index - data);
  switch ((*random)() % 4) {
    case 0:
      return view.info.chunks_bytes != 0 ? FilePart{kHeaderBytes, view.info.chunks_bytes} : all;
    case 1: return {index, 4 * size_t{view.payload_count()}};
    case 2: {  // the headers of a payload, of the tile and of its coding
      const uint32_t tile = static_cast<uint32_t>((*random)() % view.info.tile_count());
      const size_t begin = static_cast<size_t>(view.payloads - data + view.PayloadBegin(tile));
      return {begin + 4, std::min<size_t>(28, size - begin - 4)};
    }
    default: return all;
  }
}

// A file of the same size that differs here and there.
inline std::vector<uint8_t> ChangedCopy(const uint8_t* data, size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> changed(data, data + size);
  if (size == 0) return changed;
  for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
    const FilePart part = ChoosePart(data, size, &random);
    const size_t begin = part.begin + random() % part.bytes;
    const size_t most = part.begin + part.bytes - begin;
    uint8_t* const place = changed.data() + begin;
    switch (random() % 4) {
      case 0: *place = static_cast<uint8_t>(random()); break;
      case 1: *place ^= static_cast<uint8_t>(1 << random() % 8); break;
      case 2: *place = static_cast<uint8_t>(random() % 5); break;
      default:
        std::fill_n(place, std::min<size_t>(most, 1 + random() % 200),
                    random() % 2 == 0 ? uint8_t{0xFF} : static_cast<uint8_t>(random()));
    }
  }
  if (random() % 4 != 0) Repair(changed.data(), size);
  return changed;
}

// Decodes with every engine, also to the encoded cache and from it, while `data` becomes `changed`,
// which has as many bytes: at once, between the tasks of a batch, and by a second thread. A thread
// costs as much as emulated lanes do.
inline std::string CheckChange(const uint8_t* data, const uint8_t* changed, size_t size,
                               uint64_t seed) {
  l3_info info;
  if (ReadInfo(data, size, &info) != L3_OK || !IsWithinLimits(info.image_bytes)) return "";
  std::mt19937_64 random(seed);
  const bool emulated = IsForEmulated(data, size);
  const bool threaded = random() % limits.emulated_share == 0;
  size_t plan_bytes = 0;
  const L3TestPlan any_plan = RandomPlan(info, random(), &plan_bytes);
  for (const L3TestPlan* plan : {static_cast<const L3TestPlan*>(nullptr), &any_plan}) {
    const uint32_t choices = static_cast<uint32_t>(random());
    if (limits.check_share > 1 && (seed % 2 == 0) != (plan == nullptr)) continue;
    const uint32_t step = 1 + static_cast<uint32_t>(random() % 8);
    std::vector<uint8_t> expected;
    for (uint32_t engine = 0; engine <= kL3TestEncodedCache; ++engine) {
      const bool is_cache = engine == kL3TestEncodedCache;
      const bool has_tasks = is_cache || IsEmulated(engine);
      if (has_tasks ? !emulated : !l3_test_engine_available(engine)) continue;
      const std::string name = is_cache ? "encoded_cache" : kEngineNames[engine];
      for (const uint32_t when : {0u, step, L3_TEST_ALL_THE_TIME}) {
        if (when == step && !has_tasks) continue;
        if (when == L3_TEST_ALL_THE_TIME && !threaded) continue;
        std::vector<uint8_t> pixels(plan == nullptr ? info.image_bytes : plan_bytes);
        uint32_t bad_tile;
        const uint32_t status =
            l3_test_decode_changing(engine, data, changed, size, when, choices, plan, pixels.data(),
                                    pixels.size(), &bad_tile);
        if (status == L3_TEST_EXCEPTION) return name + " throws";
        // What all read alike; the cache may serve the other file's own head.
        if (status != L3_OK || when != 0 || is_cache) continue;
        if (expected.empty()) expected = pixels;
        if (pixels != expected) return name + " gives other pixels than another engine";
      }
    }
  }
  return "";
}

// The file of these bytes, with its checksums made right, and a change of it.
inline std::string CheckChanging(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  Repair(file.data(), size);
  const uint64_t seed = Crc32c(data, size);
  const std::vector<uint8_t> changed = ChangedCopy(file.data(), size, seed);
  return CheckChange(file.data(), changed.data(), size, seed);
}

}  // namespace l3::fuzz
