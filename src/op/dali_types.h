// DALI's types and ours. Layer: adapter.
#pragma once

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/data/tensor_list.h"
#include "dali/pipeline/operator/common.h"
#include "output/request.h"

namespace l3 {

inline Colors ParseColors(dali::DALIImageType type) {
  switch (type) {
    case dali::DALI_RGB: return Colors::kRgb;
    case dali::DALI_BGR: return Colors::kBgr;
    case dali::DALI_GRAY: return Colors::kGray;
    case dali::DALI_YCbCr: return Colors::kYcbcr;
    case dali::DALI_ANY_DATA: return Colors::kStored;
  }
  DALI_FAIL(dali::make_string("Unsupported image type: ", static_cast<int>(type), "."));
}

inline OutputType ParseType(dali::DALIDataType type) {
  switch (type) {
    case DALI_UINT8: return OutputType::kU8;
    case DALI_INT8: return OutputType::kI8;
    case DALI_UINT16: return OutputType::kU16;
    case DALI_INT16: return OutputType::kI16;
    case DALI_UINT32: return OutputType::kU32;
    case DALI_INT32: return OutputType::kI32;
    case DALI_INT64: return OutputType::kI64;
    case DALI_FLOAT16: return OutputType::kF16;
    case DALI_FLOAT: return OutputType::kF32;
    default:
      DALI_FAIL(
          dali::make_string("`dtype` must be one of uint8, int8, uint16, int16, uint32, int32, "
                            "int64, float16 and float, got ",
                            type, "."));
  }
}

inline dali::DALIDataType DaliType(OutputType type) {
  switch (type) {
    case OutputType::kU8: return DALI_UINT8;
    case OutputType::kI8: return DALI_INT8;
    case OutputType::kU16: return DALI_UINT16;
    case OutputType::kI16: return DALI_INT16;
    case OutputType::kU32: return DALI_UINT32;
    case OutputType::kI32: return DALI_INT32;
    case OutputType::kI64: return DALI_INT64;
    case OutputType::kF16: return DALI_FLOAT16;
    case OutputType::kF32: break;
  }
  return DALI_FLOAT;
}

inline void EnforceEncoded(const dali::TensorList<dali::CPUBackend>& input) {
  DALI_ENFORCE(input.type() == DALI_UINT8 && input.sample_dim() == 1,
               dali::make_string("L3 operators expect encoded files as 1-D uint8 tensors, got ",
                                 input.sample_dim(), "-D ", input.type(), "."));
}

}  // namespace l3
