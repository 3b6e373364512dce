#include "spawn/ssh/run_remote.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/format.hpp"
#include "spawn/ssh/explain.hpp"
#include "spawn/ssh/ssh_link.hpp"

namespace dslaunch::spawn {
namespace {

constexpr size_t kMaxOutputBytes = 64 << 20;

// If the remote command ends before it has read all input, SIGPIPE must not end this process, whatever its disposition.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    timespec none{};
    while (::sigtimedwait(&pipe_, nullptr, &none) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

enum class Exchange { kEnded, kNotBegun, kLate, kTooMuch };

Exchange exchange(LinkEnds ends, std::string_view input, std::string& output, Deadline deadline,
                  const RemoteStart& start) {
  NoSigpipe guard;
  std::string buffer(64 << 10, '\0');
  bool begun = start.marker.empty();
  for (;;) {
    if (input.empty()) ends.to_agent.reset();
    begun = begun || output.find(start.marker) != std::string::npos;
    pollfd polls[] = {{ends.from_agent.get(), POLLIN, 0}, {ends.to_agent.get(), POLLOUT, 0}};
    int ready = ::poll(polls, 2, begun ? deadline.poll_timeout() : std::min(deadline, start.due).poll_timeout());
    if (ready == 0) return begun ? Exchange::kLate : Exchange::kNotBegun;
    if (ready < 0) continue;
    if (polls[1].revents != 0) {
      ssize_t wrote = ::write(ends.to_agent.get(), input.data(), input.size());
      if (wrote > 0) input.remove_prefix(static_cast<size_t>(wrote));
      if (wrote < 0 && errno != EAGAIN && errno != EINTR) input = {};
    }
    if (polls[0].revents == 0) continue;
    ssize_t got = ::read(ends.from_agent.get(), buffer.data(), buffer.size());
    if (got > 0) output.append(buffer, 0, static_cast<size_t>(got));
    if (output.size() > kMaxOutputBytes) return Exchange::kTooMuch;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return Exchange::kEnded;
  }
}

// The ssh program reports its own failures as 255, which a command may return too; then its messages decide.
bool ended_by_itself(const CommandLink& link, const SshOptions& options) {
  auto cause = link.cause();
  if (!cause || cause->kind == ExitCause::Kind::kNotStarted) return false;
  return options.program.empty() || (cause->kind == ExitCause::Kind::kExited && cause->number != 255);
}

}  // namespace

RemoteResult run_remote(const SshTarget& target, const std::vector<std::string>& argv, std::string_view input,
                        const SshOptions& options, Deadline deadline, const RemoteStart& start) {
  auto link = open_ssh_link(target, argv, options);
  RemoteResult result;
  Exchange end = exchange(link->take_ends(), input, result.out, deadline, start);
  result.err = link->errors();
  if (end == Exchange::kEnded) {
    if (ended_by_itself(*link, options)) {
      result.exit_code = link->cause()->shell_code();
    } else {
      result.failure = link->failure();
    }
    link->wait(deadline);
    return result;
  }
  if (end == Exchange::kNotBegun) {
    result.failure = link->failure().value_or(LinkFailure{
        .phase = "connection",
        .text = fmt::format(
            "its login shell did not start {} within the time to connect; a shell start-up file on that host "
            "(such as ~/.bashrc) may block: try {} true",
            argv.at(0), ssh_line(target, options))});
    return result;
  }
  bool late = end == Exchange::kLate;
  result.failure = LinkFailure{
      .code = late ? ExitCode::kTimeout : ExitCode::kUnavailable,
      .phase = "connection",
      .text = late ? fmt::format("{} on {} timed out", argv.at(0), target.host)
                   : fmt::format("{} on {} wrote more than {} MiB", argv.at(0), target.host, kMaxOutputBytes >> 20)};
  return result;
}

}  // namespace dslaunch::spawn
