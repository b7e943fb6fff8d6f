// What an operator does about samples that fail: raise, or fill with zeros and count.
// Layer: adapter.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/data/tensor_list.h"
#include "dali/pipeline/operator/name_utils.h"
#include "dali/pipeline/operator/op_spec.h"
#include "format/status.h"

namespace l3 {

// "sample 3 (/data/a.l3)": how messages name a sample.
inline std::string NameSample(const dali::TensorList<dali::CPUBackend>& input, int sample) {
  const std::string& source = input.GetMeta(sample).GetSourceInfo();
  return dali::make_string("sample ", sample, source.empty() ? "" : " (", source,
                           source.empty() ? "" : ")");
}

class FailurePolicy {
 public:
  explicit FailurePolicy(const dali::OpSpec& spec)
      : operator_name_(dali::GetOpDisplayName(spec, true)) {
    const std::string on_error = spec.GetArgument<std::string>("on_error");
    DALI_ENFORCE(on_error == "raise" || on_error == "zero",
                 dali::make_string("on_error is \"raise\" or \"zero\", got \"", on_error, "\"."));
    zero_ = on_error == "zero";
  }

  // Throws, or counts the sample and logs it. `where` goes behind its name.
  void Report(const dali::TensorList<dali::CPUBackend>& input, int sample, Status status,
              const std::string& where = "") {
    const bool is_empty = input.tensor_shape_span(sample)[0] <= 1;
    const std::string message = dali::make_string(
        "L3 decoding failed at ", NameSample(input, sample), where, ": ", StatusMessage(status),
        " (", StatusName(status), ").",
        is_empty ? " A reader with skip_cached_images gives no bytes of what it finds cached."
                 : "");
    if (!zero_) DALI_FAIL(message);
    ++failures_;
    // A data set with many bad files must not drown the log: past some, at powers of two.
    constexpr uint64_t kAlwaysLogged = 16;
    if (failures_ > kAlwaysLogged && (failures_ & (failures_ - 1)) != 0) return;
    std::cerr << dali::make_string(
        "[L3] ", operator_name_, ": ", message,
        " It becomes zeros. Failures of this operator so far: ", failures_, ".\n");
  }

 private:
  std::string operator_name_;
  bool zero_;
  uint64_t failures_ = 0;
};

}  // namespace l3
