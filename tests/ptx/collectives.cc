// Instructions at which lanes wait for each other: barriers, shuffles, votes.
#include <algorithm>

#include "ptx/warp.h"

namespace l3::ptx {
namespace {

template <class Body>
void ForEach(uint32_t mask, Body body) {
  for (; mask != 0; mask &= mask - 1) body(static_cast<uint32_t>(__builtin_ctz(mask)));
}

}  // namespace

// Lanes of `mask` have come to `in`. Those whose members are all there go on, the others wait.
void Machine::RunCollective(Warp* warp, const Instruction& in, uint32_t mask) {
  const auto at = static_cast<uint32_t>(&in - code_->code.data());
  const Operation& operation = *in.operation;
  uint32_t arrived = mask;
  ForEach(warp->waiting, [&](uint32_t lane) {
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
      if ((warp->dirty[slot] & left) != 0) {
        Report(in, "a mask of members that depends on what nobody has written", Who(*warp, lane));
        warp->dirty[slot] &= ~left;
      }
      members = warp->Narrow(slot)[lane];
      ForEach(left, [&](uint32_t other) {
        if (warp->Narrow(slot)[other] == members) group |= 1u << other;
      });
      if ((group & ~members) != 0) {
        const auto none = static_cast<uint32_t>(__builtin_ctz(group & ~members));
        Stop(in, "a lane that is not in its own mask of members, " + Who(*warp, none));
      }
    }
    left &= ~group;
    if ((members & warp->live) != group) continue;  // wait
    Count& count = (*counts_)[at];
    ++count.warps;
    count.lanes += static_cast<uint32_t>(__builtin_popcount(group));
    warp->waiting &= ~group;
    ForEach(group, [&](uint32_t one) { warp->at[one] = at + 1; });
    switch (in.kind) {
      case Kind::kBlockBarrier: warp->at_barrier |= group; break;
      case Kind::kWarpBarrier: RunWarpBarrier(warp, group); break;
      case Kind::kShuffle: RunShuffle(warp, in, group); break;
      case Kind::kVote: RunVote(warp, in, group); break;
      case Kind::kRedux: RunRedux(warp, in, group); break;
      default: RunMatch(warp, in, group); break;
    }
  }
}

void Machine::EndBlockBarrier() {
  ++block_->barriers;
  for (const auto& warp : warps_) {
    warp->at_barrier = 0;
    ++warp->epoch;
    warp->epochs.fill(warp->epoch);
    warp->all_seen = warp->barrier_epoch = warp->epoch;
  }
}

// Each member has seen what any member has.
void Machine::RunWarpBarrier(Warp* warp, uint32_t mask) {
  if (++warp->epoch > Stamp::kMaxEpoch) {
    throw Fault(code_->name + ": more barriers than the machine counts");
  }
  if (mask == kAllLanes) {
    warp->all_seen = warp->epoch;
    warp->epochs.fill(warp->epoch);
    return;
  }
  std::array<uint32_t, kLanes> seen = {};
  ForEach(mask, [&](uint32_t lane) {
    for (uint32_t i = 0; i < kLanes; ++i) seen[i] = std::max(seen[i], warp->seen[lane][i]);
  });
  ForEach(mask, [&](uint32_t lane) {
    seen[lane] = warp->epoch;
    warp->epochs[lane] = warp->epoch;
  });
  ForEach(mask, [&](uint32_t lane) { warp->seen[lane] = seen; });
}

void Machine::RunShuffle(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t *a = warp->Narrow(in.s[0]), *b = warp->Narrow(in.s[1]), *c = warp->Narrow(in.s[2]);
  std::array<uint32_t, kLanes> values = {}, unknown = {};
  uint32_t within = 0;
  ForEach(mask, [&](uint32_t lane) {
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
      case Choice::kButterfly:
        from = lane ^ by;
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
    unknown[lane] = static_cast<uint32_t>(warp->Unknown(in.s[0], false, from));
    // A lane that takes no part has no value to give.
    const bool is_open = ((warp->dirty[in.s[1]] | warp->dirty[in.s[2]]) >> lane & 1) != 0;
    if (is_open || (mask >> from & 1) == 0) unknown[lane] = kAllLanes;
  });
  const bool checks = options_.checks_undefined;
  ForEach(mask, [&](uint32_t lane) {
    warp->Narrow(in.d[0])[lane] = values[lane];
    warp->SetUnknown(in.d[0], false, lane, checks ? unknown[lane] : 0);
  });
  if (in.has_second) {
    warp->SetPredicate(in.d[1], within, mask);
    warp->dirty[in.d[1]] &= ~mask;
  }
}

void Machine::RunVote(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t value = warp->Predicate(in.s[0]) & mask, open = warp->dirty[in.s[0]] & mask;
  const uint32_t sure = value & ~open, denied = mask & ~value & ~open;
  switch (in.operation->choice) {
    case Choice::kBallot:
      ForEach(mask, [&](uint32_t lane) {
        warp->Narrow(in.d[0])[lane] = value;
        warp->SetUnknown(in.d[0], false, lane, open);
      });
      return;
    case Choice::kAll:
      warp->SetPredicate(in.d[0], value == mask ? mask : 0, mask);
      warp->dirty[in.d[0]] &= ~mask;
      if (open != 0 && denied == 0) warp->dirty[in.d[0]] |= mask;
      return;
    case Choice::kAny:
      warp->SetPredicate(in.d[0], value != 0 ? mask : 0, mask);
      warp->dirty[in.d[0]] &= ~mask;
      if (open != 0 && sure == 0) warp->dirty[in.d[0]] |= mask;
      return;
    default:
      warp->SetPredicate(in.d[0], value == 0 || value == mask ? mask : 0, mask);
      warp->dirty[in.d[0]] &= ~mask;
      if (open != 0 && (sure == 0 || denied == 0)) warp->dirty[in.d[0]] |= mask;
      return;
  }
}

void Machine::RunRedux(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t* a = warp->Narrow(in.s[0]);
  uint32_t result = a[__builtin_ctz(mask)];
  const auto less = [&in](uint32_t x, uint32_t y) {
    return in.operation->is_signed ? static_cast<int32_t>(x) < static_cast<int32_t>(y) : x < y;
  };
  ForEach(mask & (mask - 1), [&](uint32_t lane) {
    const uint32_t value = a[lane];
    switch (in.operation->choice) {
      case Choice::kAdd: result += value; break;
      case Choice::kMin: result = less(value, result) ? value : result; break;
      case Choice::kMax: result = less(result, value) ? value : result; break;
      case Choice::kAnd: result &= value; break;
      case Choice::kOr: result |= value; break;
      default: result ^= value; break;
    }
  });
  const bool is_open = (warp->dirty[in.s[0]] & mask) != 0;
  ForEach(mask, [&](uint32_t lane) {
    warp->Narrow(in.d[0])[lane] = result;
    warp->SetUnknown(in.d[0], false, lane, is_open ? kAllLanes : 0);
  });
}

void Machine::RunMatch(Warp* warp, const Instruction& in, uint32_t mask) {
  const bool wide = in.operation->s_bits[0] == 64;
  const auto value = [&](uint32_t lane) { return warp->Value(in.s[0], wide, lane); };
  const bool is_open = (warp->dirty[in.s[0]] & mask) != 0;
  std::array<uint32_t, kLanes> matches = {};
  bool all_same = true;
  ForEach(mask, [&](uint32_t lane) {
    ForEach(mask, [&](uint32_t other) {
      if (value(other) == value(lane)) matches[lane] |= 1u << other;
    });
    all_same = all_same && matches[lane] == mask;
  });
  const bool is_all = in.operation->choice == Choice::kAll;
  ForEach(mask, [&](uint32_t lane) {
    warp->Narrow(in.d[0])[lane] = is_all ? (all_same ? mask : 0) : matches[lane];
    warp->SetUnknown(in.d[0], false, lane, is_open ? kAllLanes : 0);
  });
  if (is_all && in.has_second) {
    warp->SetPredicate(in.d[1], all_same ? mask : 0, mask);
    warp->dirty[in.d[1]] = is_open ? warp->dirty[in.d[1]] | mask : warp->dirty[in.d[1]] & ~mask;
  }
}

}  // namespace l3::ptx
