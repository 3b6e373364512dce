// The environment of a rank, assembled on its node: the job's own variables, torchrun's, ours.
#pragma once
#include <map>
#include <string>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

struct NodeFacts {
  int num_threads = 1;       // of the rank, unless the user has set it
  uint16_t master_port = 0;  // 0: the job has none
  std::string error_file;    // for torch's error handler; empty: none
  int status_fd = -1;        // of the rank's status page (base/status_page.hpp); -1: none
  std::string agent_tag{};   // identifies the agent that starts the rank, for doctor (own_agent_tag); empty: not set
};

// Whether the ranks are PyTorch clients of the store that the agent of node rank 0 serves
// (TORCHELASTIC_USE_AGENT_STORE).
inline bool uses_torch_store(const JobDescription& job) {
  return job.kind == JobKind::kExec;
}

// Variables set by the launch override inherited ones; OMP_NUM_THREADS and TORCH_NCCL_ASYNC_ERROR_HANDLING are set only
// if the user has not set them, and so is GLIBC_TUNABLES, which gives the ranks of `run` memory in large pages.
std::map<std::string, std::string> rank_environment(const JobDescription& job, const RankJob& rank,
                                                    const NodeFacts& node);

// This process's environment, without what another launcher, or an enclosing job, has set for its own ranks.
std::map<std::string, std::string> inherited_environment();

// For hosts other than the launcher's: the agent's own environment is the base, and the job's variables override it.
// Then applies the virtual environment, if requested: throws UserError(66) when it does not exist on this host.
void complete_environment(JobDescription& job);

}  // namespace dslaunch::launch
