// Decides whether two command lines start the same job: nodes started by hand must run node rank 0's command, and a
// node with a different command must be told. Settings of a single node may differ: its rank, slots and devices, what
// its terminal shows, how long it waits. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launch {

struct JobCommand {
  std::string text;   // for people, truncated if long; without the values of --env, which may be secrets
  uint64_t hash = 0;  // of the whole command, including those values
};

JobCommand job_command(const RunOptions& run);
JobCommand job_command(const ExecOptions& exec);

// Node rank 0, before it plans the job. `hellos`: by node rank from 1; a node of another version sends no command, and
// is refused for its version later. Throws UserError(78) that shows the commands.
void check_same_command(const JobCommand& own, const std::vector<AgentHello>& hellos);

}  // namespace dslaunch::launch
