// fn.l3.readers.file: DALI's own loader lists, shuffles and shards; files are opened and read by
// the pipeline's threads. Layer: adapter.
#pragma once

#include <deque>
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

  void PrepareMetadataImpl() override {
    const bool is_listed = !has_files_arg_ && !has_file_list_arg_;
    const bool is_bucket =
        file_root_.compare(0, 5, "s3://") == 0 && file_root_.find('/', 5) >= file_root_.size() - 1;
    DALI_ENFORCE(
        !is_listed || !is_bucket,
        dali::make_string("DALI cannot list a whole S3 bucket. Set `file_root` to a folder in ",
                          file_root_, ", or pass `files`."));
    FileLabelLoaderBase::PrepareMetadataImpl();
  }

  void ReadSample(dali::ImageLabelWrapper& sample) override {
    const dali::FileLabelEntry entry = file_label_entries_[current_index_++];
    MoveToNextShard(current_index_);  // which may shuffle the entries
    sample.label = entry.label.value();
    // Knows what a listing says of an object's size.
    sample.file_stream = entry.size.value_or(0) == 0
                             ? nullptr
                             : dali::FileStream::Open(PathOf(entry.filename), {}, entry.size);
    dali::DALIMeta meta;
    meta.SetSourceInfo(entry.filename);
    meta.SetSkipSample(ShouldSkipImage(entry.filename));
    sample.image.SetMeta(meta);
  }

  FileEntry EntryOf(const dali::ImageLabelWrapper& sample) const {
    const std::string& name = sample.image.GetSourceInfo();
    FileEntry entry;
    entry.path = PathOf(name);
    entry.source_info = name;
    if (sample.file_stream != nullptr) entry.bytes = sample.file_stream->Size();
    entry.is_skipped = sample.image.ShouldSkipSample();
    return entry;
  }

 private:
  std::string PathOf(const std::string& name) const {
    return dali::filesystem::join_path(file_root_, name);
  }
};

class FileReader : public dali::DataReader<dali::CPUBackend, dali::ImageLabelWrapper,
                                           dali::ImageLabelWrapper, true> {
  using Base = DataReader<dali::CPUBackend, dali::ImageLabelWrapper, dali::ImageLabelWrapper, true>;

 public:
  explicit FileReader(const dali::OpSpec& spec) : Base(spec) {
    for (int i = 0; i < prefetch_queue_depth_; ++i) batches_.emplace_back(spec);
    loader_ = dali::InitLoader<FileNameLoader>(spec, spec.GetArgument<bool>("shuffle_after_epoch"));
    names_ = static_cast<const FileNameLoader*>(loader_.get());
    SetInitialSnapshot();
  }

  ~FileReader() noexcept override { StopPrefetchThread(); }

  bool HasContiguousOutputs() const override { return true; }

  // Objects of the next batches are on their way while one is decoded.
  void Prefetch() override {
    Base::Prefetch();
    std::vector<FileEntry> entries;
    for (const auto& sample : prefetched_batch_queue_[curr_batch_producer_]) {
      entries.push_back(names_->EntryOf(*sample));
    }
    batches_[curr_batch_producer_].Start(std::move(entries), /*ahead=*/true);
  }

  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    Base::SetupImpl(outputs, ws);
    outputs = {{batches_[curr_batch_consumer_].Look(ws.GetThreadPool()), DALI_UINT8},
               {dali::uniform_list_shape<1>(GetCurrBatchSize(), {1}), DALI_INT32}};
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    auto& labels = ws.Output<dali::CPUBackend>(1);
    for (int i = 0; i < labels.num_samples(); ++i) {
      *labels.mutable_tensor<int>(i) = GetCurrBatch()[i]->label;
    }
    batches_[curr_batch_consumer_].Read(&ws.Output<dali::CPUBackend>(0), ws.GetThreadPool());
  }

 private:
  const FileNameLoader* names_;
  std::deque<FileBatch> batches_;  // of each that is prefetched
};

}  // namespace l3
