// What fuzzing and replay check: all engines agree on any bytes, and any image
// survives encoding. A check returns what went wrong, or "".
#pragma once

#include <l3/l3.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/check.h"
#include "format/constants.h"
#include "format/crc32c.h"
#include "format/image_view.h"
#include "native/changing_pixels.h"
#include "native/exact_bytes.h"
#include "native/testing.h"
#include "output/output_plan.h"

namespace l3::fuzz {

// What checks leave out. Fuzz targets lower it to run often (target.h), l3_replay does not.
struct Limits {
  // Larger images only cost time: no path depends on more pixels than a few tiles.
  uint64_t image_bytes = uint64_t{1} << 24;
  // Emulated lanes take as long as many engines of the CPU: they decode one input in so many.
  uint32_t emulated_share = 1;
  // Checks that take as long as all others together: one input in so many has each.
  uint32_t check_share = 1;
};
inline Limits limits;

// Whether an image was left out, since it is too large.
inline bool is_left_out = false;

inline bool IsWithinLimits(uint64_t image_bytes) {
  is_left_out |= image_bytes > limits.image_bytes;
  return image_bytes <= limits.image_bytes;
}

constexpr const char* kEngineNames[kL3TestEngineCount] = {
    "scalar", "avx2", "emulated_cuda", "avx512", "emulated_small_cuda", "neon"};

inline bool IsEmulated(uint32_t engine) {
  return engine == kL3TestEmulatedCuda || engine == kL3TestEmulatedSmallCuda;
}

// Whether these bytes are among one in `share`: always the same for the same bytes. Shares of
// different numbers have nothing to do with each other.
inline bool IsOneIn(uint32_t share, uint32_t number, const uint8_t* data, size_t size) {
  if (share <= 1) return true;
  const uint64_t mixed = (Crc32c(data, size) ^ number) * uint64_t{0x9E3779B97F4A7C15u};
  return (mixed >> 32) % share == 0;
}

// What is not checked of each input, where limits say so.
enum Shared : uint32_t { kOfEmulated, kOfInterface, kOfOptions, kOfPlans, kOfKernels, kOfThreads };

inline bool IsForEmulated(const uint8_t* data, size_t size) {
  return IsOneIn(limits.emulated_share, kOfEmulated, data, size);
}

// The engines to compare with the scalar one on these bytes.
inline std::vector<uint32_t> OtherEngines(const uint8_t* data, size_t size) {
  const bool emulated = IsForEmulated(data, size);
  std::vector<uint32_t> engines;
  for (uint32_t engine = kL3TestScalar + 1; engine < kL3TestEngineCount; ++engine) {
    if (!l3_test_engine_available(engine) || (IsEmulated(engine) && !emulated)) continue;
    engines.push_back(engine);
  }
  return engines;
}

struct Decoded {
  uint32_t status = L3_OK;
  uint32_t bad_tile = L3_NO_TILE;  // if status is not kOk
  std::vector<uint8_t> pixels;  // empty unless status is kOk
};

inline Decoded Decode(uint32_t engine, const uint8_t* data, size_t size, size_t image_bytes,
                      uint64_t row_bytes) {
  Decoded decoded;
  decoded.pixels.resize(image_bytes);
  decoded.status = l3_test_decode(engine, data, size, decoded.pixels.data(), image_bytes, row_bytes,
                                  1, &decoded.bad_tile);
  if (decoded.status == L3_OK) {
    decoded.bad_tile = L3_NO_TILE;
  } else {
    decoded.pixels.clear();
  }
  return decoded;
}

inline std::string Describe(const Decoded& decoded) {
  if (decoded.status == L3_OK) return "kOk";
  return std::string(l3_status_name(decoded.status)) + " in tile " +
         std::to_string(decoded.bad_tile);
}

inline std::string Compare(const std::string& name, const Decoded& decoded,
                           const Decoded& expected) {
  if (decoded.status != expected.status || decoded.bad_tile != expected.bad_tile) {
    return name + " says " + Describe(decoded) + ", scalar says " + Describe(expected);
  }
  return decoded.pixels == expected.pixels ? "" : name + " gives other pixels than scalar";
}

inline l3_status ReadInfo(const uint8_t* data, size_t size, l3_info* info) {
  ExactBytes file(data, size);
  *info = {};
  info->struct_size = sizeof(*info);
  return l3_read_info(file.data(), size, info);
}

// Options that l3_decode() takes for such a file.
inline l3_decode_options RandomOptions(const l3_info& info, std::mt19937* random,
                                       std::vector<uint32_t>* channels) {
  const auto below = [random](uint32_t limit) { return (*random)() % limit; };
  l3_decode_options options = {};
  options.struct_size = sizeof(options);
  options.threads = 1 + below(2);
  options.type = below(2) == 0 ? below(L3_INT64 + 1) : uint32_t{L3_AS_STORED};
  const bool is_float = info.type == L3_FLOAT16 || info.type == L3_FLOAT32;
  options.fill_range = is_float ? uint32_t{L3_KEEP_NUMBERS} : L3_FILL_RANGE + below(2);
  options.layout = below(L3_CHW + 1);
  if (below(4) != 0) {
    l3_window& window = options.window;
    window.top = below(info.height);
    window.left = below(info.width);
    window.height = 1 + below(info.height - window.top);
    window.width = 1 + below(info.width - window.left);
  }
  if (below(2) == 0) {
    const uint32_t first = below(info.channels);
    const uint32_t count = 1 + below(std::min<uint32_t>(info.channels, 9));
    for (uint32_t c = 0; c < count; ++c) channels->push_back((first + c) % info.channels);
    options.channels = channels->data();
    options.channel_count = count;
  } else if (info.channels <= kMaxChannels) {
    options.colors = below(2) == 0 ? below(L3_COLORS_GRAY_ALPHA + 1) : 0;
  }
  return options;
}

// Decodes by random options of l3_decode(). `whole` is what the image is as stored.
inline std::string CheckOptions(const uint8_t* data, size_t size, const l3_info& info,
                                const Decoded& whole, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> channels;
  l3_decode_options options = RandomOptions(info, &random, &channels);
  if (!IsOneIn(limits.emulated_share, kOfThreads, data, size)) options.threads = 1;
  ExactBytes file(data, size);
  l3_output output = {};
  output.struct_size = sizeof(output);
  if (l3_decode_size(file.data(), size, &options, &output) != L3_OK) return "options are refused";
  if (random() % 2 == 0) {  // rows apart
    options.row_stride = output.row_stride + 8 * (random() % 40);
    if (l3_decode_size(file.data(), size, &options, &output) != L3_OK) return "rows apart";
  }
  if (output.bytes > limits.image_bytes) return "";
  constexpr uint8_t kGap = 0xA5;
  ExactBytes pixels(std::vector<uint8_t>(output.bytes, kGap).data(), output.bytes);
  if (l3_decode(file.data(), size, &options, pixels.data(), output.bytes - 1, nullptr) !=
      L3_OUTPUT_TOO_SMALL) {
    return "a byte too few is enough";
  }
  const l3_status status =
      l3_decode(file.data(), size, &options, pixels.data(), output.bytes, &output);
  if (status > L3_CHECKSUM_MISMATCH) return "l3_decode says " + std::to_string(status);
  if (status != L3_OK) return whole.status == L3_OK ? "a part is damaged, the whole is not" : "";
  if (whole.status != L3_OK || options.colors != L3_COLORS_AS_STORED) return "";
  const uint64_t item = info.image_bytes / info.height / info.width / info.channels;
  if (output.type != info.type) return "";
  std::vector<uint8_t> expected(output.bytes, kGap);
  const bool planes = options.layout == L3_CHW;
  for (uint64_t y = 0; y < output.height; ++y) {
    for (uint64_t x = 0; x < output.width; ++x) {
      for (uint64_t c = 0; c < output.channels; ++c) {
        const uint64_t pixel = (options.window.top + y) * info.width + options.window.left + x;
        const uint64_t from = pixel * info.channels + (channels.empty() ? c : channels[c]);
        const uint64_t to = y * output.row_stride + (planes ? c * output.plane_stride + x * item
                                                            : (x * output.channels + c) * item);
        std::memcpy(&expected[to], &whole.pixels[from * item], item);
      }
    }
  }
  const bool same = std::equal(expected.begin(), expected.end(), pixels.data());
  return same ? "" : "l3_decode gives another window";
}

// Decodes by l3_decode(), of one input in some. `expected` is what engines agree on.
inline std::string CheckInterface(const uint8_t* data, size_t size, const l3_info& info,
                                  const Decoded& expected) {
  if (!IsOneIn(limits.check_share, kOfInterface, data, size)) return "";
  ExactBytes file(data, size);
  ExactBytes pixels(info.image_bytes);
  l3_output output = {};
  output.struct_size = sizeof(output);
  Decoded decoded;
  decoded.status = l3_decode(file.data(), size, nullptr, pixels.data(), info.image_bytes, &output);
  decoded.bad_tile = output.bad_tile;
  if (decoded.status == L3_OK) decoded.pixels.assign(pixels.data(), pixels.data() + pixels.size());
  return Compare("l3_decode", decoded, expected);
}

// Decodes with every engine, and by l3_decode(). `expected` receives what they agree on; what does
// not parse or is too large has no pixels.
inline std::string CheckDecode(const uint8_t* data, size_t size, Decoded* expected) {
  *expected = Decoded{};
  l3_info info;
  expected->status = ReadInfo(data, size, &info);
  if (expected->status != L3_OK || !IsWithinLimits(info.image_bytes)) return "";
  const uint64_t row_bytes = info.image_bytes / info.height;
  *expected = Decode(kL3TestScalar, data, size, info.image_bytes, row_bytes);
  for (const uint32_t engine : OtherEngines(data, size)) {
    const std::string error = Compare(
        kEngineNames[engine], Decode(engine, data, size, info.image_bytes, row_bytes), *expected);
    if (!error.empty()) return error;
  }
  const std::string error = CheckInterface(data, size, info, *expected);
  if (!error.empty() || !IsOneIn(limits.check_share, kOfOptions, data, size)) return error;
  return CheckOptions(data, size, info, *expected, Crc32c(data, size));
}

// A plan for any window of an image, to bytes that are all the output's.
inline L3TestPlan RandomPlan(const l3_info& info, uint64_t seed, size_t* output_bytes) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t limit) { return static_cast<uint32_t>(random() % limit); };
  const auto number = [&below] { return (static_cast<float>(below(4001)) - 2000.0f) / 16.0f; };
  L3TestPlan plan = {};
  plan.x_px = below(info.width + 1);
  plan.y_px = below(info.height + 1);
  plan.width_px = below(info.width - plan.x_px + 1);
  plan.height_px = below(info.height - plan.y_px + 1);
  if (below(2) == 0) {
    for (uint32_t* side : {&plan.left_px, &plan.top_px, &plan.right_px, &plan.bottom_px}) {
      *side = below(5);
    }
  }
  plan.type = below(kOutputTypes);
  plan.op = below(3);
  const bool is_wide = info.channels > kMaxChannels;  // such plans name different channels of many
  if (is_wide) plan.op = below(2);
  const bool mixes = static_cast<PixelOp>(plan.op) == PixelOp::kMix;
  const uint32_t most =
      is_wide ? std::min<uint32_t>(info.channels, L3_TEST_MOST_CHANNELS) : kMaxChannels;
  plan.channels = mixes ? 3 : 1 + below(most);
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    uint32_t& source = plan.source[c];
    source = below(info.channels);
    if (is_wide) continue;
    if (!mixes && below(8) == 0) source = kFillChannel;
    if (!mixes && info.channels >= 3 && below(8) == 0) source = kLumaChannel;
  }
  for (uint32_t c = 0; is_wide && c < plan.channels; ++c) {
    plan.source[c] = (plan.source[0] + c) % info.channels;
  }
  plan.luma_rounding = below(kLumaScale);
  if (below(4) == 0 && !is_wide) {  // as stored, but for its place
    ImageInfo stored = {};
    stored.sample_type = static_cast<SampleType>(info.type - L3_UINT8);
    plan.type = static_cast<uint32_t>(StoredType(stored));
    plan.op = static_cast<uint32_t>(PixelOp::kSelect);
    plan.channels = info.channels;
    for (uint32_t c = 0; c < kMaxChannels; ++c) plan.source[c] = c;
  }
  const auto fill_in = [&](float* values) {
    for (uint32_t c = 0; c < kMaxChannels; ++c) values[c] = number();
    for (uint32_t c = kMaxChannels; c < L3_TEST_MOST_CHANNELS; ++c) {
      values[c] = values[c % kMaxChannels];
    }
  };
  fill_in(plan.subtract);
  fill_in(plan.multiply);
  for (float& v : plan.weights) v = number();
  for (float& v : plan.bias) v = number();
  fill_in(plan.fill);
  plan.range = below(2) == 0 ? 1.0f : number();

  const int64_t width = int64_t{plan.left_px} + plan.width_px + plan.right_px;
  const int64_t height = int64_t{plan.top_px} + plan.height_px + plan.bottom_px;
  const int64_t item = OutputBytes(static_cast<OutputType>(plan.type));
  switch (below(3)) {
    case 0:  // HWC
      plan.channel_stride_bytes = item;
      plan.x_stride_bytes = item * plan.channels;
      plan.y_stride_bytes = plan.x_stride_bytes * width;
      break;
    case 1:  // CHW
      plan.x_stride_bytes = item;
      plan.y_stride_bytes = item * width;
      plan.channel_stride_bytes = plan.y_stride_bytes * height;
      break;
    default:  // HWC, transposed
      plan.channel_stride_bytes = item;
      plan.y_stride_bytes = item * plan.channels;
      plan.x_stride_bytes = plan.y_stride_bytes * height;
  }
  *output_bytes = static_cast<size_t>(item * plan.channels * width * height);
  int64_t first = 0;
  if (*output_bytes != 0 && below(2) == 0) {
    first += plan.x_stride_bytes * (width - 1);
    plan.x_stride_bytes = -plan.x_stride_bytes;
  }
  if (*output_bytes != 0 && below(2) == 0) {
    first += plan.y_stride_bytes * (height - 1);
    plan.y_stride_bytes = -plan.y_stride_bytes;
  }
  plan.data_offset = static_cast<uint64_t>(first + plan.left_px * plan.x_stride_bytes +
                                           plan.top_px * plan.y_stride_bytes);
  return plan;
}

// Random plans for one file; their outputs follow one another.
struct Plans {
  std::vector<L3TestPlan> plans;
  size_t output_bytes = 0;
};

inline Plans RandomPlans(const l3_info& info, uint64_t seed) {
  std::mt19937_64 random(~seed);
  Plans made;
  // One half of the time; sometimes more than one warp stores a tile for.
  const uint64_t kind = random() % 64;
  const uint64_t count = kind < 32 ? 1 : kind < 63 ? 2 + random() % 6 : 70;
  size_t end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    // Some windows twice.
    const uint64_t number = i != 0 && random() % 4 == 0 ? i - 1 : i;
    size_t bytes = 0;
    L3TestPlan plan = RandomPlan(info, seed + number, &bytes);
    const size_t begin = (end + 7) / 8 * 8;
    if (begin + bytes > limits.image_bytes) break;
    plan.data_offset += begin;
    end = begin + bytes;
    made.plans.push_back(plan);
  }
  made.output_bytes = end;
  return made;
}

// Decodes by random plans with every engine, all at once. The truth is each plan alone.
inline std::string CheckPlan(const uint8_t* data, size_t size, uint64_t seed) {
  l3_info info;
  if (ReadInfo(data, size, &info) != L3_OK || !IsWithinLimits(info.image_bytes)) return "";
  const Plans windows = RandomPlans(info, seed);
  if (windows.plans.empty()) return "";
  // Leaves what others decoded before.
  const auto decode = [&](uint32_t engine, const L3TestPlan* plans, size_t count, Decoded* all) {
    Decoded decoded;
    uint64_t decoded_tiles = 0;
    decoded.status = l3_test_decode_plans(engine, data, size, plans, count, all->pixels.data(),
                                          all->pixels.size(), 1, &decoded.bad_tile, &decoded_tiles);
    if (decoded.status == L3_OK || decoded.bad_tile > all->bad_tile) return;
    all->status = decoded.status;
    all->bad_tile = decoded.bad_tile;
  };
  const auto finish = [](Decoded* all) {
    if (all->status != L3_OK) all->pixels.clear();
  };
  Decoded expected;
  expected.pixels.resize(windows.output_bytes);
  // What is wrong with the first bad tile: plans may read different groups of it.
  std::vector<uint32_t> statuses;
  for (const L3TestPlan& plan : windows.plans) {
    const uint32_t first = expected.bad_tile;
    decode(kL3TestScalar, &plan, 1, &expected);
    if (expected.bad_tile != first) statuses.clear();
    statuses.push_back(expected.status);
  }
  finish(&expected);
  std::vector<uint32_t> engines = OtherEngines(data, size);
  if (windows.plans.size() > 1) engines.push_back(kL3TestScalar);
  for (const uint32_t engine : engines) {
    Decoded decoded;
    decoded.pixels.resize(windows.output_bytes);
    decode(engine, windows.plans.data(), windows.plans.size(), &decoded);
    finish(&decoded);
    const bool is_one = std::count(statuses.begin(), statuses.end(), decoded.status) != 0;
    if (decoded.bad_tile == expected.bad_tile && is_one) decoded.status = expected.status;
    const std::string error = Compare(kEngineNames[engine], decoded, expected);
    if (!error.empty()) {
      return std::to_string(windows.plans.size()) + " plans from " + std::to_string(seed) + ": " +
             error;
    }
  }
  return "";
}

// Takes numbers from fuzz data; zeros once it is used up.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint32_t Below(uint32_t limit) {
    uint32_t number = 0;
    for (int i = 0; i < 2; ++i) number = number << 8 | NextByte();
    return number % limit;
  }
  uint8_t NextByte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // What was not taken, over and over.
  void Fill(std::vector<uint8_t>* bytes) const {
    for (size_t i = 0; i < bytes->size() && size_ != 0; ++i) (*bytes)[i] = data_[i % size_];
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Fills pixels, of which some bits of each sample are kept, and some samples: few values, flat
// areas.
class PixelFiller {
 public:
  explicit PixelFiller(Choices* choices)
      : choices_(choices),
        mask_{choices->NextByte(), choices->NextByte()},
        repeats_(1 + choices->Below(40)) {}

  std::vector<uint8_t> Fill(uint64_t bytes) const {
    std::vector<uint8_t> pixels(bytes);
    choices_->Fill(&pixels);
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = i % repeats_ == 0 ? pixels[i] & mask_[i % 2] : pixels[i - 1];
    }
    return pixels;
  }

 private:
  const Choices* choices_;
  uint8_t mask_[2];
  uint32_t repeats_;
};

// What to encode, but for the pixels. Most is small and quick, so that much is encoded.
struct EncodeInput {
  explicit EncodeInput(Choices* choices) {
    // What is rare has numbers that are neither 0 nor all ones, of which libFuzzer makes many.
    const uint32_t size = choices->Below(64);
    image.width = 1 + choices->Below(size == 33 ? 600 : size / 8 == 3 ? 100 : 24);
    image.height = 1 + choices->Below(size == 33 ? 300 : size / 8 == 3 ? 24 : 6);
    image.channels = 1 + choices->Below(choices->Below(16) == 5 ? 13 : 4);
    // 16 bits take twice as long.
    constexpr uint32_t kTypes[] = {L3_UINT8, L3_UINT16, L3_INT8,  L3_INT16,
                                   L3_UINT8, L3_INT8,   L3_UINT8, L3_INT8};
    image.type = kTypes[choices->Below(8)];
    constexpr uint32_t kCodings[] = {L3_CODING_PACKED, L3_CODING_RANS, L3_CODING_STORED};
    options.struct_size = sizeof(options);
    options.coding = kCodings[choices->Below(3)];
    // Of small images, 1 and those above 5 search for a model, which takes 3 to 10 times as long.
    const uint32_t effort = choices->Below(256);
    options.effort = effort / 4 == 21 ? 1 : effort / 4 == 42 ? 6 + effort % 4 : 2 + effort % 4;
    options.threads = choices->Below(64) == 21 ? 2 : 1;
    if (choices->Below(2) == 1) {
      options.tile_width = 32u << choices->Below(4);
      options.tile_height = 8u << choices->Below(6);
    }
  }

  uint32_t sample_bytes() const {
    return SampleBits(static_cast<SampleType>(image.type - L3_UINT8)) / 8;
  }
  uint64_t row_bytes() const { return uint64_t{image.width} * image.channels * sample_bytes(); }
  uint64_t bytes() const { return row_bytes() * image.height; }

  // Encodes to a buffer of the size that l3_encode_bound() promises. Returns what went wrong, or
  // "".
  std::string Encode(std::vector<uint8_t>* file) const {
    size_t bound = 0;
    if (l3_encode_bound(&image, &options, &bound) != L3_OK) return "no bound";
    file->resize(bound);
    size_t file_size = 0;
    const l3_status status = l3_encode(&image, &options, file->data(), bound, &file_size);
    file->resize(file_size);
    return status == L3_OK ? "" : std::string("encode says ") + l3_status_name(status);
  }

  l3_image image = {};
  l3_encode_options options = {};
};

// Makes an image out of `data`, encodes it and decodes it with every engine.
inline std::string CheckEncode(const uint8_t* data, size_t size) {
  Choices choices(data, size);
  EncodeInput input(&choices);
  const PixelFiller filler(&choices);
  if (!IsWithinLimits(input.bytes())) return "";
  const std::vector<uint8_t> pixels = filler.Fill(input.bytes());
  ExactBytes exact_pixels(pixels.data(), pixels.size());
  input.image.pixels = exact_pixels.data();

  std::vector<uint8_t> file;
  l3_test_limit_kernels(0);
  std::string error = input.Encode(&file);
  if (!error.empty()) return error;
  if (IsOneIn(limits.check_share, kOfKernels, data, size)) {
    size_t file_size = 0;
    ExactBytes again(file.size());
    l3_test_limit_kernels(1 + static_cast<uint32_t>(size % 3));
    const l3_status status =
        l3_encode(&input.image, &input.options, again.data(), again.size(), &file_size);
    if (status != L3_OK || !std::equal(file.begin(), file.end(), again.data())) {
      return "other kernels of the encoder give other bytes";
    }
  }
  Decoded decoded;
  error = CheckDecode(file.data(), file.size(), &decoded);
  if (!error.empty()) return error;
  if (decoded.status != L3_OK) return "an encoded image decodes to " + Describe(decoded);
  return decoded.pixels == pixels ? "" : "an encoded image decodes to other pixels";
}

// Makes two images out of `data`, and encodes the one while its rows become those of the other. The
// file may not decode; the engines must agree on it.
inline std::string CheckEncodeChanging(const uint8_t* data, size_t size) {
  Choices choices(data, size);
  EncodeInput input(&choices);
  input.options.threads = 1;
  l3_test_limit_kernels(choices.Below(4));
  // Rans takes most passes.
  if (choices.Below(2) == 0) input.options.coding = L3_CODING_RANS;
  const uint64_t first_seed = 4 * uint64_t{choices.Below(1 << 16)};
  if (!IsWithinLimits(input.bytes())) return "";
  // Half of the images are constant or have few bits, so that the other has more than a pass found.
  const auto fill = [&] {
    const uint32_t kind = choices.Below(4);
    const uint32_t mask = (1u << (kind == 0 ? 0 : kind == 1 ? choices.Below(12) : 16)) - 1;
    std::vector<uint8_t> pixels = PixelFiller(&choices).Fill(input.bytes());
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] &= mask >> (8 * (i % input.sample_bytes()));
    return pixels;
  };
  const std::vector<uint8_t> before = fill();
  const std::vector<uint8_t> after = fill();
  for (uint64_t seed = first_seed; seed < first_seed + 4; ++seed) {
    // Each of four ways to change takes as long.
    if (limits.check_share > 1 && seed % 4 != Crc32c(data, size) % 4) continue;
    const ChangingPixels pixels(before.data(), after.data(), input.row_bytes(), input.image.height,
                                seed);
    input.image.pixels = pixels.data();
    input.image.row_stride = pixels.row_stride_bytes();
    std::vector<uint8_t> file;
    std::string error = input.Encode(&file);
    Decoded decoded;
    if (error.empty()) error = CheckDecode(file.data(), file.size(), &decoded);
    if (!error.empty()) return error;
  }
  return "";
}

// Payloads of a file with this header: where it has groups of channels, as many as their list says.
inline uint64_t PayloadCount(const ImageInfo& info, const uint8_t* data, size_t size) {
  uint64_t groups = 1;
  if (info.channels > kMaxChannels) {
    groups = size < kHeaderBytes + kGroupsHeadBytes ? 0 : LoadU16(data + kHeaderBytes + 8);
  }
  return info.tile_count() * groups;
}

// Makes the CRCs and tile checks right again where header and index still say
// where they are, so that damage reaches the code behind them.
inline void Repair(uint8_t* data, size_t size) {
  if (size < kHeaderBytes) return;
  StoreU32(data + 28, Crc32c(data, 28));
  ImageInfo info;
  if (ParseHeader(data, size, &info) != Status::kOk) return;
  const uint64_t checked_bytes = info.chunks_bytes + 4 * PayloadCount(info, data, size);
  const uint64_t index_end = kHeaderBytes + checked_bytes;
  if (size < index_end + 4) return;
  StoreU32(data + index_end, Crc32c(data + kHeaderBytes, checked_bytes));
  const uint64_t payloads = CeilDiv(index_end + 4, kPayloadAlignment) * kPayloadAlignment;
  uint64_t begin = payloads;
  for (uint64_t entry = kHeaderBytes + info.chunks_bytes; entry < index_end; entry += 4) {
    const uint64_t end = payloads + uint64_t{LoadU32(data + entry)} * kPayloadAlignment;
    if (begin < end && end <= size) StoreU32(data + begin, PayloadCheck(data + begin, end - begin));
    begin = end;
  }
}

}  // namespace l3::fuzz
