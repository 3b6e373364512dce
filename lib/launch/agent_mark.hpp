// Whether the job that a process belongs to still has its agent. Every rank carries the identity of the agent that
// started it (DSLAUNCH_AGENT); an agent that loses its launcher ends its ranks and itself, so on one host "the agent is
// gone" means that the supervisor has lost this part of the job. No files are needed for that, and a job id that comes
// by again cannot deceive. Any thread.
#pragma once
#include <optional>
#include <string>

#include "ports/process_info.hpp"

namespace dslaunch::launch {

// "PID:START:NAMESPACE" of this process: start in clock ticks since boot, namespace the inode of its pid namespace, in
// which alone the other two mean something.
std::string own_agent_mark();

// The agent that started a process of a job, dead or alive; empty: it names none, or one in another container.
std::optional<ports::ProcessIdentity> agent_of(const ports::ProcessInfo& process);

enum class JobLife {
  kNone,     // it carries no job's id
  kAlive,    // its agent lives
  kGone,     // its agent is gone
  kUnknown,  // it names no agent, or one in another container
};

// By its agent alone; launch/doctor/job_standing.hpp asks the record of its supervisor first.
JobLife job_life(const ports::ProcessInfo& process);

}  // namespace dslaunch::launch
