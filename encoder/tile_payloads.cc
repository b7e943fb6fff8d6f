#include "encoder/tile_payloads.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/parallel.h"
#include "encoder/container_writer.h"
#include "encoder/packed_encoder.h"
#include "encoder/rans_image.h"

namespace l3 {
namespace {

// A tile of a tiny image that takes from 1 / 2 to 7 / 8 of its samples is not tried as packed: such
// tiles are photographs, and larger ones are noise.
constexpr uint64_t kPhotographEighths[] = {4, 7};
// Tiles of up to this many pixels may be smaller as packed, which has no states.
constexpr uint32_t kTinyTilePixels = 1u << 10;
// Tables of rans tiles beside match tiles.
constexpr uint32_t kFewRansTables = 16;

void AppendTileHeader(TileCoding coding, std::vector<uint8_t>* out) {
  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, static_cast<uint8_t>(coding)};
  out->insert(out->end(), header, header + kTileHeaderBytes);
}

// For planes with one value a channel.
template <typename Planes>
void AppendConstantPayload(Planes* planes, std::vector<uint8_t>* out) {
  AppendTileHeader(TileCoding::kConstant, out);
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    const uint32_t value = c < planes->channels ? *planes->Row(c, 0) : 0;
    out->push_back(static_cast<uint8_t>(value));
    out->push_back(static_cast<uint8_t>(value >> 8));
  }
}

// One for each thread, since it has working memory.
class TileEncoder {
 public:
  // `rans` is null if rans is not tried.
  TileEncoder(const TileLoader& loader, const TileOptions& options, const RansCoder* rans)
      : loader_(loader), coding_(options.coding), tries_packed_(options.tries_packed), rans_(rans) {
    if (rans == nullptr) return;
    planes_.reset(new TilePlanes);
    samples_ = std::make_unique<RansSamples>();
  }

  // Appends a payload as a file has it.
  void Append(uint64_t payload, std::vector<uint8_t>* out) {
    const size_t begin = out->size();
    const uint64_t stored_bytes = kTileHeaderBytes + loader_.SampleBytesOf(payload);
    if (rans_ != nullptr) {
      AppendRans(payload, stored_bytes, out);
    } else if (coding_ != Coding::kStored) {
      AppendPacked(payload, out);
    }
    if (coding_ == Coding::kStored || out->size() - begin > stored_bytes) {
      out->resize(begin);
      AppendTileHeader(TileCoding::kStored, out);
      loader_.AppendStored(payload, out);
    }
    FinishPayload(begin, out);
  }

  std::vector<uint8_t> run;  // for the caller

 private:
  // Constant, or the smaller of rans and packed.
  void AppendRans(uint64_t payload, uint64_t stored_bytes, std::vector<uint8_t>* out) {
    loader_.Load(payload, planes_.get());
    if (IsConstant(*planes_)) return AppendConstantPayload(planes_.get(), out);
    const size_t begin = out->size();
    rans_->AppendPayload(static_cast<uint32_t>(payload), *planes_, samples_.get(), out);
    const size_t rans_bytes = out->size() - begin;
    const bool tiny = planes_->width_px * planes_->height_px <= kTinyTilePixels;
    // Packed wins only where there is next to nothing to code.
    if (!tries_packed_ && !tiny && rans_bytes >= stored_bytes / 16) return;
    if (rans_->is_tiny_image() && rans_bytes >= stored_bytes * kPhotographEighths[0] / 8 &&
        rans_bytes < stored_bytes * kPhotographEighths[1] / 8) {
      return;
    }
    packed_.clear();
    AppendPacked(payload, &packed_);
    if (packed_.size() >= rans_bytes) return;
    out->resize(begin);
    out->insert(out->end(), packed_.begin(), packed_.end());
  }

  // Constant or packed.
  void AppendPacked(uint64_t payload, std::vector<uint8_t>* out) {
    loader_.values().used_bits <= 8 ? AppendPackedBy(&bytes_, payload, out)
                                    : AppendPackedBy(&words_, payload, out);
  }
  template <typename Value>
  void AppendPackedBy(std::unique_ptr<PackedTile<Value>>* work, uint64_t payload,
                      std::vector<uint8_t>* out) {
    if (*work == nullptr) work->reset(new PackedTile<Value>);
    PackedPlanes<Value>& planes = (*work)->planes;
    loader_.Load(payload, &planes);
    bool is_constant = true;
    for (uint32_t c = 0; c < planes.channels && is_constant; ++c) {
      is_constant = GetPackedKernels<Value>().is_constant(planes, c);
    }
    if (is_constant) return AppendConstantPayload(&planes, out);
    AppendPackedPayload(work->get(), out);
  }

  const TileLoader& loader_;
  const Coding coding_;
  const bool tries_packed_;
  const RansCoder* const rans_;
  // Made when they are needed.
  std::unique_ptr<PackedTile<uint8_t>> bytes_;
  std::unique_ptr<PackedTile<uint16_t>> words_;
  std::unique_ptr<TilePlanes> planes_;    // of rans
  std::unique_ptr<RansSamples> samples_;  // of rans
  std::vector<uint8_t> packed_;           // the tile of rans as packed
};

}  // namespace

void SetValues(const ValueCoding& values, ImageInfo* info) {
  info->used_bits = static_cast<uint8_t>(values.used_bits);
  info->shift = static_cast<uint8_t>(values.shift);
}

Payloads EncodeTiles(const PixelView& pixels, ImageInfo info,
                     const std::vector<ChannelGroup>& groups, const ValueCoding& values,
                     const TileOptions& options, const std::vector<bool>& left_out) {
  SetValues(values, &info);
  const TileLoader loader(pixels, info, groups, values);
  const uint64_t payloads = loader.payload_count();
  const uint64_t runs = CeilDiv(payloads, kPayloadsPerRun);
  Payloads encoded;
  encoded.sizes.resize(payloads);
  encoded.runs.resize(runs);
  const auto is_left_out = [&](uint32_t tile) { return !left_out.empty() && left_out[tile]; };
  std::optional<RansCoder> rans;
  if (options.coding == Coding::kRans) {
    std::vector<uint32_t> tiles;
    for (uint32_t tile = 0; tile < info.tile_count(); ++tile) {
      if (!is_left_out(tile)) tiles.push_back(tile);
    }
    if (tiles.empty()) return encoded;
    const uint32_t max_tables = left_out.empty() ? kMaxRansTables : kFewRansTables;
    rans.emplace(info, groups, tiles, options.effort, max_tables, options.threads, loader);
    encoded.rans_chunk = rans->chunk();
  }
  std::vector<uint8_t> any_rans(runs);
  const auto make_encoder = [&] { return TileEncoder(loader, options, rans ? &*rans : nullptr); };
  const auto encode = [&](TileEncoder& encoder, uint64_t number) {
    std::vector<uint8_t>& run = encoder.run;
    run.clear();
    const uint64_t begin = number * kPayloadsPerRun;
    for (uint64_t i = begin; i < std::min(begin + kPayloadsPerRun, payloads); ++i) {
      if (is_left_out(loader.TileOf(i))) continue;
      const size_t before = run.size();
      encoder.Append(i, &run);
      encoded.sizes[i] = static_cast<uint32_t>(run.size() - before);
      if (run[before + 4] == static_cast<uint8_t>(TileCoding::kRans)) any_rans[number] = 1;
    }
    encoded.runs[number].assign(run.begin(), run.end());
  };
  ParallelForWithState(runs, options.threads, make_encoder, encode);
  if (std::none_of(any_rans.begin(), any_rans.end(), [](uint8_t any) { return any != 0; })) {
    encoded.rans_chunk.clear();
  }
  return encoded;
}

void AddMatchTiles(const MatchImage& match, unsigned threads, Payloads* payloads) {
  ParallelFor(payloads->runs.size(), threads, [&](uint64_t number) {
    const std::vector<uint8_t> others = std::move(payloads->runs[number]);
    std::vector<uint8_t>& run = payloads->runs[number];
    run.clear();
    auto other = others.begin();
    const size_t begin = number * kPayloadsPerRun;
    const size_t end = std::min(begin + kPayloadsPerRun, payloads->sizes.size());
    for (size_t tile = begin; tile < end; ++tile) {
      uint32_t& size = payloads->sizes[tile];
      run.insert(run.end(), other, other + size);
      other += size;
      if (size != 0) continue;
      const size_t before = run.size();
      match.AppendPayload(static_cast<uint32_t>(tile), &run);
      FinishPayload(before, &run);
      size = static_cast<uint32_t>(run.size() - before);
    }
  });
}

}  // namespace l3
