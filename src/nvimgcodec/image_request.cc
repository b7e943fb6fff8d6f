#include "nvimgcodec/image_request.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "plan/pixels.h"
#include "plan/region.h"

namespace l3 {
namespace {

std::optional<OutputType> ToOutputType(nvimgcodecSampleDataType_t type) {
  switch (type) {
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8: return OutputType::kU8;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT8: return OutputType::kI8;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16: return OutputType::kU16;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT16: return OutputType::kI16;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32: return OutputType::kU32;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT32: return OutputType::kI32;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT16: return OutputType::kF16;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32: return OutputType::kF32;
    default: return std::nullopt;
  }
}

// The buffer as a whole: its planes are alike, and lie one after the other.
struct Buffer {
  const nvimgcodecImagePlaneInfo_t& plane;
  bool is_planar;
  uint32_t channels;
};

// For UNCHANGED formats: the channels that the color specification asks for.
std::optional<Colors> UnchangedColors(const ImageInfo& info, nvimgcodecColorSpec_t spec,
                                      uint32_t channels) {
  if (channels == info.channels) return Colors::kStored;
  if (spec == NVIMGCODEC_COLORSPEC_SRGB && channels == 3) return Colors::kRgb;
  if (spec == NVIMGCODEC_COLORSPEC_SRGB && channels == 4) return Colors::kRgbAlpha;
  if (spec == NVIMGCODEC_COLORSPEC_GRAY && channels == 1) return Colors::kGray;
  if (spec == NVIMGCODEC_COLORSPEC_GRAY && channels == 2) return Colors::kGrayAlpha;
  return std::nullopt;
}

// Colors that L3 neither stores nor makes.
bool IsForeign(nvimgcodecColorSpec_t spec) {
  return spec == NVIMGCODEC_COLORSPEC_SYCC || spec == NVIMGCODEC_COLORSPEC_CMYK ||
         spec == NVIMGCODEC_COLORSPEC_YCCK || spec == NVIMGCODEC_COLORSPEC_PALETTE;
}

nvimgcodecProcessingStatus_t PlanColors(const ImageInfo& info, const nvimgcodecImageInfo_t& request,
                                        const Buffer& buffer, Colors* colors) {
  bool is_planar = false;
  switch (request.sample_format) {
    case NVIMGCODEC_SAMPLEFORMAT_P_UNCHANGED: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED: {
      if (IsForeign(request.color_spec)) {
        return NVIMGCODEC_PROCESSING_STATUS_COLOR_SPEC_UNSUPPORTED;
      }
      const auto unchanged = UnchangedColors(info, request.color_spec, buffer.channels);
      if (!unchanged) return NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED;
      *colors = *unchanged;
      break;
    }
    case NVIMGCODEC_SAMPLEFORMAT_P_Y: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_Y: *colors = Colors::kGray; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_YA: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_YA: *colors = Colors::kGrayAlpha; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_RGB: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_RGB: *colors = Colors::kRgb; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_BGR: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_BGR: *colors = Colors::kBgr; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_RGBA: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_RGBA: *colors = Colors::kRgbAlpha; break;
    default: return NVIMGCODEC_PROCESSING_STATUS_SAMPLE_FORMAT_UNSUPPORTED;
  }
  if (buffer.channels != OutputChannels(info, *colors)) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED;
  }
  const bool has_one_channel = buffer.channels == 1;  // planar and interleaved alike
  if (is_planar != buffer.is_planar && !has_one_channel) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED;
  }
  return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
}

// The sample to write where the region lies outside of the image.
float FillSample(const nvimgcodecRegion_t& region, uint32_t channel) {
  const nvimgcodecOutOfBoundsSample_t& sample =
      region.out_of_bounds_samples[std::min(channel, NVIMGCODEC_MAX_ROI_FILL_CHANNELS - 1u)];
  switch (sample.type) {
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8:
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16:
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32: return static_cast<float>(sample.value.as_uint);
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT8:
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT16:
    case NVIMGCODEC_SAMPLE_DATA_TYPE_INT32: return static_cast<float>(sample.value.as_int);
    case NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32: return sample.value.as_float;
    default: return 0;
  }
}

// Sets the region and, of one that reaches out of the image, the fill.
nvimgcodecProcessingStatus_t PlanRegion(const Size& image, const nvimgcodecCodeStreamView_t* view,
                                        Region* region, OutputPlan* output) {
  *region = WholeImage(image);
  if (view == nullptr) return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
  if (view->image_idx != 0) return NVIMGCODEC_PROCESSING_STATUS_NUM_IMAGES_UNSUPPORTED;
  const nvimgcodecRegion_t& asked = view->region;
  if (asked.ndim == 0) return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
  if (asked.ndim != 2 || asked.end[0] <= asked.start[0] || asked.end[1] <= asked.start[1]) {
    return NVIMGCODEC_PROCESSING_STATUS_ROI_UNSUPPORTED;
  }
  region->y = {asked.start[0], int64_t{asked.end[0]} - asked.start[0]};
  region->x = {asked.start[1], int64_t{asked.end[1]} - asked.start[1]};
  if (IsInside(*region, image)) return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
  const bool has_fill = std::count(output->source, output->source + output->channels,
                                   kFillChannel) != 0;  // of alpha: there is one fill a channel
  if (asked.out_of_bounds_policy != NVIMGCODEC_OUT_OF_BOUNDS_POLICY_CONSTANT || has_fill) {
    return NVIMGCODEC_PROCESSING_STATUS_ROI_UNSUPPORTED;
  }
  for (uint32_t c = 0; c < output->channels; ++c) output->fill[c] = FillSample(asked, c);
  return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
}

}  // namespace

bool HasEqualPlanes(const nvimgcodecImageInfo_t& request) {
  const nvimgcodecImagePlaneInfo_t* planes = request.plane_info;
  return std::all_of(planes, planes + request.num_planes, [&](const auto& plane) {
    return plane.width == planes->width && plane.height == planes->height &&
           plane.row_stride == planes->row_stride && plane.num_channels == planes->num_channels &&
           plane.sample_type == planes->sample_type && plane.precision == planes->precision;
  });
}

nvimgcodecOrientation_t ToNvimgcodec(const Orientation& orientation) {
  auto turned = Tagged<nvimgcodecOrientation_t>(NVIMGCODEC_STRUCTURE_TYPE_ORIENTATION);
  const auto [swap_xy, flip_x, flip_y] = orientation;
  if (swap_xy) {
    turned.rotated = flip_y ? 270 : 90;
    turned.flip_y = flip_x == flip_y;
  } else {
    turned.rotated = flip_x && flip_y ? 180 : 0;
    turned.flip_x = flip_x && !flip_y;
    turned.flip_y = flip_y && !flip_x;
  }
  return turned;
}

nvimgcodecProcessingStatus_t PlanRequest(const ImageInfo& info, const Orientation& orientation,
                                         const nvimgcodecImageInfo_t& request,
                                         const nvimgcodecCodeStreamView_t* view, TensorPlan* plan) {
  if (request.num_planes == 0 || request.num_planes > kMaxChannels || !HasEqualPlanes(request)) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED;
  }
  const nvimgcodecImagePlaneInfo_t& plane = request.plane_info[0];
  if (request.num_planes > 1 && plane.num_channels != 1) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED;
  }
  const Buffer buffer = {plane, request.num_planes > 1,
                         std::max(request.num_planes, plane.num_channels)};
  Colors colors;
  nvimgcodecProcessingStatus_t status = PlanColors(info, request, buffer, &colors);
  if (status != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) return status;

  const std::optional<OutputType> type = ToOutputType(plane.sample_type);
  if (!type || (plane.precision != 0 && plane.precision != OutputBytes(*type) * 8)) {
    return NVIMGCODEC_PROCESSING_STATUS_SAMPLE_TYPE_UNSUPPORTED;
  }
  OutputPlan* output = &plan->output;
  *output = OutputPlan{};
  PlanPixels(info, colors, *type, output, true);

  Region region;
  status = PlanRegion(ShownSize(info, orientation), view, &region, output);
  if (status != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) return status;
  if (region.x.size_px != plane.width || region.y.size_px != plane.height ||
      region.x.size_px > kMaxRegionPx / region.y.size_px) {
    return NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED;
  }

  const auto value_bytes = static_cast<int64_t>(OutputBytes(*type));
  const int64_t pixel_bytes = value_bytes * plane.num_channels;
  const auto row_bytes = static_cast<uint64_t>(pixel_bytes * region.x.size_px);
  constexpr uint64_t kMostRowBytes = std::numeric_limits<int64_t>::max() >> 32;
  if (plane.row_stride < row_bytes || plane.row_stride > kMostRowBytes) {
    return NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED;
  }
  const auto row_stride = static_cast<int64_t>(plane.row_stride);
  const int64_t channel_bytes = buffer.is_planar ? row_stride * plane.height : value_bytes;
  plan->origin_bytes = PlacePixels(info, orientation, region, false,
                                   {row_stride, pixel_bytes, channel_bytes}, output);
  plan->shape = {region.y.size_px, region.x.size_px, output->channels};
  return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
}

bool IsAligned(const nvimgcodecImageInfo_t& request, OutputType type) {
  const uint64_t address = reinterpret_cast<uintptr_t>(request.buffer);
  return (address | request.plane_info[0].row_stride) % OutputBytes(type) == 0;
}

}  // namespace l3
