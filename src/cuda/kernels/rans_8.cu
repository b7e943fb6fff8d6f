#include "cuda/kernels/decode_tiles.cuh"

template const void* l3::DecodeTilesOf<l3::TileKind::kModel, 1>(l3::StoreKind);
