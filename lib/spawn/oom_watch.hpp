// Did the kernel kill for want of memory? Counts of the memory cgroups of this process and of the process that ended
// (version 1 and 2), and of the whole machine. Where the counts cannot be read the watch stays silent: absence of a
// hint proves nothing. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace dslaunch::spawn {

class OomWatch {
 public:
  OomWatch();  // notes the present counts

  // For a process that died of SIGKILL, with the text of its /proc/PID/cgroup: empty, or what is known. A count that
  // rose is used up, so that one kill explains one process.
  std::string explain(const std::string& proc_cgroup);

 private:
  bool rose(const std::string& events_path);
  bool machine_rose();

  std::map<std::string, int64_t> seen_;  // by events file
  std::optional<int64_t> seen_on_machine_;
  std::string own_cgroup_;
};

// The number behind "oom_kill" in the text of a cgroup's memory.events (v2) or memory.oom_control (v1), or of
// /proc/vmstat.
std::optional<int64_t> parse_oom_kills(const std::string& text);

// The file with the counts, from the texts of /proc/PID/cgroup and /proc/self/mountinfo: a container sees its own
// cgroup mounted where a machine has the root of all. Empty when there is none in sight.
std::string oom_events_path(const std::string& proc_cgroup, const std::string& mountinfo);

}  // namespace dslaunch::spawn
