// Runs kernels on warps of 32 lanes with active masks, and watches each access.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ptx/memory.h"
#include "ptx/program.h"

namespace l3::ptx {

struct Options {
  // Lanes that parted meet as early as can be; or lanes, warps and blocks go on by chance.
  bool is_random = false;
  uint32_t seed = 1;
  bool checks_order = true;      // accesses that nothing orders
  bool checks_undefined = true;  // what nobody has written
  bool counts_traffic = false;   // wavefronts and sectors
  uint64_t max_instructions = uint64_t{1} << 34;  // of the warps of a launch
};
// From L3_PTX_POLICY (in_order, random), L3_PTX_SEED, L3_PTX_CHECKS (all, order, undefined,
// none), L3_PTX_TRAFFIC (any), L3_PTX_MAX_INSTRUCTIONS. Throws a Fault if one means nothing.
Options OptionsOfEnvironment();

struct Dim {
  uint32_t x = 1, y = 1, z = 1;

  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Launch {
  const Kernel* kernel = nullptr;
  Dim grid, block;
  uint32_t dynamic_shared_bytes = 0;
  const uint8_t* parameters = nullptr;
  uint32_t operation = 1;  // of a stream
};

// How often warps ran an instruction, how many lanes did, and for how many its guard was false.
// Of loads and stores: in shared memory the passes that bank conflicts make of them, in global
// memory the lines of 128 bytes; and the sectors of 32 bytes there.
struct Count {
  uint64_t warps = 0, lanes = 0, skipped = 0;
  uint64_t wavefronts = 0, sectors = 0;
};

struct BlockState;
struct Warp;

class Machine {
 public:
  Machine(const Options& options, Memory* memory, Findings* findings, const OperationOrder* order);
  ~Machine();

  // Runs to the end. Throws a Fault if it cannot go on: an access out of bounds, lanes that wait
  // for each other for ever. `counts` are added to, by instruction.
  void Run(const Launch& launch, std::vector<Count>* counts);

 private:
  struct Group;
  class Access;

  void RunBlock(uint32_t number);
  void BeginWarp(Warp* warp, uint32_t index);
  bool RunWarp(Warp* warp, uint64_t limit);
  Group ChooseLanes(const Warp& warp);
  bool IsEarlier(const Warp& warp, uint32_t lane, uint32_t other) const;
  void RunGroup(Warp* warp, Group group, uint64_t* left);
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
  void CountTraffic(const Warp& warp, const Instruction& in, uint32_t mask);
  void RunAtomic(Warp* warp, const Instruction& in, uint32_t mask);
  void RunCall(Warp* warp, const Instruction& in, uint32_t at, uint32_t mask);
  void RunCollective(Warp* warp, const Instruction& in, uint32_t mask);
  void RunWarpBarrier(Warp* warp, uint32_t mask);
  void RunShuffle(Warp* warp, const Instruction& in, uint32_t mask);
  void RunVote(Warp* warp, const Instruction& in, uint32_t mask);
  void RunRedux(Warp* warp, const Instruction& in, uint32_t mask);
  void RunMatch(Warp* warp, const Instruction& in, uint32_t mask);
  void MoveFrames(Warp* warp, const std::vector<FrameCopy>& copies, uint32_t mask);

  // What nobody has written, followed by value.
  // What depends on a branch: from it to where its ways meet.
  struct Region {
    uint32_t end = 0;
    bool is_pure = false;         // registers and loads alone
    // Written there, each half of a wide register by itself, with the bits that may be 1 then.
    std::vector<std::pair<uint32_t, uint32_t>> slots;
  };
  const Region& RegionOf(uint32_t branch);
  uint32_t LeaveBranch(Warp* warp, uint32_t at, uint32_t lanes);
  void Spread(Warp* warp, const Instruction& in, uint32_t lanes);
  uint32_t SpreadCompare(const Warp& warp, const Instruction& in, uint32_t lanes);

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
  const OperationOrder* const order_;
  std::mt19937 random_;

  Launch launch_;
  const Function* code_ = nullptr;
  std::vector<Count>* counts_ = nullptr;
  std::vector<Block*> last_blocks_;  // by instruction: where it went last
  std::unique_ptr<BlockState> block_;
  std::vector<std::unique_ptr<Warp>> warps_;
  const Kernel* warps_kernel_ = nullptr;  // for which the warps have room, and the regions are
  std::map<uint32_t, Region> regions_;    // by branch
  uint64_t left_ = 0;                     // instructions
  uint32_t ordered_operation_ = 0;        // known to be before this one
};

}  // namespace l3::ptx
