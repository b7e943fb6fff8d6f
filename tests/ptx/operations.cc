// The table of all opcodes with their modifiers: what is not in it is not known, and stops.
#include <array>
#include <cfenv>
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
template <class Body>
void ForRoundings(Body body) {
  body(".rn", std::integral_constant<int, FE_TONEAREST>());
  body(".rz", std::integral_constant<int, FE_TOWARDZERO>());
  body(".rm", std::integral_constant<int, FE_DOWNWARD>());
  body(".rp", std::integral_constant<int, FE_UPWARD>());
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
    operation.is_float = (std::is_same_v<D, float> || ... || std::is_same_v<S, float>);
    return operation;
  }
  template <class F, class D, class... S>
  Operation& Whole(const std::string& name) {
    return Plain<F, FE_TONEAREST, D, S...>(name);
  }

  void AddIntegers();
  void AddBits();
  void AddPacked();
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
  void Compare(const std::string& ordering, const std::string& type, bool is_equality = false);
  template <bool kFlush, class Body>
  void FloatComparisons(const std::string& modifier);
  void Memory(const std::string& name, Kind kind, Space space);
  void Atomic(const std::string& operation, const std::string& type, Choice choice, uint8_t bytes,
              bool is_signed);

  Table table_;
};

void Builder::AddIntegers() {
  ForIntegers([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<Add, T, T, T>("add" + type);
    Whole<Sub, T, T, T>("sub" + type);
    Whole<MulLow, T, T, T>("mul.lo" + type);
    Whole<MulHigh, T, T, T>("mul.hi" + type);
    Whole<MadLow, T, T, T, T>("mad.lo" + type);
    Whole<MadHigh, T, T, T, T>("mad.hi" + type);
    if constexpr (sizeof(T) < 8) {
      Whole<MulWide, Wide<T>, T, T>("mul.wide" + type);
      Whole<MadWide, Wide<T>, T, T, Wide<T>>("mad.wide" + type);
    }
    Whole<SumOfDifferences, T, T, T, T>("sad" + type);
    Whole<Div, T, T, T>("div" + type);
    Whole<Rem, T, T, T>("rem" + type);
    Whole<Min, T, T, T>("min" + type);
    Whole<Max, T, T, T>("max" + type);
    Whole<ShiftRight, T, T, uint32_t>("shr" + type);
    if constexpr (sizeof(T) > 2) {
      Whole<ExtractField, T, T, uint32_t, uint32_t>("bfe" + type);
      Whole<FindHighest<false>, uint32_t, T>("bfind" + type);
      Whole<FindHighest<true>, uint32_t, T>("bfind.shiftamt" + type);
    }
  });
  ForSigned([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<Neg, T, T>("neg" + type);
    Whole<Abs, T, T>("abs" + type);
  });
  Whole<AddSaturated, int32_t, int32_t, int32_t>("add.sat.s32");
  for (const char* name : {"min.relu.s32", "min.s32.relu"}) {  // by the manual, and as nvcc has it
    Whole<Relu<Min>, int32_t, int32_t, int32_t>(name);
  }
  for (const char* name : {"max.relu.s32", "max.s32.relu"}) {
    Whole<Relu<Max>, int32_t, int32_t, int32_t>(name);
  }
  Whole<SubSaturated, int32_t, int32_t, int32_t>("sub.sat.s32");
}

void Builder::AddBits() {
  ForBits([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<And, T, T, T>("and" + type);
    Whole<Or, T, T, T>("or" + type);
    Whole<Xor, T, T, T>("xor" + type);
    Whole<Not, T, T>("not" + type);
    Whole<LogicalNot, T, T>("cnot" + type);
    Whole<ShiftLeft, T, T, uint32_t>("shl" + type);
    Whole<ShiftRight, T, T, uint32_t>("shr" + type);
    if constexpr (sizeof(T) > 2) {
      Whole<CountOnes, uint32_t, T>("popc" + type);
      Whole<CountLeadingZeros, uint32_t, T>("clz" + type);
      Whole<ReverseBits, T, T>("brev" + type);
      Whole<InsertField, T, T, T, uint32_t, uint32_t>("bfi" + type);
    }
  });
  Whole<Logic3, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>("lop3.b32");
  using U = uint32_t;
  Whole<Funnel<true, true>, U, U, U, U>("shf.l.clamp.b32");
  Whole<Funnel<true, false>, U, U, U, U>("shf.l.wrap.b32");
  Whole<Funnel<false, true>, U, U, U, U>("shf.r.clamp.b32");
  Whole<Funnel<false, false>, U, U, U, U>("shf.r.wrap.b32");
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

void Builder::AddPacked() {
  using U = uint32_t;
  Whole<Permute<Bytes::kAny>, U, U, U, U>("prmt.b32");
  Whole<Permute<Bytes::kForward4>, U, U, U, U>("prmt.b32.f4e");
  Whole<Permute<Bytes::kBackward4>, U, U, U, U>("prmt.b32.b4e");
  Whole<Permute<Bytes::kReplicate8>, U, U, U, U>("prmt.b32.rc8");
  Whole<Permute<Bytes::kClampLeft>, U, U, U, U>("prmt.b32.ecl");
  Whole<Permute<Bytes::kClampRight>, U, U, U, U>("prmt.b32.ecr");
  Whole<Permute<Bytes::kReplicate16>, U, U, U, U>("prmt.b32.rc16");
  Whole<Dot4<uint8_t, uint8_t>, U, U, U, U>("dp4a.u32.u32");
  Whole<Dot4<uint8_t, int8_t>, U, U, U, U>("dp4a.u32.s32");
  Whole<Dot4<int8_t, uint8_t>, U, U, U, U>("dp4a.s32.u32");
  Whole<Dot4<int8_t, int8_t>, U, U, U, U>("dp4a.s32.s32");
  Whole<Dot2<uint16_t, uint8_t, false>, U, U, U, U>("dp2a.lo.u32.u32");
  Whole<Dot2<uint16_t, int8_t, false>, U, U, U, U>("dp2a.lo.u32.s32");
  Whole<Dot2<int16_t, uint8_t, false>, U, U, U, U>("dp2a.lo.s32.u32");
  Whole<Dot2<int16_t, int8_t, false>, U, U, U, U>("dp2a.lo.s32.s32");
  Whole<Dot2<uint16_t, uint8_t, true>, U, U, U, U>("dp2a.hi.u32.u32");
  Whole<Dot2<uint16_t, int8_t, true>, U, U, U, U>("dp2a.hi.u32.s32");
  Whole<Dot2<int16_t, uint8_t, true>, U, U, U, U>("dp2a.hi.s32.u32");
  Whole<Dot2<int16_t, int8_t, true>, U, U, U, U>("dp2a.hi.s32.s32");
  Whole<ByteDifferences<false>, U, U, U, U>("vabsdiff4.u32.u32.u32");
  Whole<ByteDifferences<true>, U, U, U, U>("vabsdiff4.u32.u32.u32.add");
}

void Builder::AddFloats() {
  const auto with_modifiers = [&](const std::string& name, auto add) {
    add(name + ".f32", std::false_type(), std::false_type());
    add(name + ".ftz.f32", std::true_type(), std::false_type());
    add(name + ".sat.f32", std::false_type(), std::true_type());
    add(name + ".ftz.sat.f32", std::true_type(), std::true_type());
  };
  const auto arithmetic = [&](const std::string& rounding, auto mode) {
    constexpr int kMode = decltype(mode)::value;
    with_modifiers("add" + rounding, [&](const std::string& name, auto flush, auto saturate) {
      Plain<FloatAdd<flush.value, saturate.value>, kMode, float, float, float>(name);
    });
    with_modifiers("sub" + rounding, [&](const std::string& name, auto flush, auto saturate) {
      Plain<FloatSub<flush.value, saturate.value>, kMode, float, float, float>(name);
    });
    with_modifiers("mul" + rounding, [&](const std::string& name, auto flush, auto saturate) {
      Plain<FloatMul<flush.value, saturate.value>, kMode, float, float, float>(name);
    });
  };
  arithmetic("", std::integral_constant<int, FE_TONEAREST>());
  ForRoundings([&](const std::string& rounding, auto mode) {
    constexpr int kMode = decltype(mode)::value;
    arithmetic(rounding, mode);
    with_modifiers("fma" + rounding, [&](const std::string& name, auto flush, auto saturate) {
      Plain<FloatFma<flush.value, saturate.value>, kMode, float, float, float, float>(name);
    });
    Plain<FloatDiv<false, false>, kMode, float, float, float>("div" + rounding + ".f32");
    Plain<FloatDiv<true, false>, kMode, float, float, float>("div" + rounding + ".ftz.f32");
    Plain<FloatReciprocal<false, false>, kMode, float, float>("rcp" + rounding + ".f32");
    Plain<FloatReciprocal<true, false>, kMode, float, float>("rcp" + rounding + ".ftz.f32");
    Plain<FloatRoot<false, false>, kMode, float, float>("sqrt" + rounding + ".f32");
    Plain<FloatRoot<true, false>, kMode, float, float>("sqrt" + rounding + ".ftz.f32");
  });
  Whole<FloatNeg<false>, float, float>("neg.f32");
  Whole<FloatNeg<true>, float, float>("neg.ftz.f32");
  Whole<FloatAbs<false>, float, float>("abs.f32");
  Whole<FloatAbs<true>, float, float>("abs.ftz.f32");
  Whole<CopySign, float, float, float>("copysign.f32");
  Whole<FloatMinMax<false, false, false>, float, float, float>("min.f32");
  Whole<FloatMinMax<false, true, false>, float, float, float>("min.ftz.f32");
  Whole<FloatMinMax<false, false, true>, float, float, float>("min.NaN.f32");
  Whole<FloatMinMax<false, true, true>, float, float, float>("min.ftz.NaN.f32");
  Whole<FloatMinMax<true, false, false>, float, float, float>("max.f32");
  Whole<FloatMinMax<true, true, false>, float, float, float>("max.ftz.f32");
  Whole<FloatMinMax<true, false, true>, float, float, float>("max.NaN.f32");
  Whole<FloatMinMax<true, true, true>, float, float, float>("max.ftz.NaN.f32");
}

void Builder::AddConversions() {
  const auto add = [](Operation& operation) { operation.any_width = true; };
  ForConverted([&](const std::string& d_type, auto d_tag) {
    using D = typename decltype(d_tag)::type;
    ForConverted([&](const std::string& s_type, auto s_tag) {
      using S = typename decltype(s_tag)::type;
      add(Whole<Convert<D>, D, S>("cvt" + d_type + s_type));
      add(Whole<ConvertSaturated<D>, D, S>("cvt.sat" + d_type + s_type));
    });
    ForRoundings([&](const std::string& rounding, auto mode) {
      constexpr int kMode = decltype(mode)::value;
      const std::string to_int = "cvt" + rounding + "i";
      add(Plain<FloatToInt<D, false>, kMode, D, float>(to_int + d_type + ".f32"));
      add(Plain<FloatToInt<D, true>, kMode, D, float>(to_int + ".ftz" + d_type + ".f32"));
      add(Plain<FloatToInt<D, false>, kMode, D, float>(to_int + ".sat" + d_type + ".f32"));
      add(Plain<IntToFloat, kMode, float, D>("cvt" + rounding + ".f32" + d_type));
    });
  });
  ForRoundings([&](const std::string& rounding, auto mode) {
    Plain<FloatToWhole, decltype(mode)::value, float, float>("cvt" + rounding + "i.f32.f32");
  });
  Whole<FloatCopy<true, false>, float, float>("cvt.ftz.f32.f32");
  Whole<FloatCopy<false, true>, float, float>("cvt.sat.f32.f32");
  Whole<FloatCopy<true, true>, float, float>("cvt.ftz.sat.f32.f32");
  add(Whole<ToHalf<true>, Half, float>("cvt.rn.f16.f32"));
  add(Whole<ToHalf<false>, Half, float>("cvt.rz.f16.f32"));
  add(Whole<FromHalf, float, Half>("cvt.f32.f16"));
  // Each half is of one value alone.
  Whole<ToHalfPair<true>, uint32_t, float, float>("cvt.rn.f16x2.f32").is_float = false;
  Whole<ToHalfPair<false>, uint32_t, float, float>("cvt.rz.f16x2.f32").is_float = false;
}

template <bool kNot, bool kSwap, class F>
struct Derived {  // of == or <
  template <class T>
  bool operator()(T a, T b) const {
    return (kSwap ? F()(b, a) : F()(a, b)) != kNot;
  }
};

template <class F, class S>
void Builder::Compare(const std::string& ordering, const std::string& type, bool is_equality) {
  const std::pair<const char*, Choice> combined[] = {
      {"", Choice::kNone}, {".and", Choice::kAnd}, {".or", Choice::kOr}, {".xor", Choice::kXor}};
  for (const auto& [name, choice] : combined) {
    Operation& operation = Named("setp." + ordering + name + type, Kind::kCompare);
    operation.compare = CompareLanes<F, S>;
    operation.combine = choice;
    operation.is_equality = is_equality;
    operation.is_float = std::is_same_v<S, float>;
    operation.sources = choice == Choice::kNone ? 2 : 3;
    operation.d_bits = operation.s_bits[2] = 1;
    operation.s_bits[0] = operation.s_bits[1] = kBitsOf<S>;
  }
}

template <bool kFlush, class>
void Builder::FloatComparisons(const std::string& modifier) {
  const std::string type = modifier + ".f32";
  Compare<FloatCompare<Ordering::kEq, true, kFlush>, float>("eq", type);
  Compare<FloatCompare<Ordering::kNe, true, kFlush>, float>("ne", type);
  Compare<FloatCompare<Ordering::kLt, true, kFlush>, float>("lt", type);
  Compare<FloatCompare<Ordering::kLe, true, kFlush>, float>("le", type);
  Compare<FloatCompare<Ordering::kGt, true, kFlush>, float>("gt", type);
  Compare<FloatCompare<Ordering::kGe, true, kFlush>, float>("ge", type);
  Compare<FloatCompare<Ordering::kEq, false, kFlush>, float>("equ", type);
  Compare<FloatCompare<Ordering::kNe, false, kFlush>, float>("neu", type);
  Compare<FloatCompare<Ordering::kLt, false, kFlush>, float>("ltu", type);
  Compare<FloatCompare<Ordering::kLe, false, kFlush>, float>("leu", type);
  Compare<FloatCompare<Ordering::kGt, false, kFlush>, float>("gtu", type);
  Compare<FloatCompare<Ordering::kGe, false, kFlush>, float>("geu", type);
  Compare<FloatCompare<Ordering::kNum, true, kFlush>, float>("num", type);
  Compare<FloatCompare<Ordering::kNum, false, kFlush>, float>("nan", type);
}

void Builder::AddComparisons() {
  ForIntegers([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Compare<Equal, T>("eq", type, true);
    Compare<Derived<true, false, Equal>, T>("ne", type, true);
    const bool is_signed = std::is_signed_v<T>;
    const auto named = [&](const char* name, const char* unsigned_name, auto compare) {
      using F = decltype(compare);
      Compare<F, T>(name, type);
      if (!is_signed) Compare<F, T>(unsigned_name, type);
    };
    named("lt", "lo", Less());
    named("le", "ls", Derived<true, true, Less>());
    named("gt", "hi", Derived<false, true, Less>());
    named("ge", "hs", Derived<true, false, Less>());
  });
  ForBits([&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Compare<Equal, T>("eq", type, true);
    Compare<Derived<true, false, Equal>, T>("ne", type, true);
  });
  FloatComparisons<false, void>("");
  FloatComparisons<true, void>(".ftz");
}

void Builder::AddMoves() {
  const auto select = [&](const std::string& type, uint8_t bits) {
    Operation& operation = Named("selp" + type, Kind::kSelect);
    operation.sources = 3;
    operation.d_bits = operation.s_bits[0] = operation.s_bits[1] = bits;
    operation.s_bits[2] = 1;
  };
  const auto move = [&](const std::string& type, auto tag) {
    using T = typename decltype(tag)::type;
    Whole<Copy, T, T>("mov" + type);
    select(type, kBitsOf<T>);
  };
  ForIntegers(move);
  ForBits(move);
  move(".f32", Type<uint32_t>());
  move(".f64", Type<uint64_t>());
  const std::pair<const char*, Space> windows[] = {{".global", Space::kGlobal},
                                                   {".shared", Space::kShared},
                                                   {".local", Space::kLocal},
                                                   {".const", Space::kConst}};
  for (const auto& [name, space] : windows) {
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
  Memory("ld.const", Kind::kLoad, Space::kConst);
  Memory("st", Kind::kStore, Space::kGeneric);
  Memory("st.param", Kind::kStore, Space::kEntryParam);
  for (const auto& [space_name, space] : {std::pair{".global", Space::kGlobal},
                                          {".shared", Space::kShared},
                                          {".local", Space::kLocal}}) {
    Memory(std::string("ld") + space_name, Kind::kLoad, space);
    Memory(std::string("st") + space_name, Kind::kStore, space);
  }
  for (const char* hint : {".ca", ".cg", ".cs", ".lu"}) {
    Memory(std::string("ld.global") + hint, Kind::kLoad, Space::kGlobal);
  }
  for (const char* hint : {".wb", ".cg", ".cs", ".wt", ".L1::no_allocate"}) {
    Memory(std::string("st.global") + hint, Kind::kStore, Space::kGlobal);
  }
  for (const char* hint : {"", ".ca", ".cg", ".cs", ".L1::no_allocate", ".L1::evict_last"}) {
    Memory(std::string("ld.global") + hint + ".nc", Kind::kLoad, Space::kGlobalNc);
    Memory(std::string("ld.global.nc") + hint, Kind::kLoad, Space::kGlobalNc);
  }
  for (const char* name : {"membar.cta", "membar.gl", "fence.acq_rel.cta", "fence.acq_rel.gpu"}) {
    Named(name, Kind::kFence);
  }
}

void Builder::Atomic(const std::string& operation, const std::string& type, Choice choice,
                     uint8_t bytes, bool is_signed) {
  for (const bool returns : {false, true}) {
    if (!returns && (choice == Choice::kExchange || choice == Choice::kCompareSwap)) continue;
    for (const char* order : {"", ".relaxed"}) {
      for (const char* scope : {"", ".cta", ".gpu"}) {
        for (const auto& [space_name, space] : {std::pair{"", Space::kGeneric},
                                                {".global", Space::kGlobal},
                                                {".shared", Space::kShared}}) {
          Operation& made = Named(std::string(returns ? "atom" : "red") + order + scope +
                                      space_name + "." + operation + type,
                                  Kind::kAtomic);
          made.choice = choice;
          made.space = space;
          made.bytes = bytes;
          made.is_signed = is_signed;
          made.d_bits = returns ? 8 * bytes : 0;
          made.sources = choice == Choice::kCompareSwap ? 2 : 1;
          made.s_bits[0] = made.s_bits[1] = static_cast<uint8_t>(8 * bytes);
        }
      }
    }
  }
}

void Builder::AddAtomics() {
  for (const auto& [type, bytes, is_signed] :
       {std::tuple{".u32", 4, false}, {".s32", 4, true}, {".u64", 8, false}, {".s64", 8, true}}) {
    Atomic("min", type, Choice::kMin, static_cast<uint8_t>(bytes), is_signed);
    Atomic("max", type, Choice::kMax, static_cast<uint8_t>(bytes), is_signed);
    if (bytes == 4 || !is_signed) {
      Atomic("add", type, Choice::kAdd, static_cast<uint8_t>(bytes), is_signed);
    }
  }
  Atomic("inc", ".u32", Choice::kIncrement, 4, false);
  Atomic("dec", ".u32", Choice::kDecrement, 4, false);
  for (const auto& [type, bytes] : {std::pair{".b32", uint8_t{4}}, {".b64", uint8_t{8}}}) {
    Atomic("and", type, Choice::kAnd, bytes, false);
    Atomic("or", type, Choice::kOr, bytes, false);
    Atomic("xor", type, Choice::kXor, bytes, false);
    Atomic("exch", type, Choice::kExchange, bytes, false);
    Atomic("cas", type, Choice::kCompareSwap, bytes, false);
  }
}

void Builder::AddControl() {
  for (const char* name : {"bra", "bra.uni"}) Named(name, Kind::kBranch);
  for (const char* name : {"call", "call.uni"}) Named(name, Kind::kCall);
  for (const char* name : {"ret", "ret.uni", "exit"}) Named(name, Kind::kReturn);
  Named("trap", Kind::kTrap);
  for (const char* name : {"bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync",
                           "barrier.sync.aligned", "barrier.cta.sync.aligned"}) {
    Named(name, Kind::kBlockBarrier);
  }
  Operation& warp = Named("bar.warp.sync", Kind::kWarpBarrier);
  warp.sources = 1;
  warp.s_bits[0] = 32;
  Operation& active = Named("activemask.b32", Kind::kActiveMask);
  active.d_bits = 32;

  // The mask of members is the last source of each.
  const std::pair<const char*, Choice> shuffles[] = {{"up", Choice::kUp},
                                                     {"down", Choice::kDown},
                                                     {"bfly", Choice::kButterfly},
                                                     {"idx", Choice::kIndex}};
  for (const auto& [name, choice] : shuffles) {
    Operation& operation = Named(std::string("shfl.sync.") + name + ".b32", Kind::kShuffle);
    operation.choice = choice;
    operation.sources = 4;
    operation.d_bits = 32;
    for (uint8_t& bits : operation.s_bits) bits = 32;
  }
  const std::pair<const char*, Choice> votes[] = {{"ballot.b32", Choice::kBallot},
                                                  {"all.pred", Choice::kAll},
                                                  {"any.pred", Choice::kAny},
                                                  {"uni.pred", Choice::kUniform}};
  for (const auto& [name, choice] : votes) {
    Operation& operation = Named(std::string("vote.sync.") + name, Kind::kVote);
    operation.choice = choice;
    operation.sources = 2;
    operation.d_bits = choice == Choice::kBallot ? 32 : 1;
    operation.s_bits[0] = 1;
    operation.s_bits[1] = 32;
  }
  const std::tuple<const char*, Choice, bool> reductions[] = {
      {"add.u32", Choice::kAdd, false}, {"add.s32", Choice::kAdd, true},
      {"min.u32", Choice::kMin, false}, {"min.s32", Choice::kMin, true},
      {"max.u32", Choice::kMax, false}, {"max.s32", Choice::kMax, true},
      {"and.b32", Choice::kAnd, false}, {"or.b32", Choice::kOr, false},
      {"xor.b32", Choice::kXor, false}};
  for (const auto& [name, choice, is_signed] : reductions) {
    Operation& operation = Named(std::string("redux.sync.") + name, Kind::kRedux);
    operation.choice = choice;
    operation.is_signed = is_signed;
    operation.sources = 2;
    operation.d_bits = operation.s_bits[0] = operation.s_bits[1] = 32;
  }
  for (const auto& [type, bits] : {std::pair{".b32", uint8_t{32}}, {".b64", uint8_t{64}}}) {
    for (const auto& [name, choice] : {std::pair{"any", Choice::kAny}, {"all", Choice::kAll}}) {
      Operation& operation = Named(std::string("match.") + name + ".sync" + type, Kind::kMatch);
      operation.choice = choice;
      operation.sources = 2;
      operation.d_bits = operation.s_bits[1] = 32;
      operation.s_bits[0] = bits;
    }
  }
}

const Table& Operations() {
  // Never destroyed: counts are written when the process ends.
  static const Table& table = *new Table([] {
    Builder builder;
    builder.AddIntegers();
    builder.AddBits();
    builder.AddPacked();
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

std::vector<std::string> OperationNames() {
  std::vector<std::string> names;
  for (const auto& operation : Operations()) names.push_back(operation.first);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace l3::ptx
