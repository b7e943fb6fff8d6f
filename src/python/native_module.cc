// Python bindings `l3dali._native` of encoder and CPU decoder. Layer: adapter;
// holds no codec arithmetic. Arguments are validated in python/l3dali/codec.py.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu_batch.h"
#include "cpu/jpeg_coefficients.h"
#include "encoder/encoder.h"
#include "encoder/jpeg_transcode.h"
#include "format/channel_groups.h"
#include "format/image_view.h"
#include "python/decode_batch.h"
#include "python/errors.h"
#include "python/gil.h"

namespace py = pybind11;

namespace l3 {
namespace {

Bytes ToBytes(const std::optional<py::bytes>& chunk) {
  if (!chunk) return {};
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(chunk->ptr(), &data, &size) != 0) throw py::error_already_set();
  return {reinterpret_cast<const uint8_t*>(data), static_cast<size_t>(size)};
}

// What SetCheck() has been given for this thread, or null.
thread_local PyObject* check_of_thread = nullptr;

// Has work of this thread call `check` now and then; None ends that. Returns what it called before.
py::object SetCheck(const py::object& check) {
  PyObject* const kept = check.is_none() ? nullptr : check.inc_ref().ptr();
  PyObject* const before = std::exchange(check_of_thread, kept);
  return before == nullptr ? py::none() : py::reinterpret_steal<py::object>(before);
}

// While it lives, work of this thread ends with KeyboardInterrupt soon after Ctrl-C, or with what
// another handler of a signal raises, or the thread's check. Python runs handlers in its main
// thread alone.
class SignalScope {
 public:
  SignalScope() : previous_(std::exchange(interrupt_hook, &Check)) {}
  ~SignalScope() { interrupt_hook = previous_; }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static void Check() {
    using Clock = std::chrono::steady_clock;
    static thread_local Clock::time_point next;
    const Clock::time_point now = Clock::now();
    if (now < next) return;
    next = now + std::chrono::milliseconds(20);
    WithGil([] {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (check_of_thread != nullptr) py::reinterpret_borrow<py::object>(check_of_thread)();
    });
  }

  void (*previous_)();
};

uint32_t TileSideLog2(uint32_t side) {
  if (side == 0 || (side & (side - 1)) != 0) {
    ThrowL3Error(Status::kInvalidArgument, "tile sides must be powers of two");
  }
  return BitLength(side) - 1;
}

std::optional<Coding> FindCoding(const std::string& name) {
  if (name == "packed") return Coding::kPacked;
  if (name == "rans") return Coding::kRans;
  if (name == "stored") return Coding::kStored;
  return std::nullopt;
}

std::optional<SampleType> FindSampleType(const py::array& image) {
  if (py::isinstance<py::array_t<uint8_t>>(image)) return SampleType::kUint8;
  if (py::isinstance<py::array_t<uint16_t>>(image)) return SampleType::kUint16;
  if (py::isinstance<py::array_t<int8_t>>(image)) return SampleType::kInt8;
  if (py::isinstance<py::array_t<int16_t>>(image)) return SampleType::kInt16;
  if (py::isinstance<py::array_t<float>>(image)) return SampleType::kFloat32;
  if (py::isinstance<py::array_t<int32_t>>(image)) return SampleType::kInt32;
  if (py::isinstance<py::array_t<uint32_t>>(image)) return SampleType::kUint32;
  if (image.dtype().kind() == 'f' && image.itemsize() == 2) return SampleType::kFloat16;
  return std::nullopt;
}

// Memory for a file: a bytes object that `encoded` gets.
AllocateFile AllocateTo(py::object* encoded) {
  return [encoded](uint64_t bytes) {
    return WithGil([encoded, bytes] {
      *encoded = py::reinterpret_steal<py::object>(
          PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
      if (!*encoded) throw py::error_already_set();
      return reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(encoded->ptr()));
    });
  };
}

py::bytes Encode(const py::array& image, const std::string& coding, int effort, unsigned threads,
                 std::optional<std::pair<uint32_t, uint32_t>> tile, bool labels,
                 const std::optional<py::bytes>& icc, const std::optional<py::bytes>& exif,
                 const std::optional<py::bytes>& palette, const std::optional<py::bytes>& xmp,
                 const std::optional<py::bytes>& metadata,
                 const std::optional<py::bytes>& other_chunks,
                 const std::vector<std::vector<uint32_t>>& groups) {
  const std::optional<SampleType> sample_type = FindSampleType(image);
  const py::ssize_t item = image.itemsize();
  if (image.ndim() != 3 || !sample_type || (image.shape(2) > 1 && image.strides(2) != item) ||
      (image.shape(1) > 1 && image.strides(1) != image.shape(2) * item) ||
      (image.shape(0) > 1 && image.strides(0) < 0)) {
    throw py::type_error(
        "expected an array of shape (H, W, C) with packed rows, of samples that L3 holds");
  }
  for (py::ssize_t i = 0; i < 3; ++i) {
    if (image.shape(i) < 1 || image.shape(i) > py::ssize_t{1} << 31) {
      ThrowL3Error(Status::kInvalidArgument, "image sides must be 1 to 2^31");
    }
  }
  const std::optional<Coding> encode_coding = FindCoding(coding);
  if (!encode_coding)
    ThrowL3Error(Status::kInvalidArgument, "coding must be packed, rans or stored");
  if (effort < 1) ThrowL3Error(Status::kInvalidArgument, "effort must be 1 or more");
  PixelView pixels{};
  pixels.data = static_cast<const uint8_t*>(image.data());
  pixels.height_px = static_cast<uint32_t>(image.shape(0));
  pixels.width_px = static_cast<uint32_t>(image.shape(1));
  pixels.channels = static_cast<uint32_t>(image.shape(2));
  pixels.sample_type = *sample_type;
  pixels.row_stride_bytes = static_cast<uint64_t>(
      image.shape(0) > 1 ? image.strides(0) : image.shape(1) * image.shape(2) * item);
  EncodeOptions options;
  options.coding = *encode_coding;
  options.effort = static_cast<uint32_t>(effort);
  options.threads = threads;
  if (tile) {
    options.tile_height_log2 = TileSideLog2(tile->first);
    options.tile_width_log2 = TileSideLog2(tile->second);
  }
  options.meaning = labels ? Meaning::kLabels : Meaning::kColor;
  options.icc = ToBytes(icc);
  options.exif = ToBytes(exif);
  options.palette = ToBytes(palette);
  options.xmp = ToBytes(xmp);
  options.metadata = ToBytes(metadata);
  options.other_chunks = ToBytes(other_chunks);
  options.groups = groups;

  py::object encoded;
  Status status;
  {
    const SignalScope signals;
    const WithoutGil released;
    status = EncodeImage(pixels, options, AllocateTo(&encoded));
  }
  Require(status);
  return encoded;
}

// The L3 file of a JPEG file, and whether that comes back byte for byte; or None, and why it
// cannot be encoded.
py::tuple EncodeJpegFile(const py::bytes& jpeg, unsigned threads,
                         std::optional<std::pair<uint32_t, uint32_t>> tile,
                         const std::optional<py::bytes>& metadata) {
  EncodeOptions options;
  options.threads = threads;
  if (tile) {
    options.tile_height_log2 = TileSideLog2(tile->first);
    options.tile_width_log2 = TileSideLog2(tile->second);
  }
  options.metadata = ToBytes(metadata);
  const Bytes bytes = ToBytes(jpeg);
  py::object encoded;
  const char* reason = nullptr;
  bool is_restored = false;
  Status status;
  {
    const SignalScope signals;
    const WithoutGil released;
    status = TranscodeJpeg(bytes, options, DecodeJpegCoefficients, AllocateTo(&encoded), &reason,
                           &is_restored);
  }
  if (reason != nullptr) return py::make_tuple(py::none(), reason);
  Require(status);
  return py::make_tuple(encoded, is_restored);
}

// The JPEG file of an L3 file of jpeg tiles; None if that holds only its picture.
py::object RestoreJpegBytes(const py::buffer& data, unsigned threads) {
  const BufferBytes bytes(data);
  ImageView view;
  RequireParsed(ParseImage(bytes.data(), bytes.size(), &view), bytes.size(), view);
  std::vector<uint8_t> jpeg;
  Status status;
  {
    const SignalScope signals;
    const WithoutGil released;
    status = RestoreJpegFile(view, threads, DecodeJpegCoefficients, &jpeg);
  }
  if (status == Status::kUnsupportedFeature) return py::none();
  Require(status, "the JPEG file cannot be restored: ");
  return py::bytes(reinterpret_cast<const char*>(jpeg.data()), jpeg.size());
}

// Decodes jobs on `threads` threads. Returns the result of each.
std::vector<DecodeResult> DecodeJobs(const std::vector<WindowJob>& jobs, unsigned threads) {
  constexpr uint64_t kTaskPixels = 1 << 16;
  CpuBatch work(jobs, kTaskPixels);
  ParallelFor(work.task_count(), threads, [&work](uint64_t task) { work.Run(task); });
  return work.Results();
}

// The results of the windows of a job that failed, up to the first that has a bad tile. Halves of
// them are decoded together until it is found: each alone would decode anew the tiles it shares.
std::vector<DecodeResult> RunWindows(const WindowJob& job, unsigned threads) {
  size_t sound = 0;  // windows before it
  const auto run = [&](size_t count) {
    return DecodeJobs({{job.view, job.groups, job.plans + sound, count}}, threads)[0];
  };
  for (size_t left = job.plan_count; left > 1;) {
    const size_t half = left / 2;
    const bool is_sound = run(half).status == Status::kOk;
    sound += is_sound ? half : 0;
    left = is_sound ? left - half : half;
  }
  std::vector<DecodeResult> results(sound, DecodeResult{Status::kOk, 0});
  results.push_back(run(1));
  return results;
}

// Decodes a batch to memory of the host: `addresses` of its outputs, and how far apart their rows
// are, where they are not packed. Images and tiles are shared among `threads` threads (0: all the
// machine has). Windows of one file share its tiles.
void DecodeOnCpu(DecodeBatch& batch, const std::vector<uintptr_t>& addresses,
                 const std::optional<std::vector<int64_t>>& row_strides, unsigned threads) {
  batch.PlaceOutputs(addresses, row_strides);
  std::vector<DecodeResult> results;  // of items, up to the first that failed
  {
    const SignalScope signals;
    const WithoutGil released;
    const std::vector<WindowJob> jobs = batch.jobs();
    const std::vector<DecodeResult> of_jobs = DecodeJobs(jobs, threads);
    for (size_t k = 0; k < jobs.size(); ++k) {
      if (of_jobs[k].status != Status::kOk) {
        const std::vector<DecodeResult> windows = RunWindows(jobs[k], threads);
        results.insert(results.end(), windows.begin(), windows.end());
        // Its windows are damaged even if the file has been repaired.
        if (windows.back().status == Status::kOk) results.back() = of_jobs[k];
        break;
      }
      results.resize(results.size() + jobs[k].plan_count, DecodeResult{Status::kOk, 0});
    }
  }
  batch.RequireDecoded(results);
}

// The channels of each group.
std::vector<std::vector<uint32_t>> ListGroups(const ImageView& view) {
  std::vector<std::vector<uint32_t>> lists;
  for (const ChannelGroup& group : ReadChannelGroups(view)) {
    lists.emplace_back(group.channel, group.channel + group.channels);
  }
  return lists;
}

// Payloads of each coding, as their headers say.
py::dict CountCodings(const ImageView& view) {
  constexpr const char* kNames[] = {"constant", "stored", "packed", "rans",
                                    "match",    "jpeg",   "unknown"};
  constexpr size_t kUnknown = std::size(kNames) - 1;  // damaged, which decoding finds
  constexpr size_t kAlways = kUnknown - 1;            // those of version 1
  size_t counts[kUnknown + 1] = {};
  const uint64_t payloads = view.payload_count();
  for (uint64_t payload = 0; payload < payloads; ++payload) {
    ImageView group = view;
    group.group = static_cast<uint16_t>(payload % view.group_count);
    const uint32_t tile = static_cast<uint32_t>(payload / view.group_count);
    uint64_t begin;
    uint32_t bytes;
    const bool found = group.FindPayload(tile, &begin, &bytes);
    const uint32_t coding = found ? ReadOnce(view.payloads[begin + 4]) : 0;
    Require(found ? Status::kOk : Status::kCorruptHeader, "tile " + std::to_string(tile) + ": ");
    ++counts[std::min<size_t>(coding, kUnknown)];
  }
  py::dict codings;
  for (size_t i = 0; i <= kUnknown; ++i) {
    if (i < kAlways || counts[i] != 0) codings[kNames[i]] = counts[i];
  }
  return codings;
}

// Of a whole file, or of one that ends anywhere behind its index.
py::dict Info(const py::buffer& data) {
  const BufferBytes bytes(data);
  ImageView view;
  RequireParsed(ParseIndex(bytes.data(), bytes.size(), &view), bytes.size(), view);
  const bool is_whole = bytes.size() >= FileBytes(view);
  if (is_whole) Require(FindPayloads(bytes.data(), bytes.size(), &view));
  const ImageInfo& info = view.info;
  py::dict chunks;
  constexpr std::pair<const char*, uint32_t> kChunks[] = {{"icc ", kChunkIcc},
                                                          {"exif", kChunkExif},
                                                          {"plte", kChunkPalette},
                                                          {"xmp ", kChunkXmp},
                                                          {"keyv", kChunkKeyValues}};
  for (const auto& [name, type] : kChunks) {
    const ChunkView chunk = FindChunk(view, type);
    if (chunk.data != nullptr) {
      chunks[name] = py::bytes(reinterpret_cast<const char*>(chunk.data), chunk.size);
    }
  }
  std::string other_chunks;
  ChunkView chunk;
  for (uint64_t pos = 0; NextOtherChunk(view.chunks, info.chunks_bytes, &pos, &chunk);) {
    other_chunks.append(reinterpret_cast<const char*>(chunk.data), chunk.size);
  }
  py::dict result;
  result["width"] = info.width_px;
  result["height"] = info.height_px;
  result["channels"] = info.channels;
  result["bit_depth"] = info.sample_bits();
  result["dtype"] = TypeName(StoredType(info));
  constexpr const char* kHoldings[] = {"samples", "table", "table", "halves"};
  result["holding"] = kHoldings[static_cast<uint8_t>(info.holding)];
  result["used_bits"] = info.used_bits;
  result["shift"] = info.shift;
  result["tile_width"] = 1u << info.tile_width_log2;
  result["tile_height"] = 1u << info.tile_height_log2;
  result["labels"] = info.meaning == Meaning::kLabels;
  result["tile_count"] = info.tile_count();
  result["groups"] = ListGroups(view);
  result["value_count"] = view.value_count;
  result["bytes"] = FileBytes(view);
  result["raw_bytes"] = info.image_bytes();
  result["codings"] = is_whole ? py::object(CountCodings(view)) : py::none();
  result["chunks"] = chunks;
  result["other_chunks"] = py::bytes(other_chunks);
  result["restores_jpeg"] = FindChunk(view, kChunkJpegRest).data != nullptr;
  return result;
}

// Type and size of each optional chunk of unknown type.
std::vector<std::pair<std::string, uint32_t>> ListChunks(const py::bytes& area) {
  const Bytes bytes = ToBytes(area);
  std::vector<std::pair<std::string, uint32_t>> list;
  ChunkView chunk;
  for (uint64_t pos = 0; NextOtherChunk(bytes.data, bytes.size, &pos, &chunk);) {
    list.emplace_back(std::string(reinterpret_cast<const char*>(chunk.data), 4),
                      LoadU32(chunk.data + 4));
  }
  return list;
}

}  // namespace
}  // namespace l3

PYBIND11_MODULE(_native, m) {
  m.doc() = "Encoder and CPU decoder of the L3 image format; use l3dali instead.";
  l3::FindL3Error();
  py::isinstance<py::array>(m);  // finds the functions of NumPy, which takes the GIL (python/gil.h)
  m.def("encode", &l3::Encode, py::arg("image"), py::kw_only(), py::arg("coding"),
        py::arg("effort"), py::arg("threads"), py::arg("tile"), py::arg("labels"), py::arg("icc"),
        py::arg("exif"), py::arg("palette"), py::arg("xmp"), py::arg("metadata"),
        py::arg("other_chunks"), py::arg("groups"));
  l3::BindDecodeBatch(m).def("decode", &l3::DecodeOnCpu, py::arg("addresses"), py::kw_only(),
                             py::arg("row_strides"), py::arg("threads"));
  m.def("encode_jpeg", &l3::EncodeJpegFile, py::arg("jpeg"), py::kw_only(), py::arg("threads"),
        py::arg("tile"), py::arg("metadata"));
  m.def("restore_jpeg", &l3::RestoreJpegBytes, py::arg("data"), py::kw_only(), py::arg("threads"));
  m.def("info", &l3::Info, py::arg("data"));
  m.def("list_chunks", &l3::ListChunks, py::arg("area"));
  m.def("set_check", &l3::SetCheck, py::arg("check"));
}
