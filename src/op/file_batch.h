// The files of a batch, whole or as handles: what becomes of the names that a reader or a user
// gives. Layer: adapter.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/data/tensor_list.h"
#include "dali/pipeline/operator/op_spec.h"
#include "dali/pipeline/util/thread_pool_interface.h"
#include "dali/util/file.h"
#include "files/file_handle.h"
#include "files/open_file.h"
#include "files/read_head.h"
#include "op/failures.h"

namespace l3 {

// Where the bytes of a sample lie.
struct FileEntry {
  static constexpr uint64_t kToTheEnd = ~uint64_t{0};

  std::string path;         // of a file, or a URI that DALI reads
  std::string source_info;  // the sample's name in messages and caches
  uint64_t offset = 0;      // in the file
  uint64_t bytes = kToTheEnd;
  bool is_skipped = false;  // gives no bytes
  bool can_be_lazy = true;  // is a handle if the reader is lazy and it is L3
};

// Reads batches on DALI's threads. Whole files go straight into the output.
class FileBatch {
 public:
  explicit FileBatch(const dali::OpSpec& spec)
      : lazy_(spec.GetArgument<bool>("lazy")), is_direct_(spec.GetArgument<bool>("use_o_direct")) {
    const std::unique_ptr<char, decltype(&std::free)> folder(::getcwd(nullptr, 0), &std::free);
    if (folder != nullptr) folder_ = folder.get();
  }

  // Looks at the files of a batch. Returns the shape of what Read() gives.
  dali::TensorListShape<> Look(std::vector<FileEntry> entries, dali::ThreadPool& threads) {
    files_.clear();
    for (FileEntry& entry : entries) files_.emplace_back().entry = std::move(entry);
    ForEach(threads, [this](File& file, size_t) { lazy_ ? LookLazily(&file) : Look(&file); });
    dali::TensorListShape<> shape(static_cast<int>(files_.size()), 1);
    for (size_t i = 0; i < files_.size(); ++i) {
      shape.tensor_shape_span(static_cast<int>(i))[0] =
          static_cast<int64_t>(files_[i].output_bytes);
    }
    return shape;
  }

  // Reads them into an output of that shape.
  void Read(dali::TensorList<dali::CPUBackend>* output, dali::ThreadPool& threads) {
    for (size_t i = 0; i < files_.size(); ++i) {
      output->SetSourceInfo(static_cast<int>(i), files_[i].entry.source_info);
    }
    ForEach(threads, [&](File& file, size_t i) {
      if (file.output_bytes != 0) Read(&file, output->raw_mutable_tensor(static_cast<int>(i)));
    });
  }

 private:
  struct File {
    FileEntry entry;
    uint64_t output_bytes = 0;
    FileIdentity identity = {};
    bool is_handle = false;
    std::vector<uint8_t> head;                  // of a handle
    std::unique_ptr<dali::FileStream> remote;  // of a URI
  };

  // Each thread takes the next file.
  template <typename Task>
  void ForEach(dali::ThreadPool& threads, const Task& task) {
    std::atomic<size_t> next{0};
    const size_t workers =
        std::min(files_.size(), static_cast<size_t>(std::max(1, threads.NumThreads())));
    for (size_t worker = 0; worker < workers; ++worker) {
      threads.AddWork([&](int) {
        for (size_t i = next++; i < files_.size(); i = next++) task(files_[i], i);
      });
    }
    threads.RunAll();
  }

  static void Enforce(const File& file, const std::string& error) {
    if (error.empty()) return;
    DALI_FAIL(dali::make_string("Reading ", Printable(file.entry.source_info),
                                " failed: ", Printable(error)));
  }

  // Sets the size of a sample in a file of this identity.
  static std::string SetBytes(File* file, const FileIdentity& identity) {
    const FileEntry& entry = file->entry;
    file->identity = identity;
    const uint64_t most = identity.bytes - std::min(entry.offset, identity.bytes);
    file->output_bytes = entry.bytes == FileEntry::kToTheEnd ? most : entry.bytes;
    return file->output_bytes <= most
               ? ""
               : dali::make_string(entry.path, " ends before the member that its index lists.");
  }

  // Opens what only DALI reads. Returns whether the entry is such a thing.
  static bool OpenRemote(File* file) {
    if (file->entry.path.find("://") == std::string::npos) return false;
    file->remote = dali::FileStream::Open(file->entry.path);
    Enforce(*file, SetBytes(file, {0, 0, file->remote->Size(), 0}));
    file->remote->SeekRead(static_cast<ptrdiff_t>(file->entry.offset));
    return true;
  }

  void Look(File* file) const {
    if (file->entry.is_skipped || OpenRemote(file)) return;
    FileIdentity identity;
    const std::string error = LookAt(file->entry.path.c_str(), &identity);
    Enforce(*file, error.empty() ? SetBytes(file, identity) : error);
  }

  // L3 files become handles, and so do those that cannot be opened: who decodes them reports them.
  // What else there is, and L3 with a damaged head, is read as a whole.
  void LookLazily(File* file) const {
    if (!file->entry.can_be_lazy) return Look(file);
    if (file->entry.is_skipped || OpenRemote(file)) return;
    OpenFile opened;
    std::string error = opened.Open(file->entry.path.c_str(), is_direct_);
    if (error.empty()) error = SetBytes(file, opened.identity());
    if (error.empty()) error = ReadHeadOf(opened, file);
    if (error.empty() && file->head.empty()) return;
    if (!error.empty()) file->head.clear();
    file->is_handle = true;
    file->entry.bytes = file->output_bytes;
    if (file->entry.path[0] != '/') file->entry.path = folder_ + '/' + file->entry.path;
    file->output_bytes = HandleBytes(file->entry.path.size(), file->head.size());
  }

  // Reads the head of an L3 file. It stays empty if the file is none, or has no valid head.
  static std::string ReadHeadOf(const OpenFile& opened, File* file) {
    constexpr uint64_t kFirstBytes = 4096;  // a page; few heads have more
    std::string error;
    const auto read = [&](uint64_t known, uint64_t end) -> const uint8_t* {
      file->head.resize(end);
      error = opened.Read(file->entry.offset + known, end - known, file->head.data() + known);
      return error.empty() ? file->head.data() : nullptr;
    };
    ImageView view = {};
    const Status status = ReadHead(file->output_bytes, kFirstBytes, read, &view);
    const bool is_sound = status == Status::kOk && FileBytes(view) == file->output_bytes;
    file->head.resize(is_sound ? PayloadsOffset(view) : 0);
    return error;
  }

  void Read(File* file, void* output) const {
    const FileEntry& entry = file->entry;
    if (file->is_handle) {
      const FileHandle handle = {entry.path.c_str(), file->identity,    entry.offset, entry.bytes,
                                 file->head.data(),  file->head.size(), is_direct_};
      WriteHandle(handle, static_cast<uint8_t*>(output));
      return;
    }
    if (file->remote != nullptr) {
      ReadRemote(file, static_cast<char*>(output));
      return;
    }
    OpenFile opened;
    Enforce(*file, opened.Open(entry.path.c_str(), is_direct_));
    if (!(opened.identity() == file->identity)) {
      Enforce(*file, entry.path + " changed since it was listed.");
    }
    Enforce(*file, opened.Read(entry.offset, file->output_bytes, output));
  }

  static void ReadRemote(File* file, char* output) {
    uint64_t done = 0;
    while (done < file->output_bytes) {
      const size_t read = file->remote->Read(output + done, file->output_bytes - done);
      if (read == 0) Enforce(*file, file->entry.path + " ended while it was read.");
      done += read;
    }
    file->remote.reset();
  }

  const bool lazy_, is_direct_;
  std::string folder_;  // that relative paths are relative to
  std::vector<File> files_;
};

}  // namespace l3
