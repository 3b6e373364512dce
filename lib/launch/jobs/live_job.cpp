#include "launch/jobs/live_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/jobs/detach.hpp"
#include "launch/records/dead_sockets.hpp"
#include "launch/records/private_files.hpp"
#include "launch/records/socket_path.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

// Limit in the record. Every file can add one, and a record that grew with every line could no longer be written.
constexpr size_t kMaxErrors = 4;

// For clients that still read when the job has ended.
constexpr auto kEndMessageTimeout = 2000ms;

std::vector<RecordedHost> hosts_of(const LaunchPlan& plan) {
  std::vector<RecordedHost> hosts;
  for (const auto& node : plan.nodes) hosts.push_back({node.host, static_cast<int>(node.ranks.size())});
  return hosts;
}

JobRecord record_of(const LaunchPlan& plan) {
  JobRecord record;
  record.job_id = plan.job_id;
  record.name = plan.name;
  record.start = plan.start;
  record.kind = plan.kind;
  record.command = plan.argv;
  record.hosts = hosts_of(plan);
  record.cwd = plan.cwd;
  record.run_dir = plan.run_dir;
  record.log_root = plan.log_root();
  record.detached = plan.detach;
  record.started = std::time(nullptr);
  record.supervisor = this_process();
  record.state = name_of(JobState::kStarting);
  return record;
}

std::string write_file(const std::string& path, const std::string& text) {
  try {
    write_private_file(path, text);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

LiveJob::LiveJob(const LaunchPlan& plan, JobDir dir) : dir_(std::move(dir)), record_(record_of(plan)) {
  on_attempt(plan);
  if (!dir_.there()) return;
  try {
    console_ = std::make_unique<ConsoleLog>(dir_.console_file(), files_);
    remove_dead_sockets();
    std::string path = choose_socket_path(plan.job_id, dir_.path + "/control.sock");
    socket_ = std::make_unique<JobSocket>(path, *console_);
    record_.socket = path;
    if (plan.output.save_pid) write_private_file(dir_.pid_file(), fmt::format("{}\n", ::getpid()));
  } catch (const Error& error) {
    errors_.push_back(fmt::format("the job cannot be attached to or stopped by its id: {}", error.what()));
  }
  // Written synchronously: there are no agents yet that a slow file system could delay.
  std::string error = write_file(dir_.record_file(), record_to_json(record_));
  on_record_ = error.empty();
  if (on_record_) return;
  record_.errors.push_back(error);  // the same error at the next record is not reported again
  errors_.push_back(std::move(error));
}

LiveJob::~LiveJob() = default;

std::vector<std::string> LiveJob::take_errors() {
  if (record_errors()) write_record();
  return std::exchange(errors_, {});
}

// True: new errors were added to the record. They also go to the terminal; in the background, only those who query the
// job see them.
bool LiveJob::record_errors() {
  auto& noted = record_.errors;
  const size_t num_before = noted.size();
  for (auto& error : files_.take_errors()) {
    const bool is_known = std::find(noted.begin(), noted.end(), error) != noted.end();
    if (is_known) continue;
    if (noted.size() < kMaxErrors) noted.push_back(error);
    errors_.push_back(std::move(error));
  }
  return noted.size() > num_before;
}

void LiveJob::add_to(PollSet& polls) {
  polls.add(files_.fd(), POLLIN);
  if (socket_) socket_->add_to(polls);
}

std::vector<StopRequest> LiveJob::serve(const PollSet& polls) {
  return socket_ ? socket_->serve(polls, [this] { return status(); }) : std::vector<StopRequest>();
}

std::vector<JobSocket::PendingStacksRequest> LiveJob::take_stacks_requests() {
  return socket_ ? socket_->take_stacks_requests() : std::vector<JobSocket::PendingStacksRequest>();
}

std::vector<uint64_t> LiveJob::take_rank_status_requests() {
  return socket_ ? socket_->take_rank_status_requests() : std::vector<uint64_t>();
}

void LiveJob::answer(uint64_t client, const JobAnswer& answer) {
  if (socket_) socket_->answer(client, answer);
}

void LiveJob::on_attempt(const LaunchPlan& plan) {
  record_.restart_count = plan.restart_count;
  record_.hosts = hosts_of(plan);
  num_started_ = 0;
  ranks_.clear();
  for (const auto& host : plan.rank_hosts()) ranks_.emplace_back().host = host;
}

void LiveJob::on_state(JobState state) {
  // A restart may follow: the job has ended only when on_end is called.
  if (state == JobState::kDone || record_.state == name_of(state)) return;
  record_.state = name_of(state);
  write_record();
}

void LiveJob::on_rank_started(int rank, long pid) {
  ranks_.at(static_cast<size_t>(rank)).pid = pid;
  if (++num_started_ == record_.world_size()) notify_starter(0);
}

void LiveJob::on_rank_ended(int rank, const spawn::ExitCause& cause, bool stopped_by_us) {
  RankView& view = ranks_.at(static_cast<size_t>(rank));
  view.cause = cause;
  view.stopped_by_us = stopped_by_us;
}

void LiveJob::on_stuck(const StuckOnHost& stuck) {
  if (stuck.rank >= 0) ranks_.at(static_cast<size_t>(stuck.rank)).stuck = stuck.process;
  const auto is_same = [&](const auto& known) {
    return known.host == stuck.host && known.process.pid == stuck.process.pid;
  };
  if (std::any_of(record_.stuck.begin(), record_.stuck.end(), is_same)) return;  // recorded in an earlier attempt
  record_.stuck.push_back(stuck);
  write_record();
}

void LiveJob::on_end(int exit_code, const std::string& first_cause, std::chrono::milliseconds file_timeout) {
  record_.state = "ended";
  record_.end = JobEnd{exit_code, std::time(nullptr), first_cause};
  const bool stalled = !files_.idle();  // the writes have already had their time
  record_errors();
  write_record();
  if (dir_.there()) {
    files_.submit(0, [path = dir_.pid_file()] {
      ::unlink(path.c_str());
      return std::string();
    });
  }
  files_.wait(Deadline::after(stalled ? kEndMessageTimeout : file_timeout));
  if (socket_) {
    socket_->end(*record_.end);
    Deadline deadline = Deadline::after(kEndMessageTimeout);
    do {
      PollSet polls;
      add_to(polls);
      polls.wait(socket_->has_unsent() ? deadline : Deadline::after(0ms));
      serve(polls);
      take_errors();  // nobody is left to get the warnings
    } while (socket_->has_unsent() && !deadline.passed());
    socket_.reset();
  }
  notify_starter(exit_code);
}

void LiveJob::write_record() {
  if (!dir_.there()) return;
  // On a full disk there may be room for the job's end, but not for the rest.
  JobRecord shorter = record_;
  shorter.errors.clear();
  std::string text = record_to_json(record_), least = record_to_json(shorter);
  files_.submit(text.size() + least.size(), [path = dir_.record_file(), text, least] {
    return write_file(path, text).empty() ? std::string() : write_file(path, least);
  });
  // Without a terminal, our own log lines are appended to the console directly.
  if (console_) console_->measure();
}

std::string LiveJob::status() const {
  Json document = Json::parse(record_to_json(record_));
  Json ranks = Json::array();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankView& view = ranks_[rank];
    const char* state = view.cause ? "ended" : view.stuck ? "stuck" : view.pid > 0 ? "running" : "starting";
    Json json = {{"rank", rank}, {"host", view.host}, {"state", state}};
    json["pid"] = view.pid > 0 ? Json(view.pid) : Json(nullptr);
    json["cause"] = view.cause ? Json(spawn::describe(*view.cause)) : Json(nullptr);
    if (view.stuck) json["cause"] = spawn::describe(*view.stuck);
    json["stopped_by_us"] = view.stopped_by_us;
    ranks.push_back(std::move(json));
  }
  document["ranks"] = std::move(ranks);
  return dump_json(document);
}

void LiveJob::notify_starter(int exit_code) {
  if (starter_.valid()) report_start(starter_, exit_code, record_.job_id);
  starter_.reset();
}

}  // namespace dslaunch::launch
