// `dslaunch logs`: a file, and what is added to it for as long as the job lives.
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/job_story.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/poll_set.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// Where changes are not told (a network's file system), the file is looked at.
constexpr auto kLookInterval = 500ms;

std::string path_of_log(const KnownJob& job, std::optional<int> rank) {
  if (!rank) return job.folder.console_file();
  std::string host = job.record.host_of(*rank);
  if (host.empty()) {
    throw UserError(ExitCode::kUsage, fmt::format("--rank {}: job {} has the ranks 0 to {}", *rank, job.record.job_id,
                                                  job.record.world_size() - 1));
  }
  return log_path(job.record.log_root, host, *rank);
}

bool write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t wrote = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return true;
}

// Copies what is there from here to the end.
void copy_rest(const UniqueFd& file, const std::string& path) {
  char buffer[65536];
  for (;;) {
    ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got == 0) return;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw SystemError("read", path);
    if (!write_all({buffer, static_cast<size_t>(got)})) throw SystemError("write to", "standard output");
  }
}

bool over(const KnownJob& job) {
  Condition now = look_again(job).condition;
  return now == Condition::kEnded || now == Condition::kLost;
}

void follow(const KnownJob& job, const UniqueFd& file, const std::string& path) {
  UniqueFd changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ::inotify_add_watch(changes.get(), path.c_str(), IN_MODIFY);
  ::inotify_add_watch(changes.get(), job.folder.path.c_str(), IN_MOVED_TO);  // job.json is written anew
  UniqueFd supervisor = open_process(job.record.supervisor);
  for (bool ended = over(job); !ended;) {
    PollSet polls;
    polls.add(changes.get(), POLLIN);
    polls.add(supervisor.get(), POLLIN);
    polls.wait(Deadline::after(kLookInterval));
    char events[4096];
    while (::read(changes.get(), events, sizeof events) > 0) {
    }
    // Asked first: what was written before the end is there to be copied then.
    ended = over(job);
    copy_rest(file, path);
  }
}

}  // namespace

int show_logs(const KnownJob& job, const LogsOptions& options) {
  std::string path = path_of_log(job, options.rank);
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("cannot read {} of job {}: {}", path, job.record.job_id, describe_errno(errno)));
  }
  copy_rest(file, path);
  if (options.follow) follow(job, file, path);
  copy_rest(file, path);
  return 0;
}

}  // namespace dslaunch::launch
