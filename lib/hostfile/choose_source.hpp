// Where the hosts of a job come from when several places could say so. Pure: options, variables and a question about
// files in, a decision out. The order, which docs/clusters.md explains:
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

// Where DeepSpeed's jobs have their hostfile, and where nobody needs to say so.
constexpr const char* kDefaultHostfile = "/job/hostfile";

// What there is on this machine.
struct Surroundings {
  Environment environment;
  std::function<bool(const std::string& path)> exists;  // is there such a file?
  int num_cpus = 1;                                     // for PET_NPROC_PER_NODE=cpu
  std::string default_hostfile = kDefaultHostfile;
};

enum class SourceKind {
  kHostfile,         // `hostfile` is set: reach its hosts
  kByHand,           // the user starts dslaunch on every node; hosts from `hostfile` where one is set
  kSlurmAllocation,  // `slurm` is set: an agent a node through srun
  kSlurmTask,        // `slurm` and `place` are set: this is one node of a step
  kPlace,            // `place` is set: this is one node of a job that somebody else started
  kThisMachine,
};

struct Source {
  SourceKind kind = SourceKind::kThisMachine;
  std::optional<std::string> hostfile;
  std::optional<SlurmSituation> slurm;
  std::optional<ClusterPlace> place;
  RanksPerNode ranks;  // of kThisMachine, and of this node of kByHand where no hostfile is set: PET_NPROC_PER_NODE
  std::string notice;  // one line to say before anything else when the choice is not one the user spelt out
};

// Throws UserError: 78 when the variables contradict themselves or the options (see slurm.hpp and
// cluster_environment.hpp), or when a filter would drop nodes that somebody else has started already; 64 for
// --node_rank without --no_ssh and the other way round.
Source choose_source(const HostOptions& asked, const Surroundings& here);

}  // namespace dslaunch::hostfile
