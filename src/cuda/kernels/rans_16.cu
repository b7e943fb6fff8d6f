#include "cuda/kernels/decode_tiles.cuh"

template const void* l3::DecodeTilesOf<l3::TileKind::kModel, 2>(l3::StoreKind);
