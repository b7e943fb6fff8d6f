// The match tiles of an image (format.md 5.5): which tiles are smaller by them, and the table of
// their colours. Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/rans_encoder.h"
#include "encoder/tile_loader.h"
#include "format/image_view.h"

namespace l3 {

// A tile as tokens of neighbours, and the colours that no neighbour has.
struct MatchTile {
  // `folded` is below kMatchNeighbors, or kMatchNeighbors where another colour comes. Lanes are
  // idle in skipped steps.
  RansTokens tokens;
  std::vector<uint8_t> skips;     // a bit for each block of steps, as the payload has them
  std::vector<uint32_t> counts;   // of neighbours' tokens in each context, but for skipped steps
  std::vector<uint64_t> colors;   // of the tile, by key
  uint16_t base = 0;              // place in `colors`
  std::vector<uint32_t> escapes;  // places of tokens
  std::vector<uint16_t> escaped;  // their colours, by place in `colors`
};

class MatchImage {
 public:
  // Probes a few tiles. Returns n: tiles are rejected if more than 1 / n of their pixels match no
  // neighbour. Returns 0 if all probed tiles are rejected. `info` has the image's used bits.
  static uint32_t Probe(const ImageInfo& info, uint32_t effort, unsigned threads,
                        const TileLoader& loader);

  MatchImage(const ImageInfo& info, uint32_t few_matches, unsigned threads,
             const TileLoader& loader);

  // Which tiles were rejected.
  std::vector<bool> Unlikely() const;

  // Chooses the tiles that take fewer bytes than `other_bytes`, what each takes otherwise, and
  // makes the chunk. Returns how many bytes they save, about; 0, and no chunk, if these are fewer
  // than `least_saved`. A tiny image's chunk is found with less search, and has to pay.
  uint64_t Choose(const std::vector<uint32_t>& other_bytes, uint64_t least_saved, bool is_tiny);
  const std::vector<bool>& chosen() const { return chosen_; }

  // The data of the MTCH chunk.
  const std::vector<uint8_t>& chunk() const { return chunk_; }

  // Appends a chosen tile's payload, but for its check and its alignment.
  void AppendPayload(uint32_t tile, std::vector<uint8_t>* out) const;

 private:
  struct Numbers;

  // Colours of chosen tiles, numbered; those that come most often first.
  Numbers NumberColors(bool by_value) const;
  void Count(const Numbers& numbers, RansCounts* counts) const;
  uint64_t SizeOf(uint32_t tile, const Numbers& numbers, const std::vector<uint32_t>& costs) const;
  void DropColors();

  ImageInfo info_;
  std::vector<MatchTile> tiles_;  // without tokens where a tile was rejected
  std::vector<std::vector<uint32_t>> ids_;  // of each tile's colours in the image
  std::vector<uint64_t> keys_;              // of the colours of the image
  std::vector<bool> chosen_;
  std::vector<uint16_t> number_;  // of each colour of the image
  std::vector<RansSymbols> symbols_;
  std::vector<uint8_t> chunk_;
};

}  // namespace l3
