// nvImageCodec's parser of L3 files. Layer: adapter.
#pragma once

#include "format/image_view.h"
#include "nvimgcodec/log.h"
#include "nvimgcodec/stream_bytes.h"
#include "output/orientation.h"

namespace l3 {

// Header and orientation of a file, before the whole file is validated.
struct PeekedImage {
  ImageInfo info;
  Orientation orientation;
  size_t file_bytes;  // set whatever the status
};

// nvImageCodec has no words for images of more channels: they are kUnsupportedFeature here.
inline bool HasTooManyChannels(const ImageInfo& info) {
  return info.channels > info.most_group_channels();
}

// Reads header and orientation. kTruncated too if the file is too short for its image: buffers
// are allocated for what a parser says.
Status Peek(nvimgcodecIoStreamDesc_t* stream, PeekedImage* image);

// The description of the parser. `log` must outlive it.
nvimgcodecParserDesc_t MakeParser(Log* log);

}  // namespace l3
