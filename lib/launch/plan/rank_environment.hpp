// The environment of a rank, put together on its node: the job's own variables, torchrun's, ours.
#pragma once
#include <map>
#include <string>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

struct NodeFacts {
  int num_threads = 1;       // of the rank, where the user has not said
  uint16_t master_port = 0;  // 0: the job has none
  std::string error_file;    // for torch's error handler; empty: none
  std::string agent_mark{};  // who starts the rank, for doctor (own_agent_mark); empty: not told
};

// What the launch decides wins over what was inherited; OMP_NUM_THREADS and TORCH_NCCL_ASYNC_ERROR_HANDLING are set
// only where the user has not, and so is what gives a `run`'s ranks their memory in large pages (GLIBC_TUNABLES).
std::map<std::string, std::string> rank_environment(const JobDescription& job, const RankJob& rank,
                                                    const NodeFacts& node);

// This process's environment, less what another launcher, or a job around this one, has set for its own ranks.
std::map<std::string, std::string> inherited_environment();

// On another machine than the launcher's: the agent's own environment below what the job brings along. Then the virtual
// environment, where one is asked for: throws UserError(66) when it is not on this host.
void complete_environment(JobDescription& job);

}  // namespace dslaunch::launch
