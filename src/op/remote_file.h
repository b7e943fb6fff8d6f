// Objects of buckets, read by ranges with DALI's own client: many requests at once, by threads that
// do nothing but wait. Layer: adapter.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "dali/core/format.h"
#include "dali/util/file.h"
#include "files/attempts.h"
#include "files/file_handle.h"

namespace l3 {

using RequestClock = std::chrono::steady_clock;

// Whether a path is the URI of an object.
inline bool IsRemote(const std::string& path) {
  return path.compare(0, 5, "s3://") == 0 || path.compare(0, 5, "gs://") == 0;
}

constexpr char kMayBeReplaced[] = " The object may have been replaced since its head was read.";

// Threads that each wait for a request, a pool for each client of DALI. DALI's S3 client has 25
// connections for a process.
class RequestThreads {
 public:
  static RequestThreads& Of(const std::string& uri) {
    // They may outlive main().
    static auto* const s3 = new RequestThreads(25);
    static auto* const gs = new RequestThreads(64);
    return uri.compare(0, 2, "s3") == 0 ? *s3 : *gs;
  }
  // The same for heads of a batch that is decoded later: half of the connections are left to tiles,
  // for which a decoder waits.
  static RequestThreads& OfHeads(const std::string& uri) {
    static auto* const s3 = new RequestThreads(12);
    static auto* const gs = new RequestThreads(32);
    return uri.compare(0, 2, "s3") == 0 ? *s3 : *gs;
  }

  // Runs tasks in their order, as many at once as there are threads.
  void Add(std::function<void()> task) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
      if (waiting_ < tasks_.size() && threads_ < max_threads_) {
        ++threads_;
        std::thread([this] { Run(); }).detach();
      }
    }
    added_.notify_one();
  }

  // Says that a request was given up, and why.
  void GiveUp(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    gave_up_ = RequestClock::now();
    outage_ = reason;
  }
  // That reason, if it was given after `asked`; else empty. Requests that were asked for before
  // fail, too: a batch waits for one outage, and not for one after the other.
  std::string OutageSince(RequestClock::time_point asked) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked < gave_up_ ? outage_ : "";
  }

 private:
  explicit RequestThreads(size_t max_threads) : max_threads_(max_threads) {}

  void Run() {
    pthread_setname_np(pthread_self(), "l3-requests");
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++waiting_;
      added_.wait(lock, [this] { return !tasks_.empty(); });
      --waiting_;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const size_t max_threads_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> tasks_;
  size_t threads_ = 0, waiting_ = 0;
  RequestClock::time_point gave_up_;
  std::string outage_;
};

// Tasks for these threads that are waited for together.
class Requests {
 public:
  ~Requests() {
    cancelled_ = true;
    Wait();
  }
  // Calls task(when Add() was called) on one of the threads unless this is destroyed before.
  template <typename Task>
  void Add(RequestThreads& threads, Task task) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++under_way_;
    }
    threads.Add([this, task = std::move(task), asked = RequestClock::now()] {
      if (!cancelled_) task(asked);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (--under_way_ == 0) ended_.notify_all();
    });
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return under_way_ == 0; });
  }

 private:
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t under_way_ = 0;
};

// What requests take: a latency and a time for each byte, by least squares of the last few hundred.
class RequestTimes {
 public:
  static RequestTimes& Instance() {
    static RequestTimes times;
    return times;
  }
  void Add(double bytes, double seconds) {
    constexpr double kKept = 0.995;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (double* sum : {&n_, &x_, &y_, &xx_, &xy_}) *sum *= kKept;
    n_ += 1;
    x_ += bytes;
    y_ += seconds;
    xx_ += bytes * bytes;
    xy_ += bytes * seconds;
  }
  // The bytes that take as long as a request: a shorter gap is faster to read than to skip.
  uint64_t GapBytes() {
    constexpr double kLeast = 16 << 10, kMost = 1 << 20, kAtFirst = 128 << 10;
    const std::lock_guard<std::mutex> lock(mutex_);
    const double variance = n_ * xx_ - x_ * x_;
    if (n_ < 16 || variance <= 0) return static_cast<uint64_t>(kAtFirst);
    const double slope = (n_ * xy_ - x_ * y_) / variance;
    const double latency = (y_ - slope * x_) / n_;
    if (latency <= 0) return static_cast<uint64_t>(kLeast);
    if (slope * kMost <= latency) return static_cast<uint64_t>(kMost);
    return static_cast<uint64_t>(std::max(kLeast, latency / slope));
  }

 private:
  std::mutex mutex_;
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

// Why an object was not read.
struct ObjectError {
  enum Kind {
    kNone,
    kMissing,  // there is no such object
    kTooShort,  // the object ends before the range
    kRefused,  // access is denied
    kOutage,  // attempts failed until time was up
  };
  Kind kind = kNone;
  std::string text;  // a sentence with the URI
};

// What DALI's clients say.
inline ObjectError::Kind KindOf(const std::string& reason) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return reason.find(name) != std::string::npos; });
  };
  if (reason.empty()) return ObjectError::kNone;
  if (has({"NoSuchKey", "[NOT_FOUND]"})) return ObjectError::kMissing;
  if (has({"InvalidRange", "[OUT_OF_RANGE]"})) return ObjectError::kTooShort;
  if (has({"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch",
           "ExpiredToken", "[PERMISSION_DENIED]", "[UNAUTHENTICATED]"})) {
    return ObjectError::kRefused;
  }
  return ObjectError::kOutage;
}

// Calls request() until it succeeds, an attempt cannot help, or time is up. It returns the client's
// words; empty if it did what it should.
template <typename Request>
ObjectError Attempt(const std::string& uri, RequestClock::time_point asked,
                    const Request& request) {
  using Seconds = std::chrono::duration<double>;
  RequestThreads& threads = RequestThreads::Of(uri);
  const auto begun = RequestClock::now();
  Attempts attempts;
  for (int attempt = 1;; ++attempt) {
    const std::string outage = threads.OutageSince(asked);
    if (!outage.empty()) return {ObjectError::kOutage, uri + " was not read, since " + outage};
    const auto start = RequestClock::now();
    std::string reason = request();
    const auto kind = KindOf(reason);
    if (kind == ObjectError::kNone) return {};
    const Seconds all = RequestClock::now() - begun;
    const Seconds last = RequestClock::now() - start;
    if (kind == ObjectError::kOutage && attempts.Again(all.count(), last.count())) {
      std::this_thread::sleep_for(Seconds(attempts.pause_s()));
      continue;
    }
    reason.erase(0, reason.find_first_not_of(" :\n"));
    if (reason.empty()) reason = "the client gives no reason";
    const int seconds = static_cast<int>(all.count());
    const std::string text = dali::make_string(uri, " cannot be read, ", attempt, " attempts in ",
                                               seconds, " s: ", reason, ".");
    if (kind == ObjectError::kOutage) threads.GiveUp(text);
    return {kind, text};
  }
}

// One request. Returns the client's words.
inline std::string RequestRange(const std::string& uri, uint64_t begin, uint64_t bytes, void* to,
                                uint64_t* read) try {
  const auto begun = RequestClock::now();
  // Without a size DALI makes a request for it.
  constexpr size_t kAnySize = size_t{1} << 50;
  const auto stream = dali::FileStream::Open(uri, {false, false, false}, kAnySize);
  stream->SeekRead(static_cast<ptrdiff_t>(begin));
  *read = stream->Read(to, bytes);
  const std::chrono::duration<double> seconds = RequestClock::now() - begun;
  RequestTimes::Instance().Add(static_cast<double>(*read), seconds.count());
  return *read != 0 ? "" : "an empty answer";
} catch (const std::exception& error) {
  return *error.what() != 0 ? error.what() : ":";
}

// Reads bytes [begin, begin + bytes) of an object; `may_end` if it may have fewer.
//
// DALI's S3 client repeats a request without rewinding where the answer goes: a 503, or a body that
// was cut, lies before the next answer. That does not fit, and fails, if the answer has all bytes
// that were asked for. An answer with fewer bytes is used only if nothing lies behind it.
inline ObjectError ReadObject(const std::string& uri, RequestClock::time_point asked,
                              uint64_t begin, uint64_t bytes, bool may_end, uint8_t* to,
                              uint64_t* read) {
  return Attempt(uri, asked, [&]() -> std::string {
    // The client looks for the name of an error in this memory, whatever lies there.
    std::memset(to, 0, may_end ? bytes : std::min<uint64_t>(bytes, 2048));
    const std::string reason = RequestRange(uri, begin, bytes, to, read);
    if (!reason.empty() || *read == bytes) return reason;
    if (!may_end) return "InvalidRange: the object has fewer bytes";
    const bool is_clean =
        std::all_of(to + *read, to + bytes, [](uint8_t byte) { return byte == 0; });
    return is_clean ? "" : "an answer behind another one";
  });
}

// Its size. A request that fails for it says no reason: one for a byte does.
inline ObjectError FindSizeOfObject(const std::string& uri, RequestClock::time_point asked,
                                    uint64_t* bytes) {
  return Attempt(uri, asked, [&]() -> std::string {
    try {
      *bytes = dali::FileStream::Open(uri)->Size();
      return "";
    } catch (const std::exception& error) {
      uint8_t byte = 0;
      uint64_t read = 0;
      const std::string reason = RequestRange(uri, 0, 1, &byte, &read);
      return reason.empty() ? error.what() : reason;
    }
  });
}

// All of it.
inline ObjectError ReadWholeObject(const std::string& uri, std::string* text) {
  const auto asked = RequestClock::now();
  uint64_t bytes = 0;
  ObjectError error = FindSizeOfObject(uri, asked, &bytes);
  text->resize(bytes);
  if (error.kind != ObjectError::kNone || bytes == 0) return error;
  return ReadObject(uri, asked, 0, bytes, false, reinterpret_cast<uint8_t*>(text->data()), &bytes);
}

// Reads payloads of an object.
class RemotePayloadReader final : public PayloadSource {
 public:
  explicit RemotePayloadReader(const FileHandle& handle) : handle_(handle) {
    if (handle.head_bytes == 0) Fail({ObjectError::kMissing, uri() + " does not exist."});
  }

  Traits traits() const override {
    // Larger requests are not faster, and fewer at once are.
    constexpr uint64_t kMostBytes = 8 << 20;
    return {true,
            handle_.max_gap_bytes < 0 ? RequestTimes::Instance().GapBytes()
                                      : static_cast<uint64_t>(handle_.max_gap_bytes),
            kMostBytes};
  }
  bool Check() override { return error().empty(); }
  void Read(uint64_t begin, size_t bytes, uint8_t* to) override {
    requests_.Add(RequestThreads::Of(uri()),
                  [this, begin, bytes, to](RequestClock::time_point asked) {
                    if (!Check()) return;
                    uint64_t read;
                    Fail(ReadObject(uri(), asked, handle_.offset + handle_.head_bytes + begin,
                                    bytes, false, to, &read));
                  });
  }
  bool Wait() override {
    requests_.Wait();
    return Check();
  }
  void Close() override {}
  std::string error() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_.text;
  }
  bool must_raise() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_.kind == ObjectError::kRefused || error_.kind == ObjectError::kOutage;
  }

 private:
  std::string uri() const { return handle_.path; }
  void Fail(ObjectError error) {
    if (error.kind == ObjectError::kTooShort) error.text += kMayBeReplaced;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.kind == ObjectError::kNone) error_ = std::move(error);
  }

  const FileHandle handle_;
  std::mutex mutex_;
  ObjectError error_;
  Requests requests_;
};

// The bytes behind a handle.
inline std::unique_ptr<PayloadSource> OpenHandle(const FileHandle& handle) {
  if (IsRemote(handle.path)) return std::make_unique<RemotePayloadReader>(handle);
  return std::make_unique<PayloadReader>(handle);
}

}  // namespace l3
