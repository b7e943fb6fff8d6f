// Decodes images on the CPU. Layer: cpu. Every engine gives the scalar core's
// samples and Status; they differ in speed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/color.h"
#include "core/tile.h"
#include "cpu/cpu_engine.h"
#include "cpu/group_part.h"
#include "cpu/windows_of_tiles.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

class ImageTables;
class JpegSeams;

// An image ready to decode, or one of its groups of channels: the validated file and its expanded
// value table. The encoded bytes must outlive it. Threads may share it.
class CpuDecoder {
 public:
  // Allocates the value table if the file has one; the first rans tile that is decoded
  // allocates the tables of rans (at most 128 KiB each, and little more). Reads no
  // payload. Where `engine` is not available, kScalar takes its place.
  explicit CpuDecoder(const ImageView& view, CpuEngine engine = CpuEngine::kAuto);
  // The same for another group of channels of that image: the tables are shared.
  CpuDecoder(const ImageView& view, const CpuDecoder& other);
  ~CpuDecoder();
  CpuDecoder(CpuDecoder&&) noexcept;
  CpuDecoder& operator=(CpuDecoder&&) noexcept;

  const ImageInfo& info() const { return info_; }

  // Decodes the image on up to `threads` threads (0: all the machine has), tiles behind a bad one
  // too. 16-bit output must be 2-byte aligned.
  DecodeResult DecodeImage(const ImageOutput& output, unsigned threads) const;

  // Decodes the tiles [begin, end) of `span`, counted row by row, that a window of the `count`
  // plans touches, including those behind a bad tile. Reads no other payload. A tile is decoded
  // once, and stored for each plan. A tile that leaves as stored, whole and for one window, goes
  // straight to the output; others use buffers of four tiles, at most 512 KiB each. Of jpeg tiles
  // [begin, end) are rows of tiles. Pixels at their edges need both sides: calls for parts of a
  // span share `seams`.
  DecodeResult DecodeWindows(const OutputPlan* plans, size_t count, const TileSpan& span,
                             uint32_t begin, uint32_t end, JpegSeams* seams = nullptr) const;

  // DecodeWindows() in two steps, for images with several channel groups. Not for images with large
  // tiles. DecodeToMemory() decodes up to two tiles of `span`, each to `tile_bytes()` of memory,
  // with kReadableBytes behind the last. If `ahead` is not null, it also prefetches the part
  // `share` of `shares` of the output's rows. StoreParts() stores the groups of a tile, in outputs
  // of the same shape.
  size_t tile_bytes() const;
  DecodeResult DecodeToMemory(const TileSpan& span, uint32_t begin, uint32_t end, uint8_t* memory,
                              const OutputPlan* ahead, uint32_t share, uint32_t shares,
                              DecodedSamples* samples) const;
  void StoreParts(const GroupPart* parts, size_t count, uint32_t tile) const;
  // Between the two, of samples that are ranks or halves: joins those of a tile, into a plane for
  // each channel.
  void JoinToPlanes(uint32_t tile, const DecodedSamples& samples, uint8_t* const* planes) const;

 private:
  void JoinSamples(const TileRect& rect, uint32_t rows, const uint8_t* coded,
                   const ImageOutput& output) const;
  TileJob MakeJob(uint32_t tile, const ImageOutput& output) const;
  void DecodeJobs(TileJob* jobs, uint32_t count) const;

  ImageInfo info_;  // of the output; that of view_ is what tiles hold
  ImageView view_;
  const EngineFunctions* engine_;
  std::shared_ptr<ImageTables> tables_;
};

}  // namespace l3
