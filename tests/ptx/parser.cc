// Reads PTX as nvcc writes it. It stops at unknown text and names it: nothing is guessed.
#include "ptx/parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace l3::ptx {
namespace {

constexpr const char* kNewestVersion = "9.0";  // of CUDA 13.0
constexpr uint64_t kMaxBytes = 1 << 24;  // that a name stands for
constexpr uint32_t kMaxRegisters = 1 << 22;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// ".u32" -> 32; 0: no type of data. A predicate has 1.
uint32_t TypeBits(std::string_view type) {
  constexpr std::pair<const char*, uint32_t> kTypes[] = {
      {".pred", 1}, {".b8", 8},   {".u8", 8},   {".s8", 8},   {".b16", 16}, {".u16", 16},
      {".s16", 16}, {".f16", 16}, {".b32", 32}, {".u32", 32}, {".s32", 32}, {".f32", 32},
      {".b64", 64}, {".u64", 64}, {".s64", 64}, {".f64", 64}};
  for (const auto& [name, bits] : kTypes) {
    if (type == name) return bits;
  }
  return 0;
}

}  // namespace

std::optional<uint64_t> Number(std::string_view text) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(std::tolower(static_cast<unsigned char>(text[1])));
    const bool is_float = (kind == 'f' && text.size() == 10) || (kind == 'd' && text.size() == 18);
    if (kind == 'x' || is_float) {
      base = 16;
      text.remove_prefix(2);
    }
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void Parser::Stop(const std::string& what) const {
  const Token& token = tokens_[at_ == 0 || what.empty() ? at_ : at_ - 1];
  throw Fault(module_->file + ":" + std::to_string(token.line) + ": " +
              (operation_.empty() ? std::string(token.text) : operation_) + ": " +
              (what.empty() ? "the file ends here, cut short" : what));
}

const Token& Parser::Take() {
  if (Next().text.empty()) Stop("");
  return tokens_[at_++];
}

bool Parser::TakeIf(const char* text) {
  if (!Next().Is(text)) return false;
  ++at_;
  return true;
}

void Parser::Expect(const char* text) {
  const Token& token = Take();
  if (!token.Is(text)) {
    Stop("expected " + std::string(text) + ", found " + std::string(token.text));
  }
}

std::string_view Parser::TakeName() {
  const std::string_view name = Take().text;
  const char c = name.front();
  if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '$' && c != '%') {
    Stop("expected a name, found " + std::string(name));
  }
  return name;
}

uint64_t Parser::TakeNumber() {
  const std::string_view text = Take().text;
  const std::optional<uint64_t> value = Number(text);
  if (!value) Stop("expected a number, found " + std::string(text));
  return *value;
}

uint64_t Parser::TakeSignedNumber() {
  const bool negative = TakeIf("-");
  const uint64_t value = TakeNumber();
  return negative ? 0 - value : value;
}

std::unique_ptr<Module> Parser::Parse() {
  ParseHead();
  while (!Next().text.empty()) ParseTopLevel();
  ResolveCalls();
  return std::move(module_);
}

void Parser::ParseHead() {
  operation_ = ".version";
  Expect(".version");
  const std::string version(Take().text);
  if (version.size() != 3 || version > kNewestVersion) {
    Stop("version " + version + " is newer than 9.0, the newest that is known");
  }
  operation_ = ".target";
  Expect(".target");
  const std::string target(Take().text);
  if (target.rfind("sm_", 0) != 0) Stop("target " + target + " is not known");
  operation_ = ".address_size";
  Expect(".address_size");
  if (TakeNumber() != 64) Stop("only 64 is known");
}

void Parser::ParseTopLevel() {
  operation_ = std::string(Next().text);
  bool is_extern = false;
  while (true) {
    const std::string_view word = Take().text;
    operation_ = std::string(word);
    if (word == ".visible" || word == ".weak") continue;
    if (word == ".extern") {
      is_extern = true;
      continue;
    }
    if (word == ".file") return ParseSourceFile();
    if (word == ".section") return SkipSection();
    if (word == ".entry") return ParseFunction(true);
    if (word == ".func" && !is_extern) return ParseFunction(false);
    if (word == ".shared") return ParseShared();
    Stop("this directive is not known");
  }
}

void Parser::ParseSourceFile() {
  const uint64_t number = TakeNumber();
  std::string_view name = Take().text;
  if (number > 1 << 16 || name.size() < 2 || name.front() != '"') Stop("expected a file's name");
  name = name.substr(1, name.size() - 2);
  if (module_->source_files.size() <= number) module_->source_files.resize(number + 1);
  module_->source_files[number] = std::string(name);
  while (TakeIf(",")) TakeNumber();  // time and size
}

void Parser::SkipSection() {
  Take();
  Expect("{");
  while (!TakeIf("}")) Take();
}

Parser::Declared Parser::ParseDeclared() {
  Declared declared;
  declared.align = 0;
  if (TakeIf(".align")) {
    declared.align = static_cast<uint32_t>(TakeNumber());
  }
  const std::string_view type = Take().text;
  declared.type_bits = TypeBits(type);
  if (declared.type_bits < 8) Stop("the type " + std::string(type) + " is not known");
  // .param .u64 .ptr .global .align 16 name
  if (TakeIf(".ptr")) {
    for (const char* space : {".global", ".const", ".shared", ".local"}) {
      if (TakeIf(space)) break;
    }
    if (TakeIf(".align")) TakeNumber();
  }
  declared.name = TakeName();
  declared.bytes = declared.type_bits / 8;
  while (TakeIf("[")) {
    if (TakeIf("]")) {
      declared.is_open = true;
      continue;
    }
    declared.bytes *= TakeNumber();
    if (declared.bytes > kMaxBytes) Stop("the size is not known");
    Expect("]");
  }
  if (declared.align == 0) declared.align = declared.type_bits / 8;
  return declared;
}

// Of a size that the launch chooses. All such names stand for one place.
void Parser::ParseShared() {
  const Declared declared = ParseDeclared();
  if (!declared.is_open) Stop("shared memory of a fixed size is not known");
  Expect(";");
  Place place;
  place.space = Space::kShared;
  place.address = kSharedBase;
  scopes_[0].places[declared.name] = place;
}

void Parser::ParseParameters(bool is_entry, std::vector<std::pair<uint32_t, uint32_t>>* list) {
  if (!TakeIf("(")) return;
  while (!TakeIf(")")) {
    Expect(".param");
    const Declared declared = ParseDeclared();
    if (declared.is_open) Stop("the size is not known");
    uint32_t& end = is_entry ? function_->entry_bytes : function_->frame_bytes;
    const uint64_t begin = RoundUp(end, std::max(declared.align, is_entry ? 1u : 16u));
    end = static_cast<uint32_t>(begin + declared.bytes);
    Place place;
    place.space = is_entry ? Space::kEntryParam : Space::kLocal;
    place.address = begin;
    place.bytes = static_cast<uint32_t>(declared.bytes);
    list->push_back({static_cast<uint32_t>(begin), place.bytes});
    scopes_.back().places[declared.name] = place;
    TakeIf(",");
  }
}

void Parser::ParseEntryDirectives() {
  while (!Next().Is("{") && !Next().Is(";")) {
    const std::string_view word = Take().text;
    operation_ = std::string(word);
    if (word == ".maxntid") {
      uint64_t threads = TakeNumber();
      while (TakeIf(",")) threads *= TakeNumber();
      function_->max_threads = static_cast<uint32_t>(threads);
    } else if (word == ".minnctapersm") {
      function_->min_blocks = static_cast<uint32_t>(std::min<uint64_t>(TakeNumber(), 64));
    } else if (word == ".pragma") {
      Take();
      Expect(";");
    } else if (word != ".noinline") {
      Stop("this directive is not known");
    }
  }
}

void Parser::ParseFunction(bool is_entry) {
  auto made = std::make_unique<Function>();
  function_ = made.get();
  function_->is_entry = is_entry;
  function_->line = Next().line;
  scopes_.resize(1);
  scopes_.emplace_back();
  labels_.clear();
  jumps_.clear();
  constants_.clear();
  wide_constants_.clear();
  predicate_constants_[0] = predicate_constants_[1] = kNoSlot;
  source_file_ = source_line_ = 0;
  while (TakeIf(".noinline")) {
  }
  if (!is_entry) ParseParameters(false, &function_->results);
  function_->name = std::string(TakeName());
  operation_ = (is_entry ? ".entry " : ".func ") + function_->name;
  ParseParameters(is_entry, &function_->parameters);
  ParseEntryDirectives();
  if (TakeIf(";")) return;  // declared only
  operation_ = (is_entry ? ".entry " : ".func ") + function_->name;
  Expect("{");
  ParseBody();
  operation_ = (is_entry ? ".entry " : ".func ") + function_->name;
  ResolveJumps();
  if (function_->code.empty()) Stop("it has no instructions");
  const Instruction& last = function_->code.back();
  const bool ends =
      last.guard == kNoSlot &&
      (last.kind == Kind::kReturn || last.kind == Kind::kBranch || last.kind == Kind::kTrap);
  if (!ends) Stop("its last instruction does not end it");
  if (!function_numbers_.emplace(function_->name, static_cast<uint32_t>(module_->functions.size()))
           .second) {
    Stop("declared twice");
  }
  module_->functions.push_back(std::move(made));
}

void Parser::ParseBody() {
  size_t depth = 1;
  while (depth != 0) {
    const Token& token = Take();
    operation_ = std::string(token.text);
    if (token.Is("{")) {
      scopes_.emplace_back();
      ++depth;
    } else if (token.Is("}")) {
      scopes_.pop_back();
      --depth;
    } else if (token.Is(".reg")) {
      ParseRegisters();
    } else if (token.Is(".local") || token.Is(".param")) {
      ParseFrame();
    } else if (token.Is(".loc")) {
      ParseLocation();
    } else if (token.Is(".pragma")) {
      Take();
      Expect(";");
    } else if (Next().Is(":")) {
      ++at_;
      if (!labels_.emplace(token.text, function_->code.size()).second) Stop("a second such label");
    } else {
      --at_;
      ParseInstruction();
    }
  }
}

void Parser::ParseRegisters() {
  const std::string_view type = Take().text;
  const uint32_t bits = TypeBits(type);
  if (bits == 0) Stop("the type " + std::string(type) + " is not known");
  do {
    const std::string_view name = TakeName();
    if (TakeIf("<")) {
      const uint64_t count = TakeNumber();
      Expect(">");
      Family family;
      family.slot = function_->slots;
      family.bits = bits;
      family.count = static_cast<uint32_t>(count);
      function_->slots += family.count * (bits == 64 ? 2 : 1);
      scopes_.back().families[name] = family;
    } else {
      Register one;
      one.slot = NewSlot(bits);
      one.bits = bits;
      scopes_.back().registers[name] = one;
    }
    if (function_->slots > kMaxRegisters) Stop("too many registers");
  } while (TakeIf(","));
  Expect(";");
}

// Memory of each thread.
void Parser::ParseFrame() {
  const Declared declared = ParseDeclared();
  if (declared.is_open) Stop("the size is not known");
  Place place;
  place.bytes = static_cast<uint32_t>(declared.bytes);
  place.space = Space::kLocal;
  const uint64_t begin = RoundUp(function_->frame_bytes, std::max(declared.align, 16u));
  function_->frame_bytes = static_cast<uint32_t>(begin + declared.bytes);
  place.address = begin;
  scopes_.back().places[declared.name] = place;
  Expect(";");
}

// .loc FILE LINE COLUMN [, function_name LABEL [+ N], inlined_at FILE LINE COLUMN]
void Parser::ParseLocation() {
  source_file_ = static_cast<uint32_t>(TakeNumber());
  source_line_ = static_cast<uint32_t>(TakeNumber());
  TakeNumber();
  while (TakeIf(",")) {
    const std::string_view word = TakeName();
    if (word == "function_name") {
      TakeName();
      if (TakeIf("+")) TakeNumber();
    } else if (word == "inlined_at") {
      for (int i = 0; i < 3; ++i) TakeNumber();
    } else {
      Stop(std::string(word) + " is not known");
    }
  }
}

void Parser::ResolveJumps() {
  for (const Jump& jump : jumps_) {
    const auto label = labels_.find(jump.label.text);
    if (label == labels_.end() || label->second >= function_->code.size()) {
      throw Fault(module_->file + ":" + std::to_string(jump.label.line) + ": bra: there is no " +
                  "label " + std::string(jump.label.text) + " before an instruction");
    }
    function_->code[jump.instruction].offset = static_cast<int64_t>(label->second);
    function_->code[label->second].begins_block = true;
  }
  for (size_t i = 0; i + 1 < function_->code.size(); ++i) {
    const Kind kind = function_->code[i].kind;
    const bool leaves = kind == Kind::kBranch || kind == Kind::kReturn || kind == Kind::kCall;
    if (leaves) function_->code[i + 1].begins_block = true;
  }
}

void Parser::ResolveCalls() {
  for (Callee& callee : callees_) {
    const auto fail = [&](const std::string& what) {
      throw Fault(module_->file + ":" + std::to_string(callee.name.line) + ": call: " + what);
    };
    const auto number = function_numbers_.find(std::string(callee.name.text));
    if (number == function_numbers_.end()) {
      fail("the module has no function " + std::string(callee.name.text));
    }
    const Function& function = *module_->functions[number->second];
    Call& call = callee.caller->calls[callee.call];
    call.function = number->second;
    const auto copies = [&](const std::vector<Place>& here,
                            const std::vector<std::pair<uint32_t, uint32_t>>& there, bool back) {
      if (here.size() != there.size()) fail("another number of arguments than the function's");
      std::vector<FrameCopy> list;
      for (size_t i = 0; i < here.size(); ++i) {
        if (here[i].bytes != there[i].second) fail("an argument of another size");
        const auto place = static_cast<uint32_t>(here[i].address);
        list.push_back(back ? FrameCopy{there[i].first, place, here[i].bytes}
                            : FrameCopy{place, there[i].first, here[i].bytes});
      }
      return list;
    };
    if (function.is_entry) fail("a kernel cannot be called");
    call.arguments = copies(callee.arguments, function.parameters, false);
    call.results = copies(callee.results, function.results, true);
  }
}

uint32_t Parser::NewSlot(uint32_t bits) {
  const uint32_t slot = function_->slots;
  function_->slots += bits == 64 ? 2 : 1;
  return slot;
}

uint32_t Parser::Constant(uint64_t value, uint32_t bits) {
  if (bits == 1) {
    uint32_t& slot = predicate_constants_[value != 0 ? 1 : 0];
    if (slot == kNoSlot) {
      slot = NewSlot(1);
      function_->predicate_constants.push_back({slot, value != 0 ? kAllLanes : 0});
    }
    return slot;
  }
  if (bits < 32) value &= (uint64_t{1} << bits) - 1;
  if (bits == 32) value &= 0xFFFFFFFF;
  auto& known = bits == 64 ? wide_constants_ : constants_;
  const auto [entry, is_new] = known.emplace(value, 0);
  if (is_new) {
    entry->second = NewSlot(bits);
    (bits == 64 ? function_->wide_constants : function_->constants)
        .push_back({entry->second, value});
  }
  return entry->second;
}

// A register that holds an address.
uint32_t Parser::AddressOf(const Place& place, uint64_t plus, uint32_t bits) {
  if (place.space != Space::kLocal) return Constant(place.address + plus, bits);
  if (plus != 0) Stop("an address plus a number is not known here");
  if (bits != 64) Stop("an address in local memory takes 64 bits");
  const uint32_t slot = NewSlot(64);
  function_->frame_addresses.push_back({slot, static_cast<uint32_t>(place.address)});
  return slot;
}

std::optional<Register> Parser::FindRegister(std::string_view name) const {
  size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto one = scopes_[i].registers.find(name);
    if (one != scopes_[i].registers.end()) return one->second;
    if (digits == name.size() || scopes_[i].families.empty()) continue;
    const auto family = scopes_[i].families.find(name.substr(0, digits));
    if (family == scopes_[i].families.end()) continue;
    const auto number = Number(name.substr(digits));
    if (!number || *number >= family->second.count) return std::nullopt;
    Register found;
    found.bits = family->second.bits;
    found.slot = family->second.slot + static_cast<uint32_t>(*number) * (found.bits == 64 ? 2 : 1);
    return found;
  }
  return std::nullopt;
}

std::optional<Place> Parser::FindPlace(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto place = scopes_[i].places.find(name);
    if (place != scopes_[i].places.end()) return place->second;
  }
  return std::nullopt;
}

std::unique_ptr<Module> ParseModule(const std::string& file, const std::string& text) {
  return Parser(file, text).Parse();
}

}  // namespace l3::ptx
