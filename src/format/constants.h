// The numbers of format.md, named. Layer: format.
#pragma once

#include <cstdint>

namespace l3 {

// format.md 3
constexpr uint8_t kSignature[8] = {0x8B, 'L', '3', 'F', 0x0D, 0x0A, 0x1A, 0x0A};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kVersion2 = 2;
constexpr uint32_t kHeaderBytes = 32;
constexpr uint32_t kMaxImageChannels = 4096;
constexpr uint32_t kMaxChannels = 4;  // decoded together; images of more have groups
constexpr uint32_t kMinTileWidthLog2 = 5;
constexpr uint32_t kMinTileHeightLog2 = 3;
constexpr uint32_t kMaxTileLog2 = 15;
constexpr uint64_t kMaxPixels = uint64_t{1} << 31;
constexpr uint32_t kMaxChunksBytes = 1u << 28;

enum class SampleType : uint8_t {
  kUint8 = 0,
  kUint16 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kUint32 = 4,  // from here on of version 2 alone
  kInt32 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
};
constexpr uint32_t kSampleTypes = 8;
constexpr uint32_t kSampleTypesOfVersion1 = 4;
// How samples of 32 bits are held, in bits 3 and 4 of the header's sample_type.
enum class Holding : uint8_t { kAsTheyAre = 0, kRanks8 = 1, kRanks16 = 2, kHalves = 3 };
constexpr uint32_t kHoldingShift = 3;
constexpr uint32_t kMaxHalvesChannels = 2;  // of a group held by halves
enum class Meaning : uint8_t { kColor = 0, kLabels = 1 };

// format.md 4
constexpr uint32_t FourCc(char a, char b, char c, char d) {
  return static_cast<uint32_t>(static_cast<uint8_t>(a)) |
         static_cast<uint32_t>(static_cast<uint8_t>(b)) << 8 |
         static_cast<uint32_t>(static_cast<uint8_t>(c)) << 16 |
         static_cast<uint32_t>(static_cast<uint8_t>(d)) << 24;
}
constexpr uint32_t kChunkGroups = FourCc('G', 'R', 'P', 'S');
constexpr uint32_t kChunkValueTable = FourCc('V', 'T', 'A', 'B');
constexpr uint32_t kChunkRansModel = FourCc('R', 'A', 'N', 'S');
constexpr uint32_t kChunkMatchModel = FourCc('M', 'T', 'C', 'H');
constexpr uint32_t kChunkSamples = FourCc('S', 'M', 'P', 'L');
constexpr uint32_t kChunkJpeg = FourCc('J', 'P', 'E', 'G');
constexpr uint32_t kChunkIcc = FourCc('i', 'c', 'c', ' ');
constexpr uint32_t kChunkExif = FourCc('e', 'x', 'i', 'f');
constexpr uint32_t kChunkPalette = FourCc('p', 'l', 't', 'e');
constexpr uint32_t kChunkXmp = FourCc('x', 'm', 'p', ' ');
constexpr uint32_t kChunkKeyValues = FourCc('k', 'e', 'y', 'v');
constexpr uint32_t kChunkJpegRest = FourCc('j', 'r', 's', 't');  // what restores a JPEG file
constexpr uint32_t kGroupsHeadBytes = 10;  // of a GRPS chunk, up to its first group

// format.md 5
constexpr uint32_t kPayloadAlignment = 16;
constexpr uint32_t kMaxPayloadBytes = (1u << 31) - kPayloadAlignment;
constexpr uint32_t kTileHeaderBytes = 8;

enum class TileCoding : uint8_t { kConstant = 0, kStored = 1, kPacked = 2, kRans = 3, kMatch = 4 };
constexpr uint8_t kJpegTileCoding = 5;  // of all tiles of an image with a JPEG chunk, and no others
// Whether tiles of a coding need the model of the image.
constexpr bool HasModel(uint8_t coding) {
  return coding == static_cast<uint8_t>(TileCoding::kRans) ||
         coding == static_cast<uint8_t>(TileCoding::kMatch);
}
enum class ColorTransform : uint8_t { kNone = 0, kSubtractGreen = 1 };

// format.md 5.3
constexpr uint32_t kMaxPackedTileLog2 = 8;
constexpr uint32_t kMaxPackedTileSide = 1u << kMaxPackedTileLog2;
constexpr uint32_t kGroupSize = 8;
constexpr uint32_t kMaxGroupsPerRow = kMaxPackedTileSide / kGroupSize;
constexpr uint32_t kNumPredictors = 8;
constexpr uint32_t kChannelHeaderBytes = 4;

enum class ChannelLayout : uint8_t { kConstant = 0, kAbsolute = 1, kDelta = 2, kSparse = 3 };

// format.md 5.4
constexpr uint32_t kRansLanes = 32;
constexpr uint32_t kRansScaleBits = 10;  // the frequencies of a table add up to 2^10
constexpr uint32_t kRansScale = 1u << kRansScaleBits;
constexpr uint32_t kRansStateBegin = 1u << 16;  // states below are refilled
constexpr uint32_t kRansDirectTokens = 16;
constexpr uint32_t kRansShortTokens = 24;  // where used_bits is at most 8
constexpr uint32_t kRansTokens = 40;
constexpr uint32_t kRansLevels = 64;
constexpr uint32_t kMaxRansTables = 32;
constexpr uint32_t kMaxRansGradientWeight = 63;
constexpr uint32_t kMaxRansSets = 3;
constexpr uint32_t kRansBodyHeaderBytes = 12;
constexpr uint32_t kMaxRansTaps = 16;

// format.md 5.5
constexpr uint32_t kMatchContexts = 64;
constexpr uint32_t kMatchNeighbors = 4;  // tokens that name one
constexpr uint32_t kMatchBodyHeaderBytes = 2;
constexpr uint32_t kMatchBlockSteps = 16;  // that are skipped together
constexpr uint32_t kMaxUsedBits = 16;
constexpr uint32_t kMaxMatchColors = 65532;
constexpr uint32_t kMaxMatchColorBits = 56;  // of all channels together
constexpr uint32_t kMinMatchColorBlock = 16;

// format.md 5.6
constexpr uint32_t kMaxJpegComponents = 3;
constexpr uint32_t kJpegBlockSamples = 64;
constexpr uint32_t kJpegClasses = 2;  // component 0; the others
constexpr uint32_t kJpegLevels = 16;
constexpr uint32_t kJpegLastContexts = 17;
constexpr uint32_t kJpegDcContexts = 12;
constexpr int32_t kMaxJpegDc = 4095;  // of either sign, before it is multiplied
constexpr int32_t kMaxJpegProduct = 8191;  // of a coefficient and its quantizer
constexpr uint32_t kJpegFrequencyBits = 3;  // of a frequency, behind its highest
constexpr uint32_t kJpegFirstLength =
    9;  // in bits: what that of the first frequency is coded against

}  // namespace l3
