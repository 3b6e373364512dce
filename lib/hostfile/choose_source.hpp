// Chooses the source of a job's host list when several are possible. Pure: from options, variables and a predicate on
// files to a decision. The order of precedence, which docs/clusters.md explains:
//
//   1. --hostfile F                        5. Kubeflow, Kubernetes (PET_NNODES ...)
//   2. --no_ssh --node_rank K              6. mpirun (OMPI_COMM_WORLD_RANK, PMI_RANK ...)
//   3. --include/--exclude of localhost    7. a hostfile that MPI's operator or DeepSpeed's default names
//   4. Slurm                               8. this machine (PET_NPROC_PER_NODE ranks)
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "hostfile/cluster_environment.hpp"
#include "hostfile/environment.hpp"
#include "hostfile/host_options.hpp"
#include "hostfile/slurm.hpp"

namespace dslaunch::hostfile {

// The default path of the hostfile in DeepSpeed jobs.
constexpr const char* kDefaultHostfile = "/job/hostfile";

// The relevant state of this machine.
struct Surroundings {
  Environment environment;
  std::function<bool(const std::string& path)> exists;  // does the file exist?
  int num_cpus = 1;                                     // for PET_NPROC_PER_NODE=cpu
  std::string default_hostfile = kDefaultHostfile;
};

enum class SourceKind {
  kHostfile,         // `hostfile` is set: connect to its hosts
  kByHand,           // the user starts dslaunch on every node; hosts from `hostfile` if set
  kSlurmAllocation,  // `slurm` is set: one agent per node through srun
  kSlurmTask,        // `slurm` and `membership` are set: this is one node of a step
  kExternalNode,     // `membership` is set: this is one node of an externally started job
  kThisMachine,
};

struct Source {
  SourceKind kind = SourceKind::kThisMachine;
  std::optional<std::string> hostfile;
  std::optional<SlurmSituation> slurm;
  std::optional<ClusterMembership> membership;
  RanksPerNode ranks;  // of kThisMachine, and of this node of kByHand if no hostfile is set: PET_NPROC_PER_NODE
  std::string notice;  // one line to print first if the user did not state the choice explicitly
};

// Throws UserError: 78 when the variables contradict each other or the options (see slurm.hpp and
// cluster_environment.hpp), or when a filter would drop externally started nodes; 64 for --node_rank without --no_ssh
// and vice versa.
Source choose_source(const HostOptions& asked, const Surroundings& here);

}  // namespace dslaunch::hostfile
