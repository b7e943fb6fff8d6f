#include "cuda/kernels/decode_tiles.cuh"

template const void* l3::DecodeTilesOf<l3::TileKind::kRans, 1>(l3::StoreKind);
