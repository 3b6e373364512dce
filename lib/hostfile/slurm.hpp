// What Slurm's variables say about a job: its nodes, their slots, and where in it we stand. Pure; neither scontrol nor
// a running Slurm is needed.
//
// Three situations are told apart:
//  - allocation: the shell of `salloc`, the script of `sbatch`, or an interactive shell (`srun --pty bash`, or what
//    salloc starts where LaunchParameters=use_interactive_step). One dslaunch is there for the whole job and starts an
//    agent a node.
//  - task: `srun dslaunch ...` started us on every node of a step, one task a node; each is the agent of its own node.
//  - none.
// The marks, as Slurm 22.05 sets them: a batch script has SLURM_PROCID=0, SLURM_LOCALID=0 and SLURM_TASK_PID like a
// task, but no SLURM_STEP_ID. One that was submitted from inside a step has the variables of that other step, and is
// known by ENVIRONMENT=BATCH without SLURM_LAUNCH_NODE_IPADDR, or by nodes that are not its own. A single task with a
// terminal (SLURM_PTY_PORT) is a shell; salloc's interactive step has an id above 0xfffffff0.
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
  Allocation allocation;  // of the job; of the step for a task. Slots count from 0: slot k is the k-th visible device
  bool slots_are_gpus = false;  // false: a node's slots are its tasks, for want of GPUs in the variables
  // One task a node and not a word about GPUs. In a shell of `salloc --gres=gpu:8` that means nothing, since only what
  // srun starts on the nodes sees SLURM_GPUS_ON_NODE; so the one slot a node is a lower bound, and --num_gpus may ask
  // for more.
  bool slots_open = false;
  std::string slots_source;  // the variables that the slots were read from, for messages
  std::string job_id;        // of an array: the task's own id
  std::string step_id;       // of a task
  int num_nodes = 0;
  int node_rank = 0;          // of a task: this node's place in the allocation; else 0
  std::string first_node;     // of the allocation: where the ranks meet
  int restart_count = 0;      // how often Slurm has requeued the job
  uint16_t meeting_port = 0;  // of a task: a port that all nodes derive alike from job and step, 20000 .. 32767
};

// Throws UserError(78), with the variables and their values: counts and lists that do not fit each other (a list that
// names fewer nodes than SLURM_JOB_NUM_NODES, a task count for each of another number of nodes), a list that does not
// parse, GPUs spread unevenly in a way that the variables do not tell, heterogeneous jobs, and a step with several
// tasks a node: each would be a launcher of its own, so dslaunch wants `--ntasks-per-node=1` and starts the ranks.
SlurmSituation read_slurm(const Environment& environment);

// Where slots_open: takes over what the nodes themselves say about their GPUs, a line "NODE COUNT" each. Changes
// nothing unless every node of the allocation has answered with one GPU or more.
void learn_gpus(SlurmSituation& situation, std::string_view answers);

// "slurm job 7: 2 nodes, slots from SLURM_GPUS_ON_NODE"
std::string describe(const SlurmSituation& situation);

// "n[01-03,7],login" as n01 n02 n03 n7 login. Throws UserError(78) with `variable` and the column.
std::vector<std::string> expand_nodelist(std::string_view list, const std::string& variable);

// "2(x3),1" as 2 2 2 1. Throws UserError(78) with `variable` and the column.
std::vector<int> expand_repeats(std::string_view list, const std::string& variable);

// How many GPUs "8", "gpu:8", "gpu:a100:8", "gres/gpu:8", "a100:2,v100:1" or "gpu:a100:4(S:0-1)" ask for. Throws
// UserError(78).
int count_gres(std::string_view request, const std::string& variable);

// How many devices a list such as "0-3,5" names.
int count_device_list(std::string_view list);

}  // namespace dslaunch::hostfile
