// nvImageCodec's decoder of L3 files on the GPU. Layer: adapter.
#pragma once

#include "nvimgcodec/gpu.h"
#include "nvimgcodec/log.h"

namespace l3 {

// What the description of a GPU decoder is an instance of; both must outlive its decoders.
struct GpuDecoderPlugin {
  const Log* log;
  GpuSource gpu;
};

// The description of the decoder, which is called once a batch. Each decoder has one batch engine;
// threads that share it take turns.
nvimgcodecDecoderDesc_t MakeGpuDecoder(GpuDecoderPlugin* plugin);

}  // namespace l3
