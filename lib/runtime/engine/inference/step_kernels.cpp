#include "runtime/engine/inference/step_kernels.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/format.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr int64_t kFirst = 16, kCount = 8;  // steps that are recorded; the first ones compile and capture
constexpr size_t kShownInOrder = 24, kNameWidth = 100;

struct Sum {
  int64_t calls = 0;
  double us = 0;
};

double length_us(const DeviceSpan& span) {
  return span.end_us - span.begin_us;
}

}  // namespace

void StepKernels::synchronize() const {
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
}

void StepKernels::note_step(int64_t bytes) {
  num_seen_ += 1;
  if (num_seen_ == kFirst) {
    synchronize();
    recorder_.start();
  } else if (num_seen_ > kFirst && num_seen_ <= kFirst + kCount) {
    num_recorded_ += 1;
    bytes_ = bytes;
    if (num_recorded_ < kCount) return;
    synchronize();
    spans_ = recorder_.stop();
  }
}

std::string StepKernels::text() const {
  if (num_recorded_ < kCount) {
    return fmt::format("no kernels of steps were recorded: there were {} steps, of which the first {} do not count\n",
                       num_seen_, kFirst);
  }
  if (spans_.empty()) return "no kernels were recorded: the driver does not let CUPTI profile here\n";
  return kernel_table(spans_, num_recorded_, bytes_);
}

std::string kernel_table(const std::vector<DeviceSpan>& spans, int64_t num_steps, int64_t bytes) {
  std::map<std::string, Sum> sums;
  double busy = 0;
  for (const auto& span : spans) {
    auto& sum = sums[short_kernel_name(span.name)];
    sum.calls += 1;
    sum.us += length_us(span);
    busy += length_us(span);
  }
  std::vector<std::pair<std::string, Sum>> rows(sums.begin(), sums.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  const auto steps = static_cast<double>(num_steps);
  const double whole = spans.back().end_us - spans.front().begin_us;
  std::string out = fmt::format("kernels of a step, of {} recorded: {:.1f} us each, {:.1f} us in {:.1f} kernels",
                                num_steps, whole / steps, busy / steps, static_cast<double>(spans.size()) / steps);
  if (bytes > 0) {
    const auto read = static_cast<double>(bytes);
    out += fmt::format("; reads {:.3f} GB, {:.2f} TB/s", read / 1e9, read * steps / whole / 1e6);
  }
  out += "\n      us   share    calls  us each  kernel\n";
  for (const auto& [name, sum] : rows) {
    out += fmt::format("{:>8.1f}  {:>4.1f} %  {:>7.1f}  {:>7.2f}  {}\n", sum.us / steps, 100 * sum.us / busy,
                       static_cast<double>(sum.calls) / steps, sum.us / static_cast<double>(sum.calls),
                       name.substr(0, kNameWidth));
  }
  out += "in their order, from the middle of a step\n     gap       us  kernel\n";
  const size_t begin = std::max<size_t>(1, spans.size() / static_cast<size_t>(num_steps) / 2);
  for (size_t i = begin; i < std::min(spans.size(), begin + kShownInOrder); ++i) {
    out += fmt::format("{:>8.2f} {:>8.2f}  {}\n", spans[i].begin_us - spans[i - 1].end_us, length_us(spans[i]),
                       short_kernel_name(spans[i].name).substr(0, kNameWidth));
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::inference
