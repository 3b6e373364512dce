// Finds and ends the processes that a job left on this host: processes with its id in their environment, and orphans
// that the kernel reparented to us as the child subreaper. Uses Linux's /proc; covers only processes that this user may
// see.
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

// From now on, orphaned descendants of this process become its children instead of init's. Throws SystemError.
void become_subreaper();

// NAME=VALUE entries. A process belongs to the job if its environment contains all of them.
using JobTags = std::vector<std::string>;

// Living processes with these marks, other than the caller.
std::vector<pid_t> processes_with(const JobTags& tags);

// Ends all these processes: SIGTERM, up to `timeout`, then SIGKILL until none is left (new ones included). With
// `children_too`, also ends all children of this process: right for an agent, which has no others. It then reaps
// zombies that became our children. Processes that survive SIGKILL are waited for up to 5 s; `exempt` are known
// survivors and left alone.
struct CleanupResult {
  size_t num_signalled = 0;
  std::vector<StuckProcess> stuck;  // still running
};
CleanupResult cleanup_job(const JobTags& tags, std::chrono::milliseconds timeout, bool children_too,
                          const std::set<pid_t>& exempt = {});

}  // namespace dslaunch::spawn
