#include "spawn/oom_watch.hpp"

#include <sys/statvfs.h>

#include <csignal>
#include <fstream>
#include <sstream>

namespace dslaunch::spawn {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool shared_memory_is_full() {
  struct statvfs status;
  return ::statvfs("/dev/shm", &status) == 0 && status.f_blocks > 0 && status.f_bavail == 0;
}

}  // namespace

std::optional<int64_t> parse_oom_kills(const std::string& text) {
  std::istringstream lines(text);
  std::string name;
  int64_t value = 0;
  while (lines >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

std::string oom_events_path(const std::string& proc_self_cgroup) {
  std::istringstream lines(proc_self_cgroup);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) return "/sys/fs/cgroup" + line.substr(3) + "/memory.events";
    size_t controllers = line.find(":memory:");
    if (controllers != std::string::npos)
      return "/sys/fs/cgroup/memory" + line.substr(controllers + 8) + "/memory.oom_control";
  }
  return {};
}

OomWatch::OomWatch() : events_path_(oom_events_path(read_text("/proc/self/cgroup"))) {
  seen_ = parse_oom_kills(read_text(events_path_));
}

std::string OomWatch::explain(const ExitCause& cause) {
  if (cause.kind != ExitCause::Kind::kSignaled) return {};
  if (cause.number == SIGBUS && shared_memory_is_full()) {
    return "/dev/shm is full; free it or give the container more shared memory";
  }
  if (cause.number != SIGKILL || !seen_) return {};
  auto now = parse_oom_kills(read_text(events_path_));
  if (!now || *now <= *seen_) return {};
  ++*seen_;
  return "the kernel ran out of memory for this cgroup and killed it; use fewer ranks, a smaller micro batch or "
         "offload";
}

}  // namespace dslaunch::spawn
