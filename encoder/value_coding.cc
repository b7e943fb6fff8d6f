#include "encoder/value_coding.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/parallel.h"
#include "base/portable.h"

namespace l3 {
namespace {

// Rows of about so many bytes are a task, which pays for a thread.
constexpr uint64_t kTaskBytes = 1 << 19;

uint64_t RowsPerTask(const PixelView& pixels) {
  return CeilDiv(kTaskBytes, pixels.row_stride_bytes);
}
uint64_t TaskCount(const PixelView& pixels) {
  return CeilDiv(pixels.height_px, RowsPerTask(pixels));
}

// Calls scan(row) for the bytes of each row of a task until it returns false.
template <typename Scan>
void ScanTask(const PixelView& pixels, uint64_t task, const Scan& scan) {
  const uint64_t begin = task * RowsPerTask(pixels);
  const uint64_t end = std::min<uint64_t>(pixels.height_px, begin + RowsPerTask(pixels));
  for (uint64_t y = begin; y < end; ++y) {
    if (!scan(pixels.data + y * pixels.row_stride_bytes)) return;
  }
}

uint64_t RowBytes(const PixelView& pixels) {
  return uint64_t{pixels.width_px} * pixels.channels * (pixels.sample_bits() / 8);
}

// The bits that are set in any of some samples.
struct SampleBitsSeen {
  uint32_t any;
  uint32_t magnitude;  // of signed samples those that differ from the sign, else the same
};

SampleBitsSeen ScanRow(const uint8_t* row, uint64_t row_bytes, SampleType type) {
  const uint32_t bits = SampleBits(type);
  const uint64_t ones = bits == 8 ? 0x0101010101010101 : 0x0001000100010001;
  uint64_t any = 0;
  uint64_t magnitude = 0;
  uint64_t i = 0;
  const auto add_signed = [&](uint64_t word) {
    const uint64_t negative = (word >> (bits - 1)) & ones;  // 1 for each sample that is
    any |= word;
    magnitude |= word ^ ((negative << bits) - negative);
  };
  for (; i + sizeof(any) <= row_bytes; i += sizeof(any)) {
    uint64_t word;
    std::memcpy(&word, row + i, sizeof(word));
    if (IsSigned(type)) {
      add_signed(word);
    } else {
      any |= word;
    }
  }
  uint64_t rest = 0;
  std::memcpy(&rest, row + i, row_bytes - i);
  add_signed(rest);
  if (!IsSigned(type)) magnitude = any;
  const auto fold = [bits](uint64_t word) {
    word |= word >> 32;
    word |= word >> 16;
    if (bits == 8) word |= word >> 8;
    return static_cast<uint32_t>(word) & ((1u << bits) - 1);
  };
  return {fold(any), fold(magnitude)};
}

// Marks samples that occur by 1, without a branch for each.
template <typename Sample>
void MarkSamples(const uint8_t* row, uint64_t bytes, uint8_t* used) {
  uint64_t before = 0;
  uint64_t i = 0;
  for (; i + sizeof(before) <= bytes; i += sizeof(before)) {
    uint64_t word;
    std::memcpy(&word, row + i, sizeof(word));
    if (word == before && i != 0) continue;  // as in flat areas
    before = word;
    for (size_t k = 0; k < sizeof(word); k += sizeof(Sample)) {
      used[static_cast<Sample>(word >> (8 * k))] = 1;
    }
  }
  for (; i < bytes; i += sizeof(Sample)) {
    Sample sample;
    std::memcpy(&sample, row + i, sizeof(sample));
    used[sample] = 1;
  }
}

uint32_t CountUsed(const std::vector<uint8_t>& used) {
  uint32_t count = 0;
  for (const uint8_t is_used : used) count += is_used;
  return count;
}

// The samples that occur, 1 each; empty if they are more than `most`.
template <typename Sample>
std::vector<uint8_t> FindUsedSamples(const PixelView& pixels, uint32_t most, unsigned threads) {
  const uint64_t row_bytes = RowBytes(pixels);
  constexpr size_t kKinds = size_t{1} << (8 * sizeof(Sample));
  std::vector<uint8_t> used(kKinds);
  std::mutex mutex;  // of `used`
  std::atomic<bool> too_many{false};
  const auto scan = [&](std::vector<uint8_t>& mine, uint64_t task) {
    uint64_t bytes_since_count = 0;
    ScanTask(pixels, task, [&](const uint8_t* row) {
      MarkSamples<Sample>(row, row_bytes, mine.data());
      bytes_since_count += row_bytes;
      if (bytes_since_count >= kKinds) {
        bytes_since_count = 0;
        if (CountUsed(mine) > most) too_many = true;
      }
      return !too_many;
    });
    if (too_many) return;
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < kKinds; ++i) used[i] |= mine[i];
    if (CountUsed(used) > most) too_many = true;
  };
  ParallelForWithState(
      TaskCount(pixels), threads, [] { return std::vector<uint8_t>(kKinds); }, scan);
  if (too_many) used.clear();
  return used;
}

}  // namespace

ValueCoding FindShiftedValues(const PixelView& pixels, unsigned threads) {
  const uint64_t row_bytes = RowBytes(pixels);
  const uint32_t top_bit = 1u << (pixels.sample_bits() - 1);
  // The most that can be found.
  const SampleBitsSeen all = {1, pixels.is_signed() ? top_bit >> 1 : top_bit};
  std::atomic<uint32_t> any{0};
  std::atomic<uint32_t> magnitude{0};
  ParallelFor(TaskCount(pixels), threads, [&](uint64_t task) {
    ScanTask(pixels, task, [&](const uint8_t* row) {
      const SampleBitsSeen seen = ScanRow(row, row_bytes, pixels.sample_type);
      if ((seen.any & ~any) != 0) any |= seen.any;
      if ((seen.magnitude & ~magnitude) != 0) magnitude |= seen.magnitude;
      // The other bits cannot change the result.
      return (any & all.any) == 0 || (magnitude & all.magnitude) == 0;
    });
  });
  ValueCoding coding;
  coding.shift = any == 0 ? 0 : static_cast<uint32_t>(__builtin_ctz(any));
  const uint32_t magnitude_bits = BitLength(magnitude >> coding.shift);
  coding.used_bits = std::max(1u, magnitude_bits + (pixels.is_signed() ? 1 : 0));
  coding.offset = pixels.is_signed() ? 1u << (coding.used_bits - 1) : 0;
  return coding;
}

std::optional<ValueCoding> FindRankedValues(const PixelView& pixels, const ValueCoding& shifted,
                                            unsigned threads) {
  const uint32_t most = 1u << (shifted.used_bits - 1);  // ranks of one bit less
  if (shifted.used_bits == 1) return std::nullopt;
  const std::vector<uint8_t> used = pixels.sample_bits() == 8
                                        ? FindUsedSamples<uint8_t>(pixels, most, threads)
                                        : FindUsedSamples<uint16_t>(pixels, most, threads);
  if (used.empty()) return std::nullopt;
  ValueCoding coding;
  coding.rank.resize(used.size());
  const uint32_t top_bit = pixels.is_signed() ? 1u << (pixels.sample_bits() - 1) : 0;
  const size_t last_rank = CountUsed(used) - 1;
  for (uint32_t number = 0; number < used.size(); ++number) {
    const uint32_t sample = number ^ top_bit;
    // Samples that did not occur have a rank too: they may come to occur.
    coding.rank[sample] = static_cast<uint16_t>(std::min(coding.table.size(), last_rank));
    if (used[sample] != 0) coding.table.push_back(static_cast<uint16_t>(number));
  }
  coding.used_bits = std::max(1u, BitLength(static_cast<uint32_t>(last_rank)));
  return coding;
}

}  // namespace l3
