#include "runtime/telemetry/wandb_monitor.hpp"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/small_file.hpp"
#include "base/unshare_file.hpp"
#include "runtime/telemetry/python_text.hpp"

namespace dslaunch::runtime {
namespace {

constexpr std::chrono::seconds kStartTime{120}, kEndTime{60};

// Its first line of input is the settings, each other one {"step": N, "values": {NAME: NUMBER}}. It answers once:
// "run ID", or "error TEXT". What the client prints goes to standard error.
constexpr const char* kClient = R"(
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
answer = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
def say(text):
    answer.write(text.replace('\n', ' ') + '\n')
    answer.flush()
given = json.loads(sys.stdin.readline())
try:
    import wandb
except Exception as error:
    say('error ' + sys.executable + ' cannot import wandb (' + str(error) + '): pip install wandb there, or choose the '
        'environment that has it with --venv')
    sys.exit(1)
chosen = {'project': given['project'] or os.environ.get('WANDB_PROJECT') or 'deepspeed', 'config': given['config']}
if given['group']:
    chosen['group'] = given['group']
if given['team']:
    chosen['entity'] = given['team']
if given['id'] and not os.environ.get('WANDB_RUN_ID'):
    chosen['id'] = given['id']
if not os.environ.get('WANDB_RESUME'):
    chosen['resume'] = 'allow'
try:
    run = wandb.init(**chosen)
except BaseException as error:
    say('error wandb.init: ' + (str(error) or type(error).__name__))
    sys.exit(1)
say('run ' + str(run.id))
for line in sys.stdin:
    point = json.loads(line)
    run.log(point['values'], step=point['step'])
run.finish()
)";

// As Python's json reads it.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return python_float(value);
}

std::string read_id(const std::string& path) {
  std::string id = read_whole_file(path).value_or("");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

// False: the other side is gone.
bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

WandbMonitor::WandbMonitor(const config::Wandb& config, const std::string& run_dir, bool resumes,
                           const std::string& job_config) {
  const std::string id_file = run_dir + "/wandb_run_id";
  const nlohmann::json settings{{"project", config.project},
                                {"group", config.group},
                                {"team", config.team},
                                {"id", resumes ? read_id(id_file) : ""},
                                {"config", nlohmann::json::parse(job_config)}};
  start(settings.dump() + "\n");
  const std::string answer = read_answer();
  if (!answer.starts_with("run ")) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("wandb.enabled: {}", answer.starts_with("error ") ? answer.substr(6) : answer));
  }
  unshare_file(id_file);
  std::ofstream id(id_file);
  if (!(id << answer.substr(4) << "\n" << std::flush)) {
    log::warning("wandb: cannot write '{}': a resumed run will begin a new run of wandb's", id_file);
  }
  sender_ = std::thread([this] { send_lines(); });
}

WandbMonitor::~WandbMonitor() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  const Deadline due = Deadline::after(kEndTime);
  int status = 0;
  // The client ends once the sender has closed its input.
  while (::waitpid(process_, &status, WNOHANG) == 0) {
    if (due.passed()) {
      log::warning("wandb: the client has not ended within {} s and is stopped: points may be missing",
                   kEndTime.count());
      ::kill(process_, SIGKILL);
      ::waitpid(process_, &status, 0);
      break;
    }
    ::poll(nullptr, 0, 20);
  }
  sender_.join();
}

void WandbMonitor::start(const std::string& settings) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw SystemError("socketpair", "for wandb", errno);
  socket_ = UniqueFd(pair[0]);
  const UniqueFd theirs(pair[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 1);
  int error = ENOENT;
  for (const char* name : {"python3", "python"}) {
    const char* const words[] = {name, "-c", kClient, nullptr};
    error = ::posix_spawnp(&process_, name, &actions, nullptr, const_cast<char* const*>(words), environ);
    if (error == 0) break;
  }
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("wandb.enabled: Weights & Biases is reached through its Python client, and neither "
                                "python3 nor python can be started ({})",
                                std::generic_category().message(error)));
  }
  send_all(socket_.get(), settings);  // if it is gone, the answer says so
}

std::string WandbMonitor::read_answer() {
  const Deadline due = Deadline::after(kStartTime);
  std::string answer;
  for (;;) {
    pollfd poll{socket_.get(), POLLIN, 0};
    const int ready = ::poll(&poll, 1, 500);
    if (ready < 0 && errno != EINTR) throw SystemError("poll", "wandb's client", errno);
    if (ready > 0) {
      char bytes[4096];
      const ssize_t count = ::recv(socket_.get(), bytes, sizeof bytes, 0);
      if (count <= 0) return "its Python client ended without an answer; what it printed stands above";
      answer.append(bytes, static_cast<size_t>(count));
      if (answer.back() == '\n') {
        answer.pop_back();
        return answer;
      }
    }
    if (due.passed()) return fmt::format("its Python client has not begun a run within {} s", kStartTime.count());
  }
}

void WandbMonitor::write(std::span<const ScalarEvent> events) {
  // Points at the same sample count make one line.
  std::map<int64_t, std::string> by_samples;
  for (const auto& event : events) {
    std::string& values = by_samples[event.samples];
    values += fmt::format("{}{}: {}", values.empty() ? "" : ", ", nlohmann::json(event.name).dump(),
                          json_number(event.value));
  }
  bool loses = false;
  {
    std::lock_guard lock(mutex_);
    loses = is_gone_ || waiting_.size() >= kMaxWaiting;
    for (const auto& [samples, values] : by_samples) {
      if (!loses) waiting_.push_back(fmt::format("{{\"step\": {}, \"values\": {{{}}}}}\n", samples, values));
    }
  }
  changed_.notify_all();
  if (!loses || has_warned_) return;
  has_warned_ = true;
  log::warning("wandb: the Python client {}: points are lost from here on; metrics.jsonl has them",
               is_gone_ ? "has ended" : "does not keep up");
}

void WandbMonitor::send_lines() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
    if (waiting_.empty()) break;
    const std::string line = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    if (send_all(socket_.get(), line)) continue;
    lock.lock();
    is_gone_ = true;
    break;
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

}  // namespace dslaunch::runtime
