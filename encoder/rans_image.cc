#include "encoder/rans_image.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/parallel.h"
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
// Images of up to so many samples do with it, but not from kModelEffort on.
constexpr uint64_t kMaxTinySamples = 1u << 12;
constexpr uint32_t kModelEffort = 6;
// Tiles are kept as modelled if all of them together take no more: those of photographs of up to
// some 70 MB.
constexpr uint64_t kMaxKeptBytes = 1u << 28;

uint64_t SampleCount(const ImageInfo& info) {
  return uint64_t{info.width_px} * info.height_px * info.channels;
}
bool IsSmall(const ImageInfo& info) { return SampleCount(info) <= kMaxSmallSamples; }

// What tiles take as modelled.
uint64_t KeptBytes(const ImageInfo& info, const std::vector<ChannelGroup>& groups,
                   const std::vector<uint32_t>& tiles) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < tiles.size() && bytes <= kMaxKeptBytes; ++i) {
    const TileRect rect = GetTileRect(info, tiles[i]);
    for (const ChannelGroup& group : groups) {
      bytes += RansTile::MemoryBytes(rect.width_px, rect.height_px, group.channels);
    }
  }
  return bytes;
}

// The power of two that divides counts, so that those of all tables add up to 32 bits.
uint32_t CountShift(const ImageInfo& info) {
  const uint64_t samples = uint64_t{info.width_px} * info.height_px * info.channels;
  return BitLength(static_cast<uint32_t>(samples >> 31));
}

// Working memory of one thread.
struct Workspace {
  TilePlanes planes;
  RansSamples samples;
};

// A built-in model, and what is made of it.
struct BuiltInModel {
  explicit BuiltInModel(uint32_t channels, uint32_t used_bits)
      : model(BuiltInRansModel(channels, used_bits)),
        symbols(model),
        costs(model, RansCounts{}, kMaxChannels) {}

  RansModel model;
  RansSymbols symbols;
  RansCosts costs;
};

// Made once.
const BuiltInModel& GetBuiltInModel(uint32_t channels, uint32_t used_bits) {
  static const BuiltInModel models[2][2] = {{BuiltInModel(1, 8), BuiltInModel(kMaxChannels, 8)},
                                            {BuiltInModel(1, 16), BuiltInModel(kMaxChannels, 16)}};
  return models[used_bits > 8][channels > 2];
}

// Calls visit(payload, &samples) for some payloads, on several threads; not for constant ones.
template <typename Works, typename PayloadOf, typename Visit>
void VisitTiles(uint64_t count, unsigned threads, const TileLoader& loader,
                const PayloadOf& payload_of, Works* works, const Visit& visit) {
  ParallelForWithState(
      count, threads, [works] { return works->Take(); },
      [&](const auto& work, uint64_t i) {
        const uint32_t payload = payload_of(i);
        loader.Load(payload, &work->planes);
        if (IsConstant(work->planes)) return;
        work->samples.Load(work->planes);
        visit(payload, &work->samples);
      });
}

}  // namespace

// Keeps those that no thread uses for the next pass: the system would have to find and clear the
// pages of new ones.
class RansCoder::Workspaces {
 public:
  struct GiveBack {
    void operator()(Workspace* work) const {
      const std::lock_guard<std::mutex> lock(to->mutex_);
      to->spare_.emplace_back(work);
    }
    Workspaces* to;
  };

  std::unique_ptr<Workspace, GiveBack> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) {
      spare_.reserve(++count_);  // so that none is lost on its way back
      spare_.push_back(std::make_unique<Workspace>());
    }
    Workspace* work = spare_.back().release();
    spare_.pop_back();
    return {work, GiveBack{this}};
  }

 private:
  std::mutex mutex_;
  size_t count_ = 0;
  std::vector<std::unique_ptr<Workspace>> spare_;
};

bool IsTinyImage(const ImageInfo& info, uint32_t effort) {
  return SampleCount(info) <= kMaxTinySamples && effort > 1 && effort < kModelEffort;
}

RansCoder::RansCoder(const ImageInfo& info, const std::vector<ChannelGroup>& groups,
                     const std::vector<uint32_t>& tiles, uint32_t effort, uint32_t max_tables,
                     unsigned threads, const TileLoader& loader)
    : is_tiny_image_(IsTinyImage(info, effort)),
      group_count_(static_cast<uint32_t>(groups.size())),
      positions_(std::min<uint32_t>(info.channels, kMaxChannels)),
      has_one_role_(std::all_of(groups.begin(), groups.end(),
                                [](const ChannelGroup& g) { return g.channels == 1; })),
      count_shift_(CountShift(info)),
      settings_{effort, kGradientWeights[0], {}},
      starts_{} {
  if (is_tiny_image_) {
    FindTinyParameters(info, tiles, loader);
    return;
  }
  Workspaces works;
  RansCounts counts;
  Probe(info, tiles, threads, loader, &works, &counts);
  if (effort > 1) {
    counts = RansCounts{};
    if (KeptBytes(info, groups, tiles) <= kMaxKeptBytes) {
      tiles_.resize(uint64_t{info.tile_count()} * group_count_);
    }
    FindParameters(info, tiles, threads, loader, &works, &counts);
  }
  ChooseModel(info, counts, max_tables);
  for (uint32_t round = 0; round < GetRansRefinement(effort).rounds; ++round) {
    Refine(tiles, threads, loader, &works, &counts);
    ChooseModel(info, counts, max_tables);
  }
}

void RansCoder::Probe(const ImageInfo& info, const std::vector<uint32_t>& tiles, unsigned threads,
                      const TileLoader& loader, Workspaces* works, RansCounts* counts) {
  const uint64_t count_of_tiles = tiles.size();
  const uint64_t probes = std::min(
      count_of_tiles, settings_.effort == 1 ? 3 + count_of_tiles / 32 : 4 + count_of_tiles / 16);
  const auto payload_of = [&](uint64_t i) {
    const uint32_t tile = tiles[(2 * (i / group_count_) + 1) * count_of_tiles / (2 * probes)];
    return tile * group_count_ + static_cast<uint32_t>(i % group_count_);
  };
  const uint64_t payloads = probes * group_count_;
  std::mutex mutex;
  std::unique_ptr<RansFitter> fitters[kMaxChannels];  // of groups of 1, 2, ... channels
  VisitTiles(payloads, threads, loader, payload_of, works, [&](uint32_t, RansSamples* samples) {
    RansFitter of_tile(settings_);
    of_tile.AddBlind(*samples);
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<RansFitter>& fitter = fitters[samples->channels() - 1];
    if (fitter == nullptr) fitter = std::make_unique<RansFitter>(settings_);
    fitter->Merge(of_tile);
  });
  for (uint32_t channels = 1; channels <= kMaxChannels; ++channels) {
    const RansFitter* fitter = fitters[channels - 1].get();
    starts_[channels - 1] =
        (fitter != nullptr ? *fitter : RansFitter(settings_)).Solve(channels, 1);
  }
  const auto count = [&](uint8_t gradient_weight) {
    settings_.gradient_weight = gradient_weight;
    *counts = RansCounts{};
    VisitTiles(payloads, threads, loader, payload_of, works, [&](uint32_t, RansSamples* samples) {
      samples->Model(settings_, starts_[samples->channels() - 1]);
      RansCounts of_tile;
      CountRansTokens(*samples, &of_tile);
      const std::lock_guard<std::mutex> lock(mutex);
      counts->Add(of_tile, count_shift_);
    });
    return EntropyOfLevels(*counts, positions_);
  };
  const uint64_t usual_cost = count(kGradientWeights[0]);
  if (has_one_role_ && !IsSmall(info)) {
    const RansCounts usual = *counts;
    if (count(kGradientWeights[1]) >= usual_cost) {
      settings_.gradient_weight = kGradientWeights[0];
      *counts = usual;
    }
  }
  if (IsSmall(info)) {
    const RansModel built_in = BuiltInRansModel(positions_, info.used_bits);
    std::memcpy(settings_.set_begin, built_in.set_begin, sizeof(built_in.set_begin));
  } else {
    ChooseRansSets(*counts, &settings_);
  }
}

void RansCoder::FindParameters(const ImageInfo& info, const std::vector<uint32_t>& tiles,
                               unsigned threads, const TileLoader& loader, Workspaces* works,
                               RansCounts* counts) {
  parameters_.resize(uint64_t{info.tile_count()} * group_count_);
  const auto payload_of = [&](uint64_t i) { return PayloadOf(tiles, i); };
  std::mutex mutex;
  VisitTiles(tiles.size() * group_count_, threads, loader, payload_of, works,
             [&](uint32_t payload, RansSamples* samples) {
               RansCounts of_tile;
               parameters_[payload] = FindRansParameters(settings_, samples, &of_tile);
               if (!tiles_.empty()) tiles_[payload].emplace(parameters_[payload], *samples);
               const std::lock_guard<std::mutex> lock(mutex);
               counts->Add(of_tile, count_shift_);
             });
}

void RansCoder::FindTinyParameters(const ImageInfo& info, const std::vector<uint32_t>& tiles,
                                   const TileLoader& loader) {
  const BuiltInModel& built_in = GetBuiltInModel(positions_, info.used_bits);
  std::memcpy(settings_.set_begin, built_in.model.set_begin, sizeof(built_in.model.set_begin));
  symbols_ = &built_in.symbols;
  parameters_.resize(uint64_t{info.tile_count()} * group_count_);
  tiles_.resize(parameters_.size());
  // Kept for the next image: making it takes longer than the parameters of a tiny one. Whole
  // vectors of samples are modelled; those of 16 bits behind the last would overflow the others'
  // sums.
  thread_local std::unique_ptr<Workspace> works[2];
  std::unique_ptr<Workspace>& work = works[info.used_bits > 8];
  if (!work) work = std::make_unique<Workspace>();
  for (uint64_t i = 0; i < tiles.size() * group_count_; ++i) {
    const uint32_t payload = PayloadOf(tiles, i);
    loader.Load(payload, &work->planes);
    if (IsConstant(work->planes)) continue;
    work->samples.Load(work->planes);
    parameters_[payload] = FindTinyRansParameters(settings_, built_in.costs, &work->samples);
    tiles_[payload].emplace(parameters_[payload], work->samples);
  }
}

void RansCoder::Refine(const std::vector<uint32_t>& tiles, unsigned threads,
                       const TileLoader& loader, Workspaces* works, RansCounts* counts) {
  struct State {
    RansDescent descent;
    RansCounts counts;  // of a tile
  };
  const auto costs = std::make_unique<const RansCosts>(model_, *counts, positions_);
  *counts = RansCounts{};
  std::mutex mutex;
  ParallelForWithState(
      tiles.size() * group_count_, threads,
      [works] { return std::make_pair(works->Take(), std::make_unique<State>()); },
      [&](const auto& work_and_state, uint64_t i) {
        const auto& [work, state] = work_and_state;
        const uint32_t payload = PayloadOf(tiles, i);
        loader.Load(payload, &work->planes);
        if (IsConstant(work->planes)) return;
        RansSamples* samples = &work->samples;
        samples->Load(work->planes);
        RansParameters* parameters = &parameters_[payload];
        RefineRansTile(settings_, *costs, &state->descent, samples, parameters, &state->counts);
        if (!tiles_.empty()) tiles_[payload].emplace(*parameters, *samples);
        const std::lock_guard<std::mutex> lock(mutex);
        counts->Add(state->counts, count_shift_);
      });
}

void RansCoder::ChooseModel(const ImageInfo& info, const RansCounts& counts, uint32_t max_tables) {
  // Tokens of tiles that were not counted need a frequency too.
  const uint32_t all_tokens = info.used_bits <= 8 ? kRansShortTokens : kRansTokens;
  const uint32_t spare_tokens = settings_.effort == 1 ? all_tokens : 0;
  RansModel model = BuildRansModel(counts, positions_, settings_, spare_tokens, max_tables,
                                   settings_.effort == 1 ? 4 : 8);
  bool own = model.table_count > 0;
  if (own) chunk_ = SerializeRansModel(model, positions_);
  if (own && IsSmall(info)) {
    const RansModel built_in = BuiltInRansModel(positions_, info.used_bits);
    const uint64_t chunk_cost = uint64_t{chunk_.size() + 8} << (kCostBits + 3);
    own = CostByModel(counts, positions_, model) + chunk_cost <
          CostByModel(counts, positions_, built_in);
  }
  if (!own) {
    model = BuiltInRansModel(positions_, info.used_bits);
    chunk_.clear();
  }
  model_ = model;
  symbols_ = &own_symbols_.emplace(model);
}

void RansCoder::AppendPayload(uint32_t payload, const TilePlanes& planes, RansSamples* work,
                              std::vector<uint8_t>* out) const {
  // A tile that was constant when the parameters were made is not kept, but may have changed since.
  if (!tiles_.empty() && tiles_[payload]) {
    return AppendRansPayload(*tiles_[payload], *symbols_, out);
  }
  work->Load(planes);
  const RansParameters parameters = parameters_.empty()
                                        ? PickRansParameters(starts_[planes.channels - 1], *work)
                                        : parameters_[payload];
  work->Model(settings_, parameters);
  AppendRansPayload(RansTile(parameters, *work), *symbols_, out);
}

}  // namespace l3
