// The warp interface that kernels are written against, and CUDA's version of
// it. Layer: cuda. emulated_warp.h has the other version: 32 lanes on the host.
//
// A warp type is one lane's view of 32 lanes that run the same function:
//
//   uint32_t lane()               0 to 31
//   uint32_t LanesBelow()         a bit for each lane below
//   uint32_t Shuffle(v, i)        v of lane i
//   uint32_t ShuffleUp(v, first)  v of the lane below; `first` in lane 0
//   uint32_t ShuffleDown(v)       v of the lane above; its own in lane 31
//   uint32_t Ballot(bit)          bit of every lane
//   uint32_t ReduceAdd(v)         sum over all lanes
//   uint32_t InclusiveScan(v)     sum over this lane and those below
//   void Sync()                   makes writes to shared memory visible
//   void SyncBlock()              the same for all warps of the block, which all call it
//
// All but these two are collectives: every lane makes the same calls in the same
// order.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
// What matters is inlined: a call would move what it shares to memory.
#define L3_DEVICE __device__ __forceinline__
// For what is rare: a kernel has it once, and calls it.
#define L3_OUT_OF_LINE __device__ __noinline__
// For loops that index arrays in registers.
#define L3_UNROLL _Pragma("unroll")
// For rare loops, to keep the code small.
#define L3_NO_UNROLL _Pragma("unroll 1")
// For loops whose turns hand registers on to each other.
#define L3_UNROLL_TWICE _Pragma("unroll 2")
#else
#define L3_DEVICE inline
#define L3_OUT_OF_LINE inline
#define L3_UNROLL
#define L3_NO_UNROLL
#define L3_UNROLL_TWICE
#endif

namespace l3 {

constexpr uint32_t kWarpLanes = 32;

#if defined(__CUDACC__)

// For blocks that are kWarpLanes wide. In blocks of one warp the compiler knows
// what is the same on all lanes, and keeps it out of their registers and branches.
class DeviceWarp {
 public:
  L3_DEVICE uint32_t lane() const { return threadIdx.x; }
  L3_DEVICE uint32_t LanesBelow() const {
    uint32_t lanes;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
    return lanes;
  }
  L3_DEVICE uint32_t Shuffle(uint32_t v, uint32_t i) const {
    return __shfl_sync(kAll, v, static_cast<int>(i));
  }
  L3_DEVICE uint32_t ShuffleUp(uint32_t v, uint32_t first) const {
    asm volatile(
        "{ .reg .pred found; .reg .u32 other;\n"
        "  shfl.sync.up.b32 other|found, %1, 1, 0, 0xFFFFFFFF;\n"
        "  @found mov.u32 %0, other; }"
        : "+r"(first)
        : "r"(v));
    return first;
  }
  L3_DEVICE uint32_t ShuffleDown(uint32_t v) const { return __shfl_down_sync(kAll, v, 1); }
  L3_DEVICE uint32_t Ballot(bool bit) const { return __ballot_sync(kAll, bit); }
  L3_DEVICE uint32_t ReduceAdd(uint32_t v) const {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(kAll, v);
#else
    return Shuffle(InclusiveScan(v), kWarpLanes - 1);
#endif
  }
  // The predicate that a shuffle returns guards the addition: two instructions a step.
  L3_DEVICE uint32_t InclusiveScan(uint32_t v) const {
    L3_UNROLL
    for (uint32_t distance = 1; distance < kWarpLanes; distance *= 2) {
      asm volatile(
          "{ .reg .pred found; .reg .u32 other;\n"
          "  shfl.sync.up.b32 other|found, %0, %1, 0, 0xFFFFFFFF;\n"
          "  @found add.u32 %0, %0, other; }"
          : "+r"(v)
          : "r"(distance));
    }
    return v;
  }
  L3_DEVICE void Sync() const { __syncwarp(); }
  L3_DEVICE void SyncBlock() const { __syncthreads(); }

 private:
  static constexpr uint32_t kAll = 0xFFFFFFFF;
};

#endif  // __CUDACC__

// A warp of a team: the warps of a block that decode a tile together, one for each channel.
template <class Warp>
class TeamWarp : public Warp {
 public:
  L3_DEVICE TeamWarp(const Warp& warp, uint32_t channel) : Warp(warp), channel_(channel) {}
  L3_DEVICE uint32_t channel() const { return channel_; }

 private:
  uint32_t channel_;
};

template <class Warp>
constexpr bool kIsInTeam = false;
template <class Warp>
constexpr bool kIsInTeam<TeamWarp<Warp>> = true;

// Whether this warp does the work that one warp of a team does for all.
template <class Warp>
L3_DEVICE bool IsFirstInTeam(const Warp& warp) {
  if constexpr (kIsInTeam<Warp>) {
    return warp.channel() == 0;
  } else {
    return true;
  }
}

}  // namespace l3
