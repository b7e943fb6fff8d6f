#include "cuda/kernels/decode_tiles.cuh"

template const void* l3::DecodeTilesOf<l3::TileKind::kSimple, 1>(l3::StoreKind);

const void* l3::DecodeTilesInTeamsOf(StoreKind store) {
  return store == StoreKind::kPlans
             ? reinterpret_cast<const void*>(&DecodeTilesInTeams<StoreKind::kPlans>)
             : reinterpret_cast<const void*>(&DecodeTilesInTeams<StoreKind::kStored>);
}
