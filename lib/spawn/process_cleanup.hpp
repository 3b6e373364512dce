// Finds and ends what a job left behind on this host: processes that carry its id in their environment, and whatever
// the kernel handed to us as the child subreaper. Linux's /proc; only processes that this user may see.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "ports/process_info.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::spawn {

using ports::kJobIdVariable;

// From now on orphans below this process become its children instead of init's. Throws SystemError.
void become_subreaper();

// Entries, NAME=VALUE, that a process's environment must all hold to be one of the job's.
using JobMarks = std::vector<std::string>;

// Living processes with these marks, other than the caller.
std::vector<pid_t> processes_with(const JobMarks& marks);

// Ends all of them: SIGTERM, up to `patience`, then SIGKILL until none is left (new ones included). With
// `children_too`, all children of this process as well: right for an agent, which has no others. Zombies that became
// ours are reaped then. What SIGKILL does not end is waited for 5 s; `spared` are known to be such, and left alone.
struct Swept {
  size_t num_signalled = 0;
  std::vector<StuckProcess> stuck;  // still there
};
Swept cleanup_job(const JobMarks& marks, std::chrono::milliseconds patience, bool children_too,
                  const std::set<pid_t>& spared = {});

}  // namespace dslaunch::spawn
