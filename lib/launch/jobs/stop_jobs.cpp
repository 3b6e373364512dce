// `dslaunch stop`, and the query for a job's status.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "launch/jobs/job_client.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/plan/default_grace.hpp"
#include "launch/records/stuck_on_host.hpp"
#include "spawn/held_process.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

// For `jobs`: a supervisor answers within one turn of its loop, unless it is suspended.
constexpr auto kStatusTimeout = 1000ms;
// For `stop`: between two attempts, while a supervisor waits for nodes, it does not answer.
constexpr auto kStopTimeout = 3000ms;

void print_line(const std::string& text) {
  print_text(fmt::format("dslaunch: {}\n", text), stderr);
}

// Stops by signals when there is no socket, as a terminal's Ctrl-C and a scheduler do.
void signal_supervisor(const spawn::HeldProcess& supervisor, bool now) {
  supervisor.signal(SIGTERM);
  if (now) supervisor.signal(SIGINT);
}

// Returns the supervisor, to wait for its end; empty when it has ended already.
std::optional<spawn::HeldProcess> begin_stop(const KnownJob& job, const StopOptions& options) {
  auto supervisor = open_process(job.record.supervisor);
  if (!supervisor) return supervisor;
  if (is_suspended(job.record.supervisor)) {
    print_line(
        fmt::format("the supervisor of {} is suspended; continuing it so that it can stop the job", job.record.job_id));
    supervisor->signal(SIGCONT);
  }
  JobClient client(job.record.socket);
  bool asked = client.send(StopRequest{options.now, options.grace});
  auto answer = asked ? client.await(Deadline::after(kStopTimeout)) : std::nullopt;
  // The connection was closed instead of an answer: the supervisor was exiting. A refusal: it is of another version. No
  // answer: if it reads the request later, request and signal count as one stop.
  if (!answer || std::holds_alternative<Refused>(*answer)) signal_supervisor(*supervisor, options.now);
  return supervisor;
}

struct Stopped {
  KnownJob job;  // state afterwards
  bool ended_before = false;
  size_t num_ended = 0;
  std::vector<StuckOnHost> stuck;  // not ended by any signal; those of other hosts as recorded at the job's end
};

spawn::CleanupResult cleanup_here(const KnownJob& job, std::chrono::milliseconds timeout) {
  return spawn::cleanup_job({fmt::format("{}={}", spawn::kJobIdVariable, job.record.job_id)}, timeout, false);
}

// Processes that no signal had ended at the job's end; those on this host may have ended since.
std::vector<StuckOnHost> still_stuck(const JobRecord& record) {
  std::vector<StuckOnHost> stuck = record.stuck;
  const ProcessOnHost own = this_process();
  std::erase_if(stuck, [&](const StuckOnHost& each) {
    if (!each.is_here || record.supervisor.host != own.host) return false;
    const auto now = spawn::inspect_stuck(each.process.pid);
    return record.supervisor.boot_id != own.boot_id || !now || now->start_ticks != each.process.start_ticks;
  });
  return stuck;
}

Stopped conclude(const KnownJob& job, const StopOptions& options) {
  Stopped stopped{reload_job(job), job.condition == Condition::kEnded, 0, {}};
  const JobRecord& record = stopped.job.record;
  if (stopped.job.condition != Condition::kLost) {
    stopped.stuck = still_stuck(record);
    return stopped;
  }
  const spawn::CleanupResult cleanup = cleanup_here(job, options.now ? 0ms : options.grace.value_or(kDefaultGrace));
  stopped.num_ended = cleanup.num_signalled - cleanup.stuck.size();
  for (const auto& process : cleanup.stuck) stopped.stuck.push_back({-1, record.supervisor.host, true, process});
  return stopped;
}

void print_stuck(const Stopped& stopped) {
  for (const auto& stuck : stopped.stuck) {
    print_line(fmt::format("{}: {}", stopped.job.record.job_id, describe(stuck)));
  }
}

std::string describe(const Stopped& stopped) {
  const JobRecord& record = stopped.job.record;
  const std::string left =
      stopped.stuck.empty() ? "" : fmt::format("; {} of its process(es) cannot be ended", stopped.stuck.size());
  if (!record.end) {
    return fmt::format(
        "{}: its supervisor had exited; {} process(es) of the job were left on this host and have been ended{}",
        record.job_id, stopped.num_ended, left);
  }
  return fmt::format("{}: {}, exit code {}{}", record.job_id, stopped.ended_before ? "had ended already" : "stopped",
                     record.end->exit_code, left);
}

std::string to_json(const std::vector<Stopped>& all) {
  Json list = Json::array();
  for (const auto& stopped : all) {
    const JobRecord& record = stopped.job.record;
    list.push_back({{"job_id", record.job_id},
                    {"exit_code", record.end ? Json(record.end->exit_code) : Json(nullptr)},
                    {"ended_before", stopped.ended_before},
                    {"lost", !record.end},
                    {"swept", stopped.num_ended},
                    {"stuck", stuck_to_json(stopped.stuck)}});
  }
  return dump_json(Json{{"stopped", list}}, 2) + "\n";
}

}  // namespace

int stop_jobs(const std::vector<KnownJob>& jobs, const StopOptions& options) {
  for (const auto& job : jobs) {
    if (job.condition != Condition::kElsewhere) continue;
    throw Error(ExitCode::kUnavailable, fmt::format("job {} is supervised on {}: run this command there",
                                                    job.record.job_id, job.record.supervisor.host));
  }
  std::vector<std::optional<spawn::HeldProcess>> supervisors;
  for (const auto& job : jobs) supervisors.push_back(begin_stop(job, options));
  std::vector<Stopped> all;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (supervisors[i]) spawn::wait_for_an_end({&*supervisors[i]}, Deadline::never());
    all.push_back(conclude(jobs[i], options));
    if (!options.json) print_text(describe(all.back()) + "\n");
    print_stuck(all.back());
  }
  if (options.json) std::fputs(to_json(all).c_str(), stdout);
  const bool all_gone = std::all_of(all.begin(), all.end(), [](const auto& stopped) { return stopped.stuck.empty(); });
  return all_gone ? 0 : to_int(ExitCode::kUnavailable);
}

std::string query_status(const KnownJob& job) {
  if (job.condition != Condition::kLiving || is_suspended(job.record.supervisor)) return {};
  JobClient client(job.record.socket);
  if (!client.send(StatusRequest{})) return {};
  auto answer = client.await(Deadline::after(kStatusTimeout));
  const auto* status = answer ? std::get_if<StatusAnswer>(&*answer) : nullptr;
  return status ? status->document : std::string();
}

}  // namespace dslaunch::launch
