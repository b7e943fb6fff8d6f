// The tables that the tiles of an image share. Layer: cpu.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "core/color.h"
#include "core/jpeg_tile.h"
#include "core/rans.h"
#include "format/image_view.h"
#include "output/sample_join.h"

namespace l3 {

// Threads and the channel groups of an image may share it.
class ImageTables {
 public:
  // Expands the value table, and that of samples, if there is one, which `decode` decodes.
  ImageTables(const ImageView& view, const DecodeTable& decode);

  const SampleMap& map() const { return map_; }
  const SampleJoin& join() const { return join_; }
  // False if a table changed after ParseImage() had validated it, or that of samples is damaged.
  bool is_sound() const { return is_sound_; }
  // Makes the tables of rans and match tiles in the first call. Null if the model changed after
  // ParseImage() had validated it.
  const RansTables* GetRans(const ImageView& view) {
    std::call_once(once_, [&] { MakeRans(view); });
    return rans_.get();
  }
  // The same of jpeg tiles, and what else these share.
  struct Jpeg {
    JpegInfo info;
    JpegTables tables;
  };
  const Jpeg* GetJpeg(const ImageView& view) {
    std::call_once(once_, [&] { MakeJpeg(view); });
    return jpeg_.get();
  }

 private:
  void MakeRans(const ImageView& view);
  void MakeJpeg(const ImageView& view);
  void FindPixels(const ImageInfo& info);

  std::unique_ptr<uint16_t[]> values_;
  SampleMap map_;
  SampleJoin join_;
  bool is_sound_ = true;
  std::once_flag once_;  // an image has tiles of rans and match, or of jpeg
  std::unique_ptr<RansTables> rans_;
  std::unique_ptr<Jpeg> jpeg_;
  std::unique_ptr<uint64_t[]> colors_;  // of match tiles
  std::unique_ptr<uint64_t[]> pixels_;  // the colours as samples
};

}  // namespace l3
