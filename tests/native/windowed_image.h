// Owns what a WindowJob points at, for tests of GPU engines: an image of one group and its windows.
#pragma once

#include <string>
#include <vector>

#include "cuda/engine/encoded_cache.h"
#include "format/image_view.h"
#include "output/output_plan.h"
#include "output/window_job.h"

namespace l3 {

struct WindowedImage {
  ImageView view;
  std::vector<OutputPlan> plans;  // of each window
  const DeviceImage* cached = nullptr;
  const std::string* cache_key = nullptr;
  bool is_pinned = false;
  PayloadSource* source = nullptr;
  mutable std::vector<GroupOutput> groups = {};
};

// Jobs that the images must outlive.
inline std::vector<WindowJob> JobsOf(const std::vector<WindowedImage>& images) {
  std::vector<WindowJob> jobs;
  for (const WindowedImage& image : images) {
    image.groups = {GroupOfView(image.view)};
    jobs.push_back({&image.view, &image.groups, image.plans.data(), image.plans.size(),
                    image.cached, image.cache_key, image.source, image.is_pinned});
  }
  return jobs;
}

}  // namespace l3
