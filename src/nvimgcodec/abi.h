// nvImageCodec's C interface, held to its version 0.7. Layer: adapter.
#pragma once

#include <nvimgcodec.h>

#include <cstddef>
#include <cstdint>

namespace l3 {

// Versions as nvimgcodec_version.h counts them. The oldest that DALI 1.53 to 2.4 carry; and the
// first untried one, which may have other structs.
constexpr uint32_t kOldestVersion = 700;
constexpr uint32_t kFirstUnknownVersion = 1000;

// Whatever header this is built with, the structs that cross the border are those of 0.7. A view
// has grown since then, behind its region; only the framework makes views.
static_assert(sizeof(nvimgcodecImageInfo_t) == 2160);
static_assert(sizeof(nvimgcodecCodeStreamInfo_t) == 304);
static_assert(offsetof(nvimgcodecCodeStreamView_t, region) == 32);
static_assert(sizeof(nvimgcodecRegion_t) == 112);
static_assert(sizeof(nvimgcodecDecodeParams_t) == 32);
static_assert(sizeof(nvimgcodecEncodeParams_t) == 32);
static_assert(sizeof(nvimgcodecIoStreamDesc_t) == 128);
static_assert(sizeof(nvimgcodecCodeStreamDesc_t) == 56);
static_assert(sizeof(nvimgcodecImageDesc_t) == 48);
static_assert(sizeof(nvimgcodecParserDesc_t) == 88);
static_assert(sizeof(nvimgcodecDecoderDesc_t) == 112);
static_assert(sizeof(nvimgcodecEncoderDesc_t) == 88);
static_assert(sizeof(nvimgcodecExecutionParams_t) == 80);
static_assert(sizeof(nvimgcodecExecutorDesc_t) == 64);
static_assert(sizeof(nvimgcodecDeviceAllocator_t) == 56);
static_assert(sizeof(nvimgcodecPinnedAllocator_t) == 56);
static_assert(sizeof(nvimgcodecFrameworkDesc_t) == 104);
static_assert(sizeof(nvimgcodecExtensionDesc_t) == 64);
static_assert(sizeof(nvimgcodecDebugMessageData_t) == 64);

constexpr char kCodec[] = "l3";

// A struct that says what it is, and is zero otherwise.
template <typename Struct>
Struct Tagged(nvimgcodecStructureType_t type) {
  Struct tagged = {};
  tagged.struct_type = type;
  tagged.struct_size = sizeof(Struct);
  return tagged;
}

// Whether a struct of the framework has its first `bytes` bytes, by the size that it names. A
// struct that names no size is taken to have them.
template <typename Struct>
bool HasBytes(const Struct& of_framework, size_t bytes) {
  return of_framework.struct_size == 0 || of_framework.struct_size >= bytes;
}

// Whether the struct is there and has all fields of 0.7.
template <typename Struct>
bool IsWhole(const Struct* of_framework) {
  return of_framework != nullptr && HasBytes(*of_framework, sizeof(Struct));
}

// A struct for the framework to fill in. It writes the struct that it knows, so there is room
// for one that has grown.
template <typename Struct, nvimgcodecStructureType_t kType>
struct Filled {
  Struct value = Tagged<Struct>(kType);
  unsigned char room[1024] = {};
};

// What `function` returns, or `otherwise` if it throws: the framework catches nothing.
template <typename Function, typename Result>
Result Guarded(Result otherwise, const Function& function) noexcept {
  try {
    return function();
  } catch (...) {
    return otherwise;
  }
}

}  // namespace l3
