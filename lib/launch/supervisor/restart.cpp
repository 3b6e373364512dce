#include "launch/supervisor/restart.hpp"

#include <algorithm>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "launch/supervisor/failure_summary.hpp"

namespace dslaunch::launch {
namespace {

bool same_again(int exit_code) {
  return is_refusal(exit_code) || exit_code == to_int(ExitCode::kCannotCreate) ||
         exit_code == to_int(ExitCode::kCannotContinue);
}

}  // namespace

std::string restart_after(std::chrono::milliseconds wait, const std::string& text) {
  return fmt::format("restarting in {:.1f} s ({}): the last attempt made no progress",
                     static_cast<double>(wait.count()) / 1000.0, text);
}

std::string no_restart_because(StopReason reason) {
  return fmt::format("no restart: {}", reason_text(reason));
}

RestartDecision decide_restart(const JobReport& report, JobKind kind, const LaunchOptions& options, int num_done,
                               int num_nodes) {
  RestartDecision decision;
  if (options.max_restarts == 0 || report.outcome.exit_code == 0 || report.reason != StopReason::kNone) return decision;
  if (num_done >= options.max_restarts) {
    decision.text = fmt::format("no restart: {} of {} restarts are used up", num_done, options.max_restarts);
    return decision;
  }
  if (kind == JobKind::kRun && same_again(report.outcome.exit_code)) {
    decision.text = fmt::format("no restart: it would end with exit code {} again", report.outcome.exit_code);
    return decision;
  }
  if (report.agent_terminated || (kind == JobKind::kRun && report.outcome.exit_code == to_int(ExitCode::kRunAgain))) {
    decision.text = "no restart: the job was stopped on request";
    return decision;
  }
  int left = num_nodes - static_cast<int>(report.host_failures.size());
  // Without permission to continue on fewer hosts, all are tried again: a lost host may be back.
  bool fewer = options.min_nodes.has_value() && !report.host_failures.empty();
  if (fewer && left < *options.min_nodes) {
    decision.text =
        fmt::format("no restart: {} of {} hosts are left, --min_nodes is {}", left, num_nodes, *options.min_nodes);
    return decision;
  }
  if (report.late_reason != StopReason::kNone) {
    decision.instead = report.late_reason;
    decision.text = no_restart_because(report.late_reason);
    return decision;
  }
  decision.restart = true;
  if (fewer) {
    for (const auto& [host, failure] : report.host_failures) decision.without.push_back(host);
  }
  decision.text = fmt::format("restart {} of {}{}", num_done + 1, options.max_restarts,
                              fewer ? fmt::format(" without {}", fmt::join(decision.without, ", ")) : "");
  return decision;
}

std::optional<BatchSplit> split_batch(int64_t global_batch, int64_t micro_batch_before, int64_t data_ranks) {
  if (data_ranks < 1 || global_batch % data_ranks != 0) return std::nullopt;
  int64_t per_rank = global_batch / data_ranks;
  for (int64_t micro = std::min(micro_batch_before, per_rank); micro >= 1; --micro) {
    if (per_rank % micro == 0) return BatchSplit{micro, per_rank / micro};
  }
  return std::nullopt;
}

}  // namespace dslaunch::launch
