// `dslaunch stacks`: shows the stacks of a job's ranks.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "launch/jobs/job_client.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/terminal/line_deduplicator.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

// Longer than the supervisor's own limit.
constexpr std::chrono::milliseconds kAnswerTime = kStacksTimeout + 5s;

void check_ranks(const KnownJob& job, const std::vector<int>& ranks) {
  for (int rank : ranks) {
    if (rank < job.record.world_size()) continue;
    throw UserError(ExitCode::kUsage, fmt::format("--rank {}: job {} has ranks 0 to {}", rank, job.record.job_id,
                                                  job.record.world_size() - 1));
  }
}

void check_condition(const KnownJob& job) {
  if (job.condition == Condition::kEnded) {
    throw Error(ExitCode::kUnavailable, fmt::format("job {} has ended: it has no stacks", job.record.job_id));
  }
  check_supervisor_here(job);
}

Json fetch_stacks(const KnownJob& job, const std::vector<int>& ranks) {
  JobClient client(job.record.socket);
  const auto answer =
      client.send(StacksRequest{ranks}) ? client.await(Deadline::after(kAnswerTime)) : std::optional<JobAnswer>();
  if (answer && std::holds_alternative<StacksAnswer>(*answer)) {
    return Json::parse(std::get<StacksAnswer>(*answer).document);
  }
  std::string why =
      fmt::format("no answer at its socket ({})", job.record.socket.empty() ? "it has none" : job.record.socket);
  if (answer && std::holds_alternative<Refused>(*answer)) why = std::get<Refused>(*answer).why;
  if (answer && std::holds_alternative<EndAnswer>(*answer)) why = "the job has just ended";
  throw Error(ExitCode::kUnavailable, fmt::format("cannot get the stacks of job {}: {}", job.record.job_id, why));
}

std::string header_of(const Json& group) {
  std::vector<int> ranks;
  std::set<std::string> hosts;
  for (const Json& each : group.at("ranks")) {
    ranks.push_back(each.at("rank").get<int>());
    hosts.insert(each.at("host").get<std::string>());
  }
  const auto source = group.at("source").get<std::string>();
  const auto from = source == "kernel" ? std::string("the kernel's view") : "from " + source;
  if (ranks.size() == 1) {
    return fmt::format("rank {} on {}, process {}, {}", ranks[0], *hosts.begin(),
                       group.at("ranks")[0].at("pid").get<int64_t>(), from);
  }
  const auto where =
      hosts.size() <= 4 ? fmt::format("{}", fmt::join(hosts, ", ")) : fmt::format("{} hosts", hosts.size());
  return fmt::format("ranks {} (same stack) on {}, {}", rank_ranges(ranks), where, from);
}

void print(const Json& document) {
  std::string text;
  for (const Json& group : document.at("stacks")) {
    text += header_of(group) + "\n";
    for (const Json& note : group.at("notes")) text += fmt::format("  note: {}\n", printable(note.get<std::string>()));
    const auto lines = group.at("text").get<std::string>();
    for (size_t at = 0; at < lines.size();) {
      const size_t end = std::min(lines.find('\n', at), lines.size());
      text += "  " + printable(lines.substr(at, end - at)) + "\n";
      at = end + 1;
    }
    text += "\n";
  }
  for (const Json& each : document.at("missing")) {
    text += fmt::format("rank {}: no stack: {}\n", each.at("rank").get<int>(),
                        printable(each.at("reason").get<std::string>()));
  }
  print_text(text);
}

}  // namespace

const KnownJob& newest_running_job(const std::vector<KnownJob>& jobs) {
  const auto lives = [](const KnownJob& job) { return job.condition == Condition::kLiving; };
  const auto first = std::find_if(jobs.begin(), jobs.end(), lives);
  if (first == jobs.end()) throw UserError(ExitCode::kNoInput, "no job is running; 'dslaunch jobs' lists them");
  return *first;
}

int show_stacks(const KnownJob& job, const StacksOptions& options) {
  check_ranks(job, options.ranks);
  check_condition(job);
  Json document = fetch_stacks(job, options.ranks);
  if (options.json) {
    Json all = {{"job_id", job.record.job_id}};
    all.update(document);
    std::fputs((dump_json(all, 2) + "\n").c_str(), stdout);
  } else {
    print(document);
  }
  const auto& missing = document.at("missing");
  const bool is_all =
      std::all_of(missing.begin(), missing.end(), [](const Json& each) { return each.at("ended").get<bool>(); });
  return to_int(is_all ? ExitCode::kSuccess : ExitCode::kUnavailable);
}

}  // namespace dslaunch::launch
