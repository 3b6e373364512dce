#include "runtime/engine/step/capture_decision.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

double share(const IssueTime& time) {
  return time.device_ms > 0 ? time.host_ms / time.device_ms : 0;
}

double host_share(const PassTiming& timing) {
  return std::min(share(timing.forward), share(timing.pass));
}

}  // namespace

PassTiming least_disturbed(std::span<const PassTiming> passes) {
  return *std::min_element(passes.begin(), passes.end(), [](const PassTiming& one, const PassTiming& other) {
    return one.pass.host_ms < other.pass.host_ms;
  });
}

CaptureDecision decide_capture(std::span<const PassTiming> of_ranks) {
  const auto worst = std::max_element(
      of_ranks.begin(), of_ranks.end(),
      [](const PassTiming& one, const PassTiming& other) { return host_share(one) < host_share(other); });
  return {host_share(*worst) >= kHostBoundShare, *worst, static_cast<int>(worst - of_ranks.begin())};
}

std::string describe(const CaptureDecision& decision, int num_ranks, const Result<>& captured) {
  const std::string times =
      fmt::format("{:.1f} of {:.1f} ms to issue forward and backward{}", decision.worst.pass.host_ms,
                  decision.worst.pass.device_ms, num_ranks > 1 ? fmt::format(" (rank {})", decision.rank) : "");
  if (!decision.pays) return fmt::format("graph_harvesting: the host takes {}: steps are not captured", times);
  const std::string waits = fmt::format("graph_harvesting: the device waits for the host, which takes {}", times);
  if (captured.ok()) return waits + ": steps are captured as a CUDA graph";
  return fmt::format("{}; steps cannot be captured as a CUDA graph: {}", waits, captured.error());
}

}  // namespace dslaunch::runtime::engine::step
