// What all decoding operators share: planning the outputs of a batch, decoding, reporting.
// Layer: adapter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/operator/checkpointing/stateless_operator.h"
#include "dali/pipeline/operator/common.h"
#include "dali/pipeline/operator/operator.h"
#include "format/image_view.h"
#include "op/dali_types.h"
#include "op/failures.h"
#include "op/input_images.h"
#include "output/request.h"
#include "output/volume.h"
#include "output/window_job.h"

namespace l3 {

// A decoding operator on a backend (CpuBackend or MixedBackend). Derived classes say which
// part of an image to decode, and what to make of its samples.
template <typename Backend>
class DecodeOperator : public dali::StatelessOperator<typename Backend::DaliBackend> {
 public:
  explicit DecodeOperator(const dali::OpSpec& spec)
      : dali::StatelessOperator<typename Backend::DaliBackend>(spec),
        backend_(spec),
        failures_(spec),
        images_(&failures_, spec.GetArgument<bool>("adjust_orientation")),
        return_status_(spec.GetArgument<bool>("return_status")) {
    const int64_t max_pixels = spec.GetArgument<int64_t>("max_pixels");
    DALI_ENFORCE(max_pixels >= 1 && max_pixels <= static_cast<int64_t>(kMaxPixels),
                 dali::make_string("`max_pixels` must be 1 to 2^31, got ", max_pixels, "."));
    common_.max_pixels = static_cast<uint64_t>(max_pixels);
    common_.colors = ParseColors(spec.GetArgument<dali::DALIImageType>("output_type"));
    std::vector<int> channels;
    if (spec.TryGetRepeatedArgument(channels, "channels")) {
      const std::string wrong =
          ParseChannels({channels.begin(), channels.end()}, &common_.channels);
      DALI_ENFORCE(!channels.empty() && wrong.empty(),
                   dali::make_string("`channels` must be a list of different numbers",
                                     wrong.empty() ? "" : ": ", wrong, "."));
      DALI_ENFORCE(common_.colors == Colors::kStored,
                   "`channels` selects channels as stored: it needs `output_type=types.ANY_DATA`.");
    }
    dali::DALIDataType dtype;
    if (spec.TryGetArgument(dtype, "dtype")) asked_type_ = ParseType(dtype);
    bool fill_range;
    if (spec.TryGetArgument(fill_range, "fill_range")) common_.fills_range = fill_range;
  }

 protected:
  using Input = dali::TensorList<dali::CPUBackend>;

  // What an operator asks of an image.
  struct Asked {
    DecodeRequest request;  // but for its window
    std::vector<Region> windows;  // one or more, all of `size`; none only in a tensor of windows
    Size size;
    // Of a volume: the windows are the same one in as many slices from slice `z` on.
    VolumeShape volume;
    int64_t z;
    std::string misfit;  // why the arguments do not fit this image but may fit others; else empty

    void SetWindow(const Region& region) {
      windows.assign(1, region);
      size = {region.x.size_px, region.y.size_px};
    }
  };

  // Reads the arguments of a batch that are read at once. Called first.
  virtual void Acquire(const dali::Workspace&) {}
  // Completes `asked` for an image of the size `shown`, once for each image. Its request has the
  // arguments that images have in common, the type and the orientation. `failed` says that the file
  // is damaged: its size and channels may be those of a stand-in, and arguments need not fit it.
  virtual void Ask(const dali::Workspace& ws, int sample, const Size& shown, bool failed,
                   Asked* asked) = 0;
  // The volume in a validated image. Operators that do not decode volumes know none.
  virtual VolumeShape FindVolume(const ImageView&) const { return {}; }
  // The output channels of an image, where a batch needs one number of them; 0 where it does not.
  virtual uint32_t CommonChannels(const ImageInfo&) const { return 0; }
  // Says which `dtype` an image of 8 or 16 bits allows, if not all.
  virtual const char* TypeAdvice() const {
    return " (with `fill_range=True` for photographs of 8 and 16 bits)";
  }
  // What is wrong with the normalization and fill of `asked`. Changes the channels of the image,
  // which stands for zeros, to what would fit.
  virtual std::string StandInForValues(const dali::Workspace&, int, const Asked&, ImageInfo*) {
    return "";
  }

  // A sample as messages name it.
  std::string Name(const dali::Workspace& ws, int sample) const {
    return failures_.Name(ws.Input<dali::CPUBackend>(0), sample);
  }

  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    const bool is_part = this->spec_.HasTensorArgument("_numbers");
    failures_.SetNumbers(is_part ? &ws.ArgumentInput("_numbers") : nullptr);
    type_ = images_.Read(&backend_, input, asked_type_, TypeAdvice());
    Acquire(ws);
    images_.RequireCommonChannels(input,
                                  [this](const ImageInfo& info) { return CommonChannels(info); });
    const int count = input.num_samples();
    outputs_.resize(count);
    outputs.resize(1);
    outputs[0].type = DaliType(type_);
    outputs[0].shape = dali::TensorListShape<>(count, OutputLayout().ndim());
    for (int i = 0; i < count; ++i) {
      PlanOutput(ws, i);
      outputs[0].shape.set_tensor_shape(i, ShapeOfSample(outputs_[i]));
    }
    if (return_status_) {
      outputs.push_back({dali::TensorListShape<>(count, 0), DALI_INT32});
    }
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<typename Backend::OutputBackend>(0);
    output.SetLayout(OutputLayout());
    jobs_.clear();
    job_images_.clear();
    for (int i = 0; i < input.num_samples(); ++i) {
      const InputImage& image = images_[i];
      Output& planned = outputs_[i];
      if (image.status != Status::kOk) continue;
      for (OutputPlan& plan : planned.plans) plan.PlaceIn(output.raw_mutable_tensor(i));
      jobs_.push_back(
          {&image.view, &planned.groups, planned.plans.data(), planned.plans.size(), image.cached});
      jobs_.back().source = image.source.get();
      job_images_.push_back(i);
    }
    const std::vector<DecodeResult> results = backend_.Decode(ws, job_images_, &jobs_);
    for (size_t n = 0; n < results.size(); ++n) {
      const auto [status, tile] = results[n];
      if (status == Status::kOk) continue;
      InputImage& image = images_[job_images_[n]];
      image.status = status;
      images_.ReportFile(input, job_images_[n],
                         dali::make_string(", tile ", tile, " of ", image.view.info.tile_count()));
    }
    statuses_.clear();
    for (int i = 0; i < input.num_samples(); ++i) {
      statuses_.push_back(static_cast<int32_t>(images_[i].status));
      if (images_[i].status == Status::kOk) continue;
      Backend::Clear(
          ws, output.raw_mutable_tensor(i),
          static_cast<size_t>(dali::volume(output.tensor_shape_span(i))) * OutputBytes(type_));
    }
    if (return_status_ && !statuses_.empty()) {
      auto& out = ws.Output<typename Backend::OutputBackend>(1);  // contiguous, as all of ours
      backend_.Copy(ws, out.raw_mutable_tensor(0), statuses_.data(),
                    statuses_.size() * sizeof(statuses_[0]));
    }
  }

  // Set by constructors.
  DecodeRequest common_;  // what all images have in common
  dali::TensorLayout output_layout_ = "HWC";
  bool has_windows_ = false;  // an axis of windows comes first

 private:
  bool IsVolume() const { return output_layout_.find('D') >= 0; }
  // DALI knows windows as the frames of a sequence.
  dali::TensorLayout OutputLayout() const {
    return has_windows_ ? "F" + output_layout_ : output_layout_;
  }

  // The windows of an image.
  struct Output {
    std::vector<OutputPlan> plans;  // in the tensor of all of them
    std::vector<GroupOutput> groups;
    std::array<int64_t, 3> shape;  // of a window
    size_t window_count;  // of zeros, too
  };

  // The shape of a sample of the output. Windows are its first axis, or the axis D of a volume.
  dali::TensorShape<> ShapeOfSample(const Output& planned) const {
    std::vector<int64_t> axes(planned.shape.begin(), planned.shape.end());
    const int depth_axis = std::max(0, output_layout_.find('D'));
    if (has_windows_ || IsVolume()) axes.insert(axes.begin() + depth_axis, planned.window_count);
    axes.resize(OutputLayout().ndim());  // DHW has one channel
    return {axes.begin(), axes.end()};
  }

  void PlanOutput(const dali::Workspace& ws, int i) {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    InputImage& image = images_[i];
    Output& planned = outputs_[i];
    const Size shown = ShownSize(image.info, image.orientation);
    const bool failed = image.status != Status::kOk;
    DecodeRequest& request = asked_.request;
    request = common_;
    request.type = type_;
    request.orientation = image.orientation;
    asked_.windows.clear();
    asked_.misfit.clear();
    asked_.volume = failed ? VolumeShape{} : FindVolume(image.view);
    Ask(ws, i, shown, failed, &asked_);
    request.window_count = std::max<uint64_t>(1, asked_.windows.size());
    Misfit misfit = PlanWindows(image.info, &planned.plans);
    const uint32_t stored = OutputChannels(request, image.info);
    if (IsVolume() && output_layout_.ndim() == 3 && stored != 1 && asked_.misfit.empty()) {
      asked_.misfit = dali::make_string("`output_layout=\"DHW\"` is for one channel, and ",
                                        failures_.Name(input, i), " has ", stored, ".");
    }
    std::string wrong = asked_.misfit;
    if (misfit == Misfit::kValues) {
      wrong = StandInForValues(ws, i, asked_, &image.info);
    } else if (!wrong.empty()) {
      misfit = Misfit::kWindow;
    } else if (misfit != Misfit::kNone) {
      wrong = Explain(misfit, input, i, shown);
    }
    if (!failed && misfit != Misfit::kNone) {
      failures_.Report(wrong);
      image.status = misfit == Misfit::kPixels ? Status::kOutputTooSmall : Status::kInvalidArgument;
    }
    const uint32_t channels = OutputChannels(request, image.info);
    Size window = asked_.size;
    planned.window_count = asked_.windows.size();
    if (image.status != Status::kOk) {
      // Zeros have the shape that the windows would have.
      window = {std::max<int64_t>(1, window.width_px), std::max<int64_t>(1, window.height_px)};
      if (IsTooLarge(request, window, channels)) {
        window = {1, 1};
        planned.window_count = 1;
      }
    }
    planned.shape = ShapeOf(request.layout, window, channels);
    planned.groups.clear();
    if (image.status != Status::kOk) return;
    planned.groups = PlanGroups(request, image.view, planned.plans.data(), planned.plans.size());
    if (!planned.groups.empty()) return;
    image.status = Status::kCorruptHeader;  // it has changed since it was validated
    failures_.Report(input, i, image.status);
  }

  // Plans the windows of an image, up to one that does not fit.
  Misfit PlanWindows(const ImageInfo& info, std::vector<OutputPlan>* plans) {
    plans->clear();
    OutputPlan plan;
    OutputTensor window;
    Misfit misfit = PlanImage(asked_.request, info, &plan);
    ImageInfo shown = info;
    const VolumeShape& volume = asked_.volume;
    if (volume.depth != 0) shown.height_px = volume.height_px;  // of a slice
    for (size_t i = 0; misfit == Misfit::kNone && i < asked_.windows.size(); ++i) {
      asked_.request.window = asked_.windows[i];
      const int64_t z = asked_.z + static_cast<int64_t>(i);
      const bool is_outside = volume.depth != 0 && (z < 0 || z >= int64_t{volume.depth});
      if (is_outside && !asked_.request.pads) return Misfit::kWindow;
      // Slices outside of the volume have nothing but border.
      if (is_outside) asked_.request.window->y.begin_px = volume.height_px;
      misfit = PlanWindow(asked_.request, shown, &plan, &window);
      if (misfit != Misfit::kNone) break;
      if (!is_outside) plan.window.y_px += static_cast<uint32_t>(z) * volume.rows;
      if (IsVolume()) PlaceSlice(&plan, &window);
      plan.origin_bytes += static_cast<int64_t>(i * window.bytes);
      plans->push_back(plan);
    }
    return misfit;
  }

  // Slices of a volume are within its channels, where these come first.
  void PlaceSlice(OutputPlan* plan, OutputTensor* slice) const {
    if (asked_.request.layout != kChw) return;
    const int64_t slice_bytes = slice->stride(Axis::kChannel);
    plan->SetChannelStride(slice_bytes * static_cast<int64_t>(asked_.windows.size()));
    slice->bytes = static_cast<uint64_t>(slice_bytes);
  }

  // Why the request does not fit an image.
  std::string Explain(Misfit misfit, const Input& input, int i, const Size& shown) const {
    const std::string name = failures_.Name(input, i);
    const ImageInfo& info = images_[i].info;
    switch (misfit) {
      case Misfit::kType:
        return dali::make_string(name, RefuseType(info, type_, asked_.request.fills_range), ".");
      case Misfit::kChannel:
        return dali::make_string("`channels` asks for ", FindMissing(info, asked_.request.channels),
                                 ", but ", name, " has ", info.channels,
                                 " channels, numbered from 0.");
      case Misfit::kColors:
        return dali::make_string(name, " has ", info.channels,
                                 " channels, and only up to 4 can be converted to colors: use "
                                 "`output_type=types.ANY_DATA`, and `channels` to select some.");
      default: break;
    }
    const auto [x, y] = *asked_.request.window;
    if (misfit == Misfit::kPixels) {
      std::string windows;
      if (has_windows_ || IsVolume()) {
        const char* const kind = IsVolume() ? " slices of " : " windows of ";
        windows = dali::make_string(asked_.windows.size(), kind);
      }
      const uint32_t channels = OutputChannels(asked_.request, info);
      return dali::make_string(
          "The output of ", name, " would have ", windows, y.size_px, " x ", x.size_px,
          " pixels (height x width)",
          PixelCost(channels) == 1 ? "" : dali::make_string(" of ", channels, " channels"),
          ", more than `max_pixels`, ", asked_.request.max_pixels, ".");
    }
    if (asked_.volume.depth != 0) {
      const int64_t end = asked_.z + static_cast<int64_t>(asked_.windows.size());
      return dali::make_string("The window [", asked_.z, "..", end, ", ", y.begin_px, "..",
                               y.end_px(), ", ", x.begin_px, "..", x.end_px(), "] of ", name,
                               " reaches out of the volume of ", asked_.volume.depth, " x ",
                               asked_.volume.height_px, " x ", shown.width_px,
                               " voxels (z, y, x). `out_of_bounds_policy=\"pad\"` fills it.");
    }
    // As DALI's decoders say it.
    return dali::make_string("The cropping window [", y.begin_px, "..", y.end_px(), ", ",
                             x.begin_px, "..", x.end_px(), "] of ", name,
                             " is not valid for image dimensions [", shown.height_px, " x ",
                             shown.width_px,
                             "]. `fn.l3.decode_crop_mirror_normalize` and `decode_windows` take "
                             "`out_of_bounds_policy=\"pad\"`.");
  }

  Backend backend_;
  FailurePolicy failures_;
  InputImages images_;
  std::optional<OutputType> asked_type_;
  bool return_status_;
  std::vector<Output> outputs_;  // of each image
  Asked asked_;  // of the image that is planned
  OutputType type_;  // of the batch
  // Kept from batch to batch for their memory.
  std::vector<WindowJob> jobs_;
  std::vector<int> job_images_;
  std::vector<int32_t> statuses_;
};

}  // namespace l3
