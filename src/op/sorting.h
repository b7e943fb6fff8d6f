// Operators that say which decoder a sample is for: the predicates of l3dali.pipeline.
// Layer: adapter.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "dali/pipeline/operator/arg_helper.h"
#include "dali/pipeline/operator/checkpointing/stateless_operator.h"
#include "files/file_handle.h"
#include "format/constants.h"
#include "op/decode_operator.h"

namespace l3 {

// A truth value for each sample, from its bytes.
class Predicate : public dali::StatelessOperator<dali::CPUBackend> {
 public:
  using StatelessOperator::StatelessOperator;

 protected:
  using Input = dali::TensorList<dali::CPUBackend>;

  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    if (input.num_samples() != 0) EnforceEncoded(input);
    outputs = {{dali::TensorListShape<>(input.num_samples(), 0), DALI_BOOL}};
    return true;
  }
};

class Recognize : public Predicate {
 public:
  explicit Recognize(const dali::OpSpec& spec)
      : Predicate(spec),
        check_others_(spec.GetArgument<bool>("check_others")),
        has_numbers_(spec.GetArgument<bool>("_with_numbers")) {}

 protected:
  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    Predicate::SetupImpl(outputs, ws);
    if (has_numbers_) outputs.push_back({outputs[0].shape, DALI_INT32});
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<dali::CPUBackend>(0);
    for (int i = 0; i < input.num_samples(); ++i) {
      const File file = {input.tensor<uint8_t>(i),
                         static_cast<size_t>(input.tensor_shape_span(i)[0])};
      const bool is_l3 = file.Begins(kSignature, kNameBytes) || IsHandle(file.data, file.size);
      *output.mutable_tensor<bool>(i) = is_l3;
      if (has_numbers_) *ws.Output<dali::CPUBackend>(1).mutable_tensor<int32_t>(i) = i;
      DALI_ENFORCE(
          is_l3 || !check_others_ || IsKnown(file),
          dali::make_string(NameSample(input, i), file.size == 0 ? " has no bytes." : kUnknown));
    }
  }

 private:
  // The first bytes of the signature. The rest detects a transfer as text, which has a status of
  // its own.
  static constexpr size_t kNameBytes = 4;
  static constexpr const char* kUnknown =
      " is neither L3 nor a format that fn.decoders.image reads (JPEG, JPEG 2000, PNG, TIFF, BMP, "
      "PNM, WebP).";

  struct File {
    const uint8_t* data;
    size_t size;

    // With the bytes, as far as the file goes. An empty one begins with nothing.
    bool Begins(const void* bytes, size_t count) const {
      return size != 0 && std::memcmp(data, bytes, std::min(count, size)) == 0;
    }
  };

  static bool IsKnown(const File& file) {
    using namespace std::string_literals;
    static const std::string kSignatures[] = {
        "BM"s,   "II*\0"s,  "MM\0*"s, "II+\0"s, "MM\0+"s, "\xFF\xD8\xFF"s,   "P1"s,
        "P2"s,   "P3"s,     "P4"s,    "P5"s,    "P6"s,    "\0\0\0\x0CjP  "s, "\xFF\x4F\xFF\x51"s,
        "RIFF"s, "\x89PNG"s};
    for (const std::string& signature : kSignatures) {
      if (file.Begins(signature.data(), signature.size())) return true;
    }
    return false;
  }

  bool check_others_;
  bool has_numbers_;
};

class PickShare : public Predicate {
 public:
  explicit PickShare(const dali::OpSpec& spec) : Predicate(spec), share_("share", spec) {}

 protected:
  void RunImpl(dali::Workspace& ws) override {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<dali::CPUBackend>(0);
    const int samples = input.num_samples();
    if (samples == 0) return;
    share_.Acquire(spec_, ws, samples);
    const float share = share_[0].data[0];
    DALI_ENFORCE(share >= 0 && share <= 1,
                 dali::make_string("`share` must be 0 to 1, got ", share, "."));
    // Sample i is picked if a multiple of the share passes a whole number there.
    const uint64_t step = static_cast<uint64_t>(std::ldexp(double{share}, 32));
    uint64_t sum = Start(input.tensor<uint8_t>(0), input.tensor_shape_span(0)[0]);
    for (int i = 0; i < samples; ++i) {
      const uint64_t before = sum;
      sum += step;
      *output.mutable_tensor<bool>(i) = sum >> 32 != before >> 32;
    }
  }

 private:
  // The phase of the multiples, hashed from a file's size and end (FNV-1a). So a share of less than
  // one sample a batch holds on average.
  static uint64_t Start(const uint8_t* data, int64_t size) {
    constexpr int64_t kEndBytes = 64;
    uint32_t hash = 2166136261u;
    const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 16777619u; };
    for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(size >> shift));
    for (int64_t i = std::max<int64_t>(0, size - kEndBytes); i < size; ++i) add(data[i]);
    return hash;
  }

  dali::ArgValue<float> share_;
};

}  // namespace l3
