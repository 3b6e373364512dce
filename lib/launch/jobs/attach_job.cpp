// `dslaunch attach`: shows the job's console live; Ctrl-C detaches.
#include <poll.h>

#include <csignal>
#include <cstdio>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "base/standard_streams.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/job_client.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/terminal/terminal.hpp"

namespace dslaunch::launch {
namespace {

// Beyond this many bytes that our reader has not taken, the supervisor keeps the rest (at no cost to it).
constexpr size_t kMaxPendingBytes = 1U << 20;

void print_line(const std::string& text) {
  print_text(fmt::format("dslaunch: {}\n", text), stderr);
}

int print_end(const KnownJob& job, const JobEnd& end) {
  print_line(fmt::format("job {} has ended: exit code {}", job.record.job_id, end.exit_code));
  return end.exit_code;
}

// Used when the job has ended, its supervisor is gone, or it is alive but does not accept us: its socket was removed
// with a session's directory, or too many clients are attached already. Ctrl-C has its usual effect here.
int follow_console(const KnownJob& job, uint64_t position) {
  if (reload_job(job).condition == Condition::kLiving) {
    print_line(fmt::format("no answer at the job's socket ({}): following its console instead",
                           job.record.socket.empty() ? "it has none" : job.record.socket));
  }
  show_logs(job, {.follow = true, .rank = {}, .from = position});
  KnownJob now = reload_job(job);
  if (now.record.end) return print_end(now, *now.record.end);
  throw unrecorded_end(now);
}

void check_reachable(const KnownJob& job) {
  const ProcessOnHost& supervisor = job.record.supervisor;
  if (job.condition == Condition::kElsewhere) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("job {} is supervised on {}: run this command there; 'dslaunch logs "
                            "-f {}' shows its output here",
                            job.record.label(), supervisor.host, job.record.label()));
  }
  if (is_suspended(supervisor)) {
    print_line(fmt::format(
        "the supervisor (pid {}) is suspended, perhaps by Ctrl-Z, and answers once it continues: kill -CONT {}",
        supervisor.pid, supervisor.pid));
  }
}

// The connection to the supervisor, and our own terminal, whose writes must not block.
class Attachment {
 public:
  explicit Attachment(const KnownJob& job) : job_(job), client_(job.record.socket) {}

  // Empty when the supervisor does not answer, or no longer does; see position().
  std::optional<int> run() {
    if (!client_.send(AttachRequest{0})) return std::nullopt;
    for (;;) {
      if (!wait()) return detach();
      while (auto answer = client_.next()) {
        if (const auto* piece = std::get_if<ConsolePiece>(&*answer)) show(*piece);
        if (const auto* end = std::get_if<EndAnswer>(&*answer)) return finish(end->end);
        if (const auto* refused = std::get_if<Refused>(&*answer)) throw Error(ExitCode::kUnavailable, refused->why);
      }
      if (!there_) break;
      if (out_.fd() < 0) fail_without_reader();
    }
    drain();
    return std::nullopt;
  }

  // Offset up to which the console was shown.
  uint64_t position() const { return position_; }

 private:
  // False: Ctrl-C or a similar signal.
  bool wait() {
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    size_t index = polls.add(there_ && out_.num_pending() < kMaxPendingBytes ? client_.fd() : -1, POLLIN);
    polls.add(out_.num_pending() > 0 ? out_.fd() : -1, POLLOUT);
    polls.wait(Deadline::never());
    out_.flush();
    if (polls.ready(index)) there_ = client_.receive();
    return !signals_.take();
  }

  void show(const ConsolePiece& piece) {
    position_ = piece.at + piece.bytes.size();
    out_.write(piece.bytes);
  }

  // Writes all output to our reader, unless Ctrl-C interrupts.
  void drain() {
    while (out_.num_pending() > 0 && !signals_.take()) {
      PollSet polls;
      polls.add(signals_.fd(), POLLIN);
      polls.add(out_.fd(), POLLOUT);
      polls.wait(Deadline::never());
      out_.flush();
    }
  }

  int finish(const JobEnd& end) {
    drain();
    signals_.ignore_from_now_on();  // there is nothing left to interrupt
    warn_lost_output(job_);
    return print_end(job_, end);
  }

  int detach() {
    signals_.ignore_from_now_on();
    print_line(
        fmt::format("detached; job {} keeps running ('dslaunch attach {}' attaches again, 'dslaunch stop {}' ends it)",
                    job_.record.label(), job_.record.label(), job_.record.label()));
    return 0;
  }

  [[noreturn]] static void fail_without_reader() {
    if (standard_output_is_closed()) exit_as_sigpipe();
    throw Error(ExitCode::kIoError, "cannot write the job's output to standard output: is its disk full?");
  }

  const KnownJob& job_;
  SignalInbox signals_{SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  Terminal out_{1};
  JobClient client_;
  bool there_ = true;
  uint64_t position_ = 0;  // offset in the console
};

}  // namespace

int attach_job(const KnownJob& job) {
  check_reachable(job);
  uint64_t position = 0;
  {
    Attachment attachment(job);
    if (auto code = attachment.run()) return *code;
    position = attachment.position();
  }
  return follow_console(job, position);
}

}  // namespace dslaunch::launch
