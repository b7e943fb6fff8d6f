// A PTX module as the parser leaves it: kernels whose operands are numbered slots of a warp.
// Independent of memory, of scheduling or of how PTX is written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace l3::ptx {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = ~0u;
constexpr uint32_t kNoSlot = ~0u;

// Where shared memory begins in its own address space: an address of 0 is invalid.
constexpr uint32_t kSharedBase = 1024;
// Where generic addresses show shared and local memory. No host address is that high.
constexpr uint64_t kSharedWindow = uint64_t{1} << 62;
constexpr uint64_t kLocalWindow = uint64_t{1} << 61;

// One line that says what is wrong with a PTX file, or what a kernel did.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// How the machine runs an instruction.
enum class Kind : uint8_t {
  kPlain,      // lane by lane, by a LaneFunction
  kPredicate,  // logic of predicates
  kCompare,    // setp
  kSelect,     // selp
  kSpecial,    // mov from a special register
  kPack,       // mov of a vector to a register
  kUnpack,     // and back
  kAddress,    // cvta
  kLoad,
  kStore,
  kAtomic,  // the least of two numbers
  kBranch,
  kCall,
  kReturn,
  kTrap,
  // Those at which lanes wait for each other.
  kBlockBarrier,
  kWarpBarrier,
  kShuffle,
  kVote,
  kRedux,
};
inline bool IsCollective(Kind kind) { return kind >= Kind::kBlockBarrier; }

enum class Space : uint8_t { kGeneric, kGlobal, kGlobalNc, kShared, kLocal, kEntryParam };

enum class Choice : uint8_t {  // of what the kinds above need told apart
  kNone,
  kAnd,
  kOr,
  kXor,
  kNot,
  kMov,
  kUp,
  kDown,
  kIndex,
  kToGeneric,
  kFromGeneric,
};

enum class Special : uint8_t { kTidX, kTidY, kNtidX, kNtidY, kCtaidX, kNctaidX, kLaneId, kMaskLt };

// Computes d of sources s on the lanes of a mask. A register is 32 values of 4 or 8 bytes; one of
// 8 or 16 bits has 4, of which the upper bits mean nothing.
using LaneFunction = void (*)(void* d, const void* const* s, uint32_t mask);
// Compares a and b on all lanes; a bit a lane.
using CompareFunction = uint32_t (*)(const void* a, const void* b);

// What an opcode with its modifiers means.
struct Operation {
  std::string name;
  Kind kind = Kind::kPlain;
  Choice choice = Choice::kNone;
  Space space = Space::kGeneric;
  LaneFunction lanes = nullptr;
  CompareFunction compare = nullptr;
  uint8_t sources = 0;
  uint8_t d_bits = 0;        // 1: a predicate; 0: none
  uint8_t s_bits[4] = {};    // of each source
  bool any_width = false;    // cvt, ld, st: registers may be wider than the type
  bool is_signed = false;    // loads extend the sign
  uint8_t bytes = 0;         // of an element in memory
  uint8_t vector = 1;        // elements
};

struct Instruction {
  const Operation* operation = nullptr;
  Kind kind = Kind::kPlain;
  Space space = Space::kGeneric;
  bool guard_negated = false;
  uint8_t vector = 1;
  bool wide_address = true;      // 64 bits
  bool has_second = false;       // d[1] is a predicate
  uint8_t wide = 0;              // bit i: d[i], or for stores the i-th value, has 64 bits
  uint8_t wide_source = 0;       // bit i: s[i] has
  uint32_t guard = kNoSlot;      // a predicate
  uint32_t d[4] = {0, 0, 0, 0};  // slots; of stores the values
  uint32_t s[4] = {0, 0, 0, 0};  // slot 0 is always zero
  uint32_t address = kNoSlot;
  int64_t offset = 0;  // of an address; kSpecial: which; kBranch, kCall: the instruction
  uint32_t call = 0;   // which of the kernel's calls
  uint32_t line = 0;   // of the PTX
  uint32_t source_file = 0, source_line = 0;
  bool begins_block = false;  // a jump leads to it, or may have left before it
};

// Of local memory: arguments and results that a call moves.
struct FrameCopy {
  uint32_t from, to, bytes;
};
struct Call {
  uint32_t function = 0;
  std::vector<FrameCopy> arguments, results;
};

// A kernel or function. Slots count 32-bit values of all lanes; a 64-bit register has two.
struct Function {
  std::string name;
  bool is_entry = false;
  uint32_t line = 0;
  std::vector<Instruction> code;
  uint32_t slots = 2;  // the first two are zero
  uint32_t frame_bytes = 0;
  std::vector<std::pair<uint32_t, uint64_t>> constants;  // slot, value; low slots of 32 bits
  std::vector<std::pair<uint32_t, uint64_t>> wide_constants;  // 64 bits
  std::vector<std::pair<uint32_t, uint32_t>> predicate_constants;
  // Slots that hold the address of a place in the frame, known once the kernel is linked.
  std::vector<std::pair<uint32_t, uint32_t>> frame_addresses;
  std::vector<Call> calls;
  std::vector<std::pair<uint32_t, uint32_t>> parameters, results;  // offset and bytes in the frame
  uint32_t entry_bytes = 0;  // of a kernel's parameters
  uint32_t max_threads = 1024, min_blocks = 0;
};

struct Module {
  std::string file;
  std::vector<std::string> source_files;  // by number
  std::vector<std::unique_ptr<Function>> functions;
};

// A kernel with the functions that it calls, as one program.
struct Kernel {
  Function body;  // its code, then that of the functions
  std::vector<uint32_t> entry_of;  // by call: where the function begins
  std::vector<std::string> source_files;
  std::string file;
};

// Reads a PTX file whole. Throws a Fault of one line that names file, line and operation.
std::unique_ptr<Module> ParseModule(const std::string& file, const std::string& text);

// Of what the module has under this name. Null: no such kernel.
std::unique_ptr<Kernel> LinkKernel(const Module& module, const std::string& name);

// Null: not known.
const Operation* FindOperation(const std::string& name);

}  // namespace l3::ptx
