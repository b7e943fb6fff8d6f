#include "native/calls.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

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
  L3TestBytes view(size_t i) const { return {blob(i).data(), blob(i).size()}; }

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
  uint64_t decoded_tiles = 0;
  Bytes blob;
};

Answer Encode(const Question& question) {
  L3TestEncodeOptions options = {};
  options.mode = question.number(5);
  options.effort = question.number(6);
  options.threads = question.number(7);
  options.tile_width_log2 = question.number(8);
  options.tile_height_log2 = question.number(9);
  options.meaning = question.number(10);
  options.kernels = question.number(11);
  options.icc = question.view(1);
  options.exif = question.view(2);
  options.palette = question.view(3);
  uint8_t* encoded = nullptr;
  size_t encoded_bytes = 0;
  Answer answer;
  const Bytes& pixels = question.blob(0);
  if (question.call() == kL3TestEncode) {
    answer.result = l3_test_encode(pixels.data(), pixels.size(), question.number(0),
                                   question.number(1), question.number(2), question.number(3),
                                   question.wide(4), &options, &encoded, &encoded_bytes);
  } else {
    const Bytes& changed = question.blob(4);
    if (changed.size() != pixels.size()) throw std::out_of_range("changed pixels");
    answer.result =
        l3_test_encode_changing(pixels.data(), changed.data(), pixels.size(), question.number(0),
                                question.number(1), question.number(2), question.number(3),
                                question.wide(12), &options, &encoded, &encoded_bytes);
  }
  if (answer.result == 0) answer.blob.assign(encoded, encoded + encoded_bytes);
  l3_test_free(encoded);
  return answer;
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
  } else if (question.call() == kL3TestDecodePlans) {
    const std::vector<L3TestPlan> plans = question.plans(2);
    answer.result = l3_test_decode_plans(question.number(0), data.data(), data.size(), plans.data(),
                                         plans.size(), output, output_bytes, question.number(1),
                                         &tile, &answer.decoded_tiles);
  } else {
    const Bytes& changed = question.blob(2);
    if (changed.size() != data.size()) throw std::out_of_range("changed data");
    answer.result = l3_test_decode_changing(question.number(0), data.data(), changed.data(),
                                            data.size(), question.number(1), question.number(2),
                                            nullptr, output, output_bytes, &tile);
  }
  answer.tile = tile;
  return answer;
}

Answer Reply(const Question& question) {
  Answer answer;
  switch (question.call()) {
    case kL3TestStatusName: {
      const char* name = l3_test_status_name(question.number(0));
      answer.blob.assign(name, name + std::strlen(name));
      return answer;
    }
    case kL3TestEngineAvailable:
      answer.result = l3_test_engine_available(question.number(0)) != 0 ? 1 : 0;
      return answer;
    case kL3TestParse: {
      L3TestInfo info = {};
      answer.result = l3_test_parse(question.blob(0).data(), question.blob(0).size(), &info);
      answer.blob.resize(sizeof(info));
      std::memcpy(answer.blob.data(), &info, sizeof(info));
      return answer;
    }
    case kL3TestDecode:
    case kL3TestDecodePlans:
    case kL3TestDecodeChanging: return Decode(question);
    case kL3TestUploadedBytes: {
      const std::vector<L3TestPlan> plans = question.plans(1);
      answer.result =
          l3_test_uploaded_bytes(question.blob(0).data(), question.blob(0).size(), plans.data());
      return answer;
    }
    case kL3TestReadOrientation:
      answer.result = l3_test_read_orientation(question.blob(0).data(), question.blob(0).size());
      return answer;
    case kL3TestEncode:
    case kL3TestEncodeChanging: return Encode(question);
    default: throw std::out_of_range("call");
  }
}

}  // namespace

int l3_test_call(const uint8_t* question, size_t size, uint8_t** answer, size_t* answer_size) {
  try {
    const Answer reply = Reply(Question(question, size));
    const uint64_t head[3] = {reply.result, reply.tile, reply.decoded_tiles};
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
