// What all decoding operators share: reading a batch, planning its outputs, decoding,
// reporting. Layer: adapter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/operator/checkpointing/stateless_operator.h"
#include "dali/pipeline/operator/common.h"
#include "dali/pipeline/operator/operator.h"
#include "files/file_handle.h"
#include "format/image_view.h"
#include "op/decode_times.h"
#include "op/failures.h"
#include "output/request.h"
#include "output/window_job.h"

namespace l3 {

inline Colors ParseColors(dali::DALIImageType type) {
  switch (type) {
    case dali::DALI_RGB: return Colors::kRgb;
    case dali::DALI_BGR: return Colors::kBgr;
    case dali::DALI_GRAY: return Colors::kGray;
    case dali::DALI_YCbCr: return Colors::kYcbcr;
    case dali::DALI_ANY_DATA: return Colors::kStored;
  }
  DALI_FAIL(dali::make_string("Unsupported image type: ", static_cast<int>(type), "."));
}

inline OutputType ParseType(dali::DALIDataType type) {
  switch (type) {
    case DALI_UINT8: return OutputType::kU8;
    case DALI_INT8: return OutputType::kI8;
    case DALI_UINT16: return OutputType::kU16;
    case DALI_INT16: return OutputType::kI16;
    case DALI_UINT32: return OutputType::kU32;
    case DALI_INT32: return OutputType::kI32;
    case DALI_INT64: return OutputType::kI64;
    case DALI_FLOAT16: return OutputType::kF16;
    case DALI_FLOAT: return OutputType::kF32;
    default:
      DALI_FAIL(
          dali::make_string("`dtype` is one of uint8, int8, uint16, int16, uint32, int32, "
                            "int64, float16 and float, got ",
                            type, "."));
  }
}

inline dali::DALIDataType DaliType(OutputType type) {
  switch (type) {
    case OutputType::kU8: return DALI_UINT8;
    case OutputType::kI8: return DALI_INT8;
    case OutputType::kU16: return DALI_UINT16;
    case OutputType::kI16: return DALI_INT16;
    case OutputType::kU32: return DALI_UINT32;
    case OutputType::kI32: return DALI_INT32;
    case OutputType::kI64: return DALI_INT64;
    case OutputType::kF16: return DALI_FLOAT16;
    case OutputType::kF32: break;
  }
  return DALI_FLOAT;
}

inline void EnforceEncoded(const dali::TensorList<dali::CPUBackend>& input) {
  DALI_ENFORCE(input.type() == DALI_UINT8 && input.sample_dim() == 1,
               dali::make_string("L3 operators expect encoded files as 1-D uint8 tensors, got ",
                                 input.sample_dim(), "-D ", input.type(), "."));
}

// A decoding operator on a backend (CpuBackend or MixedBackend). Derived classes say which
// part of an image to decode, and what to make of its samples.
template <typename Backend>
class DecodeOperator : public dali::StatelessOperator<typename Backend::DaliBackend> {
 public:
  explicit DecodeOperator(const dali::OpSpec& spec)
      : dali::StatelessOperator<typename Backend::DaliBackend>(spec),
        backend_(spec),
        failures_(spec),
        clock_(spec.GetArgument<int64_t>("_times"), Backend::kPlace),
        adjust_orientation_(spec.GetArgument<bool>("adjust_orientation")),
        return_status_(spec.GetArgument<bool>("return_status")) {
    const int64_t max_pixels = spec.GetArgument<int64_t>("max_pixels");
    DALI_ENFORCE(max_pixels >= 1 && max_pixels <= static_cast<int64_t>(kMaxPixels),
                 dali::make_string("`max_pixels` is 1 to 2^31, got ", max_pixels, "."));
    request_.max_pixels = static_cast<uint64_t>(max_pixels);
    request_.colors = ParseColors(spec.GetArgument<dali::DALIImageType>("output_type"));
    std::vector<int> channels;
    if (spec.TryGetRepeatedArgument(channels, "channels")) {
      const std::string wrong =
          ParseChannels({channels.begin(), channels.end()}, &request_.channels);
      DALI_ENFORCE(!channels.empty() && wrong.empty(),
                   dali::make_string("`channels` is a list of different numbers",
                                     wrong.empty() ? "" : ": ", wrong, "."));
      DALI_ENFORCE(request_.colors == Colors::kStored,
                   "`channels` are those of the file: they need the `output_type` ANY_DATA.");
    }
    dali::DALIDataType dtype;
    has_type_ = spec.TryGetArgument(dtype, "dtype");
    if (has_type_) type_ = ParseType(dtype);
    bool fill_range;
    if (spec.TryGetArgument(fill_range, "fill_range")) request_.fills_range = fill_range;
  }

 protected:
  using Input = dali::TensorList<dali::CPUBackend>;

  // Reads the arguments of a batch that are read at once. Called first.
  virtual void Acquire(const dali::Workspace&) {}
  // Each of these is called once for a sample. `failed` says that its file is damaged: its size and
  // channels may be those of a stand-in, and arguments need not fit it. If arguments do not fit
  // this sample but may fit others, the string gets the reason.
  virtual Region GetRegion(const dali::Workspace&, int, const Size& image, bool, std::string*) {
    return WholeImage(image);
  }
  // The windows of a sample, all of one size, which is returned.
  virtual Size GetRegions(const dali::Workspace& ws, int sample, const Size& image, bool failed,
                          std::vector<Region>* regions, std::string* misfit) {
    Region region = GetRegion(ws, sample, image, failed, misfit);
    if (trims_) region = Trim(region, image);
    regions->push_back(region);
    return {region.x.size_px, region.y.size_px};
  }
  virtual bool IsMirrored(const dali::Workspace&, int) { return false; }
  // The output channels of an image, where a batch needs one number of them; 0 where it does not.
  virtual uint32_t CommonChannels(const ImageInfo&) const { return 0; }
  // Says which `dtype` an image of 8 or 16 bits allows, if not all.
  virtual const char* TypeAdvice() const {
    return " (photographs of 8 and of 16 bits need `fill_range=True` with it)";
  }
  // Sets normalization and fill of the request.
  virtual void SetValues(const dali::Workspace&, int, bool) {}
  // What is wrong with these. Changes the channels of the image, which stands for zeros, to what
  // would fit.
  virtual std::string StandInForValues(const dali::Workspace&, int, ImageInfo*) { return ""; }

  // A sample as messages name it.
  std::string Name(const dali::Workspace& ws, int sample) const {
    return failures_.Name(ws.Input<dali::CPUBackend>(0), sample);
  }

  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    clock_.Start();
    const Input& input = ws.Input<dali::CPUBackend>(0);
    const bool is_part = this->spec_.HasTensorArgument("_numbers");
    failures_.SetNumbers(is_part ? &ws.ArgumentInput("_numbers") : nullptr);
    ReadBatch(input);
    Acquire(ws);
    SetChannels(input);
    const int count = input.num_samples();
    outputs.resize(1);
    outputs[0].type = DaliType(type_);
    outputs[0].shape = dali::TensorListShape<>(count, has_windows_ ? 4 : 3);
    for (int i = 0; i < count; ++i) {
      PlanSample(ws, i);
      const auto& shape = samples_[i].shape;
      dali::TensorShape<> tensor{shape[0], shape[1], shape[2]};
      if (has_windows_) tensor = dali::shape_cat(samples_[i].window_count, tensor);
      outputs[0].shape.set_tensor_shape(i, tensor);
    }
    if (return_status_) {
      outputs.push_back({dali::TensorListShape<>(count, 0), DALI_INT32});
    }
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<typename Backend::OutputBackend>(0);
    // DALI knows windows as the frames of a sequence.
    output.SetLayout(has_windows_ ? "F" + output_layout_ : output_layout_);
    jobs_.clear();
    job_samples_.clear();
    plans_.clear();
    size_t windows = 0;
    for (const Sample& sample : samples_) windows += sample.plans.size();
    plans_.reserve(windows);  // jobs point at them
    for (int i = 0; i < input.num_samples(); ++i) {
      const Sample& sample = samples_[i];
      if (sample.status != Status::kOk) continue;
      const OutputPlan* const plans = plans_.data() + plans_.size();
      auto* window = static_cast<uint8_t*>(output.raw_mutable_tensor(i));
      for (const TensorPlan& plan : sample.plans) {
        plans_.push_back(PlaceOutput(sample.shares, plan, window));
        window += plan.bytes;
      }
      jobs_.push_back({&sample.view, &sample.shares, plans, sample.plans.size(), sample.cached});
      jobs_.back().reader = sample.reader.get();
      job_samples_.push_back(i);
    }
    const std::vector<DecodeResult> results = backend_.Decode(ws, job_samples_, &jobs_);
    for (size_t n = 0; n < results.size(); ++n) {
      const auto [status, tile] = results[n];
      if (status == Status::kOk) continue;
      Sample& sample = samples_[job_samples_[n]];
      sample.status = status;
      if (ReportFile(input, job_samples_[n])) continue;
      failures_.Report(input, job_samples_[n], status,
                       dali::make_string(", tile ", tile, " of ", sample.view.info.tile_count()));
    }
    statuses_.clear();
    for (int i = 0; i < input.num_samples(); ++i) {
      statuses_.push_back(static_cast<int32_t>(samples_[i].status));
      if (samples_[i].status == Status::kOk) continue;
      Backend::Clear(
          ws, output.raw_mutable_tensor(i),
          static_cast<size_t>(dali::volume(output.tensor_shape_span(i))) * OutputBytes(type_));
    }
    if (return_status_ && !statuses_.empty()) {
      auto& out = ws.Output<typename Backend::OutputBackend>(1);  // contiguous, as all of ours
      Backend::Copy(ws, out.raw_mutable_tensor(0), statuses_.data(),
                    statuses_.size() * sizeof(statuses_[0]));
    }
    clock_.Stop(samples_.size());
  }

  DecodeRequest request_;  // what samples have in common, and what the one has that is planned
  OutputType type_;        // of the batch
  bool trims_ = false;     // what of a region lies outside of the image
  dali::TensorLayout output_layout_ = "HWC";
  bool has_windows_ = false;  // an axis of windows comes first

 private:
  struct Sample {
    Status status;
    ImageView view;  // as far as ParseImage came; consistent if status is kOk
    std::unique_ptr<PayloadReader> reader;  // of a handle; else null
    uint64_t file_bytes;
    const CachedImage* cached;
    ImageInfo info;  // the file's, or what stands in for it
    Orientation orientation;
    std::vector<TensorPlan> plans;  // of each window
    std::vector<GroupOutput> shares;
    std::array<int64_t, 3> shape;  // of a window
    size_t window_count;           // of zeros, too
  };

  // Validates every sample of the batch. Views point into `input`.
  void ReadBatch(const Input& input) {
    if (input.num_samples() != 0) EnforceEncoded(input);
    samples_.resize(input.num_samples());
    backend_.ForEach(samples_.size(), [&](size_t n) {
      const int i = static_cast<int>(n);
      Sample& sample = samples_[n];
      const std::string& source = input.GetMeta(i).GetSourceInfo();
      const uint8_t* const data = input.tensor<uint8_t>(i);
      sample.file_bytes = static_cast<uint64_t>(input.tensor_shape_span(i)[0]);
      sample.reader.reset();
      FileHandle handle;
      if (!ReadHandle(data, sample.file_bytes, &handle)) {
        sample.status =
            backend_.Read(source, data, sample.file_bytes, &sample.view, &sample.cached);
        return;
      }
      sample.reader = std::make_unique<PayloadReader>(handle);
      sample.file_bytes = handle.bytes;
      sample.status = backend_.Read(source, handle, &sample.view, &sample.cached);
      if (handle.head_bytes == 0) sample.reader->Check();
    });
    int believed = -1;  // sample that cannot be read, but whose header can
    for (int i = 0; i < input.num_samples(); ++i) {
      Sample& sample = samples_[i];
      sample.info = sample.view.info;
      sample.orientation = kAsStored;
      if (sample.status != Status::kOk && !ReportFile(input, i)) {
        failures_.Report(input, i, sample.status);
      }
      if (sample.status != Status::kOk && !HasEarnedSize(sample.view, sample.file_bytes)) {
        sample.info = ImageInfo{};
        continue;
      }
      if (believed < 0) believed = i;
      if (adjust_orientation_) {
        sample.orientation = ReadOrientation(FindChunk(sample.view, kChunkExif));
      }
    }
    const int usual = FindUsualSample();
    const int like = usual >= 0 ? usual : believed;
    SetType(input, like);
    for (Sample& sample : samples_) {
      if (sample.info.width_px == 0) StandIn(like, &sample.info);
    }
  }

  // Reports why the file of a handle cannot be read. Returns false if that did not fail.
  bool ReportFile(const Input& input, int i) {
    const std::string error = samples_[i].reader == nullptr ? "" : samples_[i].reader->error();
    if (error.empty()) return false;
    failures_.Report(dali::make_string("L3 decoding failed at ", failures_.Name(input, i), ": ",
                                       Printable(error)));
    return true;
  }

  // Whether the size that a damaged file of `size` bytes claims is used: only if it has its index
  // and a sound file of so many bytes could hold the image.
  static bool HasEarnedSize(const ImageView& view, uint64_t size) {
    return view.tile_index != nullptr && uint64_t{view.info.width_px} * view.info.height_px <=
                                             MostPixels(size, view.info.channels);
  }

  // The first sample that can be read; where samples that do not fit become zeros, the first of
  // the type that most have. -1 without any.
  int FindUsualSample() const {
    int counts[kSampleTypes] = {};
    const auto count_of = [&counts](const Sample& sample) -> int& {
      return counts[static_cast<uint8_t>(sample.info.sample_type)];
    };
    int usual = -1;
    for (const Sample& sample : samples_) {
      if (sample.status == Status::kOk) ++count_of(sample);
    }
    for (size_t n = 0; n < samples_.size(); ++n) {
      if (samples_[n].status != Status::kOk) continue;
      const bool is_more = usual >= 0 && count_of(samples_[n]) > count_of(samples_[usual]);
      if (usual < 0 || (failures_.goes_on() && is_more)) usual = static_cast<int>(n);
    }
    return usual;
  }

  // A pixel such as the sample `like` has, if there is one.
  void StandIn(int like, ImageInfo* info) const {
    info->width_px = info->height_px = 1;
    info->channels = like < 0 ? uint16_t{1} : samples_[like].info.channels;
    info->sample_type = like < 0 ? SampleType::kUint8 : samples_[like].info.sample_type;
  }

  // The type of the batch: the one asked for, or that of the sample `like`.
  void SetType(const Input& input, int like) {
    if (has_type_) return;
    type_ = like < 0 ? OutputType::kU8 : StoredType(samples_[like].info);
    for (int i = 0; i < input.num_samples(); ++i) {
      Sample& sample = samples_[i];
      if (sample.status != Status::kOk || StoredType(sample.info) == type_) continue;
      failures_.Report(dali::make_string(
          "The output of a batch has one type, but ", failures_.Name(input, like), " holds ",
          DaliType(type_), " samples and ", failures_.Name(input, i), " ",
          DaliType(StoredType(sample.info)), " ones. Ask for a `dtype`", TypeAdvice(),
          ", or read files of different types in separate readers."));
      sample.status = Status::kInvalidArgument;
      sample.info.sample_type = samples_[like].info.sample_type;
    }
  }

  // Images whose output would have another number of channels than that of most images fail.
  void SetChannels(const Input& input) {
    std::map<uint32_t, int> counts;
    int usual = -1;
    for (const Sample& sample : samples_) {
      if (sample.status == Status::kOk) ++counts[CommonChannels(sample.info)];
    }
    for (size_t n = 0; n < samples_.size(); ++n) {
      if (samples_[n].status != Status::kOk) continue;
      const auto count_of = [&](size_t i) { return counts[CommonChannels(samples_[i].info)]; };
      if (usual < 0 || (failures_.goes_on() && count_of(n) > count_of(usual))) {
        usual = static_cast<int>(n);
      }
    }
    if (usual < 0) return;
    const uint16_t channels = samples_[usual].info.channels;
    for (size_t n = 0; n < samples_.size(); ++n) {
      Sample& sample = samples_[n];
      if (CommonChannels(sample.info) == CommonChannels(samples_[usual].info)) continue;
      if (sample.status == Status::kOk) {
        failures_.Report(dali::make_string("The output of a batch has one number of channels, but ",
                                           failures_.Name(input, usual), " has ", channels, " and ",
                                           failures_.Name(input, static_cast<int>(n)), " has ",
                                           sample.info.channels, ". ",
                                           std::max(channels, sample.info.channels) <= kMaxChannels
                                               ? "`output_type=types.RGB` gives three for both."
                                               : "`channels` chooses as many of each."));
        sample.status = Status::kInvalidArgument;
      }
      sample.info.channels = channels;
    }
  }

  void PlanSample(const dali::Workspace& ws, int i) {
    const Input& input = ws.Input<dali::CPUBackend>(0);
    Sample& sample = samples_[i];
    const Size image = ShownSize(sample.info, sample.orientation);
    const bool failed = sample.status != Status::kOk;
    std::string wrong;
    regions_.clear();
    Size window = GetRegions(ws, i, image, failed, &regions_, &wrong);
    request_.window_count = std::max<uint64_t>(1, regions_.size());
    request_.orientation = sample.orientation;
    request_.mirror = IsMirrored(ws, i);  // DALI looks at the whole batch.
    request_.type = type_;
    SetValues(ws, i, failed);
    TensorPlan plan;
    Misfit misfit = PlanWindows(&sample, &plan);
    if (misfit == Misfit::kValues) {
      wrong = StandInForValues(ws, i, &sample.info);
    } else if (!wrong.empty()) {
      misfit = Misfit::kWindow;
    } else if (misfit != Misfit::kNone) {
      wrong = Explain(misfit, input, i, image);
    }
    if (!failed && misfit != Misfit::kNone) {
      failures_.Report(wrong);
      sample.status =
          misfit == Misfit::kPixels ? Status::kOutputTooSmall : Status::kInvalidArgument;
    }
    const uint32_t channels = OutputChannels(request_, sample.info);
    if (sample.status != Status::kOk) {
      // Zeros have the shape that the windows would have.
      window = {std::max<int64_t>(1, window.width_px), std::max<int64_t>(1, window.height_px)};
      if (IsTooLarge(request_, window, channels)) {
        window = {1, 1};
        regions_.resize(1);
      }
    }
    sample.shape = ShapeOf(request_.layout, window, channels);
    sample.window_count = regions_.size();
    sample.shares.clear();
    if (sample.status != Status::kOk) return;
    sample.shares = SplitOutputByGroup(sample.view, plan);
    if (!sample.shares.empty()) return;
    sample.status = Status::kCorruptHeader;  // it has changed since it was validated
    failures_.Report(input, i, sample.status);
  }

  // Plans the windows of a sample, up to one that does not fit.
  Misfit PlanWindows(Sample* sample, TensorPlan* plan) {
    sample->plans.clear();
    Misfit misfit = PlanImage(request_, sample->info, plan);
    for (size_t i = 0; misfit == Misfit::kNone && i < regions_.size(); ++i) {
      request_.window = regions_[i];
      misfit = PlanWindow(request_, sample->info, plan);
      if (misfit == Misfit::kNone) sample->plans.push_back(*plan);
    }
    return misfit;
  }

  // Why the request does not fit a sample.
  std::string Explain(Misfit misfit, const Input& input, int i, const Size& image) const {
    const std::string name = failures_.Name(input, i);
    const ImageInfo& info = samples_[i].info;
    switch (misfit) {
      case Misfit::kType:
        return dali::make_string(name, RefuseType(info, type_, request_.fills_range), ".");
      case Misfit::kChannel:
        return dali::make_string("`channels` has ", FindMissing(info, request_.channels), ", and ",
                                 name, " has ", info.channels, " channels, numbered from 0.");
      case Misfit::kColors:
        return dali::make_string(name, " has ", info.channels,
                                 " channels, and colors are made of up to 4: use the "
                                 "`output_type` ANY_DATA, and `channels` for some of them.");
      default: break;
    }
    const auto [x, y] = *request_.window;
    if (misfit == Misfit::kPixels) {
      const std::string windows =
          has_windows_ ? dali::make_string(regions_.size(), " windows of ") : "";
      const uint32_t channels = OutputChannels(request_, info);
      return dali::make_string(
          "The output of ", name, " would have ", windows, y.size_px, " x ", x.size_px,
          " pixels (height x width)",
          PixelCost(channels) == 1 ? "" : dali::make_string(" of ", channels, " channels"),
          ", more than `max_pixels`, ", request_.max_pixels, ".");
    }
    // As DALI's decoders say it.
    return dali::make_string("The cropping window [", y.begin_px, "..", y.end_px(), ", ",
                             x.begin_px, "..", x.end_px(), "] of ", name,
                             " is not valid for image dimensions [", image.height_px, " x ",
                             image.width_px,
                             "]. `fn.l3.decode_crop_mirror_normalize` and `decode_windows` take "
                             "`out_of_bounds_policy=\"pad\"`.");
  }

  Backend backend_;
  FailurePolicy failures_;
  DecodeClock clock_;
  bool adjust_orientation_, return_status_, has_type_;
  std::vector<Sample> samples_;
  std::vector<Region> regions_;  // of a sample
  // Kept from batch to batch for their memory.
  std::vector<WindowJob> jobs_;
  std::vector<int> job_samples_;
  std::vector<OutputPlan> plans_;
  std::vector<int32_t> statuses_;
};

}  // namespace l3
