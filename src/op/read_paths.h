// fn.l3.read: files whose paths other operators give. Layer: adapter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dali/pipeline/operator/checkpointing/stateless_operator.h"
#include "op/file_batch.h"

namespace l3 {

class ReadPaths : public dali::StatelessOperator<dali::CPUBackend> {
 public:
  explicit ReadPaths(const dali::OpSpec& spec) : StatelessOperator(spec), batch_(spec) {}

 protected:
  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    const auto& paths = ws.Input<dali::CPUBackend>(0);
    DALI_ENFORCE(
        paths.num_samples() == 0 || (paths.type() == DALI_UINT8 && paths.sample_dim() == 1),
        dali::make_string("`fn.l3.read` expects paths as 1-D uint8 tensors, got ",
                          paths.sample_dim(), "-D ", paths.type(), "."));
    std::vector<FileEntry> entries(paths.num_samples());
    for (int i = 0; i < paths.num_samples(); ++i) {
      entries[i].path.assign(reinterpret_cast<const char*>(paths.tensor<uint8_t>(i)),
                             static_cast<size_t>(paths.tensor_shape_span(i)[0]));
      entries[i].source_info = entries[i].path;
    }
    batch_.Start(std::move(entries), /*ahead=*/false);
    outputs = {{batch_.Look(ws.GetThreadPool()), DALI_UINT8}};
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    batch_.Read(&ws.Output<dali::CPUBackend>(0), ws.GetThreadPool());
  }

 private:
  FileBatch batch_;
};

}  // namespace l3
