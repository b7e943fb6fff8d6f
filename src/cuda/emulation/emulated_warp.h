// A warp of 32 lanes on the host, for running kernels under sanitizers without
// a GPU (the interface is in warp.h). Layer: cuda; plain C++.
//
// Each lane is a fiber with a stack of its own. A lane runs until it calls a
// collective; when all have called it, they go on. In between lanes are free
// to take different branches, as on a GPU.
#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cuda/kernels/warp.h"

namespace l3 {

class WarpEmulator;

// Where a fiber, or the scheduler, goes on. swapcontext() would do, with two system calls a switch;
// AddressSanitizer cleans the whole stack besides. Fuzzing switches some million times a second.
#if defined(__x86_64__)
using FiberContext = void*;  // the stack pointer, on top of the registers that calls preserve
#else
using FiberContext = ucontext_t;
#endif

// One lane's view; see warp.h.
class EmulatedWarp {
 public:
  uint32_t lane() const { return lane_; }
  uint32_t LanesBelow() const { return (1u << lane_) - 1; }
  uint32_t Shuffle(uint32_t v, uint32_t i) const;
  uint32_t ShuffleUp(uint32_t v, uint32_t first) const;
  uint32_t ShuffleDown(uint32_t v) const;
  uint32_t Ballot(bool bit) const;
  uint32_t ReduceAdd(uint32_t v) const;
  uint32_t InclusiveScan(uint32_t v) const;
  void Sync() const;
  void SyncBlock() const;

 private:
  friend class WarpEmulator;
  WarpEmulator* emulator_ = nullptr;
  uint32_t lane_ = 0;
};

// Runs one warp at a time, on the calling thread. Not thread-safe.
class WarpEmulator {
 public:
  WarpEmulator();
  WarpEmulator(const WarpEmulator&) = delete;
  WarpEmulator& operator=(const WarpEmulator&) = delete;

  // Runs `kernel` on all lanes. Throws std::logic_error if the lanes do not
  // make the same collective calls; their stacks are then left without
  // unwinding. `kernel` must not throw.
  void Run(const std::function<void(EmulatedWarp&)>& kernel);
  // The same in steps, for the warps of a block. Begin() runs nothing. `kernel` must stay.
  // Advance() runs until all lanes have ended or called SyncBlock(). Returns whether they have
  // ended.
  void Begin(const std::function<void(EmulatedWarp&)>& kernel);
  bool Advance();

 private:
  friend class EmulatedWarp;
  enum class Call : uint8_t { kNone, kShuffle, kUp, kDown, kBallot, kReduce, kScan, kSync, kBlock };

  struct Lane {
    FiberContext context;
    std::unique_ptr<uint8_t[]> stack;
    EmulatedWarp warp;
    void* fake_stack = nullptr;  // AddressSanitizer's
    Call call = Call::kNone;     // the collective it waits in; none when it has ended
  };

  static void LaneMain(Lane* lane);
  static void Start(Lane* lane);
  void Resume(Lane* lane);
  void Suspend(Lane* lane, bool ends);
  // What every lane passed to the collective. Valid until the next collective.
  const uint32_t* Exchange(uint32_t lane, Call call, uint32_t v);

  Lane lanes_[kWarpLanes];
  FiberContext scheduler_;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  const std::function<void(EmulatedWarp&)>* kernel_ = nullptr;
  uint64_t round_ = 0;
  // Of this collective and the one before: a lane may reach the next while
  // others still have to read.
  uint32_t values_[2][kWarpLanes];
};

}  // namespace l3
