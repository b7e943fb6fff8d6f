// Runs kernels on warps of 32 lanes with active masks, and watches each access.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ptx/memory.h"
#include "ptx/program.h"

namespace l3::ptx {

struct Options {
  bool checks = true;  // the order of accesses
  uint64_t max_instructions = uint64_t{1} << 34;  // of the warps of a launch
};
// From L3_PTX_CHECKS (all, none) and L3_PTX_MAX_INSTRUCTIONS.
// Throws a Fault if one means nothing.
Options OptionsOfEnvironment();

struct Launch {
  const Kernel* kernel = nullptr;
  uint32_t blocks = 1, width = 1, height = 1;  // of a block, in threads
  uint32_t dynamic_shared_bytes = 0;
  const uint8_t* parameters = nullptr;
  uint32_t number = 1;

  uint32_t threads() const { return width * height; }
};

struct BlockState;
struct Warp;

class Machine {
 public:
  Machine(const Options& options, Memory* memory, Findings* findings);
  ~Machine();

  // Runs to the end. Throws a Fault if it cannot go on: an access out of bounds, lanes that wait
  // for each other endlessly.
  void Run(const Launch& launch);

 private:
  struct Group;
  class Access;

  void RunBlock(uint32_t number);
  void BeginWarp(Warp* warp, uint32_t index);
  void RunWarp(Warp* warp);
  Group ChooseLanes(const Warp& warp);
  bool IsEarlier(const Warp& warp, uint32_t lane, uint32_t other) const;
  void RunGroup(Warp* warp, Group group);
  void RunLanes(Warp* warp, uint32_t at, uint32_t mask);
  void EndBlockBarrier();

  // Instructions.
  void RunPlain(Warp* warp, const Instruction& in, uint32_t mask);
  void RunPredicate(Warp* warp, const Instruction& in, uint32_t mask);
  void RunCompare(Warp* warp, const Instruction& in, uint32_t mask);
  void RunSelect(Warp* warp, const Instruction& in, uint32_t mask);
  void RunSpecial(Warp* warp, const Instruction& in, uint32_t mask);
  void RunPack(Warp* warp, const Instruction& in, uint32_t mask);
  void RunUnpack(Warp* warp, const Instruction& in, uint32_t mask);
  void RunAddress(Warp* warp, const Instruction& in, uint32_t mask);
  void RunMemory(Warp* warp, const Instruction& in, uint32_t mask);
  void RunAtomic(Warp* warp, const Instruction& in, uint32_t mask);
  void RunCall(Warp* warp, const Instruction& in, uint32_t at, uint32_t mask);
  void RunCollective(Warp* warp, const Instruction& in, uint32_t mask);
  void RunWarpBarrier(Warp* warp, const Instruction& in, uint32_t mask);
  void RunShuffle(Warp* warp, const Instruction& in, uint32_t mask);
  void RunVote(Warp* warp, const Instruction& in, uint32_t mask);
  void RunRedux(Warp* warp, const Instruction& in, uint32_t mask);
  void MoveFrames(Warp* warp, const std::vector<FrameCopy>& copies, uint32_t mask);

  // Order.
  bool IsOrdered(const Warp& warp, uint32_t lane, Stamp before);
  void Touch(Warp* warp, const Instruction& in, uint32_t lane, ByteStamps stamps, uint32_t bytes,
             bool writes, bool is_same, bool is_shared);
  Stamp Merged(const Warp& warp, Stamp before, Stamp mine) const;

  std::string Where(const Instruction& in) const;
  [[noreturn]] void Stop(const Instruction& in, const std::string& what) const;
  void Report(const Instruction& in, const std::string& what, const std::string& example);
  std::string Who(const Warp& warp, uint32_t lane) const;

  const Options options_;
  Memory* const memory_;
  Findings* const findings_;

  Launch launch_;
  const Function* code_ = nullptr;
  std::vector<Block*> last_blocks_;  // by instruction: where it went last
  std::unique_ptr<BlockState> block_;
  std::vector<std::unique_ptr<Warp>> warps_;
  const Kernel* warps_kernel_ = nullptr;  // for which the warps have room
  uint64_t left_ = 0;                     // instructions
};

}  // namespace l3::ptx
