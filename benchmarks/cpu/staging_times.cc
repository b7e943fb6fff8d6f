// What a batch for the CUDA engine costs the host, on one thread, without a GPU:
//
//   l3_staging_times staged|pinned BATCH TIMES FILE
//
// Prints the bytes that go up, how many of them are staged, and the least CPU seconds of parsing
// and planning, and of writing what is staged. Each sample has a copy of FILE of its own.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "cuda/engine/batch_decoder.h"

namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool is_pinned = std::strcmp(argv[1], "pinned") == 0;
  std::ifstream stream(argv[4], std::ios::binary);
  const std::vector<uint8_t> file{std::istreambuf_iterator<char>(stream), {}};
  const std::vector<std::vector<uint8_t>> files(std::strtoul(argv[2], nullptr, 10), file);
  // Of an H100.
  const l3::GpuLimits limits = {
      132, 228 << 10, 227 << 10, 1 << 10, {{{24, 24}, {16, 16}}, {{20, 20}, {12, 12}}}};
  l3::BatchLayout layout;
  std::vector<uint8_t> staging;
  double plan = 1e9;
  double write = 1e9;
  for (int i = std::atoi(argv[3]); i > 0; --i) {
    const double begin = ThreadSeconds();
    std::vector<l3::CudaSample> samples(files.size());
    for (size_t k = 0; k < files.size(); ++k) {
      l3::CudaSample& sample = samples[k];
      if (l3::ParseImage(files[k].data(), files[k].size(), &sample.view) != l3::Status::kOk) {
        return 1;
      }
      sample.plan = l3::WholeImagePlan(sample.view.info, nullptr);
      sample.is_pinned = is_pinned;
    }
    layout.Plan(samples, limits, nullptr, l3::BatchDecoder::kUsualUpload);
    const double planned = ThreadSeconds();
    plan = std::min(plan, planned - begin);
    staging.resize(layout.staged_bytes());
    const double ready = ThreadSeconds();
    for (size_t k = 0; k < layout.piece_count(); ++k) {
      layout.WritePiece(k, staging.data(), staging.data());
    }
    write = std::min(write, ThreadSeconds() - ready);
  }
  std::printf("%llu %llu %.9f %.9f\n", static_cast<unsigned long long>(layout.total_bytes()),
              static_cast<unsigned long long>(layout.staged_bytes()), plan, write);
  return 0;
}
