#include "encoder/rans_image.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "cpu/parallel.h"
#include "encoder/fixed_log.h"
#include "encoder/rans_fit.h"
#include "encoder/rans_refine.h"

namespace l3 {
namespace {

// The first is the usual one, and that of the built-in models; the other suits images
// of one channel that are rough.
constexpr uint8_t kGradientWeights[] = {6, 20};
// Images of up to so many samples may do with the built-in model.
constexpr uint64_t kMaxSmallSamples = 1u << 17;
// Tiles are kept as modelled if all of them together take no more: those of photographs of up to
// some 70 MB.
constexpr uint64_t kMaxKeptBytes = 1u << 28;

bool IsSmall(const ImageInfo& info) {
  return uint64_t{info.width_px} * info.height_px * info.channels <= kMaxSmallSamples;
}

// What the modelled tiles of an image take.
uint64_t KeptBytes(const ImageInfo& info) {
  const uint32_t tiles = info.tile_count();
  uint64_t bytes = 0;
  for (uint32_t tile = 0; tile < tiles && bytes <= kMaxKeptBytes; ++tile) {
    const TileRect rect = GetTileRect(info, tile);
    bytes += RansTile::MemoryBytes(rect.width_px, rect.height_px, info.channels);
  }
  return bytes;
}

// Working memory of one thread.
struct Workspace {
  TilePlanes planes;
  RansSamples samples;
};

// Calls visit(tile, &samples) for some tiles, on several threads; not for constant ones.
template <typename TileOf, typename Visit>
void VisitTiles(uint32_t count, unsigned threads, const RansImage::LoadTile& load,
                const TileOf& tile_of, const Visit& visit) {
  ParallelForWithState(
      count, threads, [] { return std::make_unique<Workspace>(); },
      [&](const std::unique_ptr<Workspace>& work, uint64_t i) {
        const uint32_t tile = tile_of(i);
        load(tile, &work->planes);
        if (IsConstant(work->planes)) return;
        work->samples.Load(work->planes);
        visit(tile, &work->samples);
      });
}

}  // namespace

RansImage::RansImage(const ImageInfo& info, uint32_t effort, uint32_t max_tables, unsigned threads,
                     const LoadTile& load)
    : settings_{effort, kGradientWeights[0], {}}, start_{} {
  RansCounts counts;
  Probe(info, threads, load, &counts);
  if (effort > 1) {
    counts = RansCounts{};
    Plan(info, threads, load, &counts);
  }
  ChooseModel(info, counts, max_tables);
  for (uint32_t round = 0; round < GetRansRefinement(effort).rounds; ++round) {
    Refine(info, threads, load, &counts);
    ChooseModel(info, counts, max_tables);
  }
}

void RansImage::Probe(const ImageInfo& info, unsigned threads, const LoadTile& load,
                      RansCounts* counts) {
  const uint32_t tiles = info.tile_count();
  const uint32_t probes = std::min(tiles, settings_.effort == 1 ? 3 + tiles / 32 : 4 + tiles / 16);
  const auto tile_of = [&](uint64_t i) {
    return static_cast<uint32_t>((2 * i + 1) * tiles / (2 * probes));
  };
  std::mutex mutex;
  RansFitter fitter(settings_);
  VisitTiles(probes, threads, load, tile_of, [&](uint32_t, RansSamples* samples) {
    RansFitter of_tile(settings_);
    of_tile.AddBlind(*samples);
    const std::lock_guard<std::mutex> lock(mutex);
    fitter.Merge(of_tile);
  });
  start_ = fitter.Solve(info.channels, 1);
  const auto count = [&](uint8_t gradient_weight) {
    settings_.gradient_weight = gradient_weight;
    *counts = RansCounts{};
    VisitTiles(probes, threads, load, tile_of, [&](uint32_t, RansSamples* samples) {
      samples->Model(settings_, start_);
      RansCounts of_tile;
      CountRansTokens(*samples, &of_tile);
      const std::lock_guard<std::mutex> lock(mutex);
      counts->Add(of_tile);
    });
    return EntropyOfLevels(*counts, info.channels);
  };
  const uint64_t usual_cost = count(kGradientWeights[0]);
  if (info.channels == 1 && !IsSmall(info)) {
    const RansCounts usual = *counts;
    if (count(kGradientWeights[1]) >= usual_cost) {
      settings_.gradient_weight = kGradientWeights[0];
      *counts = usual;
    }
  }
  if (IsSmall(info)) {
    const RansModel built_in = BuiltInRansModel(info.channels, info.used_bits);
    std::memcpy(settings_.set_begin, built_in.set_begin, sizeof(built_in.set_begin));
  } else {
    ChooseRansSets(*counts, &settings_);
  }
}

void RansImage::Plan(const ImageInfo& info, unsigned threads, const LoadTile& load,
                     RansCounts* counts) {
  const uint32_t tiles = info.tile_count();
  plans_.resize(tiles);
  if (KeptBytes(info) <= kMaxKeptBytes) tiles_.resize(tiles);
  std::mutex mutex;
  VisitTiles(
      tiles, threads, load, [](uint64_t i) { return static_cast<uint32_t>(i); },
      [&](uint32_t tile, RansSamples* samples) {
        RansCounts of_tile;
        plans_[tile] = PlanRansTile(settings_, samples, &of_tile);
        if (!tiles_.empty()) tiles_[tile].emplace(plans_[tile], *samples);
        const std::lock_guard<std::mutex> lock(mutex);
        counts->Add(of_tile);
      });
}

void RansImage::Refine(const ImageInfo& info, unsigned threads, const LoadTile& load,
                       RansCounts* counts) {
  struct State {
    Workspace work;
    RansDescent descent;
    RansCounts counts;  // of a tile
  };
  const auto costs = std::make_unique<const RansCosts>(model_, *counts, info.channels);
  *counts = RansCounts{};
  std::mutex mutex;
  ParallelForWithState(
      info.tile_count(), threads, [] { return std::make_unique<State>(); },
      [&](const std::unique_ptr<State>& state, uint64_t i) {
        const uint32_t tile = static_cast<uint32_t>(i);
        load(tile, &state->work.planes);
        if (IsConstant(state->work.planes)) return;
        RansSamples* samples = &state->work.samples;
        samples->Load(state->work.planes);
        RefineRansTile(settings_, *costs, &state->descent, samples, &plans_[tile], &state->counts);
        if (!tiles_.empty()) tiles_[tile].emplace(plans_[tile], *samples);
        const std::lock_guard<std::mutex> lock(mutex);
        counts->Add(state->counts);
      });
}

void RansImage::ChooseModel(const ImageInfo& info, const RansCounts& counts, uint32_t max_tables) {
  // Tokens of tiles that were not counted need a frequency too.
  const uint32_t all_tokens = info.used_bits <= 8 ? kRansShortTokens : kRansTokens;
  const uint32_t spare_tokens = settings_.effort == 1 ? all_tokens : 0;
  RansModel model = BuildRansModel(counts, info.channels, settings_, spare_tokens, max_tables,
                                   settings_.effort == 1 ? 4 : 8);
  bool own = model.table_count > 0;
  if (own) chunk_ = SerializeRansModel(model, info.channels);
  if (own && IsSmall(info)) {
    const RansModel built_in = BuiltInRansModel(info.channels, info.used_bits);
    const uint64_t chunk_cost = uint64_t{chunk_.size() + 8} << (kCostBits + 3);
    own = CostByModel(counts, info.channels, model) + chunk_cost <
          CostByModel(counts, info.channels, built_in);
  }
  if (!own) {
    model = BuiltInRansModel(info.channels, info.used_bits);
    chunk_.clear();
  }
  model_ = model;
  symbols_.emplace(model);
}

void RansImage::AppendPayload(uint32_t tile, const TilePlanes& planes, RansSamples* work,
                              std::vector<uint8_t>* out) const {
  if (!tiles_.empty()) return AppendRansPayload(*tiles_[tile], *symbols_, out);
  work->Load(planes);
  const RansPlan plan = plans_.empty() ? PickRansPlan(start_, *work) : plans_[tile];
  work->Model(settings_, plan);
  AppendRansPayload(RansTile(plan, *work), *symbols_, out);
}

}  // namespace l3
