// `dslaunch attach`: the job's console here, live; Ctrl-C goes away again.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/standard_streams.hpp"
#include "launch/jobs/console_log.hpp"
#include "launch/jobs/job_client.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/poll_set.hpp"
#include "launch/signal_inbox.hpp"
#include "launch/terminal.hpp"

namespace dslaunch::launch {
namespace {

// More than this waiting for our reader: the supervisor waits with the rest (it costs it nothing).
constexpr size_t kMostPendingBytes = 1U << 20;

void say(const std::string& text) {
  std::fputs(fmt::format("dslaunch: {}\n", text).c_str(), stderr);
}

int tell_end(const KnownJob& job, const JobEnd& end) {
  say(fmt::format("job {} has ended: exit code {}", job.record.job_id, end.exit_code));
  return end.exit_code;
}

// The job had ended before we came, or has while its supervisor could not wait for us any longer.
int tell_recorded_end(const KnownJob& job) {
  KnownJob now = look_again(job);
  if (now.record.end) return tell_end(now, *now.record.end);
  throw Error(ExitCode::kUnavailable,
              fmt::format("the supervisor of job {} (pid {}) is gone without an end of the job: it was killed, and its "
                          "ranks with it",
                          job.record.job_id, job.record.supervisor.pid));
}

void check_reachable(const KnownJob& job) {
  const ProcessIdentity& supervisor = job.record.supervisor;
  if (job.condition == Condition::kElsewhere) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("job {} is supervised on {}: run this command there; 'dslaunch logs "
                            "-f {}' shows its output here",
                            job.record.job_id, supervisor.host, job.record.job_id));
  }
  if (is_suspended(supervisor)) {
    say(fmt::format(
        "the supervisor (pid {}) is suspended, by Ctrl-Z perhaps, and answers once it goes on: kill -CONT {}",
        supervisor.pid, supervisor.pid));
  }
}

// The conversation, and our own terminal that must not be waited for.
class Attachment {
 public:
  explicit Attachment(const KnownJob& job) : job_(job), client_(job.record.socket) {}

  int run() {
    if (!client_.ask(AskAttach{0})) return show_logs_and_end();
    for (;;) {
      if (!wait()) return detach();
      while (auto answer = client_.next()) {
        if (const auto* piece = std::get_if<ConsolePiece>(&*answer)) show(*piece);
        if (const auto* end = std::get_if<EndAnswer>(&*answer)) return finish(end->end);
        if (const auto* refused = std::get_if<Refused>(&*answer)) throw Error(ExitCode::kUnavailable, refused->why);
      }
      if (!there_) return finish_without_word();
      if (out_.fd() < 0) return leave_without_reader();
    }
  }

 private:
  // False: Ctrl-C or its like.
  bool wait() {
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    size_t place = polls.add(there_ && out_.num_pending() < kMostPendingBytes ? client_.fd() : -1, POLLIN);
    polls.add(out_.num_pending() > 0 ? out_.fd() : -1, POLLOUT);
    polls.wait(Deadline::never());
    out_.flush();
    if (polls.ready(place)) there_ = client_.receive();
    return !signals_.take();
  }

  void show(const ConsolePiece& piece) {
    position_ = piece.at + piece.bytes.size();
    out_.write(piece.bytes);
  }

  // Our reader gets everything, unless a Ctrl-C spares it. After that there is nothing left to interrupt.
  void drain() {
    while (out_.num_pending() > 0 && !signals_.take()) {
      PollSet polls;
      polls.add(signals_.fd(), POLLIN);
      polls.add(out_.fd(), POLLOUT);
      polls.wait(Deadline::never());
      out_.flush();
    }
    signals_.ignore_from_now_on();
  }

  int finish(const JobEnd& end) {
    drain();
    return tell_end(job_, end);
  }

  int finish_without_word() {
    ConsoleLog console(job_.folder.console_file());
    for (std::string bytes; !(bytes = console.read(position_, 65536)).empty();) show({position_, bytes});
    drain();
    return tell_recorded_end(job_);
  }

  int show_logs_and_end() {
    show_logs(job_, {});
    return tell_recorded_end(job_);
  }

  int detach() {
    signals_.ignore_from_now_on();
    say(fmt::format("detached; job {} goes on ('dslaunch attach {}' comes back, 'dslaunch stop {}' ends it)",
                    job_.record.job_id, job_.record.job_id, job_.record.job_id));
    return 0;
  }

  int leave_without_reader() {
    if (standard_output_is_left()) return detach();
    throw Error(ExitCode::kIoError, "standard output does not take the job's output: is its disk full?");
  }

  const KnownJob& job_;
  SignalInbox signals_{SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  Terminal out_{1};
  JobClient client_;
  bool there_ = true;
  uint64_t position_ = 0;  // of the console
};

}  // namespace

int attach_job(const KnownJob& job) {
  check_reachable(job);
  return Attachment(job).run();
}

}  // namespace dslaunch::launch
