// The rans tiles of an image: a first pass over its tiles finds their parameters and
// a model, with which their payloads are written. Layer: encoder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "encoder/rans_encoder.h"
#include "encoder/rans_samples.h"
#include "encoder/tile_loader.h"
#include "encoder/tile_planes.h"
#include "format/channel_groups.h"
#include "format/image_view.h"

namespace l3 {

// Whether an image uses the built-in model: a model of its own is seldom smaller, and takes longer
// to make than all the rest.
bool IsTinyImage(const ImageInfo& info, uint32_t effort);

class RansCoder {
 public:
  RansCoder(const RansCoder&) = delete;
  RansCoder& operator=(const RansCoder&) = delete;

  // The first pass. `info` has the image's used bits; `tiles` are those whose payloads will be
  // asked for; effort is 1 to 9. The model has up to `max_tables` tables.
  RansCoder(const ImageInfo& info, const std::vector<ChannelGroup>& groups,
            const std::vector<uint32_t>& tiles, uint32_t effort, uint32_t max_tables,
            unsigned threads, const TileLoader& loader);

  bool is_tiny_image() const { return is_tiny_image_; }

  // The data of the RANS chunk; empty where the built-in model serves.
  const std::vector<uint8_t>& chunk() const { return chunk_; }

  // Appends a payload, but for its check and its alignment. `planes` are its values and not
  // constant; `work` is for its use.
  void AppendPayload(uint32_t payload, const TilePlanes& planes, RansSamples* work,
                     std::vector<uint8_t>* out) const;

 private:
  class Workspaces;

  // Fits starts_, and chooses the settings, by some of the tiles.
  void Probe(const ImageInfo& info, const std::vector<uint32_t>& tiles, unsigned threads,
             const TileLoader& loader, Workspaces* works, RansCounts* counts);
  // Finds the parameters of all tiles and counts their tokens.
  void FindParameters(const ImageInfo& info, const std::vector<uint32_t>& tiles, unsigned threads,
                      const TileLoader& loader, Workspaces* works, RansCounts* counts);
  // The same for the built-in model.
  void FindTinyParameters(const ImageInfo& info, const std::vector<uint32_t>& tiles,
                          const TileLoader& loader);
  // Improves the parameters by what tokens cost in the model, and counts their tokens.
  void Refine(const std::vector<uint32_t>& tiles, unsigned threads, const TileLoader& loader,
              Workspaces* works, RansCounts* counts);
  // The number of the i-th payload of `tiles`.
  uint32_t PayloadOf(const std::vector<uint32_t>& tiles, uint64_t i) const {
    return tiles[i / group_count_] * group_count_ + static_cast<uint32_t>(i % group_count_);
  }
  void ChooseModel(const ImageInfo& info, const RansCounts& counts, uint32_t max_tables);

  bool is_tiny_image_;
  uint32_t group_count_;
  uint32_t positions_;  // that the model has
  bool has_one_role_;   // no channel is predicted by another
  uint32_t count_shift_;
  RansSettings settings_;
  RansParameters starts_[kMaxChannels];  // one set, for all groups of 1, 2, ... channels
  std::vector<RansParameters> parameters_;    // of each payload; empty at effort 1
  // As modelled, but for constant ones; empty at effort 1 and for large images.
  std::vector<std::optional<RansTile>> tiles_;
  RansModel model_;
  std::optional<RansSymbols> own_symbols_;
  const RansSymbols* symbols_;
  std::vector<uint8_t> chunk_;
};

}  // namespace l3
