// The second half of the parser: instructions and their operands.
#include "ptx/parser.h"

namespace l3::ptx {
namespace {

std::optional<Special> SpecialRegister(std::string_view name) {
  constexpr std::pair<const char*, Special> kSpecials[] = {
      {"%tid.x", Special::kTidX},     {"%tid.y", Special::kTidY},
      {"%ntid.x", Special::kNtidX},   {"%ntid.y", Special::kNtidY},
      {"%ctaid.x", Special::kCtaidX}, {"%nctaid.x", Special::kNctaidX},
      {"%laneid", Special::kLaneId},  {"%lanemask_lt", Special::kMaskLt}};
  for (const auto& [text, special] : kSpecials) {
    if (name == text) return special;
  }
  return std::nullopt;
}

}  // namespace

uint32_t Parser::TakeDestination(uint32_t bits, bool any_width) {
  const std::string_view name = Take().text;
  const auto found = FindRegister(name);
  if (!found) Stop("there is no register " + std::string(name));
  const bool fits =
      any_width ? found->bits >= bits && (found->bits == 64) == (bits == 64) : found->bits == bits;
  if (!fits) Stop(std::string(name) + " has " + std::to_string(found->bits) + " bits");
  return found->slot;
}

uint32_t Parser::TakeSource(uint32_t bits, bool any_width) {
  if (bits == 1) return TakePredicateSource();
  if (const auto found = FindRegister(Next().text)) return TakeDestination(bits, any_width);
  if (Next().Is("-")) return Constant(TakeSignedNumber(), bits);
  const std::string_view word = Take().text;
  if (const auto value = Number(word)) return Constant(*value, bits);
  const auto place = FindPlace(word);
  if (!place) Stop("there is no register " + std::string(word));
  const uint64_t plus = TakeIf("+") ? TakeNumber() : 0;
  if (bits < 32) Stop("an address takes 32 or 64 bits");
  return AddressOf(*place, plus, bits);
}

uint32_t Parser::TakePredicateSource() {
  TakeIf("-");  // -1 is true too
  const std::string_view word = Take().text;
  uint32_t slot = 0;
  if (const auto found = FindRegister(word)) {
    if (found->bits != 1) Stop(std::string(word) + " is no predicate");
    slot = found->slot;
  } else if (const auto value = Number(word)) {
    slot = Constant(*value, 1);
  } else {
    Stop("there is no predicate " + std::string(word));
  }
  return slot;
}

// Of a vector: a register, which may be wider than the type; or _, which drops the value.
uint32_t Parser::TakeElement(uint32_t bits, bool is_source, bool* wide) {
  if (!is_source && TakeIf("_")) {
    *wide = bits == 64;
    return NewSlot(bits);
  }
  const auto found = FindRegister(Next().text);
  if (!found) {
    if (!is_source) Stop("there is no register " + std::string(Next().text));
    *wide = bits == 64;
    return TakeSource(bits);
  }
  ++at_;
  if (found->bits == 1 || found->bits < bits) {
    Stop(std::string(tokens_[at_ - 1].text) + " has " + std::to_string(found->bits) + " bits");
  }
  *wide = found->bits == 64;
  return found->slot;
}

void Parser::ParseInstruction() {
  Instruction in;
  in.line = Next().line;
  in.source_file = source_file_;
  in.source_line = source_line_;
  if (TakeIf("@")) {
    in.guard_negated = TakeIf("!");
    const std::string_view name = Take().text;
    const auto found = FindRegister(name);
    if (!found || found->bits != 1) Stop("there is no predicate " + std::string(name));
    in.guard = found->slot;
  }
  operation_ = std::string(Take().text);
  in.operation = FindOperation(operation_);
  if (in.operation == nullptr) Stop("this operation is not known");
  in.kind = in.operation->kind;
  in.space = in.operation->space;
  in.vector = in.operation->vector;
  ParseOperands(&in);
  Expect(";");
  function_->code.push_back(in);
}

void Parser::ParseOperands(Instruction* in) {
  const Operation& operation = *in->operation;
  switch (in->kind) {
    case Kind::kTrap:
    case Kind::kReturn: return;
    case Kind::kCall: return ParseCall(in);
    case Kind::kLoad:
    case Kind::kStore: return ParseMemory(in);
    case Kind::kAtomic: return ParseAtomic(in);
    case Kind::kBranch:
      TakeName();
      jumps_.push_back({function_->code.size(), tokens_[at_ - 1]});
      return;
    case Kind::kBlockBarrier:
      if (TakeNumber() != 0) Stop("barriers but 0 are not known");
      if (Next().Is(",")) Stop("barriers of some threads are not known");
      return;
    default: break;
  }
  if (operation.name.rfind("mov.", 0) == 0 && in->kind == Kind::kPlain) return ParseMove(in);
  bool is_first = true;
  if (operation.d_bits != 0) {
    in->d[0] = TakeDestination(operation.d_bits, operation.any_width);
    if (in->kind == Kind::kShuffle && TakeIf("|")) {
      in->d[1] = TakeDestination(1);
      in->has_second = true;
    }
    is_first = false;
  }
  for (uint32_t i = 0; i < operation.sources; ++i) {
    if (!is_first) Expect(",");
    is_first = false;
    in->s[i] = TakeSource(operation.s_bits[i], operation.any_width);
  }
}

void Parser::ParseMove(Instruction* in) {
  const uint32_t bits = in->operation->d_bits;
  const auto elements = [&](bool is_source) {
    uint32_t* slots = is_source ? in->s : in->d;
    uint8_t* wides = is_source ? &in->wide_source : &in->wide;
    uint32_t count = 0;
    // The size of an element follows from their number.
    size_t ahead = at_;
    for (count = 1; !tokens_[ahead].Is("}") && !tokens_[ahead].text.empty(); ++ahead) {
      if (tokens_[ahead].Is(",")) ++count;
    }
    if ((count != 2 && count != 4) || bits / count < 8) Stop("such vectors are not known");
    for (uint32_t i = 0; i < count; ++i) {
      if (i != 0) Expect(",");
      bool wide = false;
      slots[i] = TakeElement(bits / count, is_source, &wide);
      if (wide) *wides = static_cast<uint8_t>(*wides | 1u << i);
    }
    Expect("}");
    in->vector = static_cast<uint8_t>(count);
  };
  if (TakeIf("{")) {
    in->kind = Kind::kUnpack;
    elements(false);
    Expect(",");
    in->s[0] = TakeSource(bits);
    if (bits == 64) in->wide_source = 1;
    return;
  }
  in->d[0] = TakeDestination(bits);
  if (bits == 64) in->wide = 1;
  Expect(",");
  if (TakeIf("{")) {
    in->kind = Kind::kPack;
    elements(true);
    return;
  }
  if (const auto special = SpecialRegister(Next().text)) {
    ++at_;
    if (bits != 32) Stop("special registers have 32 bits");
    in->kind = Kind::kSpecial;
    in->offset = static_cast<int64_t>(*special);
    return;
  }
  in->s[0] = TakeSource(bits);
}

void Parser::ParseAddress(Instruction* in) {
  Expect("[");
  const std::string_view word = Take().text;
  bool is_register = false;
  if (const auto found = FindRegister(word)) {
    if (found->bits < 32) Stop(std::string(word) + " is no address");
    in->address = found->slot;
    in->wide_address = found->bits == 64;
    is_register = true;
  } else if (const auto place = FindPlace(word)) {
    const bool is_param = in->space == Space::kEntryParam;
    const bool same = place->space == in->space || in->space == Space::kGeneric ||
                      (is_param && place->space == Space::kLocal);
    if (!same) Stop(std::string(word) + " lies in another space");
    if (in->space == Space::kGeneric) Stop("a name as generic address is not known");
    if (is_param) in->space = place->space;
    if (in->space == Space::kLocal || in->space == Space::kEntryParam) {
      in->offset = static_cast<int64_t>(place->address);
    } else {
      in->address = AddressOf(*place, 0, 64);
    }
  } else if (const auto value = Number(word)) {
    in->address = Constant(*value, 64);
  } else {
    Stop("there is no register " + std::string(word));
  }
  if (in->space == Space::kEntryParam && is_register && !function_->is_entry) {
    Stop("a parameter at an address is not known");
  }
  if (TakeIf("+")) {
    in->offset += static_cast<int64_t>(TakeSignedNumber());
  } else if (Next().Is("-")) {
    in->offset += static_cast<int64_t>(TakeSignedNumber());
  }
  Expect("]");
}

void Parser::ParseMemory(Instruction* in) {
  const bool is_store = in->kind == Kind::kStore;
  const uint32_t bits = 8u * in->operation->bytes;
  const auto values = [&] {
    const bool is_vector = TakeIf("{");
    if (is_vector != (in->vector > 1)) Stop("the vector has another length");
    for (uint32_t i = 0; i < in->vector; ++i) {
      if (i != 0) Expect(",");
      bool wide = false;
      in->d[i] = TakeElement(bits, is_store, &wide);
      if (wide) in->wide = static_cast<uint8_t>(in->wide | 1u << i);
    }
    if (is_vector) Expect("}");
  };
  if (is_store) {
    ParseAddress(in);
    Expect(",");
    values();
    if (in->space == Space::kEntryParam) Stop("a kernel's parameters cannot be written");
  } else {
    values();
    Expect(",");
    ParseAddress(in);
  }
}

void Parser::ParseAtomic(Instruction* in) {
  const Operation& operation = *in->operation;
  in->d[0] = TakeIf("_") ? NewSlot(operation.d_bits) : TakeDestination(operation.d_bits);
  Expect(",");
  ParseAddress(in);
  Expect(",");
  in->s[0] = TakeSource(operation.s_bits[0]);
}

std::vector<Place> Parser::ParseArguments() {
  std::vector<Place> places;
  Expect("(");
  while (!TakeIf(")")) {
    const std::string_view name = TakeName();
    const auto place = FindPlace(name);
    if (!place || place->space != Space::kLocal) Stop("the argument is not known");
    places.push_back(*place);
    TakeIf(",");
  }
  return places;
}

void Parser::ParseCall(Instruction* in) {
  Callee callee;
  callee.caller = function_;
  if (Next().Is("(")) {
    callee.results = ParseArguments();
    Expect(",");
  }
  TakeName();
  callee.name = tokens_[at_ - 1];
  if (TakeIf(",")) callee.arguments = ParseArguments();
  callee.call = function_->calls.size();
  in->call = static_cast<uint32_t>(callee.call);
  function_->calls.emplace_back();
  callees_.push_back(std::move(callee));
}

}  // namespace l3::ptx
