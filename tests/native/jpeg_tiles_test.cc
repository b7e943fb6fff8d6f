// Jpeg tiles from coefficients to payloads and back, by the core and by every engine: random
// images give their coefficients back, and damaged payloads the same Status everywhere.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "core/jpeg_tile.h"
#include "cpu/cpu_engine.h"
#include "encoder/jpeg_encoder.h"

namespace {

using Random = std::mt19937;

// Coefficients that fade from DC on, and here and there as large as the format allows.
l3::JpegImage MakeImage(Random* random) {
  const auto below = [random](uint32_t n) { return static_cast<uint32_t>((*random)() % n); };
  l3::JpegImage image;
  image.info.width_px = 1 + below(below(4) == 0 ? 600 : 100);
  image.info.height_px = 1 + below(100);
  image.info.color = static_cast<l3::JpegColor>(below(3));
  image.info.components = image.info.color == l3::JpegColor::kGray ? 1 : 3;
  const uint32_t sampling = image.info.color == l3::JpegColor::kYcbcr ? below(4) : 0;
  image.info.chroma_x_shift = sampling % 2;
  image.info.chroma_y_shift = static_cast<uint8_t>(sampling / 2);
  image.Allocate();
  const uint32_t largest_quantizer = 1u << below(15);
  const double energy = 1 << below(6);
  for (uint32_t c = 0; c < image.info.components; ++c) {
    uint16_t* const quantizers = image.info.quantizers[c];
    for (uint32_t i = 0; i < 64; ++i) {
      quantizers[i] = static_cast<uint16_t>(1 + below(largest_quantizer));
    }
    const l3::JpegBlockRect rect = l3::JpegBlocksOfImage(image.info, c);
    for (uint32_t i = 0; i < 64 * rect.width * rect.height; ++i) {
      const uint32_t k = i % 64;
      const uint32_t place = l3::kJpegNaturalOrder[k];
      const int32_t limit = std::min(place == 0 ? l3::kMaxJpegDc : INT16_MAX,
                                     l3::kMaxJpegProduct / quantizers[place]);
      const double scale = energy / (1 + place % 8 * (place % 8) + place / 8 * (place / 8));
      int32_t value = static_cast<int32_t>(scale * std::normal_distribution<>()(*random));
      if (below(2000) == 0) value = below(2) == 0 ? limit : -limit;
      image.blocks.At(c, i / 64 % rect.width, i / 64 / rect.width)[k] =
          static_cast<int16_t>(std::clamp(value, -limit, limit));
    }
  }
  return image;
}

// A file, validated, and what its tiles need.
struct File {
  std::vector<uint8_t> bytes;
  l3::ImageView view;
  l3::JpegInfo jpeg;
  l3::JpegTables tables;
};

bool Encode(const l3::JpegImage& image, Random* random, File* file) {
  l3::EncodeOptions options;
  options.tile_width_log2 = 5 + (*random)() % 4;
  options.tile_height_log2 = 4 + (*random)() % 5;
  const l3::Status status = l3::EncodeJpeg(image, 1000, {}, options, [file](uint64_t bytes) {
    file->bytes.resize(bytes);
    return file->bytes.data();
  });
  l3::JpegModel model;
  if (status != l3::Status::kOk ||
      l3::ParseImage(file->bytes.data(), file->bytes.size(), &file->view) != l3::Status::kOk ||
      !l3::ReadJpegChunk(file->view, &file->jpeg, &model)) {
    return false;
  }
  l3::BuildJpegTables(model, &file->tables);
  return true;
}

// What an image decodes to: products of coefficients and quantizers, and the Status of each tile.
struct Decoded {
  std::vector<int16_t> products[l3::kMaxJpegComponents];
  std::vector<l3::Status> statuses;

  bool operator==(const Decoded& other) const {
    return statuses == other.statuses &&
           (std::any_of(statuses.begin(), statuses.end(),
                        [](l3::Status status) { return status != l3::Status::kOk; }) ||
            std::equal(products, products + l3::kMaxJpegComponents, other.products));
  }
};

void KeepProducts(const l3::JpegGroup& group) {
  const l3::JpegExtent extent = l3::JpegExtentOf(group.last);
  for (uint32_t lane = 0; lane < group.count; ++lane) {
    int16_t* const block = reinterpret_cast<int16_t*>(group.block[lane]);
    std::fill_n(block, l3::kJpegBlockSamples, int16_t{0});
    for (uint32_t v = 0; v < extent.rows; ++v) {
      for (uint32_t u = 0; u < extent.columns; ++u) {
        block[8 * v + u] = group.coefficient[8 * v + u][lane];
      }
    }
  }
}

Decoded Decode(const File& file, l3::CpuEngine engine) {
  constexpr uint32_t kBlockBytes = 2 * l3::kJpegBlockSamples;
  Decoded decoded;
  std::vector<l3::JpegTileJob> jobs;
  for (uint32_t c = 0; c < file.jpeg.components; ++c) {
    const l3::JpegBlockRect blocks = l3::JpegBlocksOfImage(file.jpeg, c);
    decoded.products[c].resize(l3::kJpegBlockSamples * blocks.width * blocks.height);
  }
  for (uint32_t tile = 0; tile < file.view.info.tile_count(); ++tile) {
    l3::JpegTileJob job = {};
    uint64_t begin;
    file.view.FindPayload(tile, &begin, &job.size);
    job.tile = tile;
    job.payload = file.view.payloads + begin;
    for (uint32_t c = 0; c < file.jpeg.components; ++c) {
      const l3::JpegBlockRect rect = l3::JpegBlocksOfTile(file.view.info, file.jpeg, tile, c);
      job.row_bytes[c] = uint64_t{kBlockBytes} * l3::JpegBlocksOfImage(file.jpeg, c).width;
      job.blocks[c] = reinterpret_cast<uint8_t*>(decoded.products[c].data()) +
                      rect.y * job.row_bytes[c] + rect.x * kBlockBytes;
    }
    jobs.push_back(job);
  }
  l3::FindEngine(engine)->decode_jpeg_tiles({file.view.info, file.jpeg, file.tables}, KeepProducts,
                                            kBlockBytes, jobs.data(),
                                            static_cast<uint32_t>(jobs.size()));
  for (const l3::JpegTileJob& job : jobs) decoded.statuses.push_back(job.status);
  return decoded;
}

// Changes a few bytes of some payload, and makes its check right again.
void Damage(File* file, Random* random) {
  uint64_t begin;
  uint32_t size;
  file->view.FindPayload((*random)() % file->view.info.tile_count(), &begin, &size);
  uint8_t* payload = file->bytes.data() + (file->view.payloads - file->bytes.data()) + begin;
  for (uint32_t i = 0; i <= (*random)() % 3; ++i) {
    payload[4 + (*random)() % std::min(size - 4, (*random)() % 2 == 0 ? 48u : size)] ^=
        static_cast<uint8_t>(1u << (*random)() % 8);
  }
  l3::StoreU32(payload, l3::PayloadCheck(payload, size));
}

bool HasCoefficients(const l3::JpegImage& image, const Decoded& decoded) {
  for (uint32_t c = 0; c < image.info.components; ++c) {
    const l3::JpegBlockRect rect = l3::JpegBlocksOfImage(image.info, c);
    for (uint32_t i = 0; i < 64 * rect.width * rect.height; ++i) {
      const uint32_t place = l3::kJpegNaturalOrder[i % 64];
      const int16_t* block = image.blocks.At(c, i / 64 % rect.width, i / 64 / rect.width);
      if (block[i % 64] * image.info.quantizers[c][place] !=
          decoded.products[c][i / 64 * 64 + place]) {
        return false;
      }
    }
  }
  return std::all_of(decoded.statuses.begin(), decoded.statuses.end(),
                     [](l3::Status status) { return status == l3::Status::kOk; });
}

}  // namespace

int main() {
  constexpr l3::CpuEngine kEngines[] = {l3::CpuEngine::kScalar, l3::CpuEngine::kAvx2,
                                        l3::CpuEngine::kAvx512, l3::CpuEngine::kNeon};
  Random random(1);
  for (int round = 0; round < 150; ++round) {
    const l3::JpegImage image = MakeImage(&random);
    File file;
    if (!Encode(image, &random, &file)) {
      std::printf("round %d: no file\n", round);
      return 1;
    }
    for (int mutant = 0; mutant < 8; ++mutant) {
      const Decoded expected = Decode(file, l3::CpuEngine::kScalar);
      if (mutant == 0 && !HasCoefficients(image, expected)) {
        std::printf("round %d: other coefficients\n", round);
        return 1;
      }
      for (const l3::CpuEngine engine : kEngines) {
        if (!l3::IsAvailable(engine) || Decode(file, engine) == expected) continue;
        std::printf("round %d, mutant %d: engine %d differs\n", round, mutant,
                    static_cast<int>(engine));
        return 1;
      }
      Damage(&file, &random);
    }
  }
  return 0;
}
