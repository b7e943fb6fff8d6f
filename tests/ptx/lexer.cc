#include "ptx/lexer.h"

#include <array>
#include <cctype>

namespace l3::ptx {
namespace {

bool IsWord(char c) {
  static const std::array<bool, 256> is_word = [] {
    std::array<bool, 256> known = {};
    for (int i = 0; i < 256; ++i) {
      known[static_cast<size_t>(i)] =
          std::isalnum(i) != 0 || i == '_' || i == '$' || i == '%' || i == '.';
    }
    return known;
  }();
  return is_word[static_cast<unsigned char>(c)];
}

}  // namespace

std::vector<Token> SplitTokens(const std::string& text) {
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 4);
  const std::string_view all = text;
  uint32_t line = 1;
  size_t i = 0;
  const auto at = [&all](size_t place) { return place < all.size() ? all[place] : '\0'; };
  while (i < all.size()) {
    const char c = all[i];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
    } else if (c == '/' && at(i + 1) == '/') {
      while (i < all.size() && all[i] != '\n') ++i;
    } else if (c == '/' && at(i + 1) == '*') {
      for (i += 2; i < all.size() && !(all[i] == '*' && at(i + 1) == '/'); ++i) {
        if (all[i] == '\n') ++line;
      }
      i = i + 2 < all.size() ? i + 2 : all.size();
    } else if (c == '"') {
      const size_t begin = i++;
      while (i < all.size() && all[i] != '"' && all[i] != '\n') ++i;
      if (at(i) == '"') ++i;
      tokens.push_back({all.substr(begin, i - begin), line});
    } else if (IsWord(c)) {
      const size_t begin = i;
      while (IsWord(at(i)) || (at(i) == ':' && at(i + 1) == ':')) i += at(i) == ':' ? 2 : 1;
      tokens.push_back({all.substr(begin, i - begin), line});
    } else {
      tokens.push_back({all.substr(i++, 1), line});
    }
  }
  tokens.push_back({{}, line});
  return tokens;
}

}  // namespace l3::ptx
