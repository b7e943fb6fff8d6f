// Shapes from file headers alone. Layer: adapter.
#pragma once

#include <string>
#include <vector>

#include "dali/core/static_switch.h"
#include "dali/pipeline/operator/checkpointing/stateless_operator.h"
#include "op/decode_operator.h"
#include "op/remote_file.h"

namespace l3 {

class PeekShape : public dali::StatelessOperator<dali::CPUBackend> {
 public:
  explicit PeekShape(const dali::OpSpec& spec)
      : StatelessOperator(spec),
        dtype_(spec.GetArgument<dali::DALIDataType>("dtype")),
        adjust_orientation_(spec.GetArgument<bool>("adjust_orientation")) {
    request_.colors = ParseColors(spec.GetArgument<dali::DALIImageType>("image_type"));
    TYPE_SWITCH(
        dtype_, dali::type2id, T, (int32_t, uint32_t, int64_t, uint64_t, float, double),
        (write_ =
             [](const std::array<int64_t, 3>& shape, void* out) {
               for (size_t i = 0; i < shape.size(); ++i) {
                 static_cast<T*>(out)[i] = static_cast<T>(shape[i]);
               }
             };),
        (DALI_FAIL(dali::make_string("`dtype` must be int32, uint32, int64, uint64, float or "
                                     "double, got ",
                                     dtype_, "."))));
  }

 protected:
  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    const int samples = ws.Input<dali::CPUBackend>(0).num_samples();
    outputs = {{dali::uniform_list_shape(samples, dali::TensorShape<1>{3}), dtype_}};
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    const auto& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<dali::CPUBackend>(0);
    if (input.num_samples() != 0) EnforceEncoded(input);
    for (int i = 0; i < input.num_samples(); ++i) {
      std::array<int64_t, 3> shape;
      const uint8_t* data = input.tensor<uint8_t>(i);
      auto size = static_cast<size_t>(input.tensor_shape_span(i)[0]);
      FileHandle handle;
      if (ReadHandle(data, size, &handle)) {
        data = handle.head;
        size = handle.head_bytes;
        const auto source = OpenHandle(handle);
        DALI_ENFORCE(size != 0 || source->Check(),
                     dali::make_string("L3 header of ", NameSample(input, i), ": ",
                                       Printable(source->error())));
      }
      const Status status = ReadShape(data, size, &shape);
      DALI_ENFORCE(status == Status::kOk,
                   dali::make_string("L3 header of ", NameSample(input, i), ": ",
                                     StatusMessage(status), " (", StatusName(status), ")."));
      write_(shape, output.raw_mutable_tensor(i));
    }
  }

 private:
  Status ReadShape(const uint8_t* data, size_t size, std::array<int64_t, 3>* shape) const {
    ImageInfo info;
    const Status status = ParseHeader(data, size, &info);
    if (status != Status::kOk) return status;
    Orientation orientation = kAsStored;
    if (adjust_orientation_) {
      if (size < kHeaderBytes + info.chunks_bytes) return Status::kTruncated;
      orientation = ReadOrientation(FindChunk(data + kHeaderBytes, info.chunks_bytes, kChunkExif));
    }
    const Size shown = ShownSize(info, orientation);
    *shape = {shown.height_px, shown.width_px, OutputChannels(request_, info)};
    return Status::kOk;
  }

  dali::DALIDataType dtype_;
  DecodeRequest request_;  // its colors
  bool adjust_orientation_;
  void (*write_)(const std::array<int64_t, 3>& shape, void* out);
};

}  // namespace l3
