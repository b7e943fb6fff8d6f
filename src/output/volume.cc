#include "output/volume.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "format/constants.h"

namespace l3 {
namespace {

// Takes words of JSON from a text, with white space before each.
class JsonWords {
 public:
  explicit JsonWords(std::string_view text) : text_(text) {}

  bool Take(std::initializer_list<std::string_view> words) {
    return std::all_of(words.begin(), words.end(), [this](std::string_view word) {
      SkipSpace();
      if (text_.substr(0, word.size()) != word) return false;
      text_.remove_prefix(word.size());
      return true;
    });
  }

  // Of up to ten digits; 0 if there is none.
  uint64_t TakeNumber() {
    SkipSpace();
    uint64_t number = 0;
    for (int i = 0; i < 10 && !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; ++i) {
      number = 10 * number + static_cast<uint64_t>(text_[0] - '0');
      text_.remove_prefix(1);
    }
    return number;
  }

 private:
  void SkipSpace() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  }

  std::string_view text_;
};

}  // namespace

VolumeShape ReadVolume(const ImageView& view) {
  constexpr std::string_view kName = "\"volume\"";  // no JSON string has its quotes
  const ChunkView pairs = FindChunk(view, kChunkKeyValues);
  const std::string_view json(reinterpret_cast<const char*>(pairs.data), pairs.size);
  uint64_t depth = 0;
  uint64_t height = 0;
  for (size_t place = json.find(kName);; place = json.find(kName, place + 1)) {
    if (place == std::string_view::npos) return {};
    JsonWords words(json.substr(place + kName.size()));
    if (!words.Take({":", "{", "\"depth\"", ":"})) continue;  // It may be a value.
    depth = words.TakeNumber();
    if (!words.Take({",", "\"height\"", ":"})) continue;
    height = words.TakeNumber();
    break;
  }
  const uint64_t image_px = view.info.height_px;
  if (depth == 0 || height == 0 || depth > image_px || image_px % depth != 0) return {};
  const uint64_t rows = image_px / depth;
  if (height > rows) return {};
  return {static_cast<uint32_t>(depth), static_cast<uint32_t>(height), static_cast<uint32_t>(rows)};
}

}  // namespace l3
