// Did the kernel kill for want of memory? Counts of the memory cgroup that this process and its children live in.
// Where the counts cannot be read the watch stays silent: absence of a hint proves nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

class OomWatch {
 public:
  OomWatch();  // notes the present count

  // Text for a process that ended by `cause`: empty, or what is known and what to do. A count that rose is used up, so
  // that one kill explains one process.
  std::string explain(const ExitCause& cause);

 private:
  std::string events_path_;
  std::optional<int64_t> seen_;
};

// The number behind "oom_kill" in the text of a cgroup's memory.events (v2) or memory.oom_control (v1).
std::optional<int64_t> parse_oom_kills(const std::string& text);

// The file to read, from the text of /proc/self/cgroup; empty when neither version is there.
std::string oom_events_path(const std::string& proc_self_cgroup);

}  // namespace dslaunch::spawn
