#include "launch/supervisor/rank_monitor.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {

void RankMonitor::started(const NodeSession& node, const RankStarted& started) {
  attempt_.record_of(node, started.rank).pid = started.pid;
  attempt_.options.live->on_rank_started(started.rank, started.pid);
}

void RankMonitor::wrote(const NodeSession& node, const RankOutput& output) {
  attempt_.record_of(node, output.rank).has_output |= !output.bytes.empty();
  attempt_.output.take(output);
}

void RankMonitor::ended(const NodeSession& node, const RankEnded& ended) {
  RankRecord& record = attempt_.record_of(node, ended.rank);
  if (record.cause) {
    throw Error(ExitCode::kUnavailable, fmt::format("its agent reported the end of rank {} twice", ended.rank));
  }
  attempt_.options.live->on_rank_ended(ended.rank, ended.cause, ended.stopped_by_us);
  record.cause = ended.cause;
  record.stopped_by_us = ended.stopped_by_us;
  record.order = num_ended_++;
  record.output_tail = attempt_.output.output_tail(ended.rank);
  record.has_log = attempt_.output.has_log(ended.rank);
  stalls_.rank_ended(ended.rank, Deadline::Clock::now());
  attempt_.output.finish(ended.rank);
  if (ended.cause.success() || ended.stopped_by_us) return;
  const bool follows = lost_peer(ended.cause, attempt_.plan.kind) || ended_as_by_sigterm(ended.cause);
  control_.handle_event(follows ? JobEvent::kRankLostPeer : JobEvent::kRankFailed);
}

void RankMonitor::states_changed(const NodeSession& node, const RankStates& states) {
  for (const auto& activity : states.changed) {
    // A state that was in transit when the rank ended is outdated.
    if (!attempt_.record_of(node, activity.rank).cause) stalls_.take(activity, Deadline::Clock::now());
  }
}

void RankMonitor::stuck(const NodeSession& node, const ProcessStuck& stuck) {
  if (stuck.rank >= 0) attempt_.record_of(node, stuck.rank);
  attempt_.record_stuck(node.plan(), stuck.rank, stuck.process);
}

void RankMonitor::report_stalls() {
  if (attempt_.lifecycle.state() != JobState::kRunning) return;
  const auto line = stalls_.due(attempt_.records, attempt_.plan.label(), Deadline::Clock::now());
  if (line) attempt_.output.info(*line);
}

Deadline RankMonitor::next_due() const {
  const bool runs = attempt_.lifecycle.state() == JobState::kRunning;
  return runs ? Deadline::at(stalls_.next_due()) : Deadline::never();
}

}  // namespace dslaunch::launch
