// The arguments of crops and slices, read for each sample. Layer: adapter; the arithmetic
// is output/region.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/core/static_switch.h"
#include "dali/pipeline/data/views.h"
#include "dali/pipeline/operator/arg_helper.h"
#include "dali/pipeline/operator/op_spec.h"
#include "dali/pipeline/workspace/workspace.h"
#include "output/region.h"

namespace l3 {

// The arguments of DALI's schema CropAttr. `spec` must outlive it.
class CropArguments {
 public:
  explicit CropArguments(const dali::OpSpec& spec) : spec_(spec) {
    const bool has_h = spec.ArgumentDefined("crop_h");
    const bool has_w = spec.ArgumentDefined("crop_w");
    const bool has_d = spec.ArgumentDefined("crop_d");
    has_crop_ = spec.ArgumentDefined("crop");
    has_sides_ = has_h;
    DALI_ENFORCE(has_h == has_w, "`crop_w` and `crop_h` must be given together.");
    DALI_ENFORCE(has_w || !has_d, "`crop_d` needs `crop_w` and `crop_h`.");
    DALI_ENFORCE(!has_crop_ || !has_h,
                 "`crop` cannot be combined with `crop_h`, `crop_w` or `crop_d`.");
    if (spec.HasArgument("crop")) crop_ = spec.GetRepeatedArgument<float>("crop");

    const std::string rounding = spec.GetArgument<std::string>("rounding");
    DALI_ENFORCE(
        rounding == "round" || rounding == "truncate",
        dali::make_string("`rounding` must be \"round\" or \"truncate\", got \"", rounding, "\"."));
    rounding_ = rounding == "round" ? Rounding::kNearest : Rounding::kTruncate;
  }

  // The region of a sample of `image`'s size. Where that is not to be relied on (`lenient`),
  // arguments that make no region give any.
  Region GetRegion(const dali::Workspace& ws, int sample, const Size& image, bool lenient) const {
    float height = 0;  // none: the whole axis
    float width = 0;
    if (has_sides_) {
      height = spec_.GetArgument<float>("crop_h", &ws, sample);
      width = spec_.GetArgument<float>("crop_w", &ws, sample);
    } else if (has_crop_) {
      // Height and width come last, behind the depth of volumes.
      const std::vector<float> crop = GetCrop(ws, sample);
      DALI_ENFORCE(crop.size() == 2 || crop.size() == 3,
                   dali::make_string("`crop` must have 2 or 3 elements, got ", crop.size(), "."));
      height = crop[crop.size() - 2];
      width = crop[crop.size() - 1];
    }
    return {GetExtent(ws, sample, image.width_px, width, "crop_pos_x", lenient),
            GetExtent(ws, sample, image.height_px, height, "crop_pos_y", lenient)};
  }

 private:
  std::vector<float> GetCrop(const dali::Workspace& ws, int sample) const {
    if (!spec_.HasTensorArgument("crop")) return crop_;
    const auto values = dali::view<const float, 1>(ws.ArgumentInput("crop"))[sample];
    return {values.data, values.data + values.num_elements()};
  }

  Extent GetExtent(const dali::Workspace& ws, int sample, int64_t image_px, float crop_px,
                   const char* position_name, bool lenient) const {
    const float position = spec_.GetArgument<float>(position_name, &ws, sample);
    Extent extent = {0, 1};
    DALI_ENFORCE(
        CropExtent(image_px, crop_px, position, rounding_, &extent) || lenient,
        dali::make_string("Invalid crop of sample ", sample, ": ", crop_px, " pixels at `",
                          position_name, "` ", position,
                          ". The size must fit in 32 bits and the position within [0, 1]."));
    return extent;
  }

  const dali::OpSpec& spec_;
  bool has_crop_, has_sides_;
  std::vector<float> crop_;
  Rounding rounding_;
};

// The arguments of DALI's schema SliceAttr: named ones, or two inputs behind the first.
// `spec` must outlive it.
class SliceArguments {
 public:
  explicit SliceArguments(const dali::OpSpec& spec)
      : spec_(spec),
        start_("start", spec),
        rel_start_("rel_start", spec),
        end_("end", spec),
        rel_end_("rel_end", spec),
        shape_("shape", spec),
        rel_shape_("rel_shape", spec),
        axes_("axes", spec) {
    DALI_ENFORCE(start_.HasExplicitValue() + rel_start_.HasExplicitValue() <= 1,
                 "`start` cannot be combined with `rel_start`.");
    const int ends = end_.HasExplicitValue() + rel_end_.HasExplicitValue() +
                     shape_.HasExplicitValue() + rel_shape_.HasExplicitValue();
    DALI_ENFORCE(ends <= 1, "Only one of `end`, `rel_end`, `shape` and `rel_shape` can be given.");
    named_ = ends > 0 || start_.HasExplicitValue() || rel_start_.HasExplicitValue();
    DALI_ENFORCE(!spec.ArgumentDefined("axes") || !spec.HasArgument("axis_names"),
                 "`axes` cannot be combined with `axis_names`.");
    normalized_anchor_ = spec.GetArgument<bool>("normalized_anchor");
    normalized_shape_ = spec.GetArgument<bool>("normalized_shape");
  }

  // Reads the arguments of a batch. They must outlive the calls of GetRegion.
  void Acquire(const dali::Workspace& ws) {
    const int samples = ws.GetInputBatchSize(0);
    if (samples == 0) return;  // DALI looks at the first of the shapes.
    AcquireAxes(ws, samples);
    if (!named_) {
      DALI_ENFORCE(ws.NumInput() == 3,
                   "A slice needs named arguments, such as `start` and `shape`, or the inputs "
                   "anchor and shape.");
      return AcquireInputs(ws);
    }
    DALI_ENFORCE(ws.NumInput() == 1,
                 "Named slice arguments cannot be combined with the inputs anchor and shape.");
    dali::TensorListShape<1> counts(samples);
    for (int i = 0; i < samples; ++i) {
      counts.set_tensor_shape(i,
                              dali::TensorShape<1>(static_cast<int64_t>(sample_axes_[i].size())));
    }
    const auto acquire = [&](auto& argument) {
      if (!argument.HasExplicitValue()) return;
      argument.Acquire(spec_, ws, samples, counts, dali::ArgValue_AllowEmpty);
    };
    acquire(start_);
    acquire(rel_start_);
    acquire(end_);
    acquire(rel_end_);
    acquire(shape_);
    acquire(rel_shape_);
  }

  // The region of a sample of `image`'s size. Where the bounds make none, `misfit` says so, and
  // the region is any.
  Region GetRegion(int sample, const Size& image, std::string* misfit) const {
    Region region = WholeImage(image);
    const std::vector<Axis>& axes = sample_axes_[sample];
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool vertical = axes[i] == Axis::kVertical;
      const int64_t image_px = vertical ? image.height_px : image.width_px;
      SliceBound start, end, shape;
      if (named_) {
        start = Pick(start_, rel_start_, sample, i);
        end = Pick(end_, rel_end_, sample, i);
        shape = Pick(shape_, rel_shape_, sample, i);
      } else {
        start = anchors_[sample][i];
        shape = shapes_[sample][i];
      }
      Extent* extent = vertical ? &region.y : &region.x;
      if (!SliceExtent(image_px, start, end, shape, !named_, extent)) {
        *misfit = dali::make_string("Invalid slice of sample ", sample, " along ",
                                    vertical ? 'H' : 'W', " (", image_px, " pixels): start ",
                                    start.value, ", end ", end.value, ", shape ", shape.value,
                                    " (0 where not given). Bounds must be finite, and the end not "
                                    "before the start.");
      }
    }
    return region;
  }

 private:
  enum class Axis { kVertical, kHorizontal };  // in the order of indices

  void AcquireAxes(const dali::Workspace& ws, int samples) {
    std::vector<int> indices;  // of all samples
    if (spec_.HasTensorArgument("axes")) {
      axes_.Acquire(spec_, ws, samples);
    } else if (spec_.HasArgument("axes")) {
      indices = spec_.GetRepeatedArgument<int>("axes");
    } else {
      for (const char name : spec_.GetArgument<dali::TensorLayout>("axis_names")) {
        DALI_ENFORCE(name == 'H' || name == 'W',
                     dali::make_string("`axis_names` must contain only H and W, got ", name, "."));
        indices.push_back(name == 'H' ? 0 : 1);
      }
    }
    sample_axes_.clear();
    for (int i = 0; i < samples; ++i) {
      if (spec_.HasTensorArgument("axes")) {
        indices.assign(axes_[i].data, axes_[i].data + axes_[i].num_elements());
      }
      sample_axes_.push_back(MakeAxes(indices));
    }
  }

  static std::vector<Axis> MakeAxes(const std::vector<int>& indices) {
    DALI_ENFORCE(!indices.empty(), "`axes` must have one or two numbers, got none.");
    std::vector<Axis> axes;
    for (const int index : indices) {
      DALI_ENFORCE(index >= -2 && index < 2,
                   dali::make_string("Axis ", index, " is out of range [-2, 1]."));
      axes.push_back(index % 2 == 0 ? Axis::kVertical : Axis::kHorizontal);
    }
    DALI_ENFORCE(axes.size() == 1 || (axes.size() == 2 && axes[0] != axes[1]),
                 "An axis occurs more than once in `axes`.");
    return axes;
  }

  // The i-th value of the one that is given.
  static SliceBound Pick(const dali::ArgValue<int, 1>& pixels,
                         const dali::ArgValue<float, 1>& share, int sample, size_t i) {
    if (pixels.HasExplicitValue() && !pixels.IsEmpty(sample)) {
      return {SliceBound::Unit::kPixels, static_cast<double>(pixels[sample].data[i])};
    }
    if (share.HasExplicitValue() && !share.IsEmpty(sample)) {
      return {SliceBound::Unit::kShare, static_cast<double>(share[sample].data[i])};
    }
    return {};
  }

  void AcquireInputs(const dali::Workspace& ws) {
    const auto& anchors = ws.Input<dali::CPUBackend>(1);
    const auto& shapes = ws.Input<dali::CPUBackend>(2);
    DALI_ENFORCE(anchors.type() == shapes.type(),
                 dali::make_string("The inputs anchor and shape must have the same type, got ",
                                   anchors.type(), " and ", shapes.type(), "."));
    TYPE_SWITCH(anchors.type(), dali::type2id, T, (int32_t, int64_t, float),
                (ReadBounds<T>(anchors, normalized_anchor_, &anchors_);
                 ReadBounds<T>(shapes, normalized_shape_, &shapes_);),
                (DALI_FAIL(dali::make_string(
                    "The inputs anchor and shape must be int32, int64 or float, got ",
                    anchors.type(), "."))));
  }

  template <typename T>
  void ReadBounds(const dali::TensorList<dali::CPUBackend>& input, bool normalized,
                  std::vector<std::vector<SliceBound>>* bounds) {
    bounds->assign(input.num_samples(), {});
    const bool share = normalized && std::is_floating_point_v<T>;
    for (int i = 0; i < input.num_samples(); ++i) {
      const int64_t count = dali::volume(input.tensor_shape_span(i));
      DALI_ENFORCE(
          count == static_cast<int64_t>(sample_axes_[i].size()),
          dali::make_string("The inputs anchor and shape must have one element for each of ",
                            sample_axes_[i].size(), " axes, got ", count, "."));
      for (int64_t k = 0; k < count; ++k) {
        (*bounds)[i].push_back({share ? SliceBound::Unit::kShare : SliceBound::Unit::kPixels,
                                static_cast<double>(input.tensor<T>(i)[k])});
      }
    }
  }

  const dali::OpSpec& spec_;
  dali::ArgValue<int, 1> start_;
  dali::ArgValue<float, 1> rel_start_;
  dali::ArgValue<int, 1> end_;
  dali::ArgValue<float, 1> rel_end_;
  dali::ArgValue<int, 1> shape_;
  dali::ArgValue<float, 1> rel_shape_;
  dali::ArgValue<int, 1> axes_;
  bool named_, normalized_anchor_, normalized_shape_;
  std::vector<std::vector<Axis>> sample_axes_;
  std::vector<std::vector<SliceBound>> anchors_, shapes_;
};

// The arguments of many windows an image: anchors as a second input, a grid, or random places.
// `spec` must outlive it.
class WindowArguments {
 public:
  explicit WindowArguments(const dali::OpSpec& spec)
      : spec_(spec), window_("window", spec), stride_("stride", spec) {
    has_count_ = spec.ArgumentDefined("count");
    const int ways = (spec.NumRegularInput() == 2) + stride_.HasExplicitValue() + has_count_;
    DALI_ENFORCE(ways == 1,
                 dali::make_string("Windows need exactly one of `stride`, `count` and anchors as a "
                                   "second input, got ",
                                   ways, " of them."));
    const bool has_area =
        spec.ArgumentDefined("random_area") || spec.ArgumentDefined("random_aspect_ratio");
    DALI_ENFORCE(has_count_ || !has_area, "`random_area` and `random_aspect_ratio` need `count`.");
    DALI_ENFORCE(!window_.HasExplicitValue() || !has_area,
                 "`window` cannot be combined with `random_area` or `random_aspect_ratio`.");
    DALI_ENFORCE(window_.HasExplicitValue() || has_count_,
                 "`window`, the height and width of the windows, is missing.");
  }

  // Reads the arguments of a batch. They must outlive the calls of GetRegions.
  void Acquire(const dali::Workspace& ws) {
    const int samples = ws.GetInputBatchSize(0);
    const auto acquire = [&](dali::ArgValue<int, 1>& argument) {
      if (argument.HasExplicitValue())
        argument.Acquire(spec_, ws, samples, dali::TensorShape<1>{2});
    };
    acquire(window_);
    acquire(stride_);
    ws_ = &ws;
    if (spec_.NumRegularInput() != 2) return;
    const auto& anchors = ws.Input<dali::CPUBackend>(1);
    DALI_ENFORCE(
        anchors.type() == DALI_INT32 || anchors.type() == DALI_INT64,
        dali::make_string("The anchors must be int32 or int64, got ", anchors.type(), "."));
    for (int i = 0; i < samples; ++i) {
      const auto& shape = anchors.tensor_shape_span(i);
      DALI_ENFORCE(shape.size() == 2 && shape[1] == 2,
                   dali::make_string("The anchors of sample ", i,
                                     " must have shape N x 2, y and x of each window, got ",
                                     anchors.tensor_shape(i), "."));
    }
  }

  // The windows of a sample of `image`'s size, and their own. `random_size` draws one of a random
  // size.
  template <typename RandomSize, typename Random>
  Size GetRegions(int sample, const Size& image, bool failed, bool pads,
                  const RandomSize& random_size, Random* random, std::vector<Region>* regions,
                  std::string* misfit) const {
    Size window;
    if (window_.HasExplicitValue()) {
      window = {window_[sample].data[1], window_[sample].data[0]};
      DALI_ENFORCE(
          window.width_px > 0 && window.height_px > 0,
          dali::make_string("`window` of sample ", sample, " is ", window.height_px, " x ",
                            window.width_px, " pixels (height x width): both must be 1 or more."));
    } else {
      window = random_size();
    }
    if (stride_.HasExplicitValue()) {
      AppendGrid(sample, image, window, pads, regions, misfit);
    } else if (has_count_) {
      AppendRandom(sample, image, window, pads, random, regions);
    } else if (ws_->Input<dali::CPUBackend>(1).type() == DALI_INT32) {
      AppendAnchors<int32_t>(sample, window, regions, misfit);
    } else {
      AppendAnchors<int64_t>(sample, window, regions, misfit);
    }
    if (failed) misfit->clear();
    return window;
  }

 private:
  // Each takes its plan: more are hardly meant, and would not fit in memory.
  static constexpr int64_t kMaxWindows = 1 << 16;
  // Places beyond are no pixels of anything; sums of them fit in 64 bits.
  static constexpr int64_t kMaxPlace = int64_t{1} << 48;

  static std::string TooMany(int sample, int64_t rows, int64_t columns) {
    return dali::make_string("Sample ", sample, " would have ", rows, " x ", columns,
                             " windows; more than ", kMaxWindows, " are not supported.");
  }

  template <typename T>
  void AppendAnchors(int sample, const Size& window, std::vector<Region>* regions,
                     std::string* misfit) const {
    const auto& anchors = ws_->Input<dali::CPUBackend>(1);
    const int64_t count = anchors.tensor_shape_span(sample)[0];
    if (count > kMaxWindows) {
      *misfit = TooMany(sample, count, 1);
      regions->push_back({});
      return;
    }
    const T* data = anchors.tensor<T>(sample);
    const auto place = [](T value) {
      return std::clamp<int64_t>(static_cast<int64_t>(value), -kMaxPlace, kMaxPlace);
    };
    for (int64_t i = 0; i < count; ++i) {
      regions->push_back(
          {{place(data[2 * i + 1]), window.width_px}, {place(data[2 * i]), window.height_px}});
    }
  }

  // Windows of an axis: those that fit, or, where windows may reach out, as many as cover it.
  static int64_t GridCount(int64_t image_px, int64_t window_px, int64_t stride_px, bool pads) {
    const int64_t rest = std::max<int64_t>(0, image_px - window_px);
    if (!pads) return rest / stride_px + 1;
    const auto steps = [stride_px](int64_t px) { return (px + stride_px - 1) / stride_px; };
    return std::min(steps(rest) + 1, steps(image_px));  // none begins outside
  }

  void AppendGrid(int sample, const Size& image, const Size& window, bool pads,
                  std::vector<Region>* regions, std::string* misfit) const {
    const int64_t stride_y = stride_[sample].data[0];
    const int64_t stride_x = stride_[sample].data[1];
    DALI_ENFORCE(stride_y > 0 && stride_x > 0,
                 dali::make_string("`stride` of sample ", sample, " is (", stride_y, ", ", stride_x,
                                   "): both must be 1 pixel or more."));
    const int64_t rows = GridCount(image.height_px, window.height_px, stride_y, pads);
    const int64_t columns = GridCount(image.width_px, window.width_px, stride_x, pads);
    if (rows > kMaxWindows / columns) {
      *misfit = TooMany(sample, rows, columns);
      regions->push_back({});
      return;
    }
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) {
        regions->push_back({{x * stride_x, window.width_px}, {y * stride_y, window.height_px}});
      }
    }
  }

  template <typename Random>
  void AppendRandom(int sample, const Size& image, const Size& window, bool pads, Random* random,
                    std::vector<Region>* regions) const {
    const int count = spec_.GetArgument<int>("count", ws_, sample);
    DALI_ENFORCE(count >= 0 && count <= kMaxWindows,
                 dali::make_string("`count` of sample ", sample, " must be 0 to ", kMaxWindows,
                                   ", got ", count, "."));
    // Windows larger than the image reach out on both sides, or are found outside of it.
    const auto place = [&](int64_t image_px, int64_t window_px) {
      const int64_t room = image_px - window_px;
      if (room < 0 && !pads) return int64_t{0};
      return std::uniform_int_distribution<int64_t>(std::min<int64_t>(0, room),
                                                    std::max<int64_t>(0, room))(*random);
    };
    for (int i = 0; i < count; ++i) {
      const int64_t y = place(image.height_px, window.height_px);
      const int64_t x = place(image.width_px, window.width_px);
      regions->push_back({{x, window.width_px}, {y, window.height_px}});
    }
  }

  const dali::OpSpec& spec_;
  dali::ArgValue<int, 1> window_, stride_;
  bool has_count_;
  const dali::Workspace* ws_ = nullptr;  // of the batch
};

// The arguments of a patch of a volume: its anchor as a second input, or a random place. `spec`
// must outlive it.
class PatchArguments {
 public:
  using Extents = std::array<Extent, 3>;  // z, y and x

  explicit PatchArguments(const dali::OpSpec& spec) : spec_(spec), window_("window", spec) {
    DALI_ENFORCE(window_.HasExplicitValue() || spec.NumRegularInput() == 1,
                 "`window`, the depth, height and width of the patch at the anchor, is missing.");
  }

  // Reads the arguments of a batch. They must outlive the calls of GetExtents.
  void Acquire(const dali::Workspace& ws) {
    const int samples = ws.GetInputBatchSize(0);
    if (window_.HasExplicitValue()) {
      window_.Acquire(spec_, ws, samples, dali::TensorShape<1>{3});
    }
    anchors_ = spec_.NumRegularInput() == 2 ? &ws.Input<dali::CPUBackend>(1) : nullptr;
    if (anchors_ == nullptr) return;
    DALI_ENFORCE(
        anchors_->type() == DALI_INT32 || anchors_->type() == DALI_INT64,
        dali::make_string("The anchors must be int32 or int64, got ", anchors_->type(), "."));
    for (int i = 0; i < samples; ++i) {
      DALI_ENFORCE(dali::volume(anchors_->tensor_shape_span(i)) == 3,
                   dali::make_string("The anchor of sample ", i,
                                     " must have three elements, z, y and x, got shape ",
                                     anchors_->tensor_shape(i), "."));
    }
  }

  // The patch of a sample of `volume`'s depth, height and width.
  template <typename Random>
  Extents GetExtents(int sample, const std::array<int64_t, 3>& volume, bool pads,
                     Random* random) const {
    Extents extents;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t size = window_.HasExplicitValue() ? window_[sample].data[i] : volume[i];
      DALI_ENFORCE(size >= 1 && size <= kMaxSide,
                   dali::make_string("The patch of sample ", sample, " has a side of ", size,
                                     " voxels; it must be 1 to ", kMaxSide, "."));
      extents[i] = {0, size};
      const int64_t room = volume[i] - size;
      if (anchors_ != nullptr) {
        const int64_t place = anchors_->type() == DALI_INT32
                                  ? int64_t{anchors_->tensor<int32_t>(sample)[i]}
                                  : anchors_->tensor<int64_t>(sample)[i];
        extents[i].begin_px = std::clamp<int64_t>(place, -kMaxPlace, kMaxPlace);
      } else if (room > 0 || pads) {
        // Patches larger than the volume reach out on both sides.
        extents[i].begin_px = std::uniform_int_distribution<int64_t>(
            std::min<int64_t>(0, room), std::max<int64_t>(0, room))(*random);
      }
    }
    return extents;
  }

 private:
  static constexpr int64_t kMaxSide = 1 << 16;  // each slice takes its plan
  static constexpr int64_t kMaxPlace = int64_t{1} << 40;  // sums of places fit in 64 bits

  const dali::OpSpec& spec_;
  dali::ArgValue<int, 1> window_;
  const dali::TensorList<dali::CPUBackend>* anchors_ = nullptr;  // of the batch
};

}  // namespace l3
