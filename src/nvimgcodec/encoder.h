// nvImageCodec's encoder of L3 files. Layer: adapter.
#pragma once

#include "nvimgcodec/log.h"

namespace l3 {

// The description of the encoder, which is called once an image by the threads of nvImageCodec.
// `log` must outlive it. Options are "l3_encoder:coding=packed" (or rans, stored) and
// "l3_encoder:effort=7" (1 to 9).
nvimgcodecEncoderDesc_t MakeEncoder(Log* log);

}  // namespace l3
