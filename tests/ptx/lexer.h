// The words of a PTX file, each with its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace l3::ptx {

struct Token {
  std::string_view text;  // empty: the file ends
  uint32_t line = 0;

  bool Is(const char* other) const { return text == other; }
};

// Names, directives, opcodes and numbers are words; all else is a token of one character, but for
// strings, which keep their quotes. `text` must outlive the tokens.
std::vector<Token> SplitTokens(const std::string& text);

}  // namespace l3::ptx
