#include "spawn/exit_diagnostics.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>

#include "base/format.hpp"

namespace dslaunch::spawn {
namespace {

std::string dev_shm_hint() {
  struct statvfs status;
  if (::statvfs("/dev/shm", &status) != 0 || status.f_blocks == 0) return {};
  return shared_memory_hint(uint64_t{status.f_blocks} * status.f_frsize, uint64_t{status.f_bavail} * status.f_frsize);
}

std::string joined(std::initializer_list<std::string> parts) {
  std::string text;
  for (const auto& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  }
  return text;
}

}  // namespace

std::string shared_memory_hint(uint64_t size_bytes, uint64_t free_bytes) {
  constexpr uint64_t kMebi = 1U << 20, kSmall = 64 * kMebi;
  bool nearly_full = free_bytes < std::max(size_bytes / 20, std::min(kMebi, size_bytes / 2));
  if (nearly_full) {
    return fmt::format(
        "/dev/shm is full ({} of {} MiB left); free it ('dslaunch doctor' shows what was left behind) or give the "
        "container more shared memory",
        free_bytes / kMebi, size_bytes / kMebi);
  }
  if (size_bytes > kSmall) return {};
  return fmt::format(
      "/dev/shm has only {} MiB, the default of containers, and is probably full; give the container more "
      "(docker run --shm-size, an emptyDir of medium Memory)",
      size_bytes / kMebi);
}

std::string meaning_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "it accessed invalid memory: a bug in native code (gdb, or a core dump after 'ulimit -c "
             "unlimited', shows where)";
    case SIGBUS:
      return "it accessed a mapped page without storage: the mapped file was truncated, or its file system is full";
    case SIGILL:
      return "it executed an instruction that this CPU does not support: was it, or one of its libraries, built for "
             "another "
             "CPU?";
    case SIGFPE:
      return "it divided an integer by zero";
    case SIGABRT:
      return "it aborted: a failed assertion or an uncaught exception; its last lines say which";
    case SIGPIPE:
      return "it wrote to a pipe or connection that its reader had closed";
    case SIGXCPU:
      return "it exceeded its limit of CPU time (ulimit -t)";
    case SIGXFSZ:
      return "one of its files exceeded the size limit (ulimit -f)";
    case SIGSYS:
      return "it made a system call that its sandbox (seccomp) forbids";
    default:
      return {};
  }
}

std::string ExitDiagnostics::explain(const ExitCause& cause, pid_t pid, const std::string& cgroups) {
  if (cause.kind != ExitCause::Kind::kSignaled) return {};
  std::string said = log_.about(pid);
  if (cause.number == SIGKILL) {
    std::string counted = oom_.explain(cgroups);  // also when the log has the cause: each death uses up one count
    if (!said.empty()) return joined({said, memory_advice_});
    return counted.empty() ? std::string() : joined({counted, memory_advice_});
  }
  if (cause.number == SIGBUS) {
    if (std::string hint = dev_shm_hint(); !hint.empty()) return joined({hint, said});
  }
  return joined({meaning_of_signal(cause.number), said});
}

}  // namespace dslaunch::spawn
