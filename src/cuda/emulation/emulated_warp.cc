#include "cuda/emulation/emulated_warp.h"

#include <stdexcept>

#include "base/portable.h"

#if defined(L3_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

namespace l3 {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

// Tells AddressSanitizer which stack is in use.
void BeforeSwitch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] size_t bytes) {
#if defined(L3_ASAN)
  __sanitizer_start_switch_fiber(save, stack, bytes);
#endif
}

void AfterSwitch([[maybe_unused]] void* saved, [[maybe_unused]] const void** old_stack,
                 [[maybe_unused]] size_t* old_bytes) {
#if defined(L3_ASAN)
  __sanitizer_finish_switch_fiber(saved, old_stack, old_bytes);
#endif
}

#if defined(__x86_64__)

// Saves the registers that calls preserve and the stack pointer, and takes those of `to`.
asm(R"(
  .text
  .p2align 4
l3_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
l3_enter_fiber:
  movq %rbx, %rdi
  callq *%rbp
  ud2
)");
extern "C" void SwitchFiber(FiberContext* from, const FiberContext* to) asm("l3_switch_fiber");
extern "C" void EnterFiber() asm("l3_enter_fiber");

// A stack on which SwitchFiber() returns to EnterFiber(), and that calls main(argument).
template <typename Argument>
FiberContext MakeFiber(uint8_t* stack, size_t bytes, void (*main)(Argument*), Argument* argument) {
  uint64_t* top = reinterpret_cast<uint64_t*>(stack + bytes);
  for (int i = 0; i < 2; ++i) *--top = 0;  // so that EnterFiber() finds its stack aligned
  *--top = reinterpret_cast<uintptr_t>(&EnterFiber);
  *--top = reinterpret_cast<uintptr_t>(main);      // rbp
  *--top = reinterpret_cast<uintptr_t>(argument);  // rbx
  for (int i = 0; i < 4; ++i) *--top = 0;          // r12 to r15
  return top;
}

#else

void SwitchFiber(FiberContext* from, const FiberContext* to) { swapcontext(from, to); }

#endif

}  // namespace

uint32_t EmulatedWarp::Shuffle(uint32_t v, uint32_t i) const {
  return emulator_->Exchange(lane_, WarpEmulator::Call::kShuffle, v)[i % kWarpLanes];
}

uint32_t EmulatedWarp::ShuffleUp(uint32_t v, uint32_t first) const {
  const uint32_t* values = emulator_->Exchange(lane_, WarpEmulator::Call::kUp, v);
  return lane_ == 0 ? first : values[lane_ - 1];
}

uint32_t EmulatedWarp::ShuffleDown(uint32_t v) const {
  const uint32_t* values = emulator_->Exchange(lane_, WarpEmulator::Call::kDown, v);
  return lane_ == kWarpLanes - 1 ? v : values[lane_ + 1];
}

uint32_t EmulatedWarp::Ballot(bool bit) const {
  const uint32_t* bits = emulator_->Exchange(lane_, WarpEmulator::Call::kBallot, bit ? 1 : 0);
  uint32_t ballot = 0;
  for (uint32_t i = 0; i < kWarpLanes; ++i) ballot |= bits[i] << i;
  return ballot;
}

uint32_t EmulatedWarp::ReduceAdd(uint32_t v) const {
  const uint32_t* values = emulator_->Exchange(lane_, WarpEmulator::Call::kReduce, v);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kWarpLanes; ++i) sum += values[i];
  return sum;
}

uint32_t EmulatedWarp::InclusiveScan(uint32_t v) const {
  const uint32_t* values = emulator_->Exchange(lane_, WarpEmulator::Call::kScan, v);
  uint32_t sum = 0;
  for (uint32_t i = 0; i <= lane_; ++i) sum += values[i];
  return sum;
}

void EmulatedWarp::Sync() const { emulator_->Exchange(lane_, WarpEmulator::Call::kSync, 0); }

void EmulatedWarp::SyncBlock() const { emulator_->Exchange(lane_, WarpEmulator::Call::kBlock, 0); }

WarpEmulator::WarpEmulator() {
  for (uint32_t i = 0; i < kWarpLanes; ++i) {
    lanes_[i].stack.reset(new uint8_t[kStackBytes]);
    lanes_[i].warp.emulator_ = this;
    lanes_[i].warp.lane_ = i;
  }
}

void WarpEmulator::Run(const std::function<void(EmulatedWarp&)>& kernel) {
  Begin(kernel);
  while (!Advance()) {
  }
}

void WarpEmulator::Begin(const std::function<void(EmulatedWarp&)>& kernel) {
  kernel_ = &kernel;
  for (Lane& lane : lanes_) {
    lane.fake_stack = nullptr;
    Start(&lane);
  }
}

bool WarpEmulator::Advance() {
  do {
    // Lanes run in both orders, so that a missing Sync() shows.
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      Resume(&lanes_[round_ % 2 == 0 ? i : kWarpLanes - 1 - i]);
    }
    ++round_;
    for (const Lane& lane : lanes_) {
      if (lane.call != lanes_[0].call) throw std::logic_error("lanes differ in their collectives");
    }
  } while (lanes_[0].call != Call::kNone && lanes_[0].call != Call::kBlock);
  return lanes_[0].call == Call::kNone;
}

void WarpEmulator::Start(Lane* lane) {
#if defined(__x86_64__)
  lane->context = MakeFiber(lane->stack.get(), kStackBytes, &LaneMain, lane);
#else
  if (getcontext(&lane->context) != 0) throw std::runtime_error("getcontext failed");
  lane->context.uc_stack.ss_sp = lane->stack.get();
  lane->context.uc_stack.ss_size = kStackBytes;
  lane->context.uc_link = nullptr;
  // makecontext passes int arguments only.
  void (*const main)(unsigned, unsigned) = [](unsigned high, unsigned low) {
    LaneMain(reinterpret_cast<Lane*>(uint64_t{high} << 32 | low));
  };
  const uint64_t address = reinterpret_cast<uintptr_t>(lane);
  makecontext(&lane->context, reinterpret_cast<void (*)()>(main), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
#endif
}

void WarpEmulator::LaneMain(Lane* lane) {
  WarpEmulator* emulator = lane->warp.emulator_;
  AfterSwitch(nullptr, &emulator->scheduler_stack_, &emulator->scheduler_stack_bytes_);
  (*emulator->kernel_)(lane->warp);
  lane->call = Call::kNone;
  emulator->Suspend(lane, true);
}

void WarpEmulator::Resume(Lane* lane) {
  BeforeSwitch(&scheduler_fake_stack_, lane->stack.get(), kStackBytes);
  SwitchFiber(&scheduler_, &lane->context);
  AfterSwitch(scheduler_fake_stack_, nullptr, nullptr);
}

void WarpEmulator::Suspend(Lane* lane, bool ends) {
  BeforeSwitch(ends ? nullptr : &lane->fake_stack, scheduler_stack_, scheduler_stack_bytes_);
  SwitchFiber(&lane->context, &scheduler_);
  AfterSwitch(lane->fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
}

const uint32_t* WarpEmulator::Exchange(uint32_t lane, Call call, uint32_t v) {
  uint32_t* values = values_[round_ % 2];
  values[lane] = v;
  lanes_[lane].call = call;
  Suspend(&lanes_[lane], false);
  return values;
}

}  // namespace l3
