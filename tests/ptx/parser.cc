// Reads PTX as nvcc writes it. What it does not know it names and stops: nothing is guessed.
#include "ptx/parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace l3::ptx {
namespace {

constexpr uint32_t kNewestVersion = 90;  // PTX 9.0, of CUDA 13.0
constexpr uint32_t kTargets[] = {70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
constexpr uint64_t kMaxVariableBytes = 1 << 24;
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
    } else if (kind == 'b') {
      base = 2;
      text.remove_prefix(2);
    }
  }
  if (base == 10 && text.size() > 1 && text[0] == '0') base = 8;
  if (!text.empty() && text.back() == 'U') text.remove_suffix(1);
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
  ParseVersion();
  ParseTarget();
  operation_ = ".address_size";
  Expect(".address_size");
  if (TakeNumber() != 64) Stop("only 64 is known");
  while (!Next().text.empty()) ParseTopLevel();
  ResolveCalls();
  return std::move(module_);
}

void Parser::ParseVersion() {
  operation_ = ".version";
  Expect(".version");
  const std::string version(Take().text);
  const size_t dot = version.find('.');
  const auto major = Number(version.substr(0, dot));
  const auto minor = dot == std::string::npos ? std::nullopt : Number(version.substr(dot + 1));
  if (!major || !minor || *minor > 9) Stop(version + " is no version");
  module_->version = static_cast<uint32_t>(*major * 10 + *minor);
  if (*major > 99 || module_->version > kNewestVersion) {
    Stop("version " + version + " is newer than 9.0, the newest that is known");
  }
}

void Parser::ParseTarget() {
  operation_ = ".target";
  Expect(".target");
  const std::string target(Take().text);
  const auto number = target.rfind("sm_", 0) == 0 ? Number(target.substr(3)) : std::nullopt;
  if (!number ||
      std::find(std::begin(kTargets), std::end(kTargets), *number) == std::end(kTargets)) {
    Stop("target " + target + " is not known");
  }
  module_->target = static_cast<uint32_t>(*number);
  if (Next().Is(",")) Stop("options of a target are not known");
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
    if (word == ".global") return ParseVariable(Space::kGlobal, is_extern);
    if (word == ".const") return ParseVariable(Space::kConst, is_extern);
    if (word == ".shared") return ParseVariable(Space::kShared, is_extern);
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
  bool has_align = false;
  if (TakeIf(".align")) {
    const uint64_t align = TakeNumber();
    if (align == 0 || align > 4096 || (align & (align - 1)) != 0)
      Stop("the alignment is not known");
    declared.align = static_cast<uint32_t>(align);
    has_align = true;
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
    const uint64_t count = TakeNumber();
    if (count == 0 || count > kMaxVariableBytes) Stop("the size is not known");
    declared.bytes *= count;
    if (declared.bytes > kMaxVariableBytes) Stop("the size is not known");
    Expect("]");
  }
  if (!has_align) declared.align = declared.type_bits / 8;
  return declared;
}

std::vector<uint8_t> Parser::ParseValue(uint32_t type_bits) {
  std::vector<uint8_t> bytes;
  const auto add = [&] {
    const uint64_t value = TakeSignedNumber();
    for (uint32_t i = 0; i < type_bits / 8; ++i) {
      bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
    }
  };
  if (!TakeIf("{")) {
    add();
    return bytes;
  }
  while (!TakeIf("}")) {
    if (bytes.size() > kMaxVariableBytes) Stop("the value is too long");
    if (TakeIf("{")) Stop("values in values are not known");
    add();
    TakeIf(",");
  }
  return bytes;
}

void Parser::ParseVariable(Space space, bool is_extern) {
  const Declared declared = ParseDeclared();
  Place place;
  place.space = space;
  place.bytes = static_cast<uint32_t>(declared.bytes);
  if (space == Space::kShared) {
    if (is_extern && declared.is_open) {
      place.is_dynamic = true;
    } else {
      shared_bytes_ = static_cast<uint32_t>(RoundUp(shared_bytes_, declared.align));
      place.address = kSharedBase + shared_bytes_;
      shared_bytes_ += place.bytes;
    }
  } else {
    if (is_extern || declared.is_open) Stop("memory of other modules is not known");
    Variable variable;
    variable.name = std::string(declared.name);
    variable.is_constant = space == Space::kConst;
    variable.bytes = declared.bytes;
    if (TakeIf("=")) variable.value = ParseValue(declared.type_bits);
    if (variable.value.size() > variable.bytes) Stop("the value is longer than the variable");
    // Guard space on both sides, as other memory has it.
    constexpr size_t kGuard = 4096;
    const size_t room = RoundUp(variable.bytes, kGuard) + 2 * kGuard;
    uint8_t* memory = static_cast<uint8_t*>(std::aligned_alloc(kGuard, room));
    if (memory == nullptr) Stop("the host has no memory for it");
    std::memset(memory, 0, room);
    std::memcpy(memory + kGuard, variable.value.data(), variable.value.size());
    variable.storage = {memory + kGuard, [](uint8_t* p) { std::free(p - kGuard); }};
    place.address = reinterpret_cast<uint64_t>(variable.storage.get());
    module_->variables.push_back(std::move(variable));
  }
  Expect(";");
  if (!scopes_[0].places.emplace(declared.name, place).second) Stop("declared twice");
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
    if (word == ".maxntid" || word == ".reqntid") {
      uint64_t threads = TakeNumber();
      while (TakeIf(",")) threads *= TakeNumber();
      if (threads == 0 || threads > 1024) Stop("a block has no such threads");
      function_->max_threads = static_cast<uint32_t>(threads);
    } else if (word == ".minnctapersm") {
      function_->min_blocks = static_cast<uint32_t>(std::min<uint64_t>(TakeNumber(), 64));
    } else if (word == ".maxnreg") {
      TakeNumber();
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
  function_->shared_bytes = shared_bytes_;
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
  RankInstructions(function_);
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
    } else if (token.Is(".local") || token.Is(".param") || token.Is(".shared")) {
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
      if (count > kMaxRegisters) Stop("too many registers");
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

// Memory of each thread, or with .shared of each block.
void Parser::ParseFrame() {
  const bool is_shared = tokens_[at_ - 1].Is(".shared");
  const Declared declared = ParseDeclared();
  if (declared.is_open) Stop("the size is not known");
  if (is_shared && !function_->is_entry) Stop("shared memory of a function is not known");
  Place place;
  place.bytes = static_cast<uint32_t>(declared.bytes);
  place.space = is_shared ? Space::kShared : Space::kLocal;
  uint32_t& end = is_shared ? function_->shared_bytes : function_->frame_bytes;
  const uint64_t begin = RoundUp(end, std::max(declared.align, is_shared ? 1u : 16u));
  end = static_cast<uint32_t>(begin + declared.bytes);
  place.address = is_shared ? kSharedBase + begin : begin;
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
  const bool fixed = !place.is_dynamic && place.space != Space::kLocal;
  if (fixed) return Constant(place.address + plus, bits);
  if (plus != 0) Stop("an address plus a number is not known here");
  if (place.is_dynamic) {
    const uint32_t slot = NewSlot(bits);
    function_->dynamic_shared_addresses.push_back({slot, bits == 64});
    return slot;
  }
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
