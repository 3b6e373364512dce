#include "launch/supervisor/failure_summary.hpp"

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "launch/records/job_record.hpp"
#include "launch/records/stuck_on_host.hpp"
#include "launch/terminal/line_deduplicator.hpp"
#include "spawn/output_hint.hpp"

namespace dslaunch::launch {
namespace {

// More ranks than this with one exit_description are listed as ranges.
constexpr size_t kMaxRanksListed = 8;

using Json = nlohmann::ordered_json;

std::string describe_cause(const RankRecord& record, JobKind kind) {
  if (!record.cause) return "its exit was not observed";
  spawn::ExitCause cause = *record.cause;
  if (cause.hint.empty()) cause.hint = spawn::hint_in_output_tail(cause, record.output_tail);
  std::string text = spawn::describe(cause);
  if (kind == JobKind::kRun && record.cause->kind == spawn::ExitCause::Kind::kExited) {
    std::string meaning = meaning_of_code(record.cause->number);
    if (!meaning.empty()) text += " (" + meaning + ")";
  }
  return text;
}

// Null if the line is not a metrics record.
Json parse_metrics(const std::string& line) {
  const Json metrics = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return metrics.is_object() ? metrics : Json(nullptr);
}

// Null: no rank failed.
const RankRecord* first_failure(const JobReport& report) {
  const std::optional<int> index = report.outcome.first_failure;
  return index ? &report.records[static_cast<size_t>(*index)] : nullptr;
}

// What happened to a rank that did not fail first; equal texts are grouped: "ranks 0, 2: stopped by dslaunch".
std::string exit_description(const RankRecord& record, JobKind kind, bool stop_was_requested, const RankRecord* first) {
  if (record.stuck) return "";  // see format_stuck
  if (!record.cause) return record.pid > 0 ? "ended with its agent" : "";
  if (record.cause->success()) return "";
  if (ended_on_request(record, kind, stop_was_requested)) {
    return fmt::format("stopped {} ({})", record.stopped_by_us ? "by dslaunch" : "by the signal",
                       describe_cause(record, kind));
  }
  const std::string cause = describe_cause(record, kind);
  if (first != nullptr && cause == describe_cause(*first, kind)) {
    return fmt::format("also failed, in the same way as rank {}", first->rank);
  }
  return fmt::format("also failed: {}", cause);
}

std::string format_other_ranks(const JobReport& report, JobKind kind) {
  const auto& records = report.records;
  const RankRecord* first = first_failure(report);
  const bool stop_was_requested = report.reason != StopReason::kNone || report.agent_terminated;
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < records.size(); ++i) {
    if (&records[i] == first) continue;
    std::string text = exit_description(records[i], kind, stop_was_requested, first);
    if (text.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(records[i].rank);
  }
  std::string summary;
  for (const auto& [text, ranks] : groups) {
    std::string names = ranks.size() > kMaxRanksListed ? rank_ranges(ranks) : fmt::format("{}", fmt::join(ranks, ", "));
    summary += fmt::format("dslaunch: rank{} {}: {}\n", ranks.size() == 1 ? "" : "s", names, text);
  }
  return summary;
}

std::string format_stuck(const std::vector<StuckOnHost>& all) {
  std::string summary;
  for (const auto& stuck : all) summary += fmt::format("dslaunch: {}\n", printable(describe(stuck)));
  return summary;
}

// " (stage 1)"; empty where every rank holds a whole model.
std::string in_mesh(const LaunchPlan& plan, int rank) {
  const std::string place = comm::describe_place(plan.mesh, rank);
  return place.empty() ? "" : " (" + place + ")";
}

std::string first_line(const LaunchPlan& plan, const RankRecord& first) {
  return fmt::format("rank {}{} on {} failed first{}: {}", first.rank, in_mesh(plan, first.rank), first.host,
                     first.stopped_by_us ? " (slow to exit, it was stopped with the other ranks)" : "",
                     describe_cause(first, plan.kind));
}

bool has_log(const LaunchPlan& plan, const RankRecord& record) {
  return record.has_log && !plan.log_root().empty();
}

std::string format_first_failure(const LaunchPlan& plan, const RankRecord& first) {
  std::string summary = fmt::format("dslaunch: {}\n", first_line(plan, first));
  if (has_log(plan, first) && first.has_output) {
    summary += fmt::format("dslaunch: its output: {}\n", log_path(plan.log_root(), first.host, first.rank));
  }
  // The worker's own message, a moment ago.
  const bool is_known = plan.kind == JobKind::kRun && first.tail_is_shown && first.cause &&
                        first.cause->kind == spawn::ExitCause::Kind::kExited;
  if (first.output_tail.empty() || is_known) return summary;
  summary += "dslaunch: the last lines of its standard error:\n";
  for (size_t at = 0; at < first.output_tail.size();) {
    size_t end = std::min(first.output_tail.find('\n', at), first.output_tail.size());
    summary += "  | " + first.output_tail.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return summary;
}

Json rank_json(const RankRecord& record, const LaunchPlan& plan) {
  Json json = {
      {"rank", record.rank}, {"host", record.host}, {"pid", record.pid > 0 ? Json(record.pid) : Json(nullptr)}};
  json["exit_code"] = record.cause ? Json(record.cause->shell_code()) : Json(nullptr);
  json["signal"] = record.cause && record.cause->kind == spawn::ExitCause::Kind::kSignaled
                       ? Json(spawn::signal_name(record.cause->number))
                       : Json(nullptr);
  json["stopped_by_us"] = record.stopped_by_us;
  json["stuck"] = record.stuck ? stuck_to_json(*record.stuck) : Json(nullptr);
  json["log"] = has_log(plan, record) ? Json(log_path(plan.log_root(), record.host, record.rank)) : Json(nullptr);
  return json;
}

}  // namespace

std::string recorded_cause(const LaunchPlan& plan, const JobReport& report) {
  std::string cause = cause_text(plan, report);
  if (!cause.empty()) return cause;
  if (!report.ended_by.empty()) {
    const auto& [host, failure] = report.ended_by.front();
    return fmt::format("{} failed: {}: {}", host, failure.phase, failure.text);
  }
  std::string line = report.summary.substr(0, report.summary.find('\n'));
  constexpr std::string_view kPrefix = "dslaunch: ";
  return line.starts_with(kPrefix) ? line.substr(kPrefix.size()) : line;
}

const char* reason_text(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return "";
    case StopReason::kInterrupt:
      return "interrupted by Ctrl-C";
    case StopReason::kQuit:
      return "ended at once by Ctrl-\\ (SIGQUIT)";
    case StopReason::kTerminate:
      return "stopped by a signal";
    case StopReason::kCommand:
      return "stopped by 'dslaunch stop'";
    case StopReason::kTimeLimit:
      return "the time limit (--timeout) passed";
  }
  return "";
}

std::string format_summary(const LaunchPlan& plan, const JobReport& report) {
  std::string summary = format_other_ranks(report, plan.kind) + format_stuck(report.stuck);
  if (const RankRecord* first = first_failure(report)) summary += format_first_failure(plan, *first);
  if (report.reason != StopReason::kNone) {
    summary += fmt::format("dslaunch: the job ended: {}\n", reason_text(report.reason));
  }
  return summary;
}

std::string cause_text(const LaunchPlan& plan, const JobReport& report) {
  if (report.reason != StopReason::kNone) return reason_text(report.reason);
  const RankRecord* first = first_failure(report);
  return first != nullptr ? first_line(plan, *first) : "";
}

std::string summary_json(const LaunchPlan& plan, const JobReport& report, const std::string& metrics_line) {
  Json first = nullptr;
  if (const RankRecord* record = first_failure(report)) {
    first = rank_json(*record, plan);
    first["cause"] = describe_cause(*record, plan.kind);
    first["last_lines"] = record->output_tail;
  }
  Json hosts = Json::array();
  for (const auto& [host, failure] : report.ended_by) {
    hosts.push_back({{"host", host}, {"phase", failure.phase}, {"cause", failure.text}});
  }
  Json ranks = Json::array();
  for (const auto& record : report.records) ranks.push_back(rank_json(record, plan));
  Json document = {
      {"job_id", plan.job_id},
      {"exit_code", report.outcome.exit_code},
      {"stopped", report.reason == StopReason::kNone ? Json(nullptr) : Json(reason_text(report.reason))},
      {"run_dir", plan.run_dir.empty() ? Json(nullptr) : Json(plan.run_dir)},
      {"last_metrics", parse_metrics(metrics_line)},
      {"first_failure", first},
      {"host_failures", hosts},
      {"stuck", stuck_to_json(report.stuck)},
      {"error", report.error.empty() ? Json(nullptr) : Json(report.error)},
      {"ranks", ranks},
  };
  return dump_json(document, 2) + "\n";
}

}  // namespace dslaunch::launch
