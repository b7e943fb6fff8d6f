// nvImageCodec's decoder of L3 files on the CPU. Layer: adapter.
#pragma once

#include "nvimgcodec/log.h"

namespace l3 {

// The description of the decoder, which is called once an image by the threads of nvImageCodec.
// `log` must outlive it.
nvimgcodecDecoderDesc_t MakeCpuDecoder(Log* log);

}  // namespace l3
