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
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/pipeline/data/tensor_list.h"
#include "dali/pipeline/operator/op_spec.h"
#include "dali/pipeline/util/thread_pool_interface.h"
#include "files/file_handle.h"
#include "files/open_file.h"
#include "files/read_head.h"
#include "op/failures.h"
#include "op/remote_file.h"

namespace l3 {

// Where the bytes of a sample lie.
struct FileEntry {
  static constexpr uint64_t kToTheEnd = ~uint64_t{0};

  std::string path;         // of a file, or the URI of an object
  std::string source_info;  // the sample's name in messages and caches
  uint64_t offset = 0;      // in the file
  uint64_t bytes = kToTheEnd;
  bool is_skipped = false;  // gives no bytes
  bool can_be_lazy = true;  // is a handle if the reader is lazy and it is L3
};

// Heads of objects, kept so that those of an epoch before need no request. Once memory for them is
// full, others are not kept.
class KeptHeads {
 public:
  static KeptHeads& Instance() {
    static auto* const heads = new KeptHeads;
    return *heads;
  }
  // Empty if it is not known.
  std::vector<uint8_t> Find(const FileEntry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = heads_.find(KeyOf(entry));
    return found == heads_.end() ? std::vector<uint8_t>() : found->second;
  }
  void Add(const FileEntry& entry, const std::vector<uint8_t>& head) {
    constexpr uint64_t kMostBytes = 256 << 20;
    constexpr uint64_t kNodeBytes = 128;  // about, of the map and its allocations
    const std::string key = KeyOf(entry);
    const uint64_t bytes = kNodeBytes + key.size() + head.size();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes_ + bytes > kMostBytes || !heads_.emplace(key, head).second) return;
    bytes_ += bytes;
  }

 private:
  static std::string KeyOf(const FileEntry& entry) {
    return dali::make_string(entry.path, ':', entry.offset);
  }

  std::mutex mutex_;
  uint64_t bytes_ = 0;
  std::unordered_map<std::string, std::vector<uint8_t>> heads_;
};

// Reads batches: files on DALI's threads, straight into the output; objects on threads that wait.
class FileBatch {
 public:
  explicit FileBatch(const dali::OpSpec& spec)
      : lazy_(spec.GetArgument<bool>("lazy")),
        is_direct_(spec.GetArgument<bool>("use_o_direct")),
        remote_gap_(spec.GetArgument<int64_t>("remote_gap")) {
    DALI_ENFORCE(remote_gap_ >= -1,
                 dali::make_string("`remote_gap` must be -1 or more, got ", remote_gap_, "."));
    const std::unique_ptr<char, decltype(&std::free)> folder(::getcwd(nullptr, 0), &std::free);
    if (folder != nullptr) folder_ = folder.get();
  }

  // Takes the files of a batch, and begins to read objects: their heads, or all of them. A batch
  // that is `ahead` is read while one before it is decoded, once the first was.
  void Start(std::vector<FileEntry> entries, bool ahead) {
    requests_.Wait();
    ahead = ahead && !files_.empty();
    files_.clear();
    for (FileEntry& entry : entries) files_.emplace_back().entry = std::move(entry);
    for (File& file : files_) {
      FileEntry& entry = file.entry;
      if (entry.path.compare(0, 7, "file://") == 0) entry.path.erase(0, 7);
      file.is_remote = !entry.is_skipped && entry.path.find("://") != std::string::npos;
      if (!file.is_remote) continue;
      if (!IsRemote(entry.path)) {
        file.remote_error = {ObjectError::kRefused,
                             entry.path +
                                 " is no object of s3:// or gs://, and DALI reads no other "
                                 "URLs. `l3dali.imread` and `l3dali.torch.decode_files` do."};
        continue;
      }
      if (IsLazy(file)) file.head = KeptHeads::Instance().Find(entry);
      if (!file.head.empty()) {
        ImageView view;
        ParseIndex(file.head.data(), file.head.size(), &view);
        if (!HasSize(entry)) entry.bytes = FileBytes(view);
        if (entry.bytes == FileBytes(view)) continue;
        file.head.clear();  // the object was replaced
      }
      RequestThreads& threads = ahead && IsLazy(file) ? RequestThreads::OfHeads(entry.path)
                                                      : RequestThreads::Of(entry.path);
      requests_.Add(threads, [this, &file](RequestClock::time_point asked) {
        try {
          file.remote_error = Fetch(&file, asked);
        } catch (const std::exception& error) {  // no memory
          file.remote_error = {ObjectError::kRefused, file.entry.path + ": " + error.what()};
        }
      });
    }
  }

  // Looks at these files. Returns the shape of what Read() gives.
  dali::TensorListShape<> Look(dali::ThreadPool& threads) {
    ForEach(threads, [this](File& file, size_t) {
      if (file.entry.is_skipped || file.is_remote) return;
      IsLazy(file) ? LookLazily(&file) : Look(&file);
    });
    requests_.Wait();
    for (File& file : files_) {
      if (file.is_remote) LookRemotely(&file);
    }
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
    std::vector<uint8_t> head;  // of a handle
    // Of an object:
    bool is_remote = false;
    ObjectError remote_error;
    std::unique_ptr<uint8_t[]> data;  // its first bytes, as far as they were read
    uint64_t data_bytes = 0;
  };

  bool IsLazy(const File& file) const { return lazy_ && file.entry.can_be_lazy; }

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

  // Reads of an object what a sample needs at first: the head of L3, or all of it. The head says
  // how long the object is, so no request asks for that.
  ObjectError Fetch(File* file, RequestClock::time_point asked) const {
    constexpr uint64_t kFirstBytes = 32 << 10;
    FileEntry& entry = file->entry;
    ObjectError error;
    if (IsLazy(*file)) {
      const auto read = [&](uint64_t end) -> FileStart {
        error = Extend(file, asked, end);
        return {error.kind == ObjectError::kNone ? file->data.get() : nullptr, file->data_bytes};
      };
      ImageView view = {};
      const Status status = ReadHead(kFirstBytes, read, &view);
      if (error.kind != ObjectError::kNone) return error;
      const bool is_sound =
          status == Status::kOk && (!HasSize(entry) || entry.bytes == FileBytes(view));
      if (is_sound && file->data_bytes < FileBytes(view)) {
        entry.bytes = FileBytes(view);
        file->head.assign(file->data.get(), file->data.get() + PayloadsOffset(view));
        file->data.reset();
        KeptHeads::Instance().Add(entry, file->head);
        return {};
      }
    }
    if (!HasSize(entry)) error = FindSize(&entry, asked);
    return error.kind == ObjectError::kNone ? Extend(file, asked, entry.bytes) : error;
  }

  static bool HasSize(const FileEntry& entry) { return entry.bytes != FileEntry::kToTheEnd; }

  static ObjectError FindSize(FileEntry* entry, RequestClock::time_point asked) {
    uint64_t bytes = 0;
    ObjectError error = FindSizeOfObject(entry->path, asked, &bytes);
    entry->bytes = bytes - std::min(entry->offset, bytes);
    return error;
  }

  // Reads more of an object, up to `bytes` in all or its end: one request.
  static ObjectError Extend(File* file, RequestClock::time_point asked, uint64_t bytes) {
    constexpr uint64_t kMostUnknownBytes = 1 << 20;  // that a header claims
    FileEntry& entry = file->entry;
    if (bytes > kMostUnknownBytes && !HasSize(entry)) {
      ObjectError error = FindSize(&entry, asked);
      if (error.kind != ObjectError::kNone) return error;
    }
    bytes = std::min(bytes, entry.bytes);
    if (bytes <= file->data_bytes) return {};
    std::unique_ptr<uint8_t[]> data(new uint8_t[bytes]);
    if (file->data_bytes != 0) std::memcpy(data.get(), file->data.get(), file->data_bytes);
    uint64_t read = 0;
    ObjectError error =
        ReadObject(entry.path, asked, entry.offset + file->data_bytes, bytes - file->data_bytes,
                   !HasSize(entry), data.get() + file->data_bytes, &read);
    file->data = std::move(data);
    file->data_bytes += read;
    if (HasSize(entry)) return error;
    if (error.kind == ObjectError::kTooShort) error = {};
    if (file->data_bytes < bytes) entry.bytes = file->data_bytes;
    return error;
  }

  // What becomes of an object, once Fetch() is done. Who decodes one that is missing reports it.
  void LookRemotely(File* file) const {
    const ObjectError& error = file->remote_error;
    file->is_handle = !file->head.empty() || (IsLazy(*file) && error.kind == ObjectError::kMissing);
    if (!file->is_handle) Enforce(*file, error.text);
    if (file->head.empty() && file->is_handle) file->entry.bytes = 0;
    file->output_bytes = file->is_handle ? HandleBytes(file->entry.path.size(), file->head.size())
                                         : file->entry.bytes;
  }

  void Look(File* file) const {
    FileIdentity identity;
    const std::string error = LookAt(file->entry.path.c_str(), &identity);
    Enforce(*file, error.empty() ? SetBytes(file, identity) : error);
  }

  // L3 files become handles, and so do those that cannot be opened: who decodes them reports them.
  // What else there is, and L3 with a damaged head, is read as a whole.
  void LookLazily(File* file) const {
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
    const auto read = [&](uint64_t end) -> FileStart {
      const uint64_t known = file->head.size();
      file->head.resize(std::min(end, file->output_bytes));
      error = opened.Read(file->entry.offset + known, file->head.size() - known,
                          file->head.data() + known);
      return {error.empty() ? file->head.data() : nullptr, file->head.size()};
    };
    ImageView view = {};
    const Status status = ReadHead(kFirstBytes, read, &view);
    const bool is_sound = status == Status::kOk && FileBytes(view) == file->output_bytes;
    file->head.resize(is_sound ? PayloadsOffset(view) : 0);
    return error;
  }

  void Read(File* file, void* output) const {
    const FileEntry& entry = file->entry;
    if (file->is_handle) {
      const FileHandle handle = {entry.path.c_str(), file->identity,    entry.offset, entry.bytes,
                                 file->head.data(),  file->head.size(), is_direct_,   remote_gap_};
      WriteHandle(handle, static_cast<uint8_t*>(output));
      return;
    }
    if (file->is_remote) {
      std::memcpy(output, file->data.get(), file->output_bytes);
      file->data.reset();
      return;
    }
    OpenFile opened;
    Enforce(*file, opened.Open(entry.path.c_str(), is_direct_));
    if (!(opened.identity() == file->identity)) {
      Enforce(*file, entry.path + " changed since it was listed.");
    }
    Enforce(*file, opened.Read(entry.offset, file->output_bytes, output));
  }

  const bool lazy_, is_direct_;
  const int64_t remote_gap_;
  std::string folder_;  // that relative paths are relative to
  std::vector<File> files_;
  Requests requests_;  // Fetch() of files
};

}  // namespace l3
