// Instructions that compute registers from registers.
#include <algorithm>
#include <cstring>

#include "ptx/lanes.h"
#include "ptx/warp.h"

namespace l3::ptx {
namespace {

uint64_t TypeMask(uint32_t bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

}  // namespace

void Machine::RunPlain(Warp* warp, const Instruction& in, uint32_t mask) {
  const void* sources[4];
  for (uint32_t i = 0; i < 4; ++i) sources[i] = warp->Narrow(in.s[i]);
  in.operation->lanes(warp->Narrow(in.d[0]), sources, mask);
}

void Machine::RunPredicate(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t a = warp->Predicate(in.s[0]), b = warp->Predicate(in.s[1]);
  uint32_t value = a;
  switch (in.operation->choice) {
    case Choice::kAnd: value = a & b; break;
    case Choice::kOr: value = a | b; break;
    case Choice::kXor: value = a ^ b; break;
    case Choice::kNot: value = ~a; break;
    default: break;
  }
  warp->SetPredicate(in.d[0], value, mask);
}

void Machine::RunCompare(Warp* warp, const Instruction& in, uint32_t mask) {
  warp->SetPredicate(in.d[0], in.operation->compare(warp->Narrow(in.s[0]), warp->Narrow(in.s[1])),
                     mask);
}

void Machine::RunSelect(Warp* warp, const Instruction& in, uint32_t mask) {
  const bool wide = in.operation->d_bits == 64;
  const uint32_t choose = warp->Predicate(in.s[2]);
  if (wide) {
    const uint64_t *a = warp->WideOf(in.s[0]), *b = warp->WideOf(in.s[1]);
    uint64_t* d = warp->WideOf(in.d[0]);
    ForLanes(mask, [&](uint32_t lane) { d[lane] = (choose >> lane & 1) != 0 ? a[lane] : b[lane]; });
  } else {
    const uint32_t *a = warp->Narrow(in.s[0]), *b = warp->Narrow(in.s[1]);
    uint32_t* d = warp->Narrow(in.d[0]);
    ForLanes(mask, [&](uint32_t lane) { d[lane] = (choose >> lane & 1) != 0 ? a[lane] : b[lane]; });
  }
}

void Machine::RunSpecial(Warp* warp, const Instruction& in, uint32_t mask) {
  const auto which = static_cast<Special>(in.offset);
  uint32_t* d = warp->Narrow(in.d[0]);
  ForLanes(mask, [&](uint32_t lane) {
    const uint32_t thread = warp->index * kLanes + lane;
    switch (which) {
      case Special::kTidX: d[lane] = thread % launch_.width; break;
      case Special::kTidY: d[lane] = thread / launch_.width; break;
      case Special::kNtidX: d[lane] = launch_.width; break;
      case Special::kNtidY: d[lane] = launch_.height; break;
      case Special::kCtaidX: d[lane] = block_->number; break;
      case Special::kNctaidX: d[lane] = launch_.blocks; break;
      case Special::kLaneId: d[lane] = lane; break;
      case Special::kMaskLt: d[lane] = (1u << lane) - 1; break;
    }
  });
}

void Machine::RunPack(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t bits = in.operation->d_bits / in.vector;
  const bool wide = in.operation->d_bits == 64;
  ForLanes(mask, [&](uint32_t lane) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < in.vector; ++i) {
      const bool wide_source = (in.wide_source >> i & 1) != 0;
      value |= (warp->Value(in.s[i], wide_source, lane) & TypeMask(bits)) << bits * i;
    }
    warp->SetValue(in.d[0], wide, lane, value);
  });
}

void Machine::RunUnpack(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t bits = in.operation->d_bits / in.vector;
  const bool wide_source = in.wide_source != 0;
  ForLanes(mask, [&](uint32_t lane) {
    const uint64_t value = warp->Value(in.s[0], wide_source, lane);
    for (uint32_t i = 0; i < in.vector; ++i) {
      const bool wide = (in.wide >> i & 1) != 0;
      warp->SetValue(in.d[i], wide, lane, value >> bits * i & TypeMask(bits));
    }
  });
}

// Only shared and local memory have generic addresses other than their own.
void Machine::RunAddress(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t window = in.space == Space::kShared  ? kSharedWindow
                          : in.space == Space::kLocal ? kLocalWindow
                                                      : 0;
  const bool to_generic = in.operation->choice == Choice::kToGeneric;
  ForLanes(mask, [&](uint32_t lane) {
    const uint64_t address = warp->WideOf(in.s[0])[lane];
    warp->WideOf(in.d[0])[lane] = to_generic ? address + window : address - window;
  });
}

}  // namespace l3::ptx
