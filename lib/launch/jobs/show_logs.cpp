// `dslaunch logs`: prints a file and follows it for as long as the job runs.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/standard_streams.hpp"
#include "base/write_all.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/jobs/job_commands.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// Polling interval for network file systems, which do not notify of changes.
constexpr auto kCheckInterval = 500ms;

std::string path_of_log(const KnownJob& job, std::optional<int> rank) {
  if (!rank) return job.dir.console_file();
  std::string host = job.record.host_of(*rank);
  if (host.empty()) {
    throw UserError(ExitCode::kUsage, fmt::format("--rank {}: job {} has ranks 0 to {}", *rank, job.record.job_id,
                                                  job.record.world_size() - 1));
  }
  return log_path(job.record.log_root, host, *rank);
}

// O_NONBLOCK: opening a pipe in its place would block.
UniqueFd open_log(const KnownJob& job, const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat found {};
  std::string error;
  if (!file.valid()) {
    error = describe_errno(errno);
  } else if (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) {
    error = "it is not a regular file";
  }
  if (error.empty()) return file;
  throw UserError(ExitCode::kNoInput, fmt::format("cannot read {} of job {}: {}", path, job.record.job_id, error));
}

// Copies from the current position to the end.
void copy_rest(const UniqueFd& file, const std::string& path) {
  char buffer[16384];
  for (;;) {
    ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got == 0) return;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw SystemError("read", path);
    const int error = write_all(STDOUT_FILENO, {buffer, static_cast<size_t>(got)});
    if (error == EPIPE) exit_as_sigpipe();
    if (error != 0) throw SystemError("write to", "standard output", error);
  }
}

Condition now_of(const KnownJob& job) {
  return reload_job(job).condition;
}

bool over(const KnownJob& job) {
  Condition now = now_of(job);
  return now == Condition::kEnded || now == Condition::kLost;
}

void follow(const KnownJob& job, const UniqueFd& file, const std::string& path) {
  UniqueFd changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ::inotify_add_watch(changes.get(), path.c_str(), IN_MODIFY);
  ::inotify_add_watch(changes.get(), job.dir.path.c_str(), IN_MOVED_TO);  // job.json is replaced by a rename
  const auto supervisor = open_process(job.record.supervisor);
  for (bool ended = over(job); !ended;) {
    PollSet polls;
    polls.add(changes.get(), POLLIN);
    polls.add(supervisor ? supervisor->fd() : -1, POLLIN);
    polls.wait(Deadline::after(kCheckInterval));
    char events[4096];
    while (::read(changes.get(), events, sizeof events) > 0) {
    }
    // Check before copying: everything written before the end is then in the file.
    ended = over(job);
    if (standard_output_is_closed()) exit_as_sigpipe();
    copy_rest(file, path);
  }
}

}  // namespace

Error unrecorded_end(const KnownJob& job) {
  return {ExitCode::kUnavailable,
          fmt::format("the supervisor of job {} (pid {}) did not record the job's end: it was killed, and its ranks "
                      "with it; the last recorded state is '{}'",
                      job.record.job_id, job.record.supervisor.pid, job.record.state)};
}

void check_supervisor_here(const KnownJob& job) {
  const auto& supervisor = job.record.supervisor;
  if (job.condition == Condition::kLost) throw unrecorded_end(job);
  if (job.condition == Condition::kElsewhere) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("job {} is supervised on {}: run this command there", job.record.job_id, supervisor.host));
  }
  if (is_suspended(supervisor)) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("the supervisor of job {} is suspended, perhaps by Ctrl-Z, and cannot query the agents: "
                            "'kill -CONT {}' continues it",
                            job.record.job_id, supervisor.pid));
  }
}

void warn_lost_output(const KnownJob& job) {
  for (const auto& error : reload_job(job).record.errors) {
    log::warning("the job's output is incomplete: {}", printable(error));
  }
}

int show_logs(const KnownJob& job, const LogsOptions& options) {
  std::string path = path_of_log(job, options.rank);
  UniqueFd file = open_log(job, path);
  ::lseek(file.get(), static_cast<off_t>(options.from), SEEK_SET);
  copy_rest(file, path);
  if (options.follow) follow(job, file, path);
  copy_rest(file, path);
  warn_lost_output(job);
  if (options.follow && now_of(job) == Condition::kLost) throw unrecorded_end(job);
  return 0;
}

}  // namespace dslaunch::launch
