// A shell of `salloc --gres=gpu:8` has no variable that tells of the GPUs: only what srun starts on a node sees
// SLURM_GPUS_ON_NODE. So the nodes are asked, by one srun over all of them.
#pragma once
#include "hostfile/slurm.hpp"

namespace dslaunch::launch {

// Where the situation's slots are open; takes up to 20 s. Without an answer it stays as it was: CPU nodes have none to
// give, and an srun that does not work is told when the agents are started.
void ask_for_gpus(hostfile::SlurmSituation& situation);

}  // namespace dslaunch::launch
