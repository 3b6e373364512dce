// Detects out-of-memory kills by the kernel, from counts of the memory cgroups of this process and of the ended process
// (versions 1 and 2), and of the whole machine. Where the counts cannot be read it reports nothing: the absence of a
// hint proves nothing. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace dslaunch::spawn {

class OomWatch {
 public:
  OomWatch();  // records the present counts

  // For a process that died of SIGKILL, with the text of its /proc/PID/cgroup: the explanation, or empty. Each increase
  // of a count is used once, so that one kill explains one process.
  std::string explain(const std::string& proc_cgroup);

 private:
  bool rose(const std::string& events_path);
  bool machine_rose();

  std::map<std::string, int64_t> seen_;  // by events file
  std::optional<int64_t> seen_on_machine_;
  std::string own_cgroup_;
};

// The number after "oom_kill" in the text of a cgroup's memory.events (v2) or memory.oom_control (v1), or of
// /proc/vmstat.
std::optional<int64_t> parse_oom_kills(const std::string& text);

// The file with the counts, from the texts of /proc/PID/cgroup and /proc/self/mountinfo: a container sees its own
// cgroup mounted where the host has the root cgroup. Empty when no such file is visible.
std::string oom_events_path(const std::string& proc_cgroup, const std::string& mountinfo);

}  // namespace dslaunch::spawn
