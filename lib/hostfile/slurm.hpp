// Reads a job's nodes, their slots, and this process's place in the job from Slurm's variables. Pure; neither scontrol
// nor a running Slurm is needed.
//
// Three situations are distinguished:
//  - allocation: the shell of `salloc`, the script of `sbatch`, or an interactive shell (`srun --pty bash`, or the one
//    that salloc starts with LaunchParameters=use_interactive_step). One dslaunch serves the whole job and starts one
//    agent per node.
//  - task: `srun dslaunch ...` started us on every node of a step, one task per node; each is its own node's agent.
//  - none.
// They are recognized by these variables, as Slurm 22.05 sets them: a batch script has SLURM_PROCID=0, SLURM_LOCALID=0
// and SLURM_TASK_PID like a task, but no SLURM_STEP_ID. A batch script submitted from inside a step inherits the
// variables of that step; it is recognized by ENVIRONMENT=BATCH without SLURM_LAUNCH_NODE_IPADDR, or by nodes that are
// not its own. A single task with a terminal (SLURM_PTY_PORT) is a shell; salloc's interactive step has an id above
// 0xfffffff0.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hostfile/allocation.hpp"
#include "hostfile/environment.hpp"

namespace dslaunch::hostfile {

enum class SlurmKind { kNone, kAllocation, kTask };

struct SlurmSituation {
  SlurmKind kind = SlurmKind::kNone;
  Allocation allocation;  // of the job; for a task, of the step. Slots count from 0: slot k is the k-th visible device
  bool slots_are_gpus = false;  // false: the slots are the node's tasks, since no variable states GPUs
  // One task per node and no variable that states GPUs. In a shell of `salloc --gres=gpu:8` this does not mean that
  // there are none, since only processes that srun starts on the nodes see SLURM_GPUS_ON_NODE; therefore the one slot
  // per node is a lower bound, and --num_gpus may request more.
  bool slots_open = false;
  std::string slots_source;  // the variables that the slots were read from, for messages
  std::string job_id;        // for an array, the id of the array task
  std::string step_id;       // for a task
  int num_nodes = 0;
  int node_rank = 0;             // for a task: this node's index in the allocation; else 0
  std::string first_node;        // of the allocation: the ranks meet there
  int restart_count = 0;         // how often Slurm has requeued the job
  uint16_t rendezvous_port = 0;  // for a task: a port that every node derives from job and step, 20000 .. 32767
};

// Throws UserError(78), with the variables and their values, for: inconsistent counts and lists (a list with fewer
// nodes than SLURM_JOB_NUM_NODES, task counts for a different number of nodes), a list that does not parse, GPUs spread
// unevenly in a way that the variables do not state, heterogeneous jobs, and a step with several tasks per node: each
// task would be a separate launcher, so dslaunch requires `--ntasks-per-node=1` and starts the ranks itself.
SlurmSituation read_slurm(const Environment& environment);

// For slots_open: sets the slots from the nodes' own reports of their GPUs, one line "NODE COUNT" each. Changes nothing
// unless every node of the allocation has reported at least one GPU.
void learn_gpus(SlurmSituation& situation, std::string_view answers);

// "slurm job 7: 2 nodes, slots from SLURM_GPUS_ON_NODE"
std::string describe(const SlurmSituation& situation);

// Expands "n[01-03,7],login" to n01 n02 n03 n7 login. Throws UserError(78) with `variable` and the column.
std::vector<std::string> expand_nodelist(std::string_view list, const std::string& variable);

// Expands "2(x3),1" to 2 2 2 1. Throws UserError(78) with `variable` and the column.
std::vector<int> expand_repeats(std::string_view list, const std::string& variable);

// The number of GPUs requested by "8", "gpu:8", "gpu:a100:8", "gres/gpu:8", "a100:2,v100:1" or "gpu:a100:4(S:0-1)".
// Throws UserError(78).
int count_gres(std::string_view request, const std::string& variable);

// The number of devices in a list such as "0-3,5".
int count_device_list(std::string_view list);

}  // namespace dslaunch::hostfile
