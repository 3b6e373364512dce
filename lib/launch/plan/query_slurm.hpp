// A shell of `salloc --gres=gpu:8` has no variable that states the number of GPUs: only processes that srun starts on a
// node see SLURM_GPUS_ON_NODE. Therefore one srun over all nodes queries them.
#pragma once
#include "hostfile/slurm.hpp"

namespace dslaunch::launch {

// Fills in the slots where the situation leaves them open; takes up to 20 s. Without an answer the situation is
// unchanged: CPU nodes have no GPUs to report, and a broken srun is reported when the agents are started.
void query_gpus(hostfile::SlurmSituation& situation);

}  // namespace dslaunch::launch
