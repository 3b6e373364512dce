#include "spawn/program/program_link.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <utility>
#include <variant>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "spawn/link_thread.hpp"
#include "spawn/pidfd.hpp"
#include "spawn/pipe.hpp"
#include "spawn/process.hpp"

namespace dslaunch::spawn {
namespace {

// Interval between two checks of a program where the system has no pidfds (see held_process.hpp).
constexpr int kLookIntervalMs = 20;

// Whether a child has ended and can be reaped.
bool has_ended(pid_t child) {
  siginfo_t ended{};
  return ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR
                                                                                             : ended.si_pid != 0;
}

LinkFailure plain_failure(const std::string& program, const ExitCause& cause) {
  bool started = cause.kind != ExitCause::Kind::kNotStarted;
  return {.phase = started ? "connection" : "start", .text = program + ": " + describe(cause)};
}

}  // namespace

struct ProgramLink::State : LinkState {
  // Fixed after construction.
  ProcessSpec spec;
  ProgramLinkOptions options;

  // Guarded by `mutex`.
  pid_t pid = -1;  // while it runs and has not been reaped
  bool started = false;

  void run();
  ExitCause run_once();
  std::variant<Process, ExitCause> start();
  ExitCause watch(Process process);
  bool read_errors(int fd);
  ExitCause reap();
  bool rest(std::chrono::milliseconds pause);
  void conclude(const ExitCause& end);
};

void ProgramLink::State::run() {
  for (;;) {
    ExitCause end = run_once();
    std::optional<std::chrono::milliseconds> pause;
    if (!end.success() && options.again) pause = options.again(end, errors.text());
    if (!pause || !rest(*pause)) return conclude(end);
  }
}

ExitCause ProgramLink::State::run_once() {
  auto result = start();
  auto* process = std::get_if<Process>(&result);
  {
    std::lock_guard lock(mutex);
    errors.clear();
    started = true;
    changed.notify_all();
    if (process == nullptr) return std::get<ExitCause>(result);
    pid = process->pid;
    if (killed) ::kill(-pid, SIGKILL);
  }
  return watch(std::move(*process));
}

std::variant<Process, ExitCause> ProgramLink::State::start() {
  try {
    return start_process(spec);
  } catch (const Error& error) {
    return ExitCause{.kind = ExitCause::Kind::kNotStarted, .number = to_int(ExitCode::kIoError), .hint = error.what()};
  }
}

ExitCause ProgramLink::State::watch(Process process) {
  UniqueFd ended = open_pidfd(process.pid);
  bool more_errors = process.err.valid();
  for (bool over = false; !over;) {
    pollfd polls[] = {{ended.get(), POLLIN, 0}, {more_errors ? process.err.get() : -1, POLLIN, 0}};
    ::poll(polls, 2, ended.valid() ? -1 : kLookIntervalMs);
    if (polls[1].revents != 0) more_errors = read_errors(process.err.get());
    over = ended.valid() ? polls[0].revents != 0 : has_ended(process.pid);
  }
  // Does not read to the end: a grandchild may hold the stream open indefinitely.
  if (more_errors) read_errors(process.err.get());
  return reap();
}

// Reads the available bytes. False at the end.
bool ProgramLink::State::read_errors(int fd) {
  char buffer[4096];
  for (int round = 0; round < 64; ++round) {
    ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    std::lock_guard lock(mutex);
    errors.append({buffer, static_cast<size_t>(got)});
  }
  return true;
}

ExitCause ProgramLink::State::reap() {
  std::lock_guard lock(mutex);  // kill() must not signal a pid that is no longer the program's; the program has ended,
                                // so this does not wait
  int status = 0;
  pid_t got;
  while ((got = ::waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  pid = -1;
  if (got < 0)
    return {.kind = ExitCause::Kind::kExited, .number = to_int(ExitCode::kInternal), .hint = "reaped elsewhere"};
  return decode_wait_status(status);
}

// False when the link was killed meanwhile.
bool ProgramLink::State::rest(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex);
  return !changed.wait_for(lock, pause, [&] { return killed; });
}

void ProgramLink::State::conclude(const ExitCause& end) {
  std::optional<LinkFailure> why;
  if (!end.success()) {
    why = options.explain ? options.explain(end, errors.text()) : plain_failure(spec.argv[0], end);
  }
  {
    std::lock_guard lock(mutex);
    cause = end;
  }
  finish(std::move(why));
}

ProgramLink::ProgramLink(std::shared_ptr<State> state, LinkEnds ends) : ThreadedLink(state), state_(std::move(state)) {
  ends_ = std::move(ends);
}

ProgramLink::~ProgramLink() {
  kill();
}

void ProgramLink::kill() {
  std::lock_guard lock(state_->mutex);
  if (state_->done) return;
  state_->killed = true;
  if (state_->pid > 0) ::kill(-state_->pid, SIGKILL);
  state_->changed.notify_all();
}

std::optional<pid_t> ProgramLink::pid() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->started; });
  return state_->pid > 0 ? std::optional(state_->pid) : std::nullopt;
}

std::unique_ptr<ProgramLink> open_program_link(const std::vector<std::string>& argv, ProgramLinkOptions options) {
  DSL_CHECK(!argv.empty(), "a link needs a program");
  Pipe in = make_pipe("to " + argv[0]), out = make_pipe("from " + argv[0]);
  // Only our ends are non-blocking.
  ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);

  auto state = std::make_shared<ProgramLink::State>();
  state->spec.argv = argv;
  state->spec.env = options.env ? std::move(*options.env) : environment_of_this_process();
  state->spec.in = in.read.get();
  state->spec.out = out.write.get();
  if (options.errors == ProgramLinkOptions::Errors::kInherit) state->spec.err = STDERR_FILENO;
  state->spec.inherited = options.inherited;
  state->spec.die_with_thread = options.die_with_us;
  state->options = std::move(options);
  state->input = std::move(in.read);
  state->output = std::move(out.write);
  start_link_thread([state] { state->run(); });
  return std::unique_ptr<ProgramLink>(new ProgramLink(state, {std::move(in.write), std::move(out.read)}));
}

}  // namespace dslaunch::spawn
