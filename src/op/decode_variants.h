// The decoding operators: each says which part of an image to decode, and what to make of
// its samples. Layer: adapter.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "dali/operators/image/crop/random_crop_attr.h"
#include "dali/pipeline/operator/arg_helper.h"
#include "op/decode_operator.h"
#include "op/window_arguments.h"

namespace l3 {

template <typename Backend>
class Decode : public DecodeOperator<Backend> {
 public:
  using DecodeOperator<Backend>::DecodeOperator;
};

template <typename Backend>
class DecodeCrop : public DecodeOperator<Backend> {
 public:
  explicit DecodeCrop(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec), crop_(this->spec_) {}

 protected:
  Region GetRegion(const dali::Workspace& ws, int sample, const Size& image, bool failed,
                   std::string*) override {
    return crop_.GetRegion(ws, sample, image, failed);
  }

 private:
  CropArguments crop_;
};

template <typename Backend>
class DecodeSlice : public DecodeOperator<Backend> {
 public:
  explicit DecodeSlice(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec), slice_(this->spec_) {}

 protected:
  void Acquire(const dali::Workspace& ws) override { slice_.Acquire(ws); }
  Region GetRegion(const dali::Workspace&, int sample, const Size& image, bool,
                   std::string* misfit) override {
    return slice_.GetRegion(sample, image, misfit);
  }

 private:
  SliceArguments slice_;
};

// Windows and random state are DALI's own, so a seed gives the windows that
// decoders.image_random_crop has.
template <typename Backend>
class DecodeRandomCrop : public dali::OperatorWithRandomCrop<DecodeOperator<Backend>> {
 public:
  explicit DecodeRandomCrop(const dali::OpSpec& spec)
      : dali::OperatorWithRandomCrop<DecodeOperator<Backend>>(spec) {}

 protected:
  Region GetRegion(const dali::Workspace&, int sample, const Size& image, bool failed,
                   std::string*) override {
    const dali::CropWindow window = this->random_crop_generators_[sample].GenerateCropWindow(
        dali::TensorShape<>{image.height_px, image.width_px});
    const Region region = {{window.anchor[1], window.shape[1]},
                           {window.anchor[0], window.shape[0]}};
    // DALI's arithmetic overflows where a side has some 50,000 pixels.
    return failed ? Trim(region, image) : region;
  }
};

// What is mirrored and normalized as it is decoded.
template <typename Backend>
class NormalizingOperator : public DecodeOperator<Backend> {
 public:
  explicit NormalizingOperator(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec),
        mean_("mean", spec),
        std_("std", spec),
        scale_(spec.GetArgument<float>("scale")),
        shift_(spec.GetArgument<float>("shift")) {
    this->request_.pad_channels = spec.GetArgument<bool>("pad_output");
    DALI_ENFORCE(this->request_.colors != Colors::kYcbcr,
                 "YCbCr cannot be normalized in one pass: decode to YCbCr with decode_crop, then "
                 "use crop_mirror_normalize.");
    SetPolicy(spec);
    SetLayout(spec.GetArgument<dali::TensorLayout>("output_layout"));
  }

 protected:
  void Acquire(const dali::Workspace& ws) override {
    const int samples = ws.GetInputBatchSize(0);
    mean_.Acquire(this->spec_, ws, samples, dali::ArgValue_EnforceUniform);
    std_.Acquire(this->spec_, ws, samples, dali::ArgValue_EnforceUniform);
  }
  bool IsMirrored(const dali::Workspace& ws, int sample) override {
    return this->spec_.template GetArgument<int>("mirror", &ws, sample) != 0;
  }
  // One value of `mean`, `std` and `fill_values` fits images of any channels, and an iterator that
  // makes one tensor of the batch would name no file.
  uint32_t CommonChannels(const ImageInfo& info) const override {
    const bool takes_any = mean_[0].num_elements() == 1 && std_[0].num_elements() == 1 &&
                           fill_values_.size() <= 1 && TakesAnyChannels() && !this->has_windows_;
    return takes_any ? OutputChannels(this->request_, info) : 0;
  }
  const char* TypeAdvice() const override {
    return " that holds the values of both, such as int32 or float";
  }
  void SetValues(const dali::Workspace&, int sample, bool failed) override {
    Normalization& normalization = this->request_.normalization.emplace();
    this->request_.fill.clear();
    if (failed) return;
    DALI_ENFORCE(MakeNormalization(Values(mean_, sample), Values(std_, sample), scale_, shift_,
                                   &normalization),
                 "`mean` and `std` must have the same number of values, or one of them one value.");
    const bool is_float = this->type_ == OutputType::kF16 || this->type_ == OutputType::kF32;
    for (const float value : fill_values_) {
      this->request_.fill.push_back(is_float ? value : std::trunc(value));  // as DALI does
    }
  }
  std::string StandInForValues(const dali::Workspace& ws, int sample, ImageInfo* info) override {
    DecodeRequest request = this->request_;
    TensorPlan plan;
    const auto fits = [&](size_t channels) {
      info->channels = static_cast<uint16_t>(channels);
      return PlanImage(request, *info, &plan) != Misfit::kValues;
    };
    const size_t values = std::max(request.normalization->subtract.size(), request.fill.size());
    request.pad_channels = false;
    const size_t count = OutputChannels(request, *info);
    request.pad_channels = this->request_.pad_channels;
    // If stored channels are the output, images of other channel counts may fit. Zeros take their
    // shape.
    const std::string message = dali::make_string(
        "`mean`, `std` and `fill_values` must have one value or one for each channel, and "
        "`pad_output` cannot pad more than four channels or those of `channels`; ",
        this->Name(ws, sample), " has ", count, " channels.",
        TakesAnyChannels() && count <= kMaxChannels && values == 3
            ? " Use `output_type=types.RGB` for three."
            : "");
    DALI_ENFORCE(TakesAnyChannels() && (fits(1) || fits(2) || fits(3) || fits(4) ||
                                        (values <= kMaxImageChannels && fits(values))),
                 message);
    return message;
  }

 private:
  bool TakesAnyChannels() const {
    return this->request_.colors == Colors::kStored && this->request_.channels.empty();
  }

  static std::vector<float> Values(const dali::ArgValue<float, 1>& argument, int sample) {
    return {argument[sample].data, argument[sample].data + argument[sample].num_elements()};
  }

  void SetPolicy(const dali::OpSpec& spec) {
    const std::string policy = spec.GetArgument<std::string>("out_of_bounds_policy");
    this->request_.pads = policy == "pad";
    this->trims_ = policy == "trim_to_shape";
    if (this->request_.pads) fill_values_ = spec.GetRepeatedArgument<float>("fill_values");
    DALI_ENFORCE(this->request_.pads || this->trims_ || policy == "error",
                 dali::make_string("`out_of_bounds_policy` must be \"error\", \"pad\" or "
                                   "\"trim_to_shape\", got \"",
                                   policy, "\"."));
  }

  void SetLayout(const dali::TensorLayout& layout) {
    if (layout.empty()) return;
    DALI_ENFORCE(
        layout.is_permutation_of("HWC"),
        dali::make_string("`output_layout` must be a permutation of HWC, got ", layout, "."));
    for (int i = 0; i < 3; ++i) {
      this->request_.layout[i] = layout[i] == 'H'   ? Axis::kHeight
                                 : layout[i] == 'W' ? Axis::kWidth
                                                    : Axis::kChannel;
    }
    this->output_layout_ = layout;
  }

  dali::ArgValue<float, 1> mean_, std_;
  float scale_, shift_;
  std::vector<float> fill_values_;  // none where no pixel is padded
};

template <typename Backend>
class DecodeCropMirrorNormalize : public NormalizingOperator<Backend> {
 public:
  explicit DecodeCropMirrorNormalize(const dali::OpSpec& spec)
      : NormalizingOperator<Backend>(spec), crop_(this->spec_) {}

 protected:
  Region GetRegion(const dali::Workspace& ws, int sample, const Size& image, bool failed,
                   std::string*) override {
    return crop_.GetRegion(ws, sample, image, failed);
  }

 private:
  CropArguments crop_;
};

// Many windows of an image, in one tensor.
template <typename Backend>
class DecodeWindows : public dali::OperatorWithRandomCrop<NormalizingOperator<Backend>> {
 public:
  explicit DecodeWindows(const dali::OpSpec& spec)
      : dali::OperatorWithRandomCrop<NormalizingOperator<Backend>>(spec), windows_(this->spec_) {
    this->has_windows_ = true;
    DALI_ENFORCE(
        !this->trims_,
        "`out_of_bounds_policy` must be \"error\" or \"pad\" here: windows of a sample all have "
        "one size and cannot be trimmed.");
  }

 protected:
  void Acquire(const dali::Workspace& ws) override {
    NormalizingOperator<Backend>::Acquire(ws);
    windows_.Acquire(ws);
  }
  Size GetRegions(const dali::Workspace&, int sample, const Size& image, bool failed,
                  std::vector<Region>* regions, std::string* misfit) override {
    const auto random_size = [&] {
      const dali::CropWindow window = this->random_crop_generators_[sample].GenerateCropWindow(
          dali::TensorShape<>{image.height_px, image.width_px});
      // DALI's arithmetic overflows where a side has some 50,000 pixels.
      return Size{std::clamp<int64_t>(window.shape[1], 1, image.width_px),
                  std::clamp<int64_t>(window.shape[0], 1, image.height_px)};
    };
    auto random = this->GetSampleRNG(sample);
    return windows_.GetRegions(sample, image, failed, this->request_.pads, random_size, &random,
                               regions, misfit);
  }

 private:
  WindowArguments windows_;
};

}  // namespace l3
