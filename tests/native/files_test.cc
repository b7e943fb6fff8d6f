// Tests of src/files: handles, and reads of files that change.
//
//   l3_files_test NAME
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "encoder/encoder.h"
#include "files/attempts.h"
#include "files/file_handle.h"
#include "files/open_file.h"
#include "test_program.h"

namespace l3 {
namespace {

using Bytes = std::vector<uint8_t>;

bool Says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// A folder with a file; both go with it.
class TestFile {
 public:
  TestFile() {
    char folder[] = "/tmp/l3_files_XXXXXX";
    CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    path_ = folder_ + "/a.l3";
  }
  ~TestFile() {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  const char* path() const { return path_.c_str(); }
  const std::string& folder() const { return folder_; }
  void Write(const Bytes& bytes) const {
    FILE* const file = std::fopen(path(), "wb");
    CHECK(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
    std::fclose(file);
  }

 private:
  std::string folder_, path_;
};

Bytes MakeImage() {
  Bytes samples(300 * 200), file;
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<uint8_t>(i * i >> 7);
  CHECK(EncodeImage({samples.data(), 300, 200, 1, SampleType::kUint8, 300}, {}, &file) ==
        Status::kOk);
  return file;
}

// A handle of the image `image`, which lies in the file from `offset` on.
Bytes MakeHandle(const TestFile& file, const Bytes& image, uint64_t offset = 0) {
  OpenFile opened;
  CHECK(opened.Open(file.path()) == "");
  ImageView view;
  CHECK(ParseImage(image.data(), image.size(), &view) == Status::kOk);
  const size_t head_bytes = image.size() - view.payloads_bytes;
  Bytes handle(HandleBytes(std::strlen(file.path()), head_bytes));
  WriteHandle({file.path(), opened.identity(), offset, image.size(), image.data(), head_bytes},
              handle.data());
  return handle;
}

FileHandle Parse(const Bytes& bytes, ImageView* view) {
  FileHandle handle;
  CHECK(ReadHandle(bytes.data(), bytes.size(), &handle));
  CHECK(ParseHandle(handle, view) == Status::kOk);
  return handle;
}

void HandleReadsPayloads() {
  const Bytes image = MakeImage();
  for (const size_t offset : {size_t{0}, size_t{512}}) {
    const TestFile file;
    Bytes tar(offset, 7);
    tar.insert(tar.end(), image.begin(), image.end());
    if (offset != 0) tar.resize(tar.size() + 1024);
    file.Write(tar);
    ImageView view;
    const Bytes bytes = MakeHandle(file, image, offset);
    const FileHandle handle = Parse(bytes, &view);
    CHECK(view.payloads == nullptr && view.info.width_px == 300);
    CHECK(handle.bytes == image.size() && std::strcmp(handle.path, file.path()) == 0);
    PayloadReader reader(handle);
    Bytes payload(view.PayloadEnd(1) - view.PayloadBegin(1));
    reader.Read(view.PayloadBegin(1), payload.size(), payload.data());
    CHECK(reader.Wait());
    CHECK(std::memcmp(payload.data(), image.data() + handle.head_bytes + view.PayloadBegin(1),
                      payload.size()) == 0);
    CHECK(reader.error() == "");
  }
}

void HandleHoldsInItsProcess() {
  const TestFile file;
  const Bytes image = MakeImage();
  file.Write(image);
  Bytes bytes = MakeHandle(file, image);
  FileHandle handle;
  CHECK(!IsHandle(image.data(), image.size()));
  CHECK(IsHandle(bytes.data(), bytes.size()));
  CHECK(!ReadHandle(bytes.data(), bytes.size() - 1, &handle));
  bytes[8] ^= 1;  // the nonce
  CHECK(IsHandle(bytes.data(), bytes.size()));
  CHECK(!ReadHandle(bytes.data(), bytes.size(), &handle));
  CHECK(!IsHandle(bytes.data(), 7) && !ReadHandle(bytes.data(), 16, &handle));
}

void HandleIsValidated() {
  const TestFile file;
  Bytes image = MakeImage();
  file.Write(image);
  const Bytes bytes = MakeHandle(file, image);
  ImageView view;
  FileHandle handle = Parse(bytes, &view);
  --handle.bytes;
  CHECK(ParseHandle(handle, &view) == Status::kTruncated);
  handle.bytes += 2;
  CHECK(ParseHandle(handle, &view) == Status::kCorruptHeader);
  --handle.bytes;
  --handle.head_bytes;
  CHECK(ParseHandle(handle, &view) == Status::kTruncated);
}

void ChangedFiles() {
  const Bytes image = MakeImage();
  for (const int change : {0, 1, 2, 3}) {
    const TestFile file;
    file.Write(image);
    const Bytes bytes = MakeHandle(file, image);
    ImageView view;
    PayloadReader reader(Parse(bytes, &view));
    Bytes payload(16);
    if (change == 0) CHECK(::unlink(file.path()) == 0);
    if (change == 1) CHECK(::truncate(file.path(), 100) == 0);
    if (change == 2) {
      const timespec times[] = {{1, 0}, {1, 0}};
      CHECK(::utimensat(AT_FDCWD, file.path(), times, 0) == 0);
    }
    if (change == 3) {
      reader.Read(0, payload.size(), payload.data());
      CHECK(reader.Wait());
      CHECK(::truncate(file.path(), 100) == 0);
    }
    reader.Read(0, payload.size(), payload.data());
    CHECK(!reader.Wait());
    CHECK(Says(reader.error(), file.path()));
    CHECK(Says(reader.error(), change == 0   ? "No such file"
                               : change == 3 ? "was truncated"
                                             : "changed since it was listed"));
    reader.Read(0, payload.size(), payload.data());
    CHECK(!reader.Wait());
  }
}

void DirectReads() {
  const TestFile file;
  Bytes bytes(3 * 1000 * 1000 + 7);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i >> 9);
  file.Write(bytes);
  OpenFile opened;
  CHECK(opened.Open(file.path(), true) == "");
  for (const size_t begin : {0, 1, 4095, 4096, 5000, 2999999}) {
    for (const size_t count : {1, 16, 4096, 70000, 2000000}) {
      Bytes read(count);
      const std::string error = opened.Read(begin, count, read.data());
      CHECK(error.empty() == (begin + count <= bytes.size()));
      CHECK(error.empty() ? std::memcmp(read.data(), bytes.data() + begin, count) == 0
                          : Says(error, "was truncated"));
    }
  }
}

// Each attempt takes as long as the one before it.
void AttemptsEndInTime() {
  for (double each_s = 0; each_s <= 12; each_s += 0.125) {
    Attempts attempts;
    double begin_s = 0;
    while (attempts.Again(begin_s + each_s, each_s)) begin_s += each_s + attempts.pause_s();
    CHECK(begin_s + each_s <= 25);
    CHECK(each_s > 3 || begin_s >= 10);  // an outage of ten seconds has ended
  }
}

void OtherThingsAreNoFiles() {
  const TestFile file;
  OpenFile opened;
  CHECK(Says(opened.Open(file.folder().c_str()), "not a regular file"));
  CHECK(Says(opened.Open(file.path()), "No such file"));
  CHECK(::mkfifo(file.path(), 0600) == 0);
  CHECK(Says(opened.Open(file.path()), "not a regular file"));
}

const Tests kTests = {
    {"attempts_end_in_time", AttemptsEndInTime},
    {"changed_files", ChangedFiles},
    {"direct_reads", DirectReads},
    {"handle_holds_in_its_process", HandleHoldsInItsProcess},
    {"handle_is_validated", HandleIsValidated},
    {"handle_reads_payloads", HandleReadsPayloads},
    {"other_things_are_no_files", OtherThingsAreNoFiles},
};

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::RunTest(l3::kTests, argc, argv); }
