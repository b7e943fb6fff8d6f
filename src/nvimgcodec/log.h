// Messages to whoever listens to nvImageCodec. Layer: adapter.
#pragma once

#include <string>

#include "nvimgcodec/abi.h"

namespace l3 {

class Log {
 public:
  explicit Log(const nvimgcodecFrameworkDesc_t* framework) : framework_(framework) {}

  // `id` names the parser or the decoder that speaks.
  void Warn(const char* id, const std::string& message) const {
    Write(NVIMGCODEC_DEBUG_MESSAGE_SEVERITY_WARNING, id, message);
  }
  void Fail(const char* id, const std::string& message) const {
    Write(NVIMGCODEC_DEBUG_MESSAGE_SEVERITY_ERROR, id, message);
  }

 private:
  void Write(nvimgcodecDebugMessageSeverity_t severity, const char* id,
             const std::string& message) const {
    auto data = Tagged<nvimgcodecDebugMessageData_t>(NVIMGCODEC_STRUCTURE_TYPE_DEBUG_MESSAGE_DATA);
    data.message = message.c_str();
    data.codec = kCodec;
    data.codec_id = id;
    framework_->log(framework_->instance, severity, NVIMGCODEC_DEBUG_MESSAGE_CATEGORY_GENERAL,
                    &data);
  }

  const nvimgcodecFrameworkDesc_t* framework_;
};

}  // namespace l3
