// Reads JPEG files, restores them, and compares coefficients with libjpeg's where it is installed.
// Prints a line for each file: "restored", "picture" (other bytes come back) or why it is refused.
// Exits with 1 if coefficients differ, or if a file is read that libjpeg warns of.
//
//   l3_jpeg_file_test PATH...
//   l3_jpeg_file_test --mutate N FOLDER   runs the check of fuzz_jpeg on N mutants of its files
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#ifdef L3_HAS_LIBJPEG
#include <jpeglib.h>

#include <csetjmp>
#endif

#include "encoder/jpeg_file.h"
#include "fuzz/check_jpeg.h"
#include "fuzz/mutator.h"

namespace {

using l3::JpegFile;

std::vector<uint8_t> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

#ifdef L3_HAS_LIBJPEG
struct Errors {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
};

// "", or how the file differs from what libjpeg reads.
std::string CompareWithLibjpeg(const std::vector<uint8_t>& bytes, const JpegFile& jpeg) {
  jpeg_decompress_struct info;
  Errors errors;
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = [](j_common_ptr common) {
    std::longjmp(reinterpret_cast<Errors*>(common->err)->jump, 1);
  };
  errors.manager.emit_message = [](j_common_ptr common, int level) {
    if (level < 0) ++common->err->num_warnings;
  };
  const char* difference = "";
  if (setjmp(errors.jump) != 0) {
    jpeg_destroy_decompress(&info);
    return "libjpeg fails";
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, bytes.data(), bytes.size());
  jpeg_read_header(&info, TRUE);
  jvirt_barray_ptr* arrays = jpeg_read_coefficients(&info);
  const bool is_rgb = jpeg.image.info.color == l3::JpegColor::kRgb;
  if ((info.jpeg_color_space == JCS_RGB) != is_rgb) difference = "another colour";
  for (uint32_t c = 0; c < jpeg.image.info.components; ++c) {
    const uint16_t* quantizers = jpeg.image.info.quantizers[c];
    if (!std::equal(quantizers, quantizers + 64, info.comp_info[c].quant_table->quantval)) {
      difference = "another quantizer";
    }
    const l3::JpegBlockRect rect = l3::JpegBlocksOfImage(jpeg.image.info, c);
    for (uint32_t y = 0; y < rect.height; ++y) {
      JBLOCKARRAY row = info.mem->access_virt_barray(reinterpret_cast<j_common_ptr>(&info),
                                                     arrays[c], y, 1, FALSE);
      for (uint32_t i = 0; i < 64 * rect.width; ++i) {
        if (row[0][i / 64][l3::kJpegNaturalOrder[i % 64]] != jpeg.image.blocks.At(c, 0, y)[i]) {
          difference = "a coefficient";
        }
      }
    }
  }
  jpeg_finish_decompress(&info);
  if (info.err->num_warnings != 0) difference = "libjpeg warns";
  jpeg_destroy_decompress(&info);
  return difference;
}
#endif

int Mutate(uint32_t count, const std::string& folder) {
  std::vector<std::vector<uint8_t>> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(ReadFile(entry.path()));
  }
  std::sort(files.begin(), files.end());
  l3::fuzz::Dice dice(1);
  const auto pick = [&] { return files[dice.Below(static_cast<uint32_t>(files.size()))]; };
  for (uint32_t i = 0; i < count; ++i) {
    std::vector<uint8_t> file = pick();
    for (uint32_t n = dice.Below(4); n > 0; --n) l3::fuzz::Damage(pick(), &dice, &file);
    const std::string error = l3::fuzz::CheckJpeg(file.data(), file.size());
    if (error.empty()) continue;
    std::fprintf(stderr, "mutant %u: %s\n", i, error.c_str());
    return 1;
  }
  std::printf("%u mutants of %zu files\n", count, files.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--mutate") {
    return Mutate(static_cast<uint32_t>(std::atoi(argv[2])), argv[3]);
  }
  int failures = 0;
  for (int i = 1; i < argc; ++i) {
    const std::vector<uint8_t> bytes = ReadFile(argv[i]);
    JpegFile jpeg;
    const char* reason = l3::ReadJpeg({bytes.data(), bytes.size()}, &jpeg);
    const char* restored = jpeg.restore_data.empty() ? "picture" : "restored";
    std::printf("%s\n", reason != nullptr ? reason : restored);
#ifdef L3_HAS_LIBJPEG
    if (reason != nullptr) continue;
    const std::string difference = CompareWithLibjpeg(bytes, jpeg);
    if (difference.empty()) continue;
    std::fprintf(stderr, "%s: %s\n", argv[i], difference.c_str());
    ++failures;
#endif
  }
  return failures == 0 ? 0 : 1;
}
