// The table of opcodes with their modifiers, those that nvcc makes of the kernels and their nearest
// relatives: what is not in it is not known, and stops.
#include <algorithm>
#include <array>
#include <cfenv>
#include <functional>
#include <unordered_map>

#include "ptx/float_math.h"
#include "ptx/integer_math.h"
#include "ptx/lanes.h"
#include "ptx/program.h"

namespace l3::ptx {
namespace {

using Table = std::unordered_map<std::string, Operation>;

template <class T>
struct Type {
  using type = T;
};
template <class T>
constexpr uint8_t kBitsOf = static_cast<uint8_t>(8 * sizeof(T));

template <class Body>
void ForSigned(Body body) {
  body(".s16", Type<int16_t>());
  body(".s32", Type<int32_t>());
  body(".s64", Type<int64_t>());
}
template <class Body>
void ForUnsigned(Body body) {
  body(".u16", Type<uint16_t>());
  body(".u32", Type<uint32_t>());
  body(".u64", Type<uint64_t>());
}
template <class Body>
void ForIntegers(Body body) {
  ForSigned(body);
  ForUnsigned(body);
}
template <class Body>
void ForBits(Body body) {
  body(".b16", Type<uint16_t>());
  body(".b32", Type<uint32_t>());
  body(".b64", Type<uint64_t>());
}
// Also those of one byte, which conversions and memory have.
template <class Body>
void ForConverted(Body body) {
  ForIntegers(body);
  body(".s8", Type<int8_t>());
  body(".u8", Type<uint8_t>());
}
class Builder {
 public:
  Operation& Named(const std::string& name, Kind kind) {
    Operation& operation = table_[name];
    operation.name = name;
    operation.kind = kind;
    return operation;
  }

  template <class F, int kRounding, class D, class... S>
  Operation& Plain(const std::string& name) {
    Operation& operation = Named(name, Kind::kPlain);
    operation.lanes = LanesOf<kRounding, F, D, S...>;
    operation.sources = sizeof...(S);
    operation.d_bits = kBitsOf<D>;
    const std::array<uint8_t, sizeof...(S)> bits = {kBitsOf<S>...};
    for (size_t i = 0; i < bits.size(); ++i) operation.s_bits[i] = bits[i];
    return operation;
  }
  template <class F, class D, class... S>
  Operation& Whole(const std::string& name) {
    return Plain<F, FE_TONEAREST, D, S...>(name);
  }

  void AddIntegers();
  void AddBits();
  void AddFloats();
  void AddConversions();
  void AddComparisons();
  void AddMoves();
  void AddMemory();
  void AddAtomics();
  void AddControl();
  Table Take() { return std::move(table_); }

 private:
  template <class F, class S>
  void Compare(const std::string& ordering, const std::string& type);
  void Memory(const std::string& name, Kind kind, Space space);

  Table table_;
};

void Builder::AddIntegers() {
  ForIntegers([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<Add, T, T, T>("add" + type);
    Whole<Sub, T, T, T>("sub" + type);
    Whole<MulLow, T, T, T>("mul.lo" + type);
    Whole<MadLow, T, T, T, T>("mad.lo" + type);
    if constexpr (sizeof(T) < 8) {
      Whole<MulWide, Wide<T>, T, T>("mul.wide" + type);
      Whole<MadWide, Wide<T>, T, T, Wide<T>>("mad.wide" + type);
    }
    if constexpr (std::is_unsigned_v<T>) Whole<Div, T, T, T>("div" + type);
    if constexpr (std::is_unsigned_v<T>) Whole<Rem, T, T, T>("rem" + type);
    Whole<Min, T, T, T>("min" + type);
    Whole<Max, T, T, T>("max" + type);
    Whole<ShiftRight, T, T, uint32_t>("shr" + type);
    if constexpr (std::is_signed_v<T>) Whole<Neg, T, T>("neg" + type);
    if constexpr (std::is_signed_v<T>) Whole<Abs, T, T>("abs" + type);
  });
  Whole<MinAboveZero, int32_t, int32_t, int32_t>("min.s32.relu");
}

void Builder::AddBits() {
  ForBits([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<std::bit_and<>, T, T, T>("and" + type);
    Whole<std::bit_or<>, T, T, T>("or" + type);
    Whole<std::bit_xor<>, T, T, T>("xor" + type);
    Whole<std::bit_not<>, T, T>("not" + type);
    Whole<ShiftLeft, T, T, uint32_t>("shl" + type);
    if constexpr (sizeof(T) > 2) {
      Whole<CountOnes, uint32_t, T>("popc" + type);
      Whole<InsertField, T, T, T, uint32_t, uint32_t>("bfi" + type);
    }
  });
  using U = uint32_t;
  Whole<Logic3, U, U, U, U, U>("lop3.b32");
  Whole<MulHigh, U, U, U>("mul.hi.u32");
  Whole<CountLeadingZeros, U, U>("clz.b32");
  Whole<ExtractField, U, U, U, U>("bfe.u32");
  Whole<Funnel<true, false>, U, U, U, U>("shf.l.wrap.b32");
  Whole<Funnel<false, true>, U, U, U, U>("shf.r.clamp.b32");
  Whole<Funnel<false, false>, U, U, U, U>("shf.r.wrap.b32");
  Whole<Permute, U, U, U, U>("prmt.b32");
  Whole<PackBytes<0, 255>, U, int32_t, int32_t, U>("cvt.pack.sat.u8.s32.b32");
  Whole<PackBytes<-128, 127>, U, int32_t, int32_t, U>("cvt.pack.sat.s8.s32.b32");
  Whole<PackHalves, U, int32_t, int32_t>("cvt.pack.sat.s16.s32");
  Whole<Dot4<uint8_t>, U, U, U, U>("dp4a.u32.u32");
  Whole<Dot4<int8_t>, U, U, U, U>("dp4a.u32.s32");
  Whole<Dot2<uint8_t, false>, U, U, U, U>("dp2a.lo.u32.u32");
  Whole<Dot2<int8_t, false>, U, U, U, U>("dp2a.lo.u32.s32");
  Whole<Dot2<uint8_t, true>, U, U, U, U>("dp2a.hi.u32.u32");
  Whole<Dot2<int8_t, true>, U, U, U, U>("dp2a.hi.u32.s32");
  Whole<ByteDifferences, U, U, U, U>("vabsdiff4.u32.u32.u32");
  const std::pair<const char*, Choice> logic[] = {{"and", Choice::kAnd},
                                                  {"or", Choice::kOr},
                                                  {"xor", Choice::kXor},
                                                  {"not", Choice::kNot},
                                                  {"mov", Choice::kMov}};
  for (const auto& [name, choice] : logic) {
    Operation& operation = Named(std::string(name) + ".pred", Kind::kPredicate);
    operation.choice = choice;
    operation.sources = choice == Choice::kNot || choice == Choice::kMov ? 1 : 2;
    operation.d_bits = operation.s_bits[0] = operation.s_bits[1] = 1;
  }
}

void Builder::AddFloats() {
  const auto arithmetic = [&](const std::string& rounding, auto mode) {
    constexpr int kMode = decltype(mode)::value;
    Plain<FloatAdd, kMode, float, float, float>("add" + rounding + ".f32");
    Plain<FloatMul, kMode, float, float, float>("mul" + rounding + ".f32");
  };
  arithmetic("", std::integral_constant<int, FE_TONEAREST>());
  arithmetic(".rn", std::integral_constant<int, FE_TONEAREST>());
  arithmetic(".rz", std::integral_constant<int, FE_TOWARDZERO>());
  Whole<FloatFma, float, float, float, float>("fma.rn.f32");
  Whole<FloatNeg, float, float>("neg.f32");
  Whole<CopySign, float, float, float>("copysign.f32");
}

void Builder::AddConversions() {
  const auto add = [](Operation& operation) { operation.any_width = true; };
  ForConverted([&](const std::string& d_type, auto d_tag) {
    using D = typename decltype(d_tag)::type;
    ForConverted([&](const std::string& s_type, auto s_tag) {
      using S = typename decltype(s_tag)::type;
      add(Whole<Convert<D>, D, S>("cvt" + d_type + s_type));
    });
    add(Plain<FloatToInt<D>, FE_TOWARDZERO, D, float>("cvt.rzi" + d_type + ".f32"));
    add(Whole<IntToFloat, float, D>("cvt.rn.f32" + d_type));
  });
  Plain<FloatToWhole, FE_TOWARDZERO, float, float>("cvt.rzi.f32.f32");
  add(Whole<ToHalf, Half, float>("cvt.rn.f16.f32"));
  Whole<ToHalfPair, uint32_t, float, float>("cvt.rn.f16x2.f32");
}

template <bool kNot, bool kSwap, class F>
struct Derived {  // of == or <
  template <class T>
  bool operator()(T a, T b) const {
    return (kSwap ? F()(b, a) : F()(a, b)) != kNot;
  }
};

template <class F, class S>
void Builder::Compare(const std::string& ordering, const std::string& type) {
  Operation& operation = Named("setp." + ordering + type, Kind::kCompare);
  operation.compare = CompareLanes<F, S>;
  operation.sources = 2;
  operation.d_bits = 1;
  operation.s_bits[0] = operation.s_bits[1] = kBitsOf<S>;
}

void Builder::AddComparisons() {
  const auto equality = [&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Compare<std::equal_to<>, T>("eq", type);
    Compare<Derived<true, false, std::equal_to<>>, T>("ne", type);
  };
  const auto order = [&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Compare<std::less<>, T>("lt", type);
    Compare<Derived<true, true, std::less<>>, T>("le", type);
    Compare<Derived<false, true, std::less<>>, T>("gt", type);
    Compare<Derived<true, false, std::less<>>, T>("ge", type);
  };
  ForIntegers(equality);
  ForIntegers(order);
  ForBits(equality);
  // Of floats: false where one is NaN; with u the opposite of such a comparison, true there.
  Compare<std::equal_to<>, float>("eq", ".f32");
  Compare<std::less_equal<>, float>("le", ".f32");
  Compare<Derived<false, true, std::less_equal<>>, float>("ge", ".f32");
  Compare<Derived<true, true, std::less<>>, float>("leu", ".f32");
  Compare<FloatIsNan, float>("nan", ".f32");
}

void Builder::AddMoves() {
  const auto move = [&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<Copy, T, T>("mov" + type);
    Operation& select = Named("selp" + type, Kind::kSelect);
    select.sources = 3;
    select.d_bits = select.s_bits[0] = select.s_bits[1] = kBitsOf<T>;
    select.s_bits[2] = 1;
  };
  ForIntegers(move);
  ForBits(move);
  move(".f32", Type<uint32_t>());
  for (const auto& [name, space] : {std::pair{".global", Space::kGlobal},
                                    {".shared", Space::kShared},
                                    {".local", Space::kLocal}}) {
    for (const bool to : {false, true}) {
      Operation& operation =
          Named(std::string("cvta") + (to ? ".to" : "") + name + ".u64", Kind::kAddress);
      operation.choice = to ? Choice::kFromGeneric : Choice::kToGeneric;
      operation.space = space;
      operation.sources = 1;
      operation.d_bits = operation.s_bits[0] = 64;
    }
  }
}

// With all types, vectors and hints. Hints say where to cache, which changes no value.
void Builder::Memory(const std::string& name, Kind kind, Space space) {
  struct Element {
    const char* type;
    uint8_t bytes;
    bool is_signed;
  };
  const Element elements[] = {{".b8", 1, false},  {".u8", 1, false},  {".s8", 1, true},
                              {".b16", 2, false}, {".u16", 2, false}, {".s16", 2, true},
                              {".b32", 4, false}, {".u32", 4, false}, {".s32", 4, true},
                              {".f32", 4, false}, {".b64", 8, false}, {".u64", 8, false},
                              {".s64", 8, true},  {".f64", 8, false}};
  const std::pair<const char*, uint8_t> vectors[] = {{"", 1}, {".v2", 2}, {".v4", 4}};
  for (const Element& element : elements) {
    for (const auto& [vector, count] : vectors) {
      if (count * element.bytes > 16) continue;
      Operation& operation = Named(name + vector + element.type, kind);
      operation.space = space;
      operation.any_width = true;
      operation.bytes = element.bytes;
      operation.vector = count;
      operation.is_signed = element.is_signed;
    }
  }
}

void Builder::AddMemory() {
  Memory("ld", Kind::kLoad, Space::kGeneric);
  Memory("ld.param", Kind::kLoad, Space::kEntryParam);
  Memory("st", Kind::kStore, Space::kGeneric);
  Memory("st.param", Kind::kStore, Space::kEntryParam);
  for (const auto& [space_name, space] : {std::pair{".global", Space::kGlobal},
                                          {".shared", Space::kShared},
                                          {".local", Space::kLocal}}) {
    Memory(std::string("ld") + space_name, Kind::kLoad, space);
    Memory(std::string("st") + space_name, Kind::kStore, space);
  }
  Memory("st.global.L1::no_allocate", Kind::kStore, Space::kGlobal);
  Memory("ld.global.nc", Kind::kLoad, Space::kGlobalNc);
  Memory("ld.global.nc.L1::evict_last", Kind::kLoad, Space::kGlobalNc);
}

void Builder::AddAtomics() {
  Operation& least = Named("atom.global.min.u64", Kind::kAtomic);
  least.space = Space::kGlobal;
  least.bytes = 8;
  least.sources = 1;
  least.d_bits = least.s_bits[0] = 64;
}

void Builder::AddControl() {
  for (const char* name : {"bra", "bra.uni"}) Named(name, Kind::kBranch);
  for (const char* name : {"call", "call.uni"}) Named(name, Kind::kCall);
  for (const char* name : {"ret", "ret.uni", "exit"}) Named(name, Kind::kReturn);
  Named("trap", Kind::kTrap);
  Named("bar.sync", Kind::kBlockBarrier);
  Operation& warp = Named("bar.warp.sync", Kind::kWarpBarrier);
  warp.sources = 1;
  warp.s_bits[0] = 32;

  // The mask of members is the last source of each.
  const std::pair<const char*, Choice> shuffles[] = {
      {"up", Choice::kUp}, {"down", Choice::kDown}, {"idx", Choice::kIndex}};
  for (const auto& [name, choice] : shuffles) {
    Operation& operation = Named(std::string("shfl.sync.") + name + ".b32", Kind::kShuffle);
    operation.choice = choice;
    operation.sources = 4;
    operation.d_bits = 32;
    for (uint8_t& bits : operation.s_bits) bits = 32;
  }
  Operation& ballot = Named("vote.sync.ballot.b32", Kind::kVote);
  ballot.sources = 2;
  ballot.d_bits = ballot.s_bits[1] = 32;
  ballot.s_bits[0] = 1;
  Operation& sum = Named("redux.sync.add.u32", Kind::kRedux);
  sum.sources = 2;
  sum.d_bits = sum.s_bits[0] = sum.s_bits[1] = 32;
}

const Table& Operations() {
  // Never destroyed: kernels may run while the process ends.
  static const Table& table = *new Table([] {
    Builder builder;
    builder.AddIntegers();
    builder.AddBits();
    builder.AddFloats();
    builder.AddConversions();
    builder.AddComparisons();
    builder.AddMoves();
    builder.AddMemory();
    builder.AddAtomics();
    builder.AddControl();
    return builder.Take();
  }());
  return table;
}

}  // namespace

const Operation* FindOperation(const std::string& name) {
  const auto found = Operations().find(name);
  return found == Operations().end() ? nullptr : &found->second;
}

}  // namespace l3::ptx
