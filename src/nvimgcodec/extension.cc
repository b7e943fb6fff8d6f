// The nvImageCodec extension: with it in nvidia/nvimgcodec/extensions, whatever decodes through
// nvImageCodec reads L3 files. Layer: adapter. It knows neither DALI nor CUDA.
#include <memory>
#include <string>

#include "nvimgcodec/abi.h"
#include "nvimgcodec/decoder.h"
#include "nvimgcodec/log.h"
#include "nvimgcodec/parser.h"

namespace l3 {
namespace {

constexpr char kExtensionId[] = "l3_ext";

// What is registered at an instance of nvImageCodec, until it is destroyed.
class Extension {
 public:
  explicit Extension(const nvimgcodecFrameworkDesc_t* framework)
      : framework_(framework), log_(framework) {}
  ~Extension() {
    if (has_decoder_) framework_->unregisterDecoder(framework_->instance, &decoder_);
    if (has_parser_) framework_->unregisterParser(framework_->instance, &parser_);
  }
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;

  nvimgcodecStatus_t Register() {
    const uint32_t version = framework_->version;
    if (version < kOldestVersion || version >= kFirstUnknownVersion) {
      log_.Warn(kExtensionId,
                "This l3dali knows nvImageCodec 0.7 to 0.9, and this one counts as version " +
                    std::to_string(version) +
                    ": it will not read L3 files. All else works. Install another l3dali, or "
                    "decode with fn.l3.decode.");
      return NVIMGCODEC_STATUS_SUCCESS;
    }
    nvimgcodecStatus_t status =
        framework_->registerParser(framework_->instance, &parser_, NVIMGCODEC_PRIORITY_NORMAL);
    if (status != NVIMGCODEC_STATUS_SUCCESS) return status;
    has_parser_ = true;
    status =
        framework_->registerDecoder(framework_->instance, &decoder_, NVIMGCODEC_PRIORITY_NORMAL);
    has_decoder_ = status == NVIMGCODEC_STATUS_SUCCESS;
    return status;
  }

 private:
  const nvimgcodecFrameworkDesc_t* framework_;
  Log log_;
  const nvimgcodecParserDesc_t parser_ = MakeParser(&log_);
  const nvimgcodecDecoderDesc_t decoder_ = MakeCpuDecoder(&log_);
  bool has_parser_ = false;
  bool has_decoder_ = false;
};

nvimgcodecStatus_t Create(void*, nvimgcodecExtension_t* extension,
                          const nvimgcodecFrameworkDesc_t* framework) {
  if (extension == nullptr || framework == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  return Guarded(NVIMGCODEC_STATUS_EXTENSION_INTERNAL_ERROR, [&] {
    auto created = std::make_unique<Extension>(framework);
    const nvimgcodecStatus_t status = created->Register();
    if (status != NVIMGCODEC_STATUS_SUCCESS) return status;
    *extension = reinterpret_cast<nvimgcodecExtension_t>(created.release());
    return status;
  });
}

nvimgcodecStatus_t Destroy(nvimgcodecExtension_t extension) {
  delete reinterpret_cast<Extension*>(extension);
  return NVIMGCODEC_STATUS_SUCCESS;
}

}  // namespace
}  // namespace l3

nvimgcodecStatus_t nvimgcodecExtensionModuleEntry(nvimgcodecExtensionDesc_t* description) {
  if (description == nullptr) return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  *description = l3::Tagged<nvimgcodecExtensionDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_EXTENSION_DESC);
  description->id = l3::kExtensionId;
  description->version = L3_VERSION;
  description->ext_api_version = l3::kOldestVersion;
  description->create = l3::Create;
  description->destroy = l3::Destroy;
  return NVIMGCODEC_STATUS_SUCCESS;
}
