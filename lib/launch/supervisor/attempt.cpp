#include "launch/supervisor/attempt.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/supervisor/failure_summary.hpp"
#include "spawn/failure_table.hpp"

namespace dslaunch::launch {
namespace {

// If the launcher were suspended, the agents on other machines would take it for gone.
std::initializer_list<int> signals_to_take(const LaunchPlan& plan) {
  static constexpr std::initializer_list<int> kLocal{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  static constexpr std::initializer_list<int> kRemote{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
  return plan.has_remote_nodes() ? kRemote : kLocal;
}

OutputOptions output_options(const LaunchPlan& plan, const SupervisorOptions& options) {
  return {.files = &options.live->files(),
          .out_to_err = options.json,
          .hide_out = options.quiet && plan.kind == JobKind::kRun,
          .has_terminal = !plan.detach,
          .fold = plan.output.fold.value_or(false),
          .live = plan.output.live,
          .color = plan.output.color,
          .console = options.live->console()};
}

std::string format_failures(const Attempt& attempt) {
  return fmt::format("dslaunch: {} of {} host{} failed:\n{}", attempt.host_failures.size(), attempt.nodes.size(),
                     attempt.nodes.size() == 1 ? "" : "s", spawn::failure_table(attempt.host_failures));
}

// It was reported when it happened; if ranks ran, later messages have followed it, so it is repeated.
std::string format_agent_failure(const Attempt& attempt) {
  const bool ran =
      std::any_of(attempt.records.begin(), attempt.records.end(), [](const auto& record) { return record.pid > 0; });
  const auto& [host, failure] = *attempt.agent_failure;
  return ran ? fmt::format("dslaunch: the job ended: {}: {}\n", host, failure.text) : "";
}

}  // namespace

std::vector<RankRecord> records_of(const LaunchPlan& plan) {
  std::vector<RankRecord> records;
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) {
      records.push_back({.rank = rank.rank, .local_rank = rank.local_rank, .host = node.host});
    }
  }
  return records;
}

Attempt::Attempt(LaunchPlan the_plan, SupervisorOptions the_options)
    : plan(std::move(the_plan)),
      options(std::move(the_options)),
      signals(signals_to_take(plan)),
      output(plan, output_options(plan, options)),
      records(records_of(plan)),
      lifecycle(plan, options.time_limit) {}

RankRecord& Attempt::record_of(const NodeSession& node, int rank) {
  const auto& ranks = node.plan().ranks;  // their numbers are consecutive
  if (ranks.empty() || rank < ranks.front().rank || rank > ranks.back().rank) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("its agent reported rank {}, which does not run on this host", rank));
  }
  return records[static_cast<size_t>(rank)];
}

void Attempt::record_stuck(const PlannedNode& node, int rank, const spawn::StuckProcess& process) {
  const auto is_known = [&](const auto& known) { return known.host == node.host && known.process.pid == process.pid; };
  if (std::any_of(stuck.begin(), stuck.end(), is_known)) return;
  stuck.push_back({rank, node.host, node.reach == Reach::kPipe, process});
  options.live->on_stuck(stuck.back());
  if (rank < 0) return;
  RankRecord& record = records[static_cast<size_t>(rank)];
  record.stuck = process;
  record.stopped_by_us = true;
  output.finish(rank);
}

void Attempt::print_from(const NodeSession& node, const std::string& what) {
  output.print_line(plan.nodes.size() == 1 ? what : fmt::format("{}: {}", node.host(), what));
}

void Attempt::report_errors() {
  for (const auto& error : options.live->take_errors()) output.warn(error);
}

JobReport report_of(const Attempt& attempt) {
  JobReport report;
  report.outcome =
      decide_outcome(attempt.records, attempt.plan.kind, attempt.lifecycle.reason(), attempt.lifecycle.agent_error());
  report.reason = attempt.lifecycle.reason();
  report.agent_terminated = attempt.lifecycle.agent_error() == to_int(ExitCode::kRunAgain);
  report.records = attempt.records;
  const bool moves_logs = attempt.options.moves_logs && attempt.options.moves_logs();
  for (auto& record : report.records) {
    record.tail_is_shown = attempt.output.shows_tail(record.rank);
    record.has_log = record.has_log && !moves_logs;
  }
  report.run_time = attempt.run_time;
  report.stuck = attempt.stuck;
  report.host_failures = attempt.host_failures;
  if (report.outcome.exit_code == 0) return report;
  // What happened to a host explains what happened to its ranks, not the other way round.
  bool hosts_fault = attempt.lifecycle.agent_error() != 0 && attempt.lifecycle.reason() == StopReason::kNone;
  if (hosts_fault) report.outcome.first_failure.reset();
  report.summary = format_summary(attempt.plan, report);
  if (!hosts_fault) return report;
  if (!attempt.host_failures.empty()) report.summary += format_failures(attempt);
  if (attempt.agent_failure) {
    report.ended_by.push_back(*attempt.agent_failure);
    report.summary += format_agent_failure(attempt);
  }
  report.ended_by.insert(report.ended_by.end(), attempt.host_failures.begin(), attempt.host_failures.end());
  return report;
}

}  // namespace dslaunch::launch
