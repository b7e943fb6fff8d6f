// A batch of files from Python, validated, and planned for an engine. Layer: adapter.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/parallel.h"
#include "core/tile.h"
#include "files/open_file.h"
#include "files/read_head.h"
#include "format/image_view.h"
#include "output/orientation.h"
#include "output/output_plan.h"
#include "output/payload_ranges.h"
#include "output/request.h"
#include "output/window_job.h"
#include "python/errors.h"
#include "python/gil.h"

namespace l3 {

// By its name in NumPy and PyTorch.
inline OutputType OutputTypeOf(const std::string& name) {
  for (uint32_t i = 0; i < kOutputTypes; ++i) {
    if (name == TypeName(static_cast<OutputType>(i))) return static_cast<OutputType>(i);
  }
  throw py::value_error("unknown dtype: " + name);
}

// Whether the metadata marks the samples as bits of floats (docs/my-data.md).
inline bool HoldsFloats(const ImageView& view) {
  const ChunkView pairs = FindChunk(view, kChunkKeyValues);
  const std::string_view json(reinterpret_cast<const char*>(pairs.data), pairs.size);
  return json.find("\"floats\":\"float") != std::string_view::npos;
}

// How the items of a call are read, besides what is asked of all of them.
struct BatchOptions {
  bool names_items;  // in errors
  bool is_bfloat16;  // the caller rounds values, float32, to that
  bool orients;      // each image is shown as its EXIF orientation says
  bool is_partial;   // items are beginnings of files, with the index; Complete() follows
};

// Where an L3 file lies in a file of this machine: part of it if that is a tar.
struct FilePlace {
  std::string path;
  uint64_t offset;
  std::optional<uint64_t> bytes;  // none: to the end

  bool operator==(const FilePlace& other) const {
    return path == other.path && offset == other.offset && bytes == other.bytes;
  }
};

// Holds the items while it lives. Two threads must not use it at once.
class DecodeBatch {
 public:
  // Top, left, height, width; none: the whole image.
  using MaybeWindow = std::optional<std::array<int64_t, 4>>;

  // Reads and validates all headers; raises L3Error for the first item that has something wrong,
  // and what a handler of a signal raises. Items that are the same bytes as the one before are
  // windows of one file, which is validated once.
  DecodeBatch(const std::vector<py::buffer>& items, const std::vector<MaybeWindow>& windows,
              const DecodeRequest& request, const BatchOptions& options)
      : DecodeBatch(items.size(), windows, request, options) {
    const auto parse = options.is_partial ? ParseIndex : ParseImage;
    for (size_t i = 0; i < items.size(); ++i) {
      const BufferBytes& bytes = bytes_.emplace_back(items[i]);
      const BufferBytes* const before = i == 0 ? nullptr : &bytes_[i - 1];
      const bool shares_file =
          before != nullptr && before->data() == bytes.data() && before->size() == bytes.size();
      AddItem(shares_file, {});
    }
    for (File& file : files_) {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      const BufferBytes& bytes = bytes_[file.begin];
      ImageView view;
      RequireParsed(parse(bytes.data(), bytes.size(), &view), bytes.size(), view,
                    IndexOf(file.begin));
      PlanFile(&file, view);
      if (file.raise) file.raise();
    }
  }

  // The same of files at places, on `threads` threads (0: all the machine has): reads the head of
  // each, and what its windows need. Raises OSError for a file that cannot be read.
  DecodeBatch(const std::vector<FilePlace>& places, const std::vector<MaybeWindow>& windows,
              const DecodeRequest& request, const BatchOptions& options, unsigned threads)
      : DecodeBatch(places.size(), windows, request, options) {
    for (size_t i = 0; i < places.size(); ++i) {
      AddItem(i > 0 && places[i] == places[i - 1], places[i]);
    }
    {
      const WithoutGil released;
      ParallelFor(files_.size(), threads, [this](uint64_t file) { ReadFile(&files_[file]); });
    }
    for (const File& file : files_) {
      if (file.raise) file.raise();
    }
  }

  size_t size() const { return views_.size(); }

  // A job for each file, once outputs are placed: its windows are the next items.
  std::vector<WindowJob> jobs() const {
    std::vector<WindowJob> jobs;
    for (const File& file : files_) {
      jobs.push_back(
          {&views_[file.begin], &file.groups, outputs_.data() + file.begin, file.end - file.begin});
    }
    return jobs;
  }

  // How many bytes each file has, and those of them before its first payload, by its head.
  std::vector<uint64_t> file_bytes() const { return SizesBy(FileBytes); }
  std::vector<uint64_t> head_bytes() const { return SizesBy(PayloadsOffset); }

  // The parts of each file that are decoded, sorted; with at most `max_gap` bytes between, joined.
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> Ranges(uint64_t max_gap) const {
    std::vector<std::vector<std::pair<uint64_t, uint64_t>>> ranges;
    for (const File& file : files_) {
      auto& list = ranges.emplace_back();
      for (const ByteRange& range : RangesOf(file, max_gap)) {
        list.emplace_back(range.begin, range.end);
      }
      if (list.empty()) Require(Status::kCorruptHeader, "", IndexOf(file.begin));
    }
    return ranges;
  }

  // Gives a partial batch its files, each with its whole size; only bytes of Ranges() are read.
  void Complete(const std::vector<py::buffer>& files) {
    if (files.size() != files_.size()) throw py::value_error("each file needs its bytes");
    for (size_t k = 0; k < files.size(); ++k) {
      const BufferBytes& bytes = bytes_.emplace_back(files[k]);
      for (size_t i = files_[k].begin; i < files_[k].end; ++i) {
        const Status status = FindPayloads(bytes.data(), bytes.size(), &views_[i]);
        RequireParsed(status, bytes.size(), views_[i], IndexOf(i));
      }
    }
    options_.is_partial = false;
  }

  // The shape of each output.
  std::vector<py::tuple> shapes() const {
    std::vector<py::tuple> shapes;
    for (const auto& [shape, strides, bytes] : tensors_) {
      shapes.push_back(py::make_tuple(shape[0], shape[1], shape[2]));
    }
    return shapes;
  }
  // The name of each output's type.
  std::vector<std::string> types() const {
    std::vector<std::string> types;
    for (const OutputPlan& plan : plans_) types.push_back(TypeName(plan.type));
    return types;
  }

  // How many bytes each output has, packed.
  std::vector<size_t> output_bytes() const {
    std::vector<size_t> sizes;
    for (const OutputTensor& tensor : tensors_) sizes.push_back(static_cast<size_t>(tensor.bytes));
    return sizes;
  }

  // Says where the outputs go: packed, or with rows of pixels `row_strides` bytes apart.
  void PlaceOutputs(const std::vector<uintptr_t>& addresses,
                    const std::optional<std::vector<int64_t>>& row_strides) {
    if (addresses.size() != size() || (row_strides && row_strides->size() != size())) {
      throw py::value_error("each item needs an output");
    }
    if (options_.is_partial) throw py::value_error("the files are not complete");
    outputs_ = plans_;
    for (size_t i = 0; i < size(); ++i) {
      outputs_[i].PlaceIn(reinterpret_cast<void*>(addresses[i]));
      if (row_strides) outputs_[i].y_stride_bytes = (*row_strides)[i];
    }
  }

  // Raises L3Error for the first item that failed.
  void RequireDecoded(const std::vector<DecodeResult>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      Require(results[i].status,
              "tile " + std::to_string(results[i].tile) + " of " +
                  std::to_string(views_[i].info.tile_count()) + ": ",
              IndexOf(i));
    }
  }

 private:
  // A file: the items [begin, end) are windows of it.
  struct File {
    size_t begin, end;
    std::vector<GroupOutput> groups;  // that have channels of the output
    FilePlace place;                  // empty for a buffer
    std::unique_ptr<uint8_t[]> memory = nullptr;  // of the file there, as far as it is read
    std::function<void()> raise = nullptr;  // what is wrong; needs the GIL
  };

  std::optional<size_t> IndexOf(size_t item) const {
    return options_.names_items ? std::optional<size_t>(item) : std::nullopt;
  }

  DecodeBatch(size_t count, const std::vector<MaybeWindow>& windows, const DecodeRequest& request,
              const BatchOptions& options)
      : options_(options),
        request_(request),
        windows_(windows),
        views_(count),
        plans_(count),
        tensors_(count) {
    if (windows.size() != count) throw py::value_error("each item needs a window, or None");
  }

  std::vector<uint64_t> SizesBy(uint64_t (*size_of)(const ImageView&)) const {
    std::vector<uint64_t> sizes;
    for (const File& file : files_) sizes.push_back(size_of(views_[file.begin]));
    return sizes;
  }

  void AddItem(bool shares_file, const FilePlace& place) {
    if (!shares_file) files_.push_back({files_.empty() ? 0 : files_.back().end, 0, {}, place});
    files_.back().end = shares_file ? files_.back().end + 1 : files_.back().begin + 1;
  }

  // Plans the windows of a file. Needs no GIL; what is wrong is `file->raise`.
  void PlanFile(File* file, const ImageView& view) {
    if ((request_.type || request_.colors != Colors::kStored) && HoldsFloats(view)) {
      file->raise = [=] {
        ThrowL3Error(Status::kInvalidArgument,
                     "the samples are the bits of floats: decode without dtype and mode, with "
                     "layout=\"HWC\", and view() the result as the type that the key \"floats\" of "
                     "its metadata names",
                     IndexOf(file->begin));
      };
      return;
    }
    DecodeRequest request = request_;
    if (options_.orients) request.orientation = ReadOrientation(FindChunk(view, kChunkExif));
    for (size_t i = file->begin; i < file->end; ++i) {
      request.window.reset();
      if (windows_[i]) {
        const auto [top, left, height, width] = *windows_[i];
        request.window = {{left, width}, {top, height}};
      }
      const ImageInfo& info = view.info;
      views_[i] = view;
      // Windows of a file have its channels in common.
      if (i > file->begin) plans_[i] = plans_[i - 1];
      Misfit misfit = i > file->begin ? PlanWindow(request, info, &plans_[i], &tensors_[i])
                                      : PlanOutput(request, info, &plans_[i], &tensors_[i]);
      if (options_.is_bfloat16 && !AllowsType(info, kBfloat16, request.fills_range)) {
        misfit = Misfit::kType;
      }
      if (misfit == Misfit::kNone) continue;
      file->raise = [=] {
        const bool is_large = misfit == Misfit::kPixels;
        ThrowL3Error(is_large ? Status::kOutputTooSmall : Status::kInvalidArgument,
                     Explain(misfit, request, views_[i].info), IndexOf(i));
      };
      return;
    }
    file->groups = PlanGroups(request, view, &plans_[file->begin], file->end - file->begin);
    // The file has changed since it was validated.
    if (file->groups.empty()) {
      file->raise = [=] { Require(Status::kCorruptHeader, "", IndexOf(file->begin)); };
    }
  }

  // Reads of a file what its windows need. Needs no GIL.
  void ReadFile(File* file) {
    constexpr uint64_t kFirstBytes = 4096;  // a page; few heads have more
    // `number` is the system's of the error, if it has one.
    const auto fail = [=](const std::string& error, int number = 0) {
      file->raise = [=] {
        errno = number;
        if (number == 0) {
          const std::string item = "item " + std::to_string(file->begin) + ": ";
          py::set_error(PyExc_OSError, (item + error).c_str());
        } else {  // as Python's open(), which raises FileNotFoundError for ENOENT
          PyErr_SetFromErrnoWithFilename(PyExc_OSError, file->place.path.c_str());
        }
        throw py::error_already_set();
      };
    };
    const uint64_t offset = file->place.offset;
    OpenFile opened;
    errno = 0;
    std::string error = opened.Open(file->place.path.c_str());
    if (!error.empty()) return fail(error, errno);
    const uint64_t rest = opened.identity().bytes - std::min(offset, opened.identity().bytes);
    const uint64_t bytes = std::min(rest, file->place.bytes.value_or(rest));
    file->memory.reset(new uint8_t[bytes]);
    uint8_t* const memory = file->memory.get();
    uint64_t known = 0;
    const auto read = [&](uint64_t end) -> FileStart {
      end = std::min(end, bytes);
      error = opened.Read(offset + known, end - known, memory + known);
      known = end;
      return {error.empty() ? memory : nullptr, known};
    };
    ImageView view = {};
    Status status = ReadHead(kFirstBytes, read, &view);
    if (!error.empty()) return fail(error);
    if (status == Status::kOk) status = FindPayloads(memory, bytes, &view);
    if (status != Status::kOk) {
      file->raise = [=] { RequireParsed(status, bytes, view, IndexOf(file->begin)); };
      return;
    }
    PlanFile(file, view);
    if (file->raise) return;
    for (const ByteRange& range : RangesOf(*file, kFirstBytes)) {
      const uint64_t begin = std::max(range.begin, known);
      const size_t count = range.end - std::min(begin, range.end);
      if (count != 0) error = opened.Read(offset + begin, count, memory + begin);
      if (!error.empty()) return fail(error);
    }
  }

  std::vector<ByteRange> RangesOf(const File& file, uint64_t max_gap) const {
    return FindFileRanges(
        {&views_[file.begin], &file.groups, &plans_[file.begin], file.end - file.begin}, max_gap);
  }

  // Why the request does not fit an image.
  std::string Explain(Misfit misfit, const DecodeRequest& request, const ImageInfo& info) const {
    const std::string count = std::to_string(info.channels);
    const Size shown = ShownSize(info, request.orientation);
    const Region window = request.window.value_or(WholeImage(shown));
    const std::string width = std::to_string(window.x.size_px);
    const std::string height = std::to_string(window.y.size_px);
    switch (misfit) {
      case Misfit::kType:
        return "the image" + (options_.is_bfloat16
                                  ? RefuseType(info, kBfloat16, request.fills_range, "bfloat16")
                                  : RefuseType(info, *request.type, request.fills_range));
      case Misfit::kColors:
        return "modes RGB and GRAY need an image of up to 4 channels, without channels chosen, and "
               "this one has " +
               count + "; use mode UNCHANGED";
      case Misfit::kChannel:
        return "channel " + std::to_string(FindMissing(info, request.channels)) +
               " does not exist: the image has " + count + ", numbered from 0";
      case Misfit::kPixels: {
        const uint32_t channels = OutputChannels(request, info);
        return width + " x " + height +
               (PixelCost(channels) == 1 ? "" : " x " + std::to_string(channels) + " / 4") +
               " pixels are more than the limit of " + std::to_string(request.max_pixels) +
               "; max_pixels raises it (in the command --max-pixels)";
      }
      default:
        return "the window of " + height + " rows from " + std::to_string(window.y.begin_px) +
               " and " + width + " columns from " + std::to_string(window.x.begin_px) +
               " is not inside the image of " + std::to_string(shown.width_px) + " x " +
               std::to_string(shown.height_px) + " pixels (width x height)";
    }
  }

  // The integers up to 256, those of all samples that float16 has, are values of bfloat16, too.
  static constexpr OutputType kBfloat16 = OutputType::kF16;

  BatchOptions options_;
  const DecodeRequest request_;  // of all items; each has a window
  const std::vector<MaybeWindow> windows_;
  std::deque<BufferBytes> bytes_;
  std::vector<ImageView> views_;
  std::vector<OutputPlan> plans_;
  std::vector<OutputTensor> tensors_;
  std::vector<File> files_;
  std::vector<OutputPlan> outputs_;  // of each item
};

// Makes the class, for a module that adds its engine's method.
inline py::class_<DecodeBatch> BindDecodeBatch(py::module_& m) {
  using Place = std::tuple<py::str, uint64_t, std::optional<uint64_t>>;
  using Items = std::variant<std::vector<py::buffer>, std::vector<Place>>;
  const auto make = [](const Items& items, const std::vector<DecodeBatch::MaybeWindow>& windows,
                       const std::string& colors, const std::optional<std::string>& dtype,
                       bool channels_first, uint64_t max_pixels, bool names_items,
                       const std::vector<int64_t>& channels, std::optional<bool> fills_range,
                       bool orients, bool is_partial, unsigned threads) {
    DecodeRequest request;
    const std::string wrong = ParseChannels(channels, &request.channels);
    if (!wrong.empty()) throw py::value_error(wrong);
    if (colors == "RGB") request.colors = Colors::kRgb;
    if (colors == "GRAY") request.colors = Colors::kGray;
    const bool is_bfloat16 = dtype == "bfloat16";
    if (dtype) request.type = OutputTypeOf(is_bfloat16 ? "float32" : *dtype);
    request.fills_range = fills_range;
    if (channels_first) request.layout = kChw;
    request.max_pixels = max_pixels;
    const BatchOptions options = {names_items, is_bfloat16, orients, is_partial};
    if (const auto* found = std::get_if<std::vector<Place>>(&items)) {
      std::vector<FilePlace> places;
      for (const auto& [path, offset, bytes] : *found) {
        const auto encoded =
            py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(path.ptr()));
        if (!encoded) throw py::error_already_set();
        places.push_back({encoded, offset, bytes});
      }
      return std::make_unique<DecodeBatch>(places, windows, request, options, threads);
    }
    return std::make_unique<DecodeBatch>(std::get<0>(items), windows, request, options);
  };
  return py::class_<DecodeBatch>(m, "DecodeBatch", py::module_local())
      .def(py::init(make), py::arg("items"), py::kw_only(), py::arg("windows"), py::arg("colors"),
           py::arg("dtype"), py::arg("channels_first"), py::arg("max_pixels"),
           py::arg("names_items"), py::arg("channels") = std::vector<int64_t>(),
           py::arg("fills_range") = std::nullopt, py::arg("orients") = false,
           py::arg("is_partial") = false, py::arg("threads") = 1u)
      .def("ranges", &DecodeBatch::Ranges, py::arg("max_gap"))
      .def("complete", &DecodeBatch::Complete, py::arg("files"))
      .def_property_readonly("head_bytes", &DecodeBatch::head_bytes)
      .def_property_readonly("file_bytes", &DecodeBatch::file_bytes)
      .def_property_readonly("shapes", &DecodeBatch::shapes)
      .def_property_readonly("dtypes", &DecodeBatch::types);
}

}  // namespace l3
