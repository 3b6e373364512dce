#include "runtime/engine/bench/step_profile.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace dslaunch::runtime::engine::bench {
namespace {

void sort_longest_first(std::vector<WorkTime>& work) {
  std::sort(work.begin(), work.end(), [](const WorkTime& a, const WorkTime& b) {
    return std::pair(-a.milliseconds, a.name) < std::pair(-b.milliseconds, b.name);
  });
}

}  // namespace

StepProfiler::StepProfiler(at::Device device) {
  if (device.is_cpu()) {
    operators_.emplace();
  } else {
    kernels_.emplace();
    kernels_->start();
  }
}

StepProfile StepProfiler::take() {
  if (kernels_) return profile_of(kernels_->stop());
  StepProfile out;
  out.work = operators_->take();
  operators_.reset();
  for (const auto& work : out.work) out.busy_ms += work.milliseconds;
  sort_longest_first(out.work);
  return out;
}

StepProfile profile_of(const std::vector<DeviceSpan>& spans) {
  StepProfile out;
  std::unordered_map<std::string, size_t> index;
  std::vector<Interval> intervals;
  for (const auto& span : spans) {
    const auto [place, is_new] = index.emplace(span.name, out.work.size());
    if (is_new) out.work.push_back({span.name});
    auto& work = out.work[place->second];
    work.num_calls += 1;
    work.milliseconds += (span.end_us - span.begin_us) / 1e3;
    intervals.push_back({span.begin_us, span.end_us});
  }
  out.busy_ms = length_of(merged(std::move(intervals))) / 1e3;
  sort_longest_first(out.work);
  return out;
}

}  // namespace dslaunch::runtime::engine::bench
