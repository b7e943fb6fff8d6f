// The parser of PTX, in two parts: parser.cc reads directives, instructions.cc instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptx/lexer.h"
#include "ptx/program.h"

namespace l3::ptx {

// As PTX writes it: decimal, 0x, or the bits of a float after 0f or 0d. Nothing: no number.
std::optional<uint64_t> Number(std::string_view text);

struct Register {
  uint32_t slot = 0, bits = 0;
};
struct Family {  // %r<9>
  uint32_t slot = 0, bits = 0, count = 0;
};
// Where a name of memory lies.
struct Place {
  Space space = Space::kGeneric;
  uint64_t address = 0;     // in its space
  uint32_t bytes = 0;
};
// The names between { and }.
struct Scope {
  std::unordered_map<std::string_view, Register> registers;
  std::unordered_map<std::string_view, Family> families;
  std::unordered_map<std::string_view, Place> places;
};

class Parser {
 public:
  Parser(const std::string& file, const std::string& text)
      : tokens_(SplitTokens(text)), module_(std::make_unique<Module>()) {
    module_->file = file;
  }
  std::unique_ptr<Module> Parse();

 private:
  struct Jump {
    size_t instruction;
    Token label;
  };
  struct Callee {
    Function* caller;
    size_t call;
    Token name;
    std::vector<Place> arguments, results;
  };

  // Tokens.
  [[noreturn]] void Stop(const std::string& what) const;
  const Token& Next() const { return tokens_[at_]; }
  const Token& Take();
  bool TakeIf(const char* text);
  void Expect(const char* text);
  std::string_view TakeName();
  uint64_t TakeNumber();
  uint64_t TakeSignedNumber();

  // Directives.
  void ParseHead();
  void ParseTopLevel();
  void ParseSourceFile();
  void SkipSection();
  struct Declared {
    std::string_view name;
    uint32_t type_bits = 0, align = 1;
    uint64_t bytes = 0;
    bool is_open = false;  // name[]
  };
  Declared ParseDeclared();
  void ParseShared();
  void ParseFunction(bool is_entry);
  void ParseParameters(bool is_entry, std::vector<std::pair<uint32_t, uint32_t>>* list);
  void ParseEntryDirectives();
  void ParseBody();
  void ParseRegisters();
  void ParseFrame();
  void ParseLocation();
  void ResolveJumps();
  void ResolveCalls();

  // Instructions.
  void ParseInstruction();
  void ParseOperands(Instruction* in);
  void ParseMove(Instruction* in);
  void ParseMemory(Instruction* in);
  void ParseAtomic(Instruction* in);
  void ParseCall(Instruction* in);
  void ParseAddress(Instruction* in);
  std::vector<Place> ParseArguments();
  uint32_t TakeDestination(uint32_t bits, bool any_width = false);
  uint32_t TakeSource(uint32_t bits, bool any_width = false);
  uint32_t TakePredicateSource();
  uint32_t TakeElement(uint32_t bits, bool is_source, bool* wide);

  // Slots.
  uint32_t NewSlot(uint32_t bits);
  uint32_t Constant(uint64_t value, uint32_t bits);
  uint32_t AddressOf(const Place& place, uint64_t plus, uint32_t bits);
  std::optional<Register> FindRegister(std::string_view name) const;
  std::optional<Place> FindPlace(std::string_view name) const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  std::string operation_;  // that is being read, for errors
  std::unique_ptr<Module> module_;
  std::unordered_map<std::string, uint32_t> function_numbers_;
  std::vector<Callee> callees_;

  Function* function_ = nullptr;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);  // the module's first
  std::unordered_map<std::string_view, size_t> labels_;
  std::vector<Jump> jumps_;
  std::unordered_map<uint64_t, uint32_t> constants_, wide_constants_;
  uint32_t predicate_constants_[2] = {kNoSlot, kNoSlot};
  uint32_t source_file_ = 0, source_line_ = 0;
};

}  // namespace l3::ptx
