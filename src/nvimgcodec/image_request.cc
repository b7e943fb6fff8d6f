#include "nvimgcodec/image_request.h"

#include <algorithm>
#include <optional>

#include "output/request.h"

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

nvimgcodecProcessingStatus_t ReadColors(const ImageInfo& info, const nvimgcodecImageInfo_t& image,
                                        const Buffer& buffer, DecodeRequest* request) {
  bool is_planar = false;
  switch (image.sample_format) {
    case NVIMGCODEC_SAMPLEFORMAT_P_UNCHANGED: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED: {
      if (IsForeign(image.color_spec)) {
        return NVIMGCODEC_PROCESSING_STATUS_COLOR_SPEC_UNSUPPORTED;
      }
      const auto unchanged = UnchangedColors(info, image.color_spec, buffer.channels);
      if (!unchanged) return NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED;
      request->colors = *unchanged;
      break;
    }
    case NVIMGCODEC_SAMPLEFORMAT_P_Y: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_Y: request->colors = Colors::kGray; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_YA: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_YA: request->colors = Colors::kGrayAlpha; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_RGB: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_RGB: request->colors = Colors::kRgb; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_BGR: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_BGR: request->colors = Colors::kBgr; break;
    case NVIMGCODEC_SAMPLEFORMAT_P_RGBA: is_planar = true; [[fallthrough]];
    case NVIMGCODEC_SAMPLEFORMAT_I_RGBA: request->colors = Colors::kRgbAlpha; break;
    default: return NVIMGCODEC_PROCESSING_STATUS_SAMPLE_FORMAT_UNSUPPORTED;
  }
  if (buffer.channels != OutputChannels(*request, info)) {
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

// Sets the window and, for one that reaches out of the image, the fill.
nvimgcodecProcessingStatus_t ReadWindow(const nvimgcodecCodeStreamView_t* view, uint32_t channels,
                                        DecodeRequest* request) {
  if (view == nullptr) return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
  if (view->image_idx != 0) return NVIMGCODEC_PROCESSING_STATUS_NUM_IMAGES_UNSUPPORTED;
  const nvimgcodecRegion_t& asked = view->region;
  if (asked.ndim == 0) return NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
  if (asked.ndim != 2) return NVIMGCODEC_PROCESSING_STATUS_ROI_UNSUPPORTED;
  request->window = {{asked.start[1], int64_t{asked.end[1]} - asked.start[1]},
                     {asked.start[0], int64_t{asked.end[0]} - asked.start[0]}};
  request->pads = asked.out_of_bounds_policy == NVIMGCODEC_OUT_OF_BOUNDS_POLICY_CONSTANT;
  for (uint32_t c = 0; c < channels; ++c) request->fill.push_back(FillSample(asked, c));
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
                                         const nvimgcodecImageInfo_t& image,
                                         const nvimgcodecCodeStreamView_t* view, OutputPlan* plan) {
  if (image.num_planes == 0 || image.num_planes > kMaxChannels || !HasEqualPlanes(image)) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_PLANES_UNSUPPORTED;
  }
  const nvimgcodecImagePlaneInfo_t& plane = image.plane_info[0];
  if (image.num_planes > 1 && plane.num_channels != 1) {
    return NVIMGCODEC_PROCESSING_STATUS_NUM_CHANNELS_UNSUPPORTED;
  }
  const Buffer buffer = {image.num_planes > 1, std::max(image.num_planes, plane.num_channels)};
  DecodeRequest request;
  nvimgcodecProcessingStatus_t status = ReadColors(info, image, buffer, &request);
  if (status != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) return status;
  request.type = ToOutputType(plane.sample_type);
  if (!request.type ||
      (plane.precision != 0 && plane.precision != OutputBytes(*request.type) * 8)) {
    return NVIMGCODEC_PROCESSING_STATUS_SAMPLE_TYPE_UNSUPPORTED;
  }
  request.fills_range = !IsFloat(info.sample_type);  // floats have no range
  status = ReadWindow(view, buffer.channels, &request);
  if (status != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) return status;
  request.orientation = orientation;
  if (buffer.is_planar) request.layout = kChw;
  request.row_stride_bytes = plane.row_stride;
  request.max_pixels = kMaxPixels;
  OutputTensor tensor;
  switch (PlanOutput(request, info, plan, &tensor)) {
    case Misfit::kNone: break;
    case Misfit::kWindow: return NVIMGCODEC_PROCESSING_STATUS_ROI_UNSUPPORTED;
    default: return NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED;
  }
  const size_t height_axis = buffer.is_planar ? 1 : 0;
  const bool fits = tensor.shape[height_axis] == plane.height &&
                    tensor.shape[height_axis + 1] == plane.width && plane.row_stride != 0;
  return fits ? NVIMGCODEC_PROCESSING_STATUS_SUCCESS
              : NVIMGCODEC_PROCESSING_STATUS_RESOLUTION_UNSUPPORTED;
}

bool IsAligned(const nvimgcodecImageInfo_t& request, OutputType type) {
  const uint64_t address = reinterpret_cast<uintptr_t>(request.buffer);
  return (address | request.plane_info[0].row_stride) % OutputBytes(type) == 0;
}

}  // namespace l3
