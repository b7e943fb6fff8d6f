// Messages to listeners of nvImageCodec. Layer: adapter.
#pragma once

#include <string>

#include "nvimgcodec/abi.h"

namespace l3 {

class Log {
 public:
  // `id` names the parser, the decoder or the encoder that speaks.
  Log(const nvimgcodecFrameworkDesc_t* framework, const char* id)
      : framework_(framework), id_(id) {}

  void Warn(const std::string& message) const {
    Write(NVIMGCODEC_DEBUG_MESSAGE_SEVERITY_WARNING, message);
  }
  void Fail(const std::string& message) const {
    Write(NVIMGCODEC_DEBUG_MESSAGE_SEVERITY_ERROR, message);
  }

  const char* id() const { return id_; }

 private:
  void Write(nvimgcodecDebugMessageSeverity_t severity, const std::string& message) const {
    auto data = Tagged<nvimgcodecDebugMessageData_t>(NVIMGCODEC_STRUCTURE_TYPE_DEBUG_MESSAGE_DATA);
    data.message = message.c_str();
    data.codec = kCodec;
    data.codec_id = id_;
    framework_->log(framework_->instance, severity, NVIMGCODEC_DEBUG_MESSAGE_CATEGORY_GENERAL,
                    &data);
  }

  const nvimgcodecFrameworkDesc_t* framework_;
  const char* id_;
};

}  // namespace l3
