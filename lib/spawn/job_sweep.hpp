// Finds and ends what a job left behind on this host: processes that carry its id in their environment, and whatever
// the kernel handed to us as the child subreaper. Linux's /proc; only processes that this user may see.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace dslaunch::spawn {

// Set in the environment of each process of a job. Not a secret.
inline constexpr const char* kJobIdVariable = "DSLAUNCH_JOB_ID";

// From now on orphans below this process become its children instead of init's. Throws SystemError.
void become_subreaper();

// Entries, NAME=VALUE, that a process's environment must all hold to be one of the job's.
using JobMarks = std::vector<std::string>;

// Living processes with these marks, other than the caller.
std::vector<pid_t> processes_with(const JobMarks& marks);

// Living children of this process, whoever started them.
std::vector<pid_t> children_of_this_process();

// Ends all of them: SIGTERM, up to `patience`, then SIGKILL until none is left (new ones included). With
// `children_too`, all children of this process as well: right for an agent, which has no others. Zombies that became
// ours are reaped then. Returns how many processes were signalled.
size_t sweep_job(const JobMarks& marks, std::chrono::milliseconds patience, bool children_too);

}  // namespace dslaunch::spawn
