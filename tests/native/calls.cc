#include "native/calls.h"

#include <l3/l3.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "fuzz/mutator.h"
#include "native/changing_pixels.h"
#include "native/exact_bytes.h"
#include "native/testing.h"

namespace {

using l3::fuzz::Bytes;
using l3::fuzz::Dice;

// Of the call that mutates a file.
thread_local Dice* mutator_dice = nullptr;

// A question, taken apart. Throws std::out_of_range where it has less than its call takes.
class Question {
 public:
  Question(const uint8_t* data, size_t size) : rest_(data), rest_bytes_(size) {
    call_ = Take<uint32_t>();
    const uint32_t numbers = Take<uint32_t>();
    const uint32_t blobs = Take<uint32_t>();
    for (uint32_t i = 0; i < numbers; ++i) numbers_.push_back(Take<uint64_t>());
    std::vector<uint64_t> sizes;
    for (uint32_t i = 0; i < blobs; ++i) sizes.push_back(Take<uint64_t>());
    for (const uint64_t bytes : sizes) {
      const uint8_t* blob = TakeBytes(bytes);
      blobs_.emplace_back(blob, blob + bytes);
    }
  }

  uint32_t call() const { return call_; }
  uint64_t wide(size_t i) const { return numbers_.at(i); }
  uint32_t number(size_t i) const { return static_cast<uint32_t>(wide(i)); }
  const Bytes& blob(size_t i) const { return blobs_.at(i); }
  l3_bytes view(size_t i) const { return {blob(i).data(), blob(i).size()}; }

  std::vector<L3TestPlan> plans(size_t i) const {
    std::vector<L3TestPlan> plans(blob(i).size() / sizeof(L3TestPlan));
    if (plans.empty() || blob(i).size() % sizeof(L3TestPlan) != 0) throw std::out_of_range("plans");
    std::memcpy(plans.data(), blob(i).data(), blob(i).size());
    return plans;
  }

 private:
  const uint8_t* TakeBytes(uint64_t bytes) {
    if (bytes > rest_bytes_) throw std::out_of_range("question");
    const uint8_t* taken = rest_;
    rest_ += bytes;
    rest_bytes_ -= bytes;
    return taken;
  }
  template <typename Number>
  Number Take() {
    Number number;
    std::memcpy(&number, TakeBytes(sizeof(number)), sizeof(number));
    return number;
  }

  const uint8_t* rest_;
  size_t rest_bytes_;
  uint32_t call_;
  std::vector<uint64_t> numbers_;
  std::vector<Bytes> blobs_;
};

struct Answer {
  uint64_t result = 0;
  uint64_t tile = 0;
  uint64_t number = 0;
  Bytes blob;
};

// To a buffer that ends where it must.
Answer EncodeImage(const Question& question, const l3_image& image) {
  l3_encode_options options = {};
  options.struct_size = sizeof(options);
  options.coding = question.number(5);
  options.effort = question.number(6);
  options.threads = question.number(7);
  options.tile_height = question.number(8);
  options.tile_width = question.number(9);
  options.labels = question.number(10);
  options.icc = question.view(1);
  options.exif = question.view(2);
  options.palette = question.view(3);
  l3_test_limit_kernels(question.number(11));
  size_t bound = 0;
  Answer answer;
  answer.result = l3_encode_bound(&image, &options, &bound);
  if (answer.result != L3_OK) return answer;
  l3::ExactBytes file(bound);
  size_t size = 0;
  answer.result = l3_encode(&image, &options, file.data(), bound, &size);
  if (answer.result == L3_OK) answer.blob.assign(file.data(), file.data() + size);
  return answer;
}

Answer Encode(const Question& question) {
  l3::ExactBytes pixels(question.blob(0).data(), question.blob(0).size());
  return EncodeImage(question, {pixels.data(), question.number(0), question.number(1),
                                question.number(2), question.number(3), size_t{question.wide(4)}});
}

Answer EncodeChanging(const Question& question) {
  const Bytes& before = question.blob(0);
  const Bytes& after = question.blob(4);
  const uint32_t rows = question.number(0);
  if (rows == 0 || before.empty() || before.size() % rows != 0 || after.size() != before.size()) {
    throw std::out_of_range("pixels");
  }
  const l3::ChangingPixels pixels(before.data(), after.data(), before.size() / rows, rows,
                                  question.wide(12));
  return EncodeImage(question, {pixels.data(), rows, question.number(1), question.number(2),
                                question.number(3), pixels.row_stride_bytes()});
}

Answer Decode(const Question& question) {
  const Bytes& data = question.blob(0);
  Answer answer;
  answer.blob = question.blob(1);
  uint8_t* output = answer.blob.data();
  const size_t output_bytes = answer.blob.size();
  uint32_t tile = 0xFFFFFFFFu;
  if (question.call() == kL3TestDecode) {
    answer.result = l3_test_decode(question.number(0), data.data(), data.size(), output,
                                   output_bytes, question.wide(1), question.number(2), &tile);
  } else {
    const std::vector<L3TestPlan> plans = question.plans(2);
    answer.result = l3_test_decode_plans(question.number(0), data.data(), data.size(), plans.data(),
                                         plans.size(), output, output_bytes, question.number(1),
                                         &tile, &answer.number);
  }
  answer.tile = tile;
  return answer;
}

Dice DiceOf(const Question& question) {
  const Bytes& choices = question.blob(0);
  return Dice(choices.data(), choices.size(), question.wide(0), question.wide(0) == 0);
}

Answer MakeFile(const Question& question) {
  Dice dice = DiceOf(question);
  const l3::fuzz::Image image = l3::fuzz::MakeImage(&dice);
  Answer answer;
  answer.result = image.bad ? L3_CORRUPT_TILE : L3_OK;
  answer.tile = image.bad.value_or(0);
  answer.blob = l3::fuzz::ToFile(image.parts);
  answer.number = answer.blob.size();
  l3::fuzz::Append(&answer.blob, image.pixels);
  return answer;
}

Answer MutateFile(const Question& question) {
  constexpr size_t kMostGrowth = 1 << 16;
  Dice dice = DiceOf(question);
  Dice bytes = dice.Bulk();
  mutator_dice = &bytes;
  Answer answer;
  answer.blob = question.blob(1);
  answer.blob.resize(answer.blob.size() + kMostGrowth);
  answer.blob.resize(
      l3::fuzz::MutateFile(answer.blob.data(), question.blob(1).size(), answer.blob.size(), dice));
  mutator_dice = nullptr;
  return answer;
}

Answer Reply(const Question& question) {
  Answer answer;
  switch (question.call()) {
    case kL3TestStatusName: {
      const char* name = l3_status_name(question.number(0));
      answer.blob.assign(name, name + std::strlen(name));
      return answer;
    }
    case kL3TestEngineAvailable:
      answer.result = l3_test_engine_available(question.number(0)) != 0 ? 1 : 0;
      return answer;
    case kL3TestReadInfo: {
      l3::ExactBytes file(question.blob(0).data(), question.blob(0).size());
      l3_info info = {};
      info.struct_size = sizeof(info);
      answer.result = l3_read_info(file.data(), file.size(), &info);
      answer.blob.resize(sizeof(info));
      std::memcpy(answer.blob.data(), &info, sizeof(info));
      return answer;
    }
    case kL3TestDecode:
    case kL3TestDecodePlans: return Decode(question);
    case kL3TestUploadedBytes: {
      const std::vector<L3TestPlan> plans = question.plans(1);
      answer.result =
          l3_test_uploaded_bytes(question.blob(0).data(), question.blob(0).size(), plans.data());
      return answer;
    }
    case kL3TestReadOrientation:
      answer.result = l3_test_read_orientation(question.blob(0).data(), question.blob(0).size());
      return answer;
    case kL3TestEncode: return Encode(question);
    case kL3TestMakeFile: return MakeFile(question);
    case kL3TestMutateFile: return MutateFile(question);
    case kL3TestEncodeChanging: return EncodeChanging(question);
    default: throw std::out_of_range("call");
  }
}

}  // namespace

// In libFuzzer's place.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  Bytes bytes(data, data + size);
  l3::fuzz::Damage({}, mutator_dice, &bytes);
  bytes.resize(std::min(bytes.size(), max_size));
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

int l3_test_call(const uint8_t* question, size_t size, uint8_t** answer, size_t* answer_size) {
  try {
    const Answer reply = Reply(Question(question, size));
    const uint64_t head[3] = {reply.result, reply.tile, reply.number};
    *answer_size = sizeof(head) + reply.blob.size();
    *answer = static_cast<uint8_t*>(std::malloc(*answer_size));
    if (*answer == nullptr) return 0;
    std::memcpy(*answer, head, sizeof(head));
    if (!reply.blob.empty()) {
      std::memcpy(*answer + sizeof(head), reply.blob.data(), reply.blob.size());
    }
    return 1;
  } catch (...) {
    return 0;
  }
}

void l3_test_free(uint8_t* answer) { std::free(answer); }
