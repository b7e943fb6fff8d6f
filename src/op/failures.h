// What an operator does about samples that fail: raise, or fill with zeros and count.
// Layer: adapter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/data/tensor_list.h"
#include "dali/pipeline/operator/name_utils.h"
#include "dali/pipeline/operator/op_spec.h"
#include "files/file_handle.h"
#include "format/status.h"

namespace l3 {

// Bytes of the UTF-8 character at text[i]; 0 where that is none, or one that changes how the
// text around it is shown: a control character, an end of a line, a change of direction.
inline size_t ShownCharacterBytes(const std::string& text, size_t i) {
  const uint32_t lead = static_cast<uint8_t>(text[i]);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t k = 1; k < bytes; ++k) {
    const uint32_t next = i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : 0u;
    if ((next & 0xC0) != 0x80) return 0;
    code = code << 6 | (next & 0x3F);
  }
  constexpr uint32_t kFirst[] = {0, 0, 0xA0, 0x800, 0x10000};  // below 0xA0: controls
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  const bool breaks = code >= 0x2028 && code <= 0x202E;
  const bool isolates = code >= 0x2066 && code <= 0x2069;
  const bool valid = code >= kFirst[bytes] && code <= 0x10FFFF;
  return valid && !is_surrogate && !breaks && !isolates ? bytes : 0;
}

// The text on one line, as UTF-8: bytes of other characters as "\x1B". A file can have any name.
inline std::string Printable(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = ShownCharacterBytes(text, i);
    if (bytes != 0) {
      shown.append(text, i, bytes);
    } else {
      const auto byte = static_cast<uint8_t>(text[i]);
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    i += bytes != 0 ? bytes : 1;
  }
  return shown;
}

// "sample 3 (/data/a.l3)": how messages name a sample. Where the input is a part of a batch,
// `numbers` has the place of each of its samples in the whole one.
inline std::string NameSample(const dali::TensorList<dali::CPUBackend>& input, int sample,
                              const dali::TensorList<dali::CPUBackend>* numbers = nullptr) {
  const std::string source = Printable(input.GetMeta(sample).GetSourceInfo());
  const int number = numbers == nullptr ? sample : *numbers->tensor<int>(sample);
  return dali::make_string("sample ", number, source.empty() ? "" : " (", source,
                           source.empty() ? "" : ")");
}

class FailurePolicy {
 public:
  explicit FailurePolicy(const dali::OpSpec& spec)
      : operator_name_(dali::GetOpDisplayName(spec, true)) {
    const std::string on_error = spec.GetArgument<std::string>("on_error");
    DALI_ENFORCE(
        on_error == "raise" || on_error == "zero",
        dali::make_string("`on_error` must be \"raise\" or \"zero\", got \"", on_error, "\"."));
    zero_ = on_error == "zero";
  }

  // Whether samples that fail become zeros.
  bool goes_on() const { return zero_; }

  // Says that the samples of the next calls are part of a batch: where they are in it.
  void SetNumbers(const dali::TensorList<dali::CPUBackend>* numbers) { numbers_ = numbers; }

  // A sample as messages name it.
  std::string Name(const dali::TensorList<dali::CPUBackend>& input, int sample) const {
    return NameSample(input, sample, numbers_);
  }

  // Throws, or counts the sample and logs it. `where` goes behind its name, `hint` to the end.
  void Report(const dali::TensorList<dali::CPUBackend>& input, int sample, Status status,
              const std::string& where = "", const char* hint = "") {
    const int64_t bytes = input.tensor_shape_span(sample)[0];
    const char* advice =
        bytes <= 1 ? " A reader with `skip_cached_images` does not read cached files."
        : status == Status::kBadMagic &&
                IsHandle(input.tensor<uint8_t>(sample), static_cast<size_t>(bytes))
            ? " It is a lazy handle from another process: use `lazy=False`."
        : status == Status::kBadMagic ? " `fn.decoders.image` reads other formats as well as L3."
                                      : "";
    Report(dali::make_string("L3 decoding failed at ", Name(input, sample), where, ": ",
                             StatusMessage(status), " (", StatusName(status), ").", advice, hint));
  }

  // The same of a sample that `message` names: sound, but not what the arguments ask for.
  void Report(const std::string& message, bool must_raise = false) {
    if (!zero_ || must_raise) DALI_FAIL(message);
    ++failures_;
    // Many bad files must not flood the log: after the first few it logs at powers of two.
    constexpr uint64_t kAlwaysLogged = 16;
    if (failures_ > kAlwaysLogged && (failures_ & (failures_ - 1)) != 0) return;
    std::cerr << dali::make_string(
        "[L3] ", operator_name_, ": ", message,
        " The sample is filled with zeros. Failures of this operator so far: ", failures_, ".\n");
  }

 private:
  std::string operator_name_;
  bool zero_;
  uint64_t failures_ = 0;
  const dali::TensorList<dali::CPUBackend>* numbers_ = nullptr;
};

}  // namespace l3
