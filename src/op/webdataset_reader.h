// fn.l3.readers.webdataset: samples of tars. DALI's own loader shuffles and shards; members are
// read by the pipeline's threads. Layer: adapter.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/core/format.h"
#include "dali/operators/reader/loader/loader.h"
#include "dali/operators/reader/loader/webdataset/tar_utils.h"
#include "dali/operators/reader/reader_op.h"
#include "op/file_batch.h"

namespace l3 {

// A file in a tar.
struct TarMember {
  std::string extension;  // behind the first dot of the name
  std::string name;       // empty in an index of version 1.1
  uint64_t offset = 0, bytes = 0;
};

// Members that differ in their extensions alone, which follow one another.
using TarSample = std::vector<TarMember>;

// The samples that an index lists: "v1.2 COUNT", then for each the extension, offset, size and name
// of its members.
inline std::vector<TarSample> ReadTarIndex(const std::string& path) {
  std::stringstream file;
  if (IsRemote(path)) {
    std::string text;
    const ObjectError error = ReadWholeObject(path, &text);
    if (error.kind != ObjectError::kNone) DALI_FAIL(Printable(error.text));
    file.str(text);
  } else {
    file << std::ifstream(path).rdbuf();
  }
  std::string line, version;
  int64_t count = 0;
  const auto check = [&](bool is_sound, size_t number, const char* reason) {
    if (is_sound) return;
    DALI_FAIL(dali::make_string("The index ", Printable(path), " is malformed at line ", number,
                                ": ", reason, "."));
  };
  std::getline(file, line);
  check(bool(std::istringstream(line) >> version >> count) && count > 0, 0,
        "it must begin with a version and a positive number of samples");
  check(version == "v1.1" || version == "v1.2", 0, "its version must be v1.1 or v1.2");
  std::vector<TarSample> samples;
  while (samples.size() < static_cast<size_t>(count)) {
    std::getline(file, line);
    std::istringstream words(line);
    TarSample& sample = samples.emplace_back();
    for (TarMember member; words >> member.extension; sample.push_back(member)) {
      check(words >> member.offset >> member.bytes && (version == "v1.1" || words >> member.name),
            samples.size(), "a member needs an extension, an offset, a size and a name");
      check(member.offset % dali::detail::kBlockSize == 0 && member.offset != 0, samples.size(),
            "an offset is not a multiple of 512, the block size of tar");
    }
    check(!sample.empty(), samples.size(), "a sample has no members");
  }
  return samples;
}

// The samples of a tar without an index.
inline std::vector<TarSample> ScanTar(const std::string& path) {
  DALI_ENFORCE(!IsRemote(path),
               dali::make_string("The tar ", Printable(path),
                                 " has no index, and without one each of its headers is a request. "
                                 "Write one with `wds2idx`, which comes with DALI, and pass it as "
                                 "`index_paths`."));
  dali::detail::TarArchive tar(dali::FileStream::Open(path));
  std::vector<TarSample> samples;
  std::string last;
  for (; !tar.EndOfArchive(); tar.NextFile()) {
    if (tar.GetFileType() != dali::detail::TarArchive::ENTRY_FILE) continue;
    const std::string& name = tar.GetFileName();
    const size_t dot = std::min(name.find('.', name.rfind('/') + 1), name.size());
    if (dot == 0) continue;
    if (samples.empty() || name.compare(0, dot, last) != 0) samples.emplace_back();
    last = name.substr(0, dot);
    samples.back().push_back({dot == name.size() ? name : name.substr(dot + 1), name,
                              static_cast<uint64_t>(tar.TellArchive() + tar.HeaderSize()),
                              tar.GetFileSize()});
  }
  return samples;
}

// Whether a tar has a header of such a file where an index says so.
inline bool HasMember(const OpenFile& tar, const TarMember& member) {
  constexpr size_t kSizeAt = 124;  // in the header: an octal number of 11 digits
  char header[dali::detail::kBlockSize];
  if (member.offset + member.bytes > tar.identity().bytes) return false;
  if (!tar.Read(member.offset - sizeof(header), sizeof(header), header).empty()) return false;
  const std::string size(header + kSizeAt, 11);
  const bool is_octal = size.find_first_not_of("01234567 ") == std::string::npos;
  return !is_octal || std::strtoull(size.c_str(), nullptr, 8) == member.bytes;
}

// Its samples are the entries of each output: nothing is read.
class TarLoader : public dali::Loader<dali::CPUBackend, std::vector<FileEntry>, true> {
 public:
  explicit TarLoader(const dali::OpSpec& spec)
      : Loader(spec),
        paths_(spec.GetRepeatedArgument<std::string>("paths")),
        missing_(Lower(spec.GetArgument<std::string>("missing_component_behavior"))),
        ignores_case_(!spec.GetArgument<bool>("case_sensitive_extensions")) {
    spec.TryGetRepeatedArgument(index_paths_, "index_paths");
    DALI_ENFORCE(!paths_.empty(), "`paths` is empty.");
    DALI_ENFORCE(index_paths_.empty() || index_paths_.size() == paths_.size(),
                 "`index_paths` needs one index for each of `paths`.");
    DALI_ENFORCE(
        missing_.empty() || missing_ == "empty" || missing_ == "skip" || missing_ == "error",
        dali::make_string("`missing_component_behavior` must be \"empty\", \"skip\" or \"error\", "
                          "got \"",
                          missing_, "\"."));
    for (const std::string& list : spec.GetRepeatedArgument<std::string>("ext")) {
      std::istringstream names(list);
      auto& extensions = extensions_.emplace_back();
      for (std::string name; std::getline(names, name, ';');) extensions.push_back(Fold(name));
    }
    // Older releases of DALI have no such arguments.
    spec.TryGetArgument(shuffles_, "shuffle_after_epoch");
    spec.TryGetArgument(shuffle_seed_, "shuffle_after_epoch_seed");
    DALI_ENFORCE(!shuffles_ || !stick_to_shard_,
                 "`shuffle_after_epoch` cannot be combined with `stick_to_shard`.");
    if (shuffles_) stick_to_shard_ = true;  // each shard of the data changes with each epoch
  }

  void PrepareEmpty(std::vector<FileEntry>&) override {}

  void ReadSample(std::vector<FileEntry>& entries) override {
    MoveToNextShard(next_);
    const Sample& sample = samples_[next_++];
    const std::string& path = paths_[sample.tar];
    entries.assign(extensions_.size(), FileEntry());
    for (size_t i = 0; i < entries.size(); ++i) {
      const TarMember& member = sample.members[i];
      entries[i].is_skipped = member.offset == 0;
      if (member.offset == 0) continue;
      entries[i].path = path;
      entries[i].source_info = dali::make_string_delim(':', path, member.offset, member.name);
      entries[i].offset = member.offset;
      entries[i].bytes = member.bytes;
      entries[i].can_be_lazy = EndsAsL3(member.extension);
      entries[i].is_skipped = ShouldSkipImage(entries[i].source_info);
    }
  }

  void Skip() override { MoveToNextShard(next_++); }

 protected:
  dali::Index SizeImpl() override { return static_cast<dali::Index>(samples_.size()); }

  void PrepareMetadataImpl() override {
    if (index_paths_.empty()) {
      DALI_WARN("`fn.l3.readers.webdataset` has no `index_paths` and scans each tar.");
    }
    for (size_t tar = 0; tar < paths_.size(); ++tar) AddTar(tar);
    DALI_ENFORCE(!samples_.empty(), "The tars have no samples.");
    in_order_ = samples_;
    Reset(true);
  }

  void Reset(bool wrap_to_shard) override {
    next_ = wrap_to_shard ? static_cast<size_t>(
                                dali::start_index(virtual_shard_id_, num_shards_, samples_.size()))
                          : 0;
    ++epoch_;
    if (shuffles_) ShuffleTars();
  }

  void RestoreStateImpl(const dali::LoaderStateSnapshot& state) override {
    epoch_ = state.current_epoch;
  }

 private:
  struct Sample {
    size_t tar;
    TarSample members;  // of each output; offset 0 where there is none
  };

  static std::string Lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  }
  static bool EndsAsL3(const std::string& extension) {
    const std::string last = Lower(extension.substr(extension.rfind('.') + 1));
    return last == "l3";
  }
  std::string Fold(const std::string& extension) const {
    return ignores_case_ ? Lower(extension) : extension;
  }

  void AddTar(size_t tar) {
    const std::string& path = paths_[tar];
    const bool has_index = !index_paths_.empty();
    const std::vector<TarSample> samples =
        has_index ? ReadTarIndex(index_paths_[tar]) : ScanTar(path);
    if (has_index && !IsRemote(path)) {
      OpenFile opened;
      const std::string error = opened.Open(path.c_str());
      if (!error.empty()) DALI_FAIL(Printable(error));
      for (const TarMember& member : {samples.front().front(), samples.back().back()}) {
        if (HasMember(opened, member)) continue;
        DALI_FAIL(dali::make_string("The index ", Printable(index_paths_[tar]),
                                    " does not match the tar ", Printable(path),
                                    ". Create the index again."));
      }
    }
    for (const TarSample& members : samples) {
      Sample sample = {tar, TarSample(extensions_.size())};
      for (const TarMember& member : members) {
        const std::string extension = Fold(member.extension);
        for (size_t i = 0; i < extensions_.size(); ++i) {
          const auto& wanted = extensions_[i];
          const bool fits = std::find(wanted.begin(), wanted.end(), extension) != wanted.end();
          if (fits && sample.members[i].offset == 0) sample.members[i] = member;
        }
      }
      const bool is_whole = std::all_of(sample.members.begin(), sample.members.end(),
                                        [](const TarMember& member) { return member.offset != 0; });
      if (!is_whole && missing_ == "error") {
        DALI_FAIL(dali::make_string("The sample with ", Printable(members.front().name), " in ",
                                    Printable(path), " has no member for one of `ext`."));
      }
      if (is_whole || missing_ != "skip") samples_.push_back(std::move(sample));
    }
  }

  // Another order of tars in each epoch; their samples stay together.
  void ShuffleTars() {
    std::vector<size_t> order(paths_.size());
    for (size_t tar = 0; tar < order.size(); ++tar) order[tar] = tar;
    std::mt19937_64 random(static_cast<uint64_t>(shuffle_seed_) +
                           (static_cast<uint64_t>(epoch_) << 32));
    std::shuffle(order.begin(), order.end(), random);
    samples_.clear();
    for (const size_t tar : order) {
      for (const Sample& sample : in_order_) {
        if (sample.tar == tar) samples_.push_back(sample);
      }
    }
  }

  const std::vector<std::string> paths_;
  std::vector<std::string> index_paths_;
  const std::string missing_;
  const bool ignores_case_;
  std::vector<std::vector<std::string>> extensions_;  // of each output
  bool shuffles_ = false;
  int64_t shuffle_seed_ = kDaliDataloaderSeed;
  int epoch_ = 0;
  std::vector<Sample> in_order_, samples_;
  size_t next_ = 0;
};

class TarReader : public dali::DataReader<dali::CPUBackend, std::vector<FileEntry>,
                                          std::vector<FileEntry>, true> {
  using Base = DataReader<dali::CPUBackend, std::vector<FileEntry>, std::vector<FileEntry>, true>;

 public:
  explicit TarReader(const dali::OpSpec& spec) : Base(spec) {
    const size_t outputs = spec.GetRepeatedArgument<std::string>("ext").size();
    if (!spec.TryGetRepeatedArgument(types_, "dtypes")) types_.assign(outputs, DALI_UINT8);
    DALI_ENFORCE(types_.size() == outputs, "`dtypes` needs one type for each of `ext`.");
    for (const dali::DALIDataType type : types_) {
      DALI_ENFORCE(DALI_UINT8 <= type && type <= DALI_FLOAT64,
                   dali::make_string("`dtypes` has ", type, ", which is not a numeric type."));
    }
    batches_.resize(prefetch_queue_depth_);
    for (auto& batches : batches_) {
      for (size_t i = 0; i < outputs; ++i) batches.emplace_back(spec);
    }
    loader_ = dali::InitLoader<TarLoader>(spec);
    SetInitialSnapshot();
  }

  ~TarReader() noexcept override { StopPrefetchThread(); }

  bool HasContiguousOutputs() const override { return true; }

  // Objects of the next batches are on their way while one is decoded.
  void Prefetch() override {
    Base::Prefetch();
    for (size_t i = 0; i < types_.size(); ++i) {
      std::vector<FileEntry> entries;
      for (const auto& sample : prefetched_batch_queue_[curr_batch_producer_]) {
        entries.push_back((*sample)[i]);
        if (types_[i] != DALI_UINT8) entries.back().can_be_lazy = false;
      }
      batches_[curr_batch_producer_][i].Start(std::move(entries), /*ahead=*/true);
    }
  }

  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    Base::SetupImpl(outputs, ws);
    outputs.clear();
    std::deque<FileBatch>& batches = batches_[curr_batch_consumer_];
    for (size_t i = 0; i < batches.size(); ++i) {
      dali::TensorListShape<> shape = batches[i].Look(ws.GetThreadPool());
      const auto bytes = static_cast<int64_t>(dali::TypeTable::GetTypeInfo(types_[i]).size());
      for (int s = 0; s < shape.num_samples(); ++s) {
        int64_t& length = shape.tensor_shape_span(s)[0];
        DALI_ENFORCE(
            length % bytes == 0,
            dali::make_string("A member of ", Printable((*GetCurrBatch()[s])[i].path), " has ",
                              length, " bytes, not a multiple of the size of ", types_[i], "."));
        length /= bytes;
      }
      outputs.push_back({shape, types_[i]});
    }
    return true;
  }

  void RunImpl(dali::Workspace& ws) override {
    std::deque<FileBatch>& batches = batches_[curr_batch_consumer_];
    for (size_t i = 0; i < batches.size(); ++i) {
      batches[i].Read(&ws.Output<dali::CPUBackend>(static_cast<int>(i)), ws.GetThreadPool());
    }
  }

 private:
  std::vector<dali::DALIDataType> types_;
  std::vector<std::deque<FileBatch>> batches_;  // of each that is prefetched, of each output
};

}  // namespace l3
