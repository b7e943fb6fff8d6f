// The C interface of include/l3/l3.h. Layer: adapter; holds no codec arithmetic.
#include "l3/l3.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu_batch.h"
#include "encoder/encoder.h"
#include "format/byte_reader.h"
#include "format/image_view.h"
#include "format/status.h"
#include "output/output_plan.h"
#include "output/payload_ranges.h"
#include "output/request.h"
#include "output/window_job.h"

namespace l3 {
namespace {

static_assert(L3_TRUNCATED == static_cast<l3_status>(Status::kTruncated) &&
              L3_INVALID_ARGUMENT == static_cast<l3_status>(Status::kInvalidArgument));
static_assert(L3_UINT16 - L3_UINT8 == static_cast<int>(SampleType::kUint16) &&
              L3_INT16 - L3_UINT8 == static_cast<int>(SampleType::kInt16) &&
              L3_FLOAT32 - L3_UINT8 == static_cast<int>(SampleType::kFloat32));

// Of this interface alone.
constexpr Status kOutOfMemory = static_cast<Status>(L3_OUT_OF_MEMORY);
constexpr Status kTypeTooNarrow = static_cast<Status>(L3_TYPE_TOO_NARROW);
constexpr Status kTooManyPixels = static_cast<Status>(L3_TOO_MANY_PIXELS);

constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kDefaultEffort = 5;
constexpr size_t kMaxStructBytes = 4096;

// The types of l3.h from L3_UINT8 on.
constexpr OutputType kTypes[] = {OutputType::kU8,  OutputType::kU16, OutputType::kI8,
                                 OutputType::kI16, OutputType::kU32, OutputType::kI32,
                                 OutputType::kF16, OutputType::kF32, OutputType::kI64};
constexpr Colors kColors[] = {Colors::kStored, Colors::kRgb,      Colors::kBgr,
                              Colors::kGray,   Colors::kRgbAlpha, Colors::kGrayAlpha};
constexpr Coding kCodings[] = {Coding::kRans, Coding::kPacked, Coding::kStored};

// Of options, as engines and encoder take them. False if there are too many.
bool ReadThreads(uint32_t threads, unsigned* count) {
  *count = threads == 0 ? 1 : threads == L3_ALL_THREADS ? 0 : threads;
  return *count <= kMaxThreads;
}

uint32_t NumberOf(OutputType type) {
  return L3_UINT8 + static_cast<uint32_t>(std::find(kTypes, std::end(kTypes), type) - kTypes);
}

// Calls what returns a Status. All that the layers below throw says that a resource ran out;
// without exceptions, as in WebAssembly, that ends the program.
template <typename Call>
l3_status StatusOf(const Call& call) noexcept {
#if defined(__cpp_exceptions)
  try {
    return static_cast<l3_status>(call());
  } catch (...) {
    return L3_OUT_OF_MEMORY;
  }
#else
  return static_cast<l3_status>(call());
#endif
}

// The size of a structure in the first version that has it.
template <typename Struct>
constexpr size_t kFirstBytes = sizeof(Struct);
template <>
constexpr size_t kFirstBytes<l3_info> = offsetof(l3_info, groups);
template <>
constexpr size_t kFirstBytes<l3_encode_options> = offsetof(l3_encode_options, groups);

template <typename Struct>
bool HasSize(const Struct& of_caller) {
  return of_caller.struct_size >= kFirstBytes<Struct> && of_caller.struct_size <= kMaxStructBytes;
}

// Copies a structure of the caller, whose version may be another; null has the defaults. False if
// it is no version of Struct, or has options unknown to this library.
template <typename Struct>
bool ReadStruct(const Struct* from, Struct* to) {
  *to = Struct{};
  if (from == nullptr) return true;
  if (!HasSize(*from)) return false;
  const size_t size = from->struct_size;
  const size_t known = std::min(size, sizeof(Struct));
  std::memcpy(to, from, known);
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(from);
  return std::all_of(bytes + known, bytes + size, [](uint8_t byte) { return byte == 0; });
}

// Zeroes a structure of the caller but for its size. False if it is none.
template <typename Struct>
bool ClearStruct(Struct* to) {
  if (to == nullptr || !HasSize(*to)) return false;
  const size_t size = to->struct_size;
  std::memset(static_cast<void*>(to), 0, size);
  to->struct_size = size;
  return true;
}

// A file's bytes, never null.
const uint8_t* BytesOf(const void* file) {
  static constexpr uint8_t kNone = 0;
  return file == nullptr ? &kNone : static_cast<const uint8_t*>(file);
}

l3_bytes ChunkBytes(const ImageView& view, uint32_t type) {
  const ChunkView chunk = FindChunk(view, type);
  return {chunk.data, chunk.size};
}

void SetInfo(const ImageView& view, l3_info* to) {
  const ImageInfo& info = view.info;
  to->height = info.height_px;
  to->width = info.width_px;
  to->channels = info.channels;
  to->type = NumberOf(StoredType(info));
  to->used_bits = info.used_bits;
  to->shift = info.shift;
  to->value_count = view.value_count;
  to->group_count = view.group_count;
  to->labels = info.meaning == Meaning::kLabels ? 1 : 0;
  to->tile_height = 1u << info.tile_height_log2;
  to->tile_width = 1u << info.tile_width_log2;
  to->tile_count = info.tile_count();
  to->image_bytes = info.image_bytes();
  to->head_bytes = IndexEnd(view);
  to->file_bytes = FileBytes(view);
  to->icc = ChunkBytes(view, kChunkIcc);
  to->exif = ChunkBytes(view, kChunkExif);
  to->xmp = ChunkBytes(view, kChunkXmp);
  to->palette = ChunkBytes(view, kChunkPalette);
  to->metadata = ChunkBytes(view, kChunkKeyValues);
  to->groups = {view.groups.data, view.groups.size};
  to->chunks = {view.chunks, info.chunks_bytes};
}

// Of ParseIndex() or ParseImage().
using Parse = Status(const uint8_t* data, size_t size, ImageView* view);

Status ReadInfo(Parse* parse, const void* file, size_t file_size, l3_info* info) {
  if (!ClearStruct(info) || (file == nullptr && file_size != 0)) return Status::kInvalidArgument;
  ImageView view = {};
  const Status status = parse(BytesOf(file), file_size, &view);
  if (status == Status::kOk) {
    l3_info all = {};
    SetInfo(view, &all);
    all.struct_size = info->struct_size;
    std::memcpy(info, &all, std::min(info->struct_size, sizeof(all)));
  }
  if (status == Status::kTruncated) {
    info->head_bytes = view.group_count != 0 ? IndexEnd(view) : kHeaderBytes;
    if (view.payloads_bytes != 0) info->file_bytes = FileBytes(view);
  }
  return status;
}

// A file and the output that options ask of it.
struct DecodePlan {
  unsigned threads;
  ImageView view;
  std::vector<GroupOutput> groups;
  OutputPlan output;
  OutputTensor tensor;
};

// False for options that no image fits.
bool ReadRequest(const l3_decode_options& options, DecodeRequest* request) {
  if (options.type > L3_INT64 || options.fill_range > L3_KEEP_NUMBERS ||
      options.colors > L3_COLORS_GRAY_ALPHA || options.layout > L3_CHW ||
      options.channel_count > kMaxImageChannels ||
      (options.channels == nullptr) != (options.channel_count == 0)) {
    return false;
  }
  const l3_window& window = options.window;
  if ((window.left | window.top | window.width | window.height) != 0) {
    request->window = {{window.left, window.width}, {window.top, window.height}};
  }
  request->colors = kColors[options.colors];
  if (options.type != L3_AS_STORED) request->type = kTypes[options.type - L3_UINT8];
  if (options.fill_range != L3_FILL_BY_TYPE) {
    request->fills_range = options.fill_range == L3_FILL_RANGE;
  }
  if (options.layout == L3_CHW) request->layout = kChw;
  request->row_stride_bytes = options.row_stride;
  if (options.max_pixels != 0) request->max_pixels = options.max_pixels;
  const std::vector<int64_t> numbers(options.channels, options.channels + options.channel_count);
  return ParseChannels(numbers, &request->channels).empty();
}

Status PlanDecode(Parse* parse, const void* file, size_t file_size,
                  const l3_decode_options& options, DecodePlan* plan) {
  DecodeRequest request;
  if ((file == nullptr && file_size != 0) || !ReadThreads(options.threads, &plan->threads) ||
      !ReadRequest(options, &request)) {
    return Status::kInvalidArgument;
  }
  const Status status = parse(BytesOf(file), file_size, &plan->view);
  if (status != Status::kOk) return status;
  switch (PlanOutput(request, plan->view.info, &plan->output, &plan->tensor)) {
    case Misfit::kNone: break;
    case Misfit::kType: return kTypeTooNarrow;
    case Misfit::kPixels: return kTooManyPixels;
    default: return Status::kInvalidArgument;
  }
  if (options.row_stride % OutputBytes(plan->output.type) != 0) return Status::kInvalidArgument;
  plan->groups = PlanGroups(request, plan->view, &plan->output, 1);
  // The file has changed since its validation.
  return plan->groups.empty() ? Status::kCorruptHeader : Status::kOk;
}

void* Allocate(const l3_allocator& allocator, uint64_t bytes) {
  return bytes > PTRDIFF_MAX ? nullptr
                             : allocator.allocate(allocator.context, static_cast<size_t>(bytes));
}

// An allocator of the caller, which is needed.
bool ReadAllocator(const l3_allocator* from, l3_allocator* to) {
  return from != nullptr && ReadStruct(from, to) && to->allocate != nullptr;
}

void SetOutput(const DecodePlan& plan, const l3_decode_options& options, l3_output* output) {
  const bool is_planar = options.layout == L3_CHW;
  const OutputTensor& tensor = plan.tensor;
  output->height = static_cast<uint32_t>(tensor.shape[is_planar ? 1 : 0]);
  output->width = static_cast<uint32_t>(tensor.shape[is_planar ? 2 : 1]);
  output->channels = static_cast<uint32_t>(tensor.shape[is_planar ? 0 : 2]);
  output->type = NumberOf(plan.output.type);
  output->bytes = tensor.bytes;
  output->row_stride = static_cast<uint64_t>(tensor.stride(Axis::kHeight));
  if (is_planar) output->plane_stride = static_cast<uint64_t>(tensor.stride(Axis::kChannel));
}

DecodeResult Decode(DecodePlan* plan, void* pixels) {
  constexpr uint64_t kTaskPixels = 1 << 16;
  plan->output.PlaceIn(pixels);
  CpuBatch work({{&plan->view, &plan->groups, &plan->output, 1}}, kTaskPixels);
  ParallelFor(work.task_count(), plan->threads, [&work](uint64_t task) { work.Run(task); });
  return work.Results()[0];
}

// Of l3_decode(), or of l3_decode_alloc() if `allocator` is not null.
Status DecodeFile(const void* file, size_t file_size, const l3_decode_options& options,
                  const l3_allocator* allocator, void** pixels, size_t pixels_size,
                  l3_output* output) {
  DecodePlan plan = {};
  const Status status = PlanDecode(ParseImage, file, file_size, options, &plan);
  if (status != Status::kOk) return status;
  if (output != nullptr) SetOutput(plan, options, output);
  if (allocator != nullptr) {
    *pixels = Allocate(*allocator, plan.tensor.bytes);
    if (*pixels == nullptr) return kOutOfMemory;
    pixels_size = static_cast<size_t>(plan.tensor.bytes);
  }
  if (plan.tensor.bytes > pixels_size) return Status::kOutputTooSmall;
  const size_t item = OutputBytes(plan.output.type);
  if (reinterpret_cast<uintptr_t>(*pixels) % item != 0) return Status::kInvalidArgument;
  const DecodeResult result = Decode(&plan, *pixels);
  if (result.status != Status::kOk && output != nullptr) output->bad_tile = result.tile;
  return result.status;
}

Status ListRanges(const void* head, size_t head_size, const l3_decode_options& options,
                  uint64_t max_gap, l3_range* ranges, size_t capacity, size_t* count) {
  DecodePlan plan = {};
  const Status status = PlanDecode(ParseIndex, head, head_size, options, &plan);
  if (status != Status::kOk) return status;
  const std::vector<ByteRange> found =
      FindFileRanges({&plan.view, &plan.groups, &plan.output, 1}, max_gap);
  // The head has changed since it was validated.
  if (found.empty()) return Status::kCorruptHeader;
  *count = found.size();
  if (found.size() > capacity) return Status::kOutputTooSmall;
  for (const ByteRange& range : found) *ranges++ = {range.begin, range.end - range.begin};
  return Status::kOk;
}

// Log2 of a side of tiles. False if it has none; 0 stays 0.
bool ReadSide(uint32_t side, uint32_t* log2) {
  *log2 = side == 0 ? 0 : BitLength(side) - 1;
  return side == 0 || (side > 1 && side == 1u << *log2);
}

bool ReadBytes(const l3_bytes& from, Bytes* to) {
  *to = {static_cast<const uint8_t*>(from.data), from.size};
  return from.size <= kMaxMetadataBytes && (from.data != nullptr || from.size == 0);
}

// As l3_info has them.
bool ReadGroups(const l3_bytes& from, std::vector<std::vector<uint32_t>>* groups) {
  if (from.size > UINT32_MAX || (from.data == nullptr && from.size != 0)) return false;
  ByteReader reader(static_cast<const uint8_t*>(from.data), static_cast<uint32_t>(from.size));
  while (reader.ok() && !reader.at_end()) {
    std::vector<uint32_t>& group = groups->emplace_back(reader.ReadByte());
    for (uint32_t& channel : group) {
      channel = reader.ReadByte();
      channel |= reader.ReadByte() << 8;
    }
  }
  return reader.ok();
}

// Copies the chunks that the encoder keeps of those of a file. False if they are no chunks.
bool ReadOtherChunks(const l3_bytes& from, std::vector<uint8_t>* kept) {
  Bytes bytes;
  if (!ReadBytes(from, &bytes)) return false;
  uint64_t pos = 0;
  for (ChunkView chunk; NextOtherChunk(bytes.data, bytes.size, &pos, &chunk);) {
    kept->insert(kept->end(), chunk.data, chunk.data + chunk.size);
  }
  return pos == bytes.size;
}

// What an encoder is asked for. EncodeImage() and BoundFile() validate the rest.
struct EncodeJob {
  PixelView pixels;
  EncodeOptions options;
  std::vector<uint8_t> other_chunks;  // that the options point at
};

Status ReadEncodeJob(const l3_image* image, const l3_encode_options* from, EncodeJob* job) {
  l3_encode_options options;
  if (image == nullptr || !ReadStruct(from, &options) || image->type < L3_UINT8 ||
      image->type > L3_FLOAT32 || image->height == 0 || image->channels > kMaxImageChannels ||
      options.coding > L3_CODING_STORED || options.labels > 1 ||
      (options.palette.size != 0 && options.labels == 0)) {
    return Status::kInvalidArgument;
  }
  EncodeOptions& to = job->options;
  to.coding = kCodings[options.coding];
  to.effort = options.effort == 0 ? kDefaultEffort : options.effort;
  to.meaning = options.labels == 1 ? Meaning::kLabels : Meaning::kColor;
  if (!ReadThreads(options.threads, &to.threads) ||
      !ReadSide(options.tile_width, &to.tile_width_log2) ||
      !ReadSide(options.tile_height, &to.tile_height_log2) || !ReadBytes(options.icc, &to.icc) ||
      !ReadBytes(options.exif, &to.exif) || !ReadBytes(options.xmp, &to.xmp) ||
      !ReadBytes(options.palette, &to.palette) || !ReadBytes(options.metadata, &to.metadata) ||
      !ReadGroups(options.groups, &to.groups) ||
      !ReadOtherChunks(options.other_chunks, &job->other_chunks)) {
    return Status::kInvalidArgument;
  }
  to.other_chunks = {job->other_chunks.data(), job->other_chunks.size()};
  const SampleType type = static_cast<SampleType>(image->type - L3_UINT8);
  const uint64_t row_bytes = uint64_t{image->width} * image->channels * (SampleBits(type) / 8);
  const uint64_t row = image->row_stride == 0 ? row_bytes : image->row_stride;
  if (row < row_bytes || row > uint64_t{PTRDIFF_MAX} / image->height)
    return Status::kInvalidArgument;
  job->pixels = {static_cast<const uint8_t*>(image->pixels),
                 image->width,
                 image->height,
                 image->channels,
                 type,
                 row};
  return Status::kOk;
}

}  // namespace
}  // namespace l3

#define L3_STRING(number) #number
#define L3_DOTTED(major, minor, patch) L3_STRING(major) "." L3_STRING(minor) "." L3_STRING(patch)

const char* l3_version(void) {
  return L3_DOTTED(L3_VERSION_MAJOR, L3_VERSION_MINOR, L3_VERSION_PATCH);
}

const char* l3_status_name(l3_status status) {
  if (status == L3_OUT_OF_MEMORY) return "kOutOfMemory";
  if (status == L3_TYPE_TOO_NARROW) return "kTypeTooNarrow";
  if (status == L3_TOO_MANY_PIXELS) return "kTooManyPixels";
  return l3::StatusName(static_cast<l3::Status>(status));
}

const char* l3_status_message(l3_status status) {
  if (status == L3_OUT_OF_MEMORY) return "memory, or another resource of the machine, ran out";
  if (status == L3_TYPE_TOO_NARROW) {
    return "the type cannot hold all values of the file's type: ask for a wider type, or set "
           "fill_range to L3_FILL_RANGE (rescale) or to L3_KEEP_NUMBERS (saturate)";
  }
  if (status == L3_TOO_MANY_PIXELS) return "the output has more pixels than max_pixels allows";
  return l3::StatusMessage(static_cast<l3::Status>(status));
}

l3_status l3_read_info(const void* file, size_t file_size, l3_info* info) {
  return l3::StatusOf([&] { return l3::ReadInfo(l3::ParseImage, file, file_size, info); });
}

l3_status l3_read_head(const void* file, size_t file_size, l3_info* info) {
  return l3::StatusOf([&] { return l3::ReadInfo(l3::ParseIndex, file, file_size, info); });
}

l3_status l3_decode_size(const void* file, size_t file_size, const l3_decode_options* options,
                         l3_output* output) {
  return l3::StatusOf([&] {
    l3_decode_options read;
    if (!l3::ClearStruct(output)) return l3::Status::kInvalidArgument;
    output->bad_tile = L3_NO_TILE;
    if (!l3::ReadStruct(options, &read)) return l3::Status::kInvalidArgument;
    l3::DecodePlan plan = {};
    const l3::Status status = l3::PlanDecode(l3::ParseImage, file, file_size, read, &plan);
    if (status == l3::Status::kOk) l3::SetOutput(plan, read, output);
    return status;
  });
}

l3_status l3_decode(const void* file, size_t file_size, const l3_decode_options* options,
                    void* pixels, size_t pixels_size, l3_output* output) {
  return l3::StatusOf([&] {
    l3_decode_options read;
    if (output != nullptr && !l3::ClearStruct(output)) return l3::Status::kInvalidArgument;
    if (output != nullptr) output->bad_tile = L3_NO_TILE;
    if (!l3::ReadStruct(options, &read) || pixels == nullptr) return l3::Status::kInvalidArgument;
    return l3::DecodeFile(file, file_size, read, nullptr, &pixels, pixels_size, output);
  });
}

l3_status l3_decode_alloc(const void* file, size_t file_size, const l3_decode_options* options,
                          const l3_allocator* allocator, void** pixels, l3_output* output) {
  return l3::StatusOf([&] {
    l3_decode_options read;
    l3_allocator taken;
    if (pixels == nullptr) return l3::Status::kInvalidArgument;
    *pixels = nullptr;
    if (!l3::ClearStruct(output)) return l3::Status::kInvalidArgument;
    output->bad_tile = L3_NO_TILE;
    if (!l3::ReadStruct(options, &read) || !l3::ReadAllocator(allocator, &taken)) {
      return l3::Status::kInvalidArgument;
    }
    return l3::DecodeFile(file, file_size, read, &taken, pixels, 0, output);
  });
}

l3_status l3_payload_ranges(const void* head, size_t head_size, const l3_decode_options* options,
                            uint64_t max_gap, l3_range* ranges, size_t capacity, size_t* count) {
  return l3::StatusOf([&] {
    l3_decode_options read;
    if (count == nullptr) return l3::Status::kInvalidArgument;
    *count = 0;
    if (!l3::ReadStruct(options, &read) || (ranges == nullptr && capacity != 0)) {
      return l3::Status::kInvalidArgument;
    }
    return l3::ListRanges(head, head_size, read, max_gap, ranges, capacity, count);
  });
}

l3_status l3_encode_bound(const l3_image* image, const l3_encode_options* options, size_t* bound) {
  if (bound == nullptr) return L3_INVALID_ARGUMENT;
  *bound = 0;
  uint64_t bytes = 0;
  const l3_status status = l3::StatusOf([&] {
    l3::EncodeJob job = {};
    const l3::Status read = l3::ReadEncodeJob(image, options, &job);
    if (read != l3::Status::kOk) return read;
    return l3::BoundFile(job.pixels, job.options, &bytes);
  });
  if (status != L3_OK) return status;
  if (bytes > PTRDIFF_MAX) return L3_OUT_OF_MEMORY;
  *bound = static_cast<size_t>(bytes);
  return L3_OK;
}

l3_status l3_encode(const l3_image* image, const l3_encode_options* options, void* file,
                    size_t capacity, size_t* file_size) {
  if (file_size == nullptr) return L3_INVALID_ARGUMENT;
  *file_size = 0;
  if (file == nullptr && capacity != 0) return L3_INVALID_ARGUMENT;
  const l3_status status = l3::StatusOf([&] {
    l3::EncodeJob job = {};
    const l3::Status read = l3::ReadEncodeJob(image, options, &job);
    if (read != l3::Status::kOk) return read;
    return l3::EncodeImage(job.pixels, job.options, [&](uint64_t bytes) -> uint8_t* {
      *file_size = static_cast<size_t>(std::min<uint64_t>(bytes, SIZE_MAX));
      return bytes <= capacity ? static_cast<uint8_t*>(file) : nullptr;
    });
  });
  if (status != L3_OK && status != L3_OUTPUT_TOO_SMALL) *file_size = 0;
  return status;
}

l3_status l3_encode_alloc(const l3_image* image, const l3_encode_options* options,
                          const l3_allocator* allocator, void** file, size_t* file_size) {
  if (file == nullptr || file_size == nullptr) return L3_INVALID_ARGUMENT;
  *file = nullptr;
  *file_size = 0;
  return l3::StatusOf([&] {
    l3_allocator taken;
    l3::EncodeJob job = {};
    if (!l3::ReadAllocator(allocator, &taken)) return l3::Status::kInvalidArgument;
    const l3::Status read = l3::ReadEncodeJob(image, options, &job);
    if (read != l3::Status::kOk) return read;
    const l3::Status status =
        l3::EncodeImage(job.pixels, job.options, [&](uint64_t bytes) -> uint8_t* {
          *file = l3::Allocate(taken, bytes);
          *file_size = *file == nullptr ? 0 : static_cast<size_t>(bytes);
          return static_cast<uint8_t*>(*file);
        });
    return status == l3::Status::kOutputTooSmall ? l3::kOutOfMemory : status;
  });
}
