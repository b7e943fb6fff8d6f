// The nvImageCodec extension: with it in nvidia/nvimgcodec/extensions, whatever decodes through
// nvImageCodec reads and writes L3 files. Layer: adapter. It knows neither DALI nor CUDA.
#include <memory>
#include <string>

#include "nvimgcodec/abi.h"
#include "nvimgcodec/cpu_decoder.h"
#include "nvimgcodec/encoder.h"
#include "nvimgcodec/gpu_decoder.h"
#include "nvimgcodec/log.h"
#include "nvimgcodec/parser.h"

namespace l3 {
namespace {

constexpr char kExtensionId[] = "l3_ext";

// What is registered at an instance of nvImageCodec, until it is destroyed.
class Extension {
 public:
  explicit Extension(const nvimgcodecFrameworkDesc_t* framework) : framework_(framework) {}
  ~Extension() {
    if (has_encoder_) framework_->unregisterEncoder(framework_->instance, &encoder_);
    if (has_cpu_decoder_) framework_->unregisterDecoder(framework_->instance, &cpu_decoder_);
    if (has_gpu_decoder_) framework_->unregisterDecoder(framework_->instance, &gpu_decoder_);
    if (has_parser_) framework_->unregisterParser(framework_->instance, &parser_);
  }
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;

  nvimgcodecStatus_t Register() {
    const uint32_t version = framework_->version;
    if (version < kOldestVersion || version >= kFirstUnknownVersion) {
      Log(framework_, kExtensionId)
          .Warn("This l3dali supports nvImageCodec 0.7 to 0.9. Version " +
                (version < kFirstUnknownVersion ? "0." + std::to_string(version / 100)
                                                : std::string("0.10 or newer")) +
                " will not read L3 files; other formats work. Install nvImageCodec 0.9 (pip "
                "install 'nvidia-nvimgcodec-cu12==0.9.*', or -cu13), or decode with fn.l3.decode.");
      return NVIMGCODEC_STATUS_SUCCESS;
    }
    has_parser_ = Try(framework_->registerParser, parser_, NVIMGCODEC_PRIORITY_NORMAL);
    // The one with the higher priority decodes what it can, where its backend is allowed.
    if (gpu_.gpu.make != nullptr) {
      has_gpu_decoder_ = Try(framework_->registerDecoder, gpu_decoder_, NVIMGCODEC_PRIORITY_HIGH);
    }
    if (!has_gpu_decoder_ || gpu_.gpu.backend != NVIMGCODEC_BACKEND_KIND_CPU_ONLY) {
      has_cpu_decoder_ = Try(framework_->registerDecoder, cpu_decoder_, NVIMGCODEC_PRIORITY_NORMAL);
    }
    has_encoder_ = Try(framework_->registerEncoder, encoder_, NVIMGCODEC_PRIORITY_NORMAL);
    return status_;
  }

 private:
  // Nothing is registered behind the first failure.
  template <typename Description>
  bool Try(nvimgcodecStatus_t (*enter)(void*, const Description*, float),
           const Description& description, float priority) {
    if (status_ == NVIMGCODEC_STATUS_SUCCESS) {
      status_ = enter(framework_->instance, &description, priority);
      return status_ == NVIMGCODEC_STATUS_SUCCESS;
    }
    return false;
  }

  const nvimgcodecFrameworkDesc_t* framework_;
  Log parser_log_{framework_, "l3_parser"};
  Log cpu_log_{framework_, "l3_cpu_decoder"};
  Log gpu_log_{framework_, "l3_gpu_decoder"};
  Log encoder_log_{framework_, "l3_encoder"};
  GpuDecoderPlugin gpu_{&gpu_log_, FindGpu()};
  const nvimgcodecParserDesc_t parser_ = MakeParser(&parser_log_);
  const nvimgcodecDecoderDesc_t cpu_decoder_ = MakeCpuDecoder(&cpu_log_);
  const nvimgcodecDecoderDesc_t gpu_decoder_ = MakeGpuDecoder(&gpu_);
  const nvimgcodecEncoderDesc_t encoder_ = MakeEncoder(&encoder_log_);
  nvimgcodecStatus_t status_ = NVIMGCODEC_STATUS_SUCCESS;
  bool has_parser_ = false;
  bool has_cpu_decoder_ = false;
  bool has_gpu_decoder_ = false;
  bool has_encoder_ = false;
};

nvimgcodecStatus_t Create(void*, nvimgcodecExtension_t* extension,
                          const nvimgcodecFrameworkDesc_t* framework) {
  // One that is older has no log, or not all that is registered at.
  if (extension == nullptr || !IsWhole(framework)) {
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
