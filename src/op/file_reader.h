// fn.l3.readers.file: DALI's own loader lists, shuffles and shards; files are opened and read by
// the pipeline's threads. Layer: adapter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dali/operators/reader/loader/file_label_loader.h"
#include "dali/operators/reader/loader/filesystem.h"
#include "dali/operators/reader/reader_op.h"
#include "op/file_batch.h"

namespace l3 {

// Its samples are names: nothing is opened.
class FileNameLoader : public dali::FileLabelLoader {
 public:
  using FileLabelLoaderBase::FileLabelLoaderBase;

  void PrepareEmpty(dali::ImageLabelWrapper&) override {}

  void ReadSample(dali::ImageLabelWrapper& sample) override {
    const dali::FileLabelEntry entry = file_label_entries_[current_index_++];
    MoveToNextShard(current_index_);  // which may shuffle the entries
    sample.label = entry.label.value();
    dali::DALIMeta meta;
    meta.SetSourceInfo(entry.filename);
    meta.SetSkipSample(ShouldSkipImage(entry.filename));
    sample.image.SetMeta(meta);
  }

  FileEntry EntryOf(const dali::ImageLabelWrapper& sample) const {
    const std::string& name = sample.image.GetSourceInfo();
    FileEntry entry;
    entry.path = dali::filesystem::join_path(file_root_, name);
    entry.source_info = name;
    entry.is_skipped = sample.image.ShouldSkipSample();
    return entry;
  }
};

class FileReader : public dali::DataReader<dali::CPUBackend, dali::ImageLabelWrapper,
                                           dali::ImageLabelWrapper, true> {
  using Base = DataReader<dali::CPUBackend, dali::ImageLabelWrapper, dali::ImageLabelWrapper, true>;

 public:
  explicit FileReader(const dali::OpSpec& spec) : Base(spec), batch_(spec) {
    loader_ = dali::InitLoader<FileNameLoader>(spec, spec.GetArgument<bool>("shuffle_after_epoch"));
    names_ = static_cast<const FileNameLoader*>(loader_.get());
    SetInitialSnapshot();
  }

  bool HasContiguousOutputs() const override { return true; }

  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    Base::SetupImpl(outputs, ws);
    std::vector<FileEntry> entries;
    for (const auto& sample : GetCurrBatch()) entries.push_back(names_->EntryOf(*sample));
    const auto samples = static_cast<int>(entries.size());
    outputs = {{batch_.Look(std::move(entries), ws.GetThreadPool()), DALI_UINT8},
               {dali::uniform_list_shape<1>(samples, {1}), DALI_INT32}};
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    auto& labels = ws.Output<dali::CPUBackend>(1);
    for (int i = 0; i < labels.num_samples(); ++i) {
      *labels.mutable_tensor<int>(i) = GetCurrBatch()[i]->label;
    }
    batch_.Read(&ws.Output<dali::CPUBackend>(0), ws.GetThreadPool());
  }

 private:
  const FileNameLoader* names_;
  FileBatch batch_;
};

}  // namespace l3
