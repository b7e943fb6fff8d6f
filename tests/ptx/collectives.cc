// Instructions at which lanes wait for each other: barriers, shuffles, votes.
#include <algorithm>

#include "ptx/lanes.h"
#include "ptx/warp.h"

namespace l3::ptx {
// Lanes of `mask` have come to `in`. Those whose members are all there go on, the others wait.
void Machine::RunCollective(Warp* warp, const Instruction& in, uint32_t mask) {
  const auto at = static_cast<uint32_t>(&in - code_->code.data());
  const Operation& operation = *in.operation;
  uint32_t arrived = mask;
  ForLanes(warp->waiting, [&](uint32_t lane) {
    if (warp->at[lane] == at) arrived |= 1u << lane;
  });
  warp->waiting |= arrived;
  for (uint32_t left = arrived; left != 0;) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    uint32_t members = warp->live, group = 0;
    if (in.kind == Kind::kBlockBarrier) {
      group = left;
    } else {
      const uint32_t slot = in.s[operation.sources - 1];
      members = warp->Narrow(slot)[lane];
      ForLanes(left, [&](uint32_t other) {
        if (warp->Narrow(slot)[other] == members) group |= 1u << other;
      });
      if ((group & ~members) != 0) {
        const auto none = static_cast<uint32_t>(__builtin_ctz(group & ~members));
        Stop(in, "a lane that is not in its own mask of members, " + Who(*warp, none));
      }
    }
    left &= ~group;
    if ((members & warp->live) != group) continue;  // wait
    warp->waiting &= ~group;
    ForLanes(group, [&](uint32_t one) { warp->at[one] = at + 1; });
    switch (in.kind) {
      case Kind::kBlockBarrier: warp->at_barrier |= group; break;
      case Kind::kWarpBarrier: RunWarpBarrier(warp, in, group); break;
      case Kind::kShuffle: RunShuffle(warp, in, group); break;
      case Kind::kVote: RunVote(warp, in, group); break;
      default: RunRedux(warp, in, group); break;
    }
  }
}

void Machine::EndBlockBarrier() {
  ++block_->barriers;
  for (const auto& warp : warps_) {
    warp->at_barrier = 0;
    warp->barrier_epoch = ++warp->epoch;
  }
}

void Machine::RunWarpBarrier(Warp* warp, const Instruction& in, uint32_t mask) {
  if (mask != warp->live) Stop(in, "barriers of some lanes are not known");
  if (++warp->epoch > Stamp::kMaxEpoch) {
    throw Fault(code_->name + ": more barriers than the machine counts");
  }
}

void Machine::RunShuffle(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t *a = warp->Narrow(in.s[0]), *b = warp->Narrow(in.s[1]), *c = warp->Narrow(in.s[2]);
  std::array<uint32_t, kLanes> values = {};
  uint32_t within = 0;
  ForLanes(mask, [&](uint32_t lane) {
    const uint32_t by = b[lane] & 31, segment = c[lane] >> 8 & 31;
    const uint32_t last = (lane & segment) | (c[lane] & 31 & ~segment);
    uint32_t from = 0;
    bool is_within = false;
    switch (in.operation->choice) {
      case Choice::kUp:
        from = lane - by;
        is_within = static_cast<int32_t>(from) >= static_cast<int32_t>(last);
        break;
      case Choice::kDown:
        from = lane + by;
        is_within = from <= last;
        break;
      default:
        from = (lane & segment) | (by & ~segment);
        is_within = from <= last;
        break;
    }
    if (!is_within) from = lane;
    within |= uint32_t{is_within} << lane;
    values[lane] = a[from];
  });
  ForLanes(mask, [&](uint32_t lane) { warp->Narrow(in.d[0])[lane] = values[lane]; });
  if (in.has_second) warp->SetPredicate(in.d[1], within, mask);
}

void Machine::RunVote(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t value = warp->Predicate(in.s[0]) & mask;
  ForLanes(mask, [&](uint32_t lane) { warp->Narrow(in.d[0])[lane] = value; });
}

void Machine::RunRedux(Warp* warp, const Instruction& in, uint32_t mask) {
  uint32_t sum = 0;
  ForLanes(mask, [&](uint32_t lane) { sum += warp->Narrow(in.s[0])[lane]; });
  ForLanes(mask, [&](uint32_t lane) { warp->Narrow(in.d[0])[lane] = sum; });
}

}  // namespace l3::ptx
