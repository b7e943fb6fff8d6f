// The decoding operators: each says which part of an image to decode, and what to make of
// its samples. Layer: adapter.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "dali/operators/image/crop/random_crop_attr.h"
#include "dali/operators/random/rng_base.h"
#include "dali/pipeline/operator/arg_helper.h"
#include "op/decode_operator.h"
#include "op/window_arguments.h"

namespace l3 {

template <typename Backend>
class Decode : public DecodeOperator<Backend> {
 public:
  using DecodeOperator<Backend>::DecodeOperator;

 protected:
  void Ask(const dali::Workspace&, int, const Size& shown, bool,
           typename DecodeOperator<Backend>::Asked* asked) override {
    asked->SetWindow(WholeImage(shown));
  }
};

template <typename Backend>
class DecodeCrop : public DecodeOperator<Backend> {
 public:
  explicit DecodeCrop(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec), crop_(this->spec_) {}

 protected:
  void Ask(const dali::Workspace& ws, int sample, const Size& shown, bool failed,
           typename DecodeOperator<Backend>::Asked* asked) override {
    asked->SetWindow(crop_.GetRegion(ws, sample, shown, failed));
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
  void Ask(const dali::Workspace&, int sample, const Size& shown, bool,
           typename DecodeOperator<Backend>::Asked* asked) override {
    asked->SetWindow(slice_.GetRegion(sample, shown, &asked->misfit));
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
  void Ask(const dali::Workspace&, int sample, const Size& shown, bool failed,
           typename DecodeOperator<Backend>::Asked* asked) override {
    const dali::CropWindow window = this->random_crop_generators_[sample].GenerateCropWindow(
        dali::TensorShape<>{shown.height_px, shown.width_px});
    const Region region = {{window.anchor[1], window.shape[1]},
                           {window.anchor[0], window.shape[0]}};
    // DALI's arithmetic overflows where a side has some 50,000 pixels.
    asked->SetWindow(failed ? Trim(region, shown) : region);
  }
};

// What is mirrored and normalized as it is decoded.
template <typename Backend>
class NormalizingOperator : public DecodeOperator<Backend> {
 public:
  explicit NormalizingOperator(const dali::OpSpec& spec, bool is_volume = false)
      : DecodeOperator<Backend>(spec),
        mean_("mean", spec),
        std_("std", spec),
        scale_(spec.GetArgument<float>("scale")),
        shift_(spec.GetArgument<float>("shift")) {
    this->common_.pad_channels = spec.GetArgument<bool>("pad_output");
    DALI_ENFORCE(this->common_.colors != Colors::kYcbcr,
                 "YCbCr cannot be normalized in one pass: decode to YCbCr with decode_crop, then "
                 "use crop_mirror_normalize.");
    SetPolicy(spec);
    SetLayout(spec.GetArgument<dali::TensorLayout>("output_layout"), is_volume);
  }

 protected:
  bool trims_ = false;  // what of a region lies outside of the image

  void Acquire(const dali::Workspace& ws) override {
    const int samples = ws.GetInputBatchSize(0);
    mean_.Acquire(this->spec_, ws, samples, dali::ArgValue_EnforceUniform);
    std_.Acquire(this->spec_, ws, samples, dali::ArgValue_EnforceUniform);
  }
  // One value of `mean`, `std` and `fill_values` fits images of any channels, and an iterator that
  // makes one tensor of the batch would name no file.
  uint32_t CommonChannels(const ImageInfo& info) const override {
    const bool takes_any = mean_[0].num_elements() == 1 && std_[0].num_elements() == 1 &&
                           fill_values_.size() <= 1 && TakesAnyChannels() && !this->has_windows_;
    return takes_any ? OutputChannels(this->common_, info) : 0;
  }
  const char* TypeAdvice() const override {
    return " that holds the values of both, such as int32 or float";
  }
  // Mirror, normalization and fill.
  void AskValues(const dali::Workspace& ws, int sample, bool failed, DecodeRequest* request) {
    // DALI looks at the whole batch.
    request->mirror = this->spec_.template GetArgument<int>("mirror", &ws, sample) != 0;
    Normalization& normalization = request->normalization.emplace();
    if (failed) return;
    DALI_ENFORCE(MakeNormalization(Values(mean_, sample), Values(std_, sample), scale_, shift_,
                                   &normalization),
                 "`mean` and `std` must have the same number of values, or one of them one value.");
    const bool is_float = request->type == OutputType::kF16 || request->type == OutputType::kF32;
    for (const float value : fill_values_) {
      request->fill.push_back(is_float ? value : std::trunc(value));  // as DALI does
    }
  }
  std::string StandInForValues(const dali::Workspace& ws, int sample,
                               const typename DecodeOperator<Backend>::Asked& asked,
                               ImageInfo* info) override {
    DecodeRequest request = asked.request;
    OutputPlan plan;
    const auto fits = [&](size_t channels) {
      info->channels = static_cast<uint16_t>(channels);
      return PlanImage(request, *info, &plan) != Misfit::kValues;
    };
    const size_t values = std::max(request.normalization->subtract.size(), request.fill.size());
    request.pad_channels = false;
    const size_t count = OutputChannels(request, *info);
    request.pad_channels = asked.request.pad_channels;
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
    return this->common_.colors == Colors::kStored && this->common_.channels.empty();
  }

  static std::vector<float> Values(const dali::ArgValue<float, 1>& argument, int sample) {
    return {argument[sample].data, argument[sample].data + argument[sample].num_elements()};
  }

  void SetPolicy(const dali::OpSpec& spec) {
    const std::string policy = spec.GetArgument<std::string>("out_of_bounds_policy");
    this->common_.pads = policy == "pad";
    trims_ = policy == "trim_to_shape";
    if (this->common_.pads) fill_values_ = spec.GetRepeatedArgument<float>("fill_values");
    DALI_ENFORCE(this->common_.pads || trims_ || policy == "error",
                 dali::make_string("`out_of_bounds_policy` must be \"error\", \"pad\" or "
                                   "\"trim_to_shape\", got \"",
                                   policy, "\"."));
  }

  void SetLayout(const dali::TensorLayout& layout, bool is_volume) {
    if (is_volume) {
      DALI_ENFORCE(
          layout == "DHWC" || layout == "DHW" || layout == "CDHW",
          dali::make_string("`output_layout` must be DHWC, DHW or CDHW, got ", layout, "."));
      if (layout[0] == 'C') this->common_.layout = kChw;
      this->output_layout_ = layout;
      return;
    }
    if (layout.empty()) return;
    DALI_ENFORCE(
        layout.is_permutation_of("HWC"),
        dali::make_string("`output_layout` must be a permutation of HWC, got ", layout, "."));
    for (int i = 0; i < 3; ++i) {
      this->common_.layout[i] = layout[i] == 'H'   ? Axis::kHeight
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
  void Ask(const dali::Workspace& ws, int sample, const Size& shown, bool failed,
           typename DecodeOperator<Backend>::Asked* asked) override {
    const Region region = crop_.GetRegion(ws, sample, shown, failed);
    asked->SetWindow(this->trims_ ? Trim(region, shown) : region);
    this->AskValues(ws, sample, failed, &asked->request);
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
  void Ask(const dali::Workspace& ws, int sample, const Size& shown, bool failed,
           typename DecodeOperator<Backend>::Asked* asked) override {
    const auto random_size = [&] {
      const dali::CropWindow window = this->random_crop_generators_[sample].GenerateCropWindow(
          dali::TensorShape<>{shown.height_px, shown.width_px});
      // DALI's arithmetic overflows where a side has some 50,000 pixels.
      return Size{std::clamp<int64_t>(window.shape[1], 1, shown.width_px),
                  std::clamp<int64_t>(window.shape[0], 1, shown.height_px)};
    };
    auto random = this->GetSampleRNG(sample);
    asked->size = windows_.GetRegions(sample, shown, failed, this->common_.pads, random_size,
                                      &random, &asked->windows, &asked->misfit);
    this->AskValues(ws, sample, failed, &asked->request);
  }

 private:
  WindowArguments windows_;
};

template <typename Backend>
class VolumeOperator : public NormalizingOperator<Backend> {
 public:
  explicit VolumeOperator(const dali::OpSpec& spec) : NormalizingOperator<Backend>(spec, true) {}
};

// A patch of a volume, or all of it: the same window of each of its slices.
template <typename Backend>
class DecodeVolume : public dali::rng::OperatorWithRng<VolumeOperator<Backend>> {
 public:
  explicit DecodeVolume(const dali::OpSpec& spec)
      : dali::rng::OperatorWithRng<VolumeOperator<Backend>>(spec), patch_(this->spec_) {
    DALI_ENFORCE(!this->trims_, "`out_of_bounds_policy` must be \"error\" or \"pad\" here.");
  }

 protected:
  void Acquire(const dali::Workspace& ws) override {
    NormalizingOperator<Backend>::Acquire(ws);
    patch_.Acquire(ws);
  }
  VolumeShape FindVolume(const ImageView& view) const override { return ReadVolume(view); }
  void Ask(const dali::Workspace& ws, int sample, const Size& shown, bool failed,
           typename DecodeOperator<Backend>::Asked* asked) override {
    const VolumeShape& volume = asked->volume;
    const bool is_volume = volume.depth != 0;
    auto random = this->GetSampleRNG(sample);
    const auto [z, y, x] =
        patch_.GetExtents(sample,
                          {is_volume ? volume.depth : 1,
                           is_volume ? volume.height_px : shown.height_px, shown.width_px},
                          this->common_.pads, &random);
    if (!is_volume && !failed) {
      asked->misfit = dali::make_string(this->Name(ws, sample), " holds an image, not a volume.");
    }
    asked->request.orientation = kAsStored;
    asked->z = z.begin_px;
    asked->size = {x.size_px, y.size_px};
    asked->windows.assign(static_cast<size_t>(z.size_px), {x, y});
    this->AskValues(ws, sample, failed, &asked->request);
  }

 private:
  PatchArguments patch_;
};

}  // namespace l3
