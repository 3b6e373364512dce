// Whether the job of a process still has its agent. Every rank carries the identity of the agent that started it
// (DSLAUNCH_AGENT); an agent that loses its launcher ends its ranks and itself, so on one host "the agent is gone"
// means that the supervisor has lost this part of the job. This needs no files, and a reused job id cannot mislead. Any
// thread.
#pragma once
#include <optional>
#include <string>

#include "ports/process_info.hpp"

namespace dslaunch::launch {

// "PID:START:NAMESPACE" of this process: start in clock ticks since boot, namespace the inode of its pid namespace; pid
// and start are meaningful only within that namespace.
std::string own_agent_tag();

// The agent that started a process of a job, dead or alive; empty: the process names none, or one in another container.
std::optional<ports::ProcessIdentity> agent_of(const ports::ProcessInfo& process);

enum class JobLife {
  kNone,     // the process carries no job id
  kAlive,    // its agent lives
  kGone,     // its agent is gone
  kUnknown,  // the process names no agent, or one in another container
};

// By the agent alone; launch/doctor/job_liveness.hpp checks the record of the job's supervisor first.
JobLife job_life(const ports::ProcessInfo& process);

}  // namespace dslaunch::launch
