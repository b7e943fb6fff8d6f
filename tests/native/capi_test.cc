// Tests of include/l3/l3.h: allocators, groups and chunks that are kept.
#undef NDEBUG  // which would leave out assert()
#include <cassert>
#include <cstdint>
#include <vector>

#include "l3/l3.h"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint8_t kGroups[] = {3, 5, 0, 0, 0, 2, 0, 1, 4, 0, 2, 1, 0, 3, 0};  // 5 0 2, 4, 1 3
constexpr uint8_t kChunk[] = {'z', 'z', 'z', '1', 3, 0, 0, 0, 'o', 'n', 'e', 0};
constexpr uint32_t kHeight = 40, kWidth = 70, kChannels = 6;

Bytes original(kHeight * kWidth * kChannels);
const l3_image kImage = {original.data(), kHeight, kWidth, kChannels, L3_UINT8, 0};

void* Allocate(void* block, size_t bytes) {
  static_cast<Bytes*>(block)->resize(bytes);
  return static_cast<Bytes*>(block)->data();
}

void* AllocateNothing(void*, size_t) { return nullptr; }

l3_status Encode(const l3_encode_options* options, const l3_allocator* allocator) {
  void* data = nullptr;
  size_t size = 1;
  const l3_status status = l3_encode_alloc(&kImage, options, allocator, &data, &size);
  assert((data != nullptr) == (status == L3_OK) && (size != 0) == (status == L3_OK));
  return status;
}

// A damaged tile keeps its memory.
l3_status Decode(const Bytes& file, const l3_allocator* allocator) {
  void* data = nullptr;
  l3_output output = {};
  output.struct_size = sizeof(output);
  const l3_status status =
      l3_decode_alloc(file.data(), file.size(), nullptr, allocator, &data, &output);
  assert((data != nullptr) == (status == L3_OK || output.bad_tile != L3_NO_TILE));
  return status;
}

}  // namespace

int main() {
  uint32_t state = 1;
  for (size_t i = 0; i < original.size(); ++i) {
    state = state * 1664525 + 1013904223;
    original[i] = static_cast<uint8_t>(i / 8 + (state >> 30));
  }
  Bytes file, pixels, again;
  const l3_allocator to_file = {sizeof(to_file), Allocate, &file};
  const l3_allocator to_pixels = {sizeof(to_pixels), Allocate, &pixels};
  l3_encode_options options = {};
  options.struct_size = sizeof(options);
  options.groups = {kGroups, sizeof(kGroups)};
  options.other_chunks = {kChunk, sizeof(kChunk)};
  options.tile_height = 8;
  options.tile_width = 32;
  for (uint32_t effort = 9; effort > 0; --effort) {
    options.effort = effort;
    assert(Encode(&options, &to_file) == L3_OK);
    assert(Decode(file, &to_pixels) == L3_OK && pixels == original);
  }
  l3_info info = {};
  info.struct_size = sizeof(info);
  assert(l3_read_info(file.data(), file.size(), &info) == L3_OK && info.group_count == 3);
  const l3_allocator to_again = {sizeof(to_again), Allocate, &again};
  options.groups = info.groups;
  options.other_chunks = info.chunks;
  assert(Encode(&options, &to_again) == L3_OK && again == file);
  --options.groups.size;
  assert(Encode(&options, &to_again) == L3_INVALID_ARGUMENT);
  options.groups.size = 0;
  --options.other_chunks.size;
  assert(Encode(&options, &to_again) == L3_INVALID_ARGUMENT);

  const l3_allocator empty = {sizeof(empty), AllocateNothing, nullptr};
  const l3_allocator null = {sizeof(null), nullptr, nullptr};
  const l3_allocator odd = {sizeof(odd) - 1, Allocate, &pixels};
  assert(Encode(nullptr, &empty) == L3_OUT_OF_MEMORY && Decode(file, &empty) == L3_OUT_OF_MEMORY);
  for (const l3_allocator* wrong : {&null, &odd, static_cast<const l3_allocator*>(nullptr)}) {
    assert(Encode(nullptr, wrong) == L3_INVALID_ARGUMENT);
    assert(Decode(file, wrong) == L3_INVALID_ARGUMENT);
  }
  file.back() ^= 255;
  assert(Decode(file, &to_pixels) == L3_CHECKSUM_MISMATCH);
}
