// The images of a batch as operators get them: validated, or with something that stands in for one
// that failed. Layer: adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/file_handle.h"
#include "format/image_view.h"
#include "op/dali_types.h"
#include "op/failures.h"
#include "op/remote_file.h"
#include "output/orientation.h"
#include "output/window_job.h"

namespace l3 {

struct InputImage {
  Status status;
  ImageView view;  // as far as ParseImage came; consistent if status is kOk
  std::unique_ptr<PayloadSource> source;  // of a handle; else null
  uint64_t file_bytes;
  const DeviceImage* cached;
  ImageInfo info;  // the file's, or what stands in for it
  Orientation orientation;
};

class InputImages {
 public:
  using Input = dali::TensorList<dali::CPUBackend>;

  InputImages(FailurePolicy* failures, bool adjusts_orientation)
      : failures_(*failures), adjusts_orientation_(adjusts_orientation) {}

  InputImage& operator[](size_t i) { return images_[i]; }
  const InputImage& operator[](size_t i) const { return images_[i]; }

  // Validates every image of the batch; views point into `input`. Returns the type of the outputs:
  // the one asked for, or that of most images. Others fail, with the `advice` what to ask for.
  template <class Backend>
  OutputType Read(Backend* backend, const Input& input, std::optional<OutputType> asked,
                  const char* advice) {
    if (input.num_samples() != 0) EnforceEncoded(input);
    images_.resize(input.num_samples());
    backend->ForEach(images_.size(), [&](size_t n) { ReadImage(backend, input, n); });
    int like = -1;  // an image that cannot be read, but whose header can
    for (int i = 0; i < input.num_samples(); ++i) {
      InputImage& image = images_[i];
      image.info = image.view.info;
      image.orientation = kAsStored;
      if (image.status != Status::kOk) ReportFile(input, i);
      if (image.status != Status::kOk && !HasPlausibleSize(image)) {
        image.info = ImageInfo{};
        continue;
      }
      if (like < 0) like = i;
      if (adjusts_orientation_) {
        image.orientation = ReadOrientation(FindChunk(image.view, kChunkExif));
      }
    }
    const int usual =
        FindUsual([](const ImageInfo& info) { return static_cast<uint32_t>(info.sample_type); });
    if (usual >= 0) like = usual;
    // A pixel such as that image has stands in for what cannot be read.
    ImageInfo pixel = {};
    pixel.channels = 1;
    pixel.sample_type = SampleType::kUint8;
    if (like >= 0) {
      pixel.channels = images_[like].info.channels;
      pixel.sample_type = images_[like].info.sample_type;
    }
    const OutputType type = StoredType(pixel);
    for (int i = 0; i < input.num_samples(); ++i) {
      InputImage& image = images_[i];
      if (!asked && image.status == Status::kOk && StoredType(image.info) != type) {
        failures_.Report(dali::make_string(
            "All outputs of a batch must have the same type, but ", failures_.Name(input, like),
            " holds ", DaliType(type), " and ", failures_.Name(input, i), " holds ",
            DaliType(StoredType(image.info)), ". Set a `dtype`", advice,
            ", or read files of different types in separate readers."));
        image.status = Status::kInvalidArgument;
        image.info.sample_type = pixel.sample_type;
      }
      if (image.info.width_px != 0) continue;
      image.info.width_px = image.info.height_px = 1;
      image.info.channels = pixel.channels;
      image.info.sample_type = pixel.sample_type;
    }
    return asked.value_or(type);
  }

  // Images fail whose output would have another number of channels than that of most images.
  template <class ChannelsOf>
  void RequireCommonChannels(const Input& input, const ChannelsOf& channels_of) {
    const int usual = FindUsual(channels_of);
    if (usual < 0) return;
    const uint32_t common = channels_of(images_[usual].info);
    const uint16_t channels = images_[usual].info.channels;
    for (size_t n = 0; n < images_.size(); ++n) {
      InputImage& image = images_[n];
      if (channels_of(image.info) == common) continue;
      if (image.status == Status::kOk) {
        failures_.Report(dali::make_string(
            "All outputs of a batch must have the same number of channels, but ",
            failures_.Name(input, usual), " has ", channels, " and ",
            failures_.Name(input, static_cast<int>(n)), " has ", image.info.channels, ". ",
            std::max(channels, image.info.channels) <= kMaxChannels
                ? "Use `output_type=types.RGB` for three each."
                : "Use `channels` to select equally many."));
        image.status = Status::kInvalidArgument;
      }
      image.info.channels = channels;
    }
  }

  // Reports an image's status: why the file of its handle cannot be read, if that failed. `where`
  // goes behind its name.
  void ReportFile(const Input& input, int i, const std::string& where = "") {
    const InputImage& image = images_[i];
    const std::string error = image.source == nullptr ? "" : image.source->error();
    if (error.empty()) {
      const bool is_remote = image.source != nullptr && image.source->traits().is_remote;
      return failures_.Report(input, i, image.status, where, is_remote ? kMayBeReplaced : "");
    }
    failures_.Report(dali::make_string("L3 decoding failed at ", failures_.Name(input, i), ": ",
                                       Printable(error)),
                     image.source->must_raise());
  }

 private:
  template <class Backend>
  void ReadImage(Backend* backend, const Input& input, size_t n) {
    const int i = static_cast<int>(n);
    InputImage& image = images_[n];
    const std::string& source = input.GetMeta(i).GetSourceInfo();
    const uint8_t* const data = input.tensor<uint8_t>(i);
    image.file_bytes = static_cast<uint64_t>(input.tensor_shape_span(i)[0]);
    image.source.reset();
    FileHandle handle;
    if (!ReadHandle(data, image.file_bytes, &handle)) {
      image.status = backend->Read(source, data, image.file_bytes, &image.view, &image.cached);
      return;
    }
    image.source = OpenHandle(handle);
    image.file_bytes = handle.bytes;
    image.status = backend->Read(source, handle, &image.view, &image.cached);
    if (handle.head_bytes == 0) image.source->Check();
  }

  // Whether the size that a damaged file claims is used: only if it has its index and a valid file
  // of so many bytes could hold the image.
  static bool HasPlausibleSize(const InputImage& image) {
    const ImageInfo& info = image.view.info;
    return image.view.tile_index != nullptr &&
           uint64_t{info.width_px} * info.height_px <= MostPixels(image.file_bytes, info);
  }

  // The first image that can be read; where images that do not fit become zeros, the first of the
  // class that most are of. -1 without any.
  template <class ClassOf>
  int FindUsual(const ClassOf& class_of) const {
    std::map<uint32_t, int> counts;
    for (const InputImage& image : images_) {
      if (image.status == Status::kOk) ++counts[class_of(image.info)];
    }
    int usual = -1;
    for (size_t n = 0; n < images_.size(); ++n) {
      if (images_[n].status != Status::kOk) continue;
      const auto count_of = [&](size_t i) { return counts[class_of(images_[i].info)]; };
      if (usual < 0 || (failures_.goes_on() && count_of(n) > count_of(usual))) {
        usual = static_cast<int>(n);
      }
    }
    return usual;
  }

  FailurePolicy& failures_;
  const bool adjusts_orientation_;
  std::vector<InputImage> images_;
};

}  // namespace l3
