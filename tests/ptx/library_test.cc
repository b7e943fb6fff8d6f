// src/nvimgcodec/gpu_library.cc and src/cuda/engine/cuda_library.cc: the GPU decoder of
// nvImageCodec finds the CUDA engine as a library beside the extension, here one over the stand-in
// runtime.
//
//   site/nvidia/nvimgcodec/extensions/l3_simulated_extension [FILE.l3]   without a file: there is
//   none
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "cuda/engine/batch_decoder.h"
#include "nvimgcodec/gpu.h"
#include "output/output_plan.h"
#include "output/window_job.h"

namespace l3 {
namespace {

// Whether GPU and CPU agree on the file.
bool Agree(const GpuSource& source, const std::vector<uint8_t>& file) {
  ImageView view;
  if (ParseImage(file.data(), file.size(), &view) != Status::kOk) {
    throw std::runtime_error("no L3 file");
  }
  std::vector<uint8_t> expected(view.info.image_bytes()), got(expected.size());
  const OutputPlan plan = WholeImagePlan(view.info, expected.data());
  const TileSpan span = TilesOfWindow(view, plan.window);
  CpuDecoder(view).DecodeWindows(&plan, 1, span, 0, span.tile_count());

  const std::unique_ptr<GpuDevice> device = source.make(0);
  const std::shared_ptr<void> output = device->AllocateDevice(got.size());
  const auto stream = device->MakeStream();
  const auto finished = device->MakeEvent();
  BatchDecoder decoder(source.make(0));
  const auto* place = static_cast<uint8_t*>(output.get());
  const OutputPlan plan_there = WholeImagePlan(view.info, const_cast<uint8_t*>(place));
  const std::vector<GroupOutput> groups = {GroupOfView(view)};
  decoder.Launch({{&view, &groups, &plan_there, 1}}, stream.get());
  const bool is_decoded = decoder.Wait()[0].status == Status::kOk;
  device->Copy(got.data(), place, got.size(), stream.get());
  finished->Record(stream.get());
  finished->Synchronize();
  return is_decoded && got == expected;
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  try {
    const l3::GpuSource source = l3::FindGpu();
    if (argc < 2) return source.make == nullptr ? 0 : 1;  // where there is no library
    if (source.make == nullptr) throw std::runtime_error("no CUDA engine was found");
    std::ifstream stream(argv[1], std::ios::binary);
    const std::vector<uint8_t> file(std::istreambuf_iterator<char>(stream), {});
    if (!l3::Agree(source, file)) throw std::runtime_error("GPU and CPU differ");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library: %s\n", error.what());
    return 1;
  }
}
