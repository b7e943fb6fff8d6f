#include "ptx/machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ptx/lanes.h"
#include "ptx/warp.h"

namespace l3::ptx {
namespace {

const char* Environment(const char* name, const char* usual) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : usual;
}

}  // namespace

Options OptionsOfEnvironment() {
  Options options;
  const std::string checks = Environment("L3_PTX_CHECKS", "all");
  if (checks != "all" && checks != "none") {
    throw Fault("L3_PTX_CHECKS=" + checks + ": there are all and none");
  }
  options.checks = checks == "all";
  const std::string most = Environment("L3_PTX_MAX_INSTRUCTIONS", "");
  if (!most.empty()) options.max_instructions = std::strtoull(most.c_str(), nullptr, 10);
  return options;
}

// Lanes that run on together.
struct Machine::Group {
  uint32_t at = 0, mask = 0;
  bool is_all = false;                   // there are no others to meet
};

Machine::Machine(const Options& options, Memory* memory, Findings* findings)
    : options_(options),
      memory_(memory),
      findings_(findings),
      block_(std::make_unique<BlockState>()) {}

Machine::~Machine() = default;

std::string Machine::Where(const Instruction& in) const {
  std::string where = launch_.kernel->file + ":" + std::to_string(in.line) + ": " +
                      (in.operation != nullptr ? in.operation->name : "") + ": " + code_->name;
  if (in.source_line == 0 || in.source_file >= launch_.kernel->source_files.size()) return where;
  const std::string& file = launch_.kernel->source_files[in.source_file];
  return where + " (" + file.substr(file.rfind('/') + 1) + ":" + std::to_string(in.source_line) +
         ")";
}

void Machine::Stop(const Instruction& in, const std::string& what) const {
  throw Fault(Where(in) + ": " + what);
}

void Machine::Report(const Instruction& in, const std::string& what, const std::string& example) {
  findings_->Add(Where(in), what, example);
}

std::string Machine::Who(const Warp& warp, uint32_t lane) const {
  return "block " + std::to_string(block_->number) + " warp " + std::to_string(warp.index) +
         " lane " + std::to_string(lane);
}

void Machine::Run(const Launch& launch) {
  launch_ = launch;
  code_ = &launch.kernel->body;
  last_blocks_.assign(code_->code.size(), nullptr);
  left_ = options_.max_instructions;
  const auto warps = static_cast<uint32_t>((launch.threads() + kLanes - 1) / kLanes);
  if (launch.blocks * warps * kLanes > Stamp::kMaxThread) {
    Stop(code_->code[0], "a launch of more threads than the machine counts");
  }
  if (warps_kernel_ != launch.kernel) warps_.clear();
  warps_kernel_ = launch.kernel;
  while (warps_.size() < warps) warps_.push_back(std::make_unique<Warp>());
  warps_.resize(warps);

  for (uint32_t number = 0; number < launch.blocks; ++number) RunBlock(number);
}

void Machine::RunBlock(uint32_t number) {
  BlockState& block = *block_;
  block.number = number;
  const auto warps = static_cast<uint32_t>(warps_.size());
  block.first_thread = number * warps * kLanes;
  block.barriers = 1;
  const size_t shared_bytes = launch_.dynamic_shared_bytes;
  block.shared.assign(shared_bytes, 0xCD);
  if (options_.checks) {
    block.shared_written.assign(shared_bytes, Stamp());
    block.shared_read.assign(shared_bytes, Stamp());
  }
  for (uint32_t i = 0; i < warps; ++i) BeginWarp(warps_[i].get(), i);
  while (true) {
    bool is_live = false, at_barrier = true;
    for (const auto& warp : warps_) {
      RunWarp(warp.get());
      is_live = is_live || warp->live != 0;
      at_barrier = at_barrier && (warp->live & ~warp->at_barrier) == 0;
    }
    if (!is_live) return;
    if (at_barrier) EndBlockBarrier();
  }
}

void Machine::BeginWarp(Warp* warp, uint32_t index) {
  if (warp->slots != code_->slots) warp->MakeRoom(code_->slots);
  for (const auto& [slot, value] : code_->constants) {
    std::fill_n(warp->Narrow(slot), kLanes, static_cast<uint32_t>(value));
  }
  for (const auto& [slot, value] : code_->wide_constants) {
    std::fill_n(warp->WideOf(slot), kLanes, value);
  }
  for (const auto& [slot, value] : code_->predicate_constants) {
    *warp->Narrow(slot) = value;
  }
  warp->frame.assign(size_t{code_->frame_bytes} * kLanes, 0xCD);
  warp->at.fill(0);
  warp->depth.fill(0);
  const uint64_t threads = launch_.threads() - uint64_t{index} * kLanes;
  warp->live = threads >= kLanes ? kAllLanes : (1u << threads) - 1;
  warp->waiting = warp->at_barrier = 0;
  warp->index = index;
  warp->epoch = 1;
  warp->barrier_epoch = 0;
}

void Machine::RunWarp(Warp* warp) {
  while (true) {
    const uint32_t on = warp->live & ~warp->at_barrier;
    if (on == 0) return;
    if ((on & ~warp->waiting) == 0) {
      std::string lines;
      ForLanes(on, [&](uint32_t lane) {
        const std::string line = " " + std::to_string(code_->code[warp->at[lane]].line);
        if (lines.find(line) == std::string::npos) lines += line;
      });
      const auto lane = static_cast<uint32_t>(__builtin_ctz(on));
      Stop(code_->code[warp->at[lane]], "lanes wait for each other endlessly, " + Who(*warp, lane) +
                                            " and others at lines" + lines);
    }
    RunGroup(warp, ChooseLanes(*warp));
  }
}

// Of where they are in the kernel, then in what it calls. One that is about to call is before one
// that is within.
bool Machine::IsEarlier(const Warp& warp, uint32_t lane, uint32_t other) const {
  for (uint32_t level = 0;; ++level) {
    const bool ends = level == warp.depth[lane], other_ends = level == warp.depth[other];
    const uint32_t a = ends ? warp.at[lane] : warp.calls[lane][level];
    const uint32_t b = other_ends ? warp.at[other] : warp.calls[other][level];
    if (a != b) return a < b;
    if (ends || other_ends) return ends && !other_ends;
  }
}

Machine::Group Machine::ChooseLanes(const Warp& warp) {
  const uint32_t on = warp.live & ~warp.at_barrier, ready = on & ~warp.waiting;
  uint32_t chosen = static_cast<uint32_t>(__builtin_ctz(ready));
  ForLanes(ready & (ready - 1), [&](uint32_t lane) {
    if (warp.at[lane] == warp.at[chosen] && warp.depth[lane] == 0) return;
    if (IsEarlier(warp, lane, chosen)) chosen = lane;
  });
  Group group;
  group.at = warp.at[chosen];
  ForLanes(ready, [&](uint32_t lane) {
    if (warp.at[lane] == group.at) group.mask |= 1u << lane;
  });
  group.is_all = group.mask == on;
  return group;
}

void Machine::RunGroup(Warp* warp, Group group) {
  const Instruction* code = code_->code.data();
  uint32_t at = group.at, mask = group.mask;
  bool is_first = true;
  while (mask != 0) {
    const Instruction& in = code[at];
    if (!is_first && !group.is_all && in.begins_block) break;
    is_first = false;
    if (left_-- == 0) Stop(in, "the launch does not end within L3_PTX_MAX_INSTRUCTIONS");

    uint32_t active = mask;
    if (in.guard != kNoSlot) {
      const uint32_t guard = warp->Predicate(in.guard);
      active &= in.guard_negated ? ~guard : guard;
    }
    if (active == 0) {
      ++at;
      continue;
    }
    if (in.kind == Kind::kBranch || in.kind == Kind::kCall) {
      const auto target = in.kind == Kind::kBranch ? static_cast<uint32_t>(in.offset)
                                                   : launch_.kernel->entry_of[in.call];
      if (in.kind == Kind::kCall) RunCall(warp, in, at, active);
      if (active == mask) {
        at = target;
        continue;
      }
      ForLanes(active, [&](uint32_t lane) { warp->at[lane] = target; });
      ForLanes(mask & ~active, [&](uint32_t lane) { warp->at[lane] = at + 1; });
      return;
    }
    if (in.kind == Kind::kReturn) {
      ForLanes(mask & ~active, [&](uint32_t lane) { warp->at[lane] = at + 1; });
      ForLanes(active, [&](uint32_t lane) {
        if (warp->depth[lane] == 0 || in.operation->name == "exit") {
          warp->live &= ~(1u << lane);
          return;
        }
        const uint32_t call = warp->calls[lane][--warp->depth[lane]];
        MoveFrames(warp, code_->calls[code[call].call].results, 1u << lane);
        warp->at[lane] = call + 1;
      });
      return;
    }
    if (IsCollective(in.kind)) {
      ForLanes(mask & ~active, [&](uint32_t lane) { warp->at[lane] = at + 1; });
      ForLanes(active, [&](uint32_t lane) { warp->at[lane] = at; });
      const bool was_all = group.is_all && active == mask;
      RunCollective(warp, in, active);
      const bool all_on = was_all && (active & (warp->waiting | warp->at_barrier)) == 0;
      if (!all_on) return;
      ++at;
      continue;
    }
    RunLanes(warp, at, active);
    ++at;
  }
  ForLanes(mask, [&](uint32_t lane) { warp->at[lane] = at; });
}

void Machine::RunLanes(Warp* warp, uint32_t at, uint32_t mask) {
  const Instruction& in = code_->code[at];
  switch (in.kind) {
    case Kind::kPlain: return RunPlain(warp, in, mask);
    case Kind::kPredicate: return RunPredicate(warp, in, mask);
    case Kind::kCompare: return RunCompare(warp, in, mask);
    case Kind::kSelect: return RunSelect(warp, in, mask);
    case Kind::kSpecial: return RunSpecial(warp, in, mask);
    case Kind::kPack: return RunPack(warp, in, mask);
    case Kind::kUnpack: return RunUnpack(warp, in, mask);
    case Kind::kAddress: return RunAddress(warp, in, mask);
    case Kind::kLoad:
    case Kind::kStore: return RunMemory(warp, in, mask);
    case Kind::kAtomic: return RunAtomic(warp, in, mask);
    default: Stop(in, "trap");
  }
}

void Machine::RunCall(Warp* warp, const Instruction& in, uint32_t at, uint32_t mask) {
  MoveFrames(warp, code_->calls[in.call].arguments, mask);
  ForLanes(mask, [&](uint32_t lane) {
    if (warp->depth[lane] == kMaxCallDepth) Stop(in, "calls within calls, too deep");
    warp->calls[lane][warp->depth[lane]++] = at;
  });
}

void Machine::MoveFrames(Warp* warp, const std::vector<FrameCopy>& copies, uint32_t mask) {
  ForLanes(mask, [&](uint32_t lane) {
    const size_t base = size_t{lane} * code_->frame_bytes;
    for (const FrameCopy& copy : copies) {
      std::memcpy(&warp->frame[base + copy.to], &warp->frame[base + copy.from], copy.bytes);
    }
  });
}

}  // namespace l3::ptx
