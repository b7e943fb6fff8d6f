// Instructions that compute registers from registers, and how bits that nobody has written spread.
#include <algorithm>
#include <cstring>

#include "ptx/lanes.h"
#include "ptx/warp.h"

namespace l3::ptx {
namespace {

// Values that unwritten bits are tried with: extremes first, then mixtures.
uint64_t Trial(uint32_t number, uint32_t source, uint32_t bits) {
  const uint64_t sign = uint64_t{1} << (bits - 1);
  const auto extreme = [sign](uint32_t which) {
    switch (which & 3) {
      case 0: return uint64_t{0};
      case 1: return ~uint64_t{0};
      case 2: return sign;
      default: return ~sign;
    }
  };
  // Of two sources all pairs of extremes.
  if (number < 16) return extreme(source % 2 == 0 ? number : number / 4);
  uint64_t mixed = (uint64_t{number} * 4 + source + 1) * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
  return mixed ^ mixed >> 31;
}

struct Trials {
  alignas(64) uint64_t values[4][kLanes];  // of each source; or 32-bit ones in the first half
  const void* pointers[4];
};

// Fills in the sources of one lane with all trials. Returns the unwritten bits of all together.
uint64_t MakeTrials(const Warp& warp, const Instruction& in, uint32_t lane, uint32_t sources,
                    Trials* trials) {
  uint64_t any = 0;
  for (uint32_t i = 0; i < sources; ++i) {
    const uint32_t bits = in.operation->s_bits[i];
    const bool wide = bits == 64;
    const uint64_t value = warp.Value(in.s[i], wide, lane);
    uint64_t unknown = warp.Unknown(in.s[i], wide, lane);
    if (bits < 64) unknown &= (uint64_t{1} << bits) - 1;
    any |= unknown;
    // The same register has the same value, whatever it is.
    uint32_t same = i;
    for (uint32_t j = i; j-- > 0;) {
      if (in.s[j] == in.s[i]) same = j;
    }
    for (uint32_t t = 0; t < kLanes; ++t) {
      const uint64_t tried = (value & ~unknown) | (Trial(t, same, bits) & unknown);
      if (wide) {
        trials->values[i][t] = tried;
      } else {
        reinterpret_cast<uint32_t*>(trials->values[i])[t] = static_cast<uint32_t>(tried);
      }
    }
    trials->pointers[i] = trials->values[i];
  }
  return any;
}

uint64_t TypeMask(uint32_t bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

}  // namespace

void Machine::RunPlain(Warp* warp, const Instruction& in, uint32_t mask) {
  const void* sources[4];
  for (uint32_t i = 0; i < 4; ++i) sources[i] = warp->Narrow(in.s[i]);
  const uint32_t dirty =
      warp->dirty[in.s[0]] | warp->dirty[in.s[1]] | warp->dirty[in.s[2]] | warp->dirty[in.s[3]];
  if ((dirty & mask) != 0) {
    Spread(warp, in, dirty & mask);  // before a source is written over
    warp->dirty[in.d[0]] &= ~(mask & ~dirty);
  } else {
    warp->dirty[in.d[0]] &= ~mask;
  }
  in.operation->lanes(warp->Narrow(in.d[0]), sources, mask);
}

// By trial: the bits of the result that differ with the unwritten bits. Of floats all do.
void Machine::Spread(Warp* warp, const Instruction& in, uint32_t lanes) {
  const Operation& operation = *in.operation;
  const bool wide = operation.d_bits == 64;
  ForLanes(lanes, [&](uint32_t lane) {
    Trials trials;
    uint64_t unknown = MakeTrials(*warp, in, lane, operation.sources, &trials);
    if (operation.is_float) {
      unknown = unknown != 0 ? TypeMask(operation.d_bits) : 0;
    } else if (unknown != 0) {
      alignas(64) uint64_t results[kLanes];
      operation.lanes(results, trials.pointers, kAllLanes);
      unknown = 0;
      const auto* narrow = reinterpret_cast<const uint32_t*>(results);
      for (uint32_t t = 1; t < kLanes; ++t) {
        unknown |= wide ? results[t] ^ results[0] : narrow[t] ^ narrow[0];
      }
      unknown &= TypeMask(operation.any_width ? std::max<uint32_t>(operation.d_bits, 32)
                                              : operation.d_bits);
    }
    warp->SetUnknown(in.d[0], wide, lane, unknown);
  });
}

void Machine::RunPredicate(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t a = warp->Predicate(in.s[0]), open_a = warp->dirty[in.s[0]];
  const uint32_t b = warp->Predicate(in.s[1]), open_b = warp->dirty[in.s[1]];
  uint32_t value = a, open = open_a;
  switch (in.operation->choice) {
    case Choice::kAnd:
      value = a & b;
      open = (open_a & (b | open_b)) | (open_b & (a | open_a));
      break;
    case Choice::kOr:
      value = a | b;
      open = (open_a & (~b | open_b)) | (open_b & (~a | open_a));
      break;
    case Choice::kXor:
      value = a ^ b;
      open = open_a | open_b;
      break;
    case Choice::kNot: value = ~a; break;
    default: break;
  }
  warp->SetPredicate(in.d[0], value, mask);
  warp->dirty[in.d[0]] = (warp->dirty[in.d[0]] & ~mask) | (open & mask);
}

void Machine::RunCompare(Warp* warp, const Instruction& in, uint32_t mask) {
  const Operation& operation = *in.operation;
  const uint32_t dirty = (warp->dirty[in.s[0]] | warp->dirty[in.s[1]]) & mask;
  const uint32_t open = dirty != 0 ? SpreadCompare(*warp, in, dirty) : 0;
  warp->SetPredicate(in.d[0], operation.compare(warp->Narrow(in.s[0]), warp->Narrow(in.s[1])),
                     mask);
  warp->dirty[in.d[0]] = (warp->dirty[in.d[0]] & ~mask) | (open & mask);
}

// The lanes whose comparison depends on unwritten bits.
uint32_t Machine::SpreadCompare(const Warp& warp, const Instruction& in, uint32_t lanes) {
  const Operation& operation = *in.operation;
  uint32_t open = 0;
  ForLanes(lanes, [&](uint32_t lane) {
    Trials trials;
    const uint64_t unknown = MakeTrials(warp, in, lane, 2, &trials);
    if (unknown == 0) return;
    const bool wide = operation.s_bits[0] == 64;
    const uint64_t differ = warp.Value(in.s[0], wide, lane) ^ warp.Value(in.s[1], wide, lane);
    bool is_open = true;
    if (in.s[0] == in.s[1]) {
      is_open = operation.is_float;
    } else if (operation.is_equality) {
      is_open = (differ & ~unknown & TypeMask(operation.s_bits[0])) == 0;
    } else if (!operation.is_float) {
      const uint32_t results = operation.compare(trials.pointers[0], trials.pointers[1]);
      is_open = results != 0 && results != kAllLanes;
    }
    open |= uint32_t{is_open} << lane;
  });
  return open;
}

void Machine::RunSelect(Warp* warp, const Instruction& in, uint32_t mask) {
  const bool wide = in.operation->d_bits == 64;
  const uint32_t choose = warp->Predicate(in.s[2]), open = warp->dirty[in.s[2]];
  const uint32_t dirty =
      (warp->dirty[in.s[0]] | warp->dirty[in.s[1]] | warp->dirty[in.s[2]]) & mask;
  if (dirty != 0) {
    ForLanes(dirty, [&](uint32_t lane) {
      const uint64_t a = warp->Unknown(in.s[0], wide, lane), b = warp->Unknown(in.s[1], wide, lane);
      uint64_t unknown = (choose >> lane & 1) != 0 ? a : b;
      if ((open >> lane & 1) != 0) {
        unknown = a | b | (warp->Value(in.s[0], wide, lane) ^ warp->Value(in.s[1], wide, lane));
      }
      warp->SetUnknown(in.d[0], wide, lane, unknown);
    });
  }
  warp->dirty[in.d[0]] &= ~(mask & ~dirty);
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
  warp->dirty[in.d[0]] &= ~mask;
}

void Machine::RunPack(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t bits = in.operation->d_bits / in.vector;
  const bool wide = in.operation->d_bits == 64;
  ForLanes(mask, [&](uint32_t lane) {
    uint64_t value = 0, unknown = 0;
    for (uint32_t i = 0; i < in.vector; ++i) {
      const bool wide_source = (in.wide_source >> i & 1) != 0;
      const uint64_t one = TypeMask(bits);
      value |= (warp->Value(in.s[i], wide_source, lane) & one) << bits * i;
      unknown |= (warp->Unknown(in.s[i], wide_source, lane) & one) << bits * i;
    }
    warp->SetValue(in.d[0], wide, lane, value);
    warp->SetUnknown(in.d[0], wide, lane, unknown);
  });
}

void Machine::RunUnpack(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t bits = in.operation->d_bits / in.vector;
  const bool wide_source = in.wide_source != 0;
  ForLanes(mask, [&](uint32_t lane) {
    const uint64_t value = warp->Value(in.s[0], wide_source, lane);
    const uint64_t unknown = warp->Unknown(in.s[0], wide_source, lane);
    for (uint32_t i = 0; i < in.vector; ++i) {
      const bool wide = (in.wide >> i & 1) != 0;
      warp->SetValue(in.d[i], wide, lane, value >> bits * i & TypeMask(bits));
      warp->SetUnknown(in.d[i], wide, lane, unknown >> bits * i & TypeMask(bits));
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
    const uint64_t unknown = warp->Unknown(in.s[0], true, lane);
    warp->WideOf(in.d[0])[lane] = to_generic ? address + window : address - window;
    warp->SetUnknown(in.d[0], true, lane, unknown);
  });
}

}  // namespace l3::ptx
