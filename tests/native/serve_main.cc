// Answers questions of calls.h on stdin, one after the other, on stdout: so tests can ask engines
// that another processor has, under an emulator. The size of a question or an answer goes before
// it (u64, little-endian). Returns 0 at the end of the input, and 1 at an invalid question.
#include <cstdio>
#include <vector>

#include "native/calls.h"

int main() {
  uint64_t size;
  while (std::fread(&size, sizeof(size), 1, stdin) == 1) {
    std::vector<uint8_t> question(size);
    if (std::fread(question.data(), 1, size, stdin) != size) return 1;
    uint8_t* answer = nullptr;
    size_t answer_size = 0;
    if (l3_test_call(question.data(), question.size(), &answer, &answer_size) == 0) return 1;
    const uint64_t answer_bytes = answer_size;
    const bool written = std::fwrite(&answer_bytes, sizeof(answer_bytes), 1, stdout) == 1 &&
                         std::fwrite(answer, 1, answer_size, stdout) == answer_size &&
                         std::fflush(stdout) == 0;
    l3_test_free(answer);
    if (!written) return 1;
  }
  return 0;
}
