// Externally started nodes must all be started with the same command: node rank 0's command runs on all of them.
#pragma once
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/plan/job_command.hpp"

namespace dslaunch::launch {

// Node rank 0, before it plans the job. `hellos`: by node rank from 1; a node of another version sends no command, and
// is refused for its version later. Throws UserError(78) that shows the commands.
void check_same_command(const JobCommand& own, const std::vector<AgentHello>& hellos);

}  // namespace dslaunch::launch
