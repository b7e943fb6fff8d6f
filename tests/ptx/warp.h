// The state of a warp and of a block while they run.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "ptx/machine.h"

namespace l3::ptx {

constexpr uint32_t kMaxCallDepth = 16;

struct Warp {
  // 32 values of 4 bytes a slot; 64-bit registers have two slots, predicates a bit a lane in the
  // first value. Pages that no instruction uses take no memory.
  using Values = std::unique_ptr<uint32_t[], void (*)(void*)>;
  Values values = {nullptr, std::free};
  uint32_t slots = 0;
  std::vector<uint8_t> frame;            // lane by lane
  std::array<uint32_t, kLanes> at = {};         // instruction
  std::array<uint32_t, kLanes> depth = {};
  std::array<std::array<uint32_t, kMaxCallDepth>, kLanes> calls = {};  // instruction of the call
  uint32_t live = 0;
  uint32_t waiting = 0;  // in a collective, for others
  uint32_t at_barrier = 0;
  uint32_t index = 0;

  // Barriers of the warp so far, and those before the block's last one.
  uint32_t epoch = 1, barrier_epoch = 0;

  void MakeRoom(uint32_t count) {
    values.reset(static_cast<uint32_t*>(std::calloc(size_t{count} * kLanes, sizeof(uint32_t))));
    if (values == nullptr) throw std::bad_alloc();
    slots = count;
  }

  uint32_t* Narrow(uint32_t slot) { return &values[size_t{slot} * kLanes]; }
  const uint32_t* Narrow(uint32_t slot) const { return &values[size_t{slot} * kLanes]; }
  uint64_t* WideOf(uint32_t slot) {
    return reinterpret_cast<uint64_t*>(&values[size_t{slot} * kLanes]);
  }
  const uint64_t* WideOf(uint32_t slot) const {
    return reinterpret_cast<const uint64_t*>(&values[size_t{slot} * kLanes]);
  }
  uint32_t Predicate(uint32_t slot) const { return *Narrow(slot); }
  void SetPredicate(uint32_t slot, uint32_t bits, uint32_t mask) {
    uint32_t* value = Narrow(slot);
    *value = (*value & ~mask) | (bits & mask);
  }
  uint64_t Value(uint32_t slot, bool wide, uint32_t lane) const {
    return wide ? WideOf(slot)[lane] : Narrow(slot)[lane];
  }
  void SetValue(uint32_t slot, bool wide, uint32_t lane, uint64_t value) {
    if (wide) {
      WideOf(slot)[lane] = value;
    } else {
      Narrow(slot)[lane] = static_cast<uint32_t>(value);
    }
  }
};

struct BlockState {
  uint32_t number = 0;
  uint32_t first_thread = 0;  // of the launch
  uint32_t barriers = 1;
  std::vector<uint8_t> shared;
  std::vector<Stamp> shared_written, shared_read;
};

}  // namespace l3::ptx
