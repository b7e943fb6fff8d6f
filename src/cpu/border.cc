#include "cpu/border.h"

#include <cstring>

#include "output/store_pixel.h"

namespace l3 {
namespace {

template <uint32_t kBytes>
void FillBands(const OutputPlan& plan) {
  for (uint32_t c = 0; c < plan.channels; ++c) {
    alignas(8) uint8_t value[8];
    StoreValue(plan.type, plan.fill[c], value);
    for (uint32_t i = 0; i < kBorderBands; ++i) {
      const BorderBand band = GetBorderBand(plan, i);
      for (uint32_t y = 0; y < band.height; ++y) {
        for (uint32_t x = 0; x < band.width; ++x) {
          std::memcpy(plan.Place(band.x + x, band.y + y, c), value, kBytes);
        }
      }
    }
  }
}

}  // namespace

void FillBorder(const OutputPlan& plan) {
  switch (OutputBytes(plan.type)) {
    case 1: return FillBands<1>(plan);
    case 2: return FillBands<2>(plan);
    case 8: return FillBands<8>(plan);
    default: return FillBands<4>(plan);
  }
}

}  // namespace l3
