// One dslaunch per node, started externally: reads a node's place in its job from the variables of Kubeflow
// (PyTorchJob, TrainJob), plain indexed Jobs of Kubernetes and MPI's process managers. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "hostfile/environment.hpp"
#include "hostfile/host_options.hpp"

namespace dslaunch::hostfile {

// PET_NPROC_PER_NODE, equivalent to torchrun's --nproc_per_node wherever it is set.
struct RanksPerNode {
  std::optional<int> slots;  // empty: the node's devices, or one CPU rank if it has none
  bool cpu_ranks = false;    // "cpu": ranks on the CPU, even if there are devices
};

struct ClusterMembership {
  std::string source;  // "kubeflow (PET_NNODES)", "open mpi (OMPI_COMM_WORLD_SIZE)", ...
  int node_rank = 0;
  int num_nodes = 1;
  RanksPerNode ranks;                   // of this node
  std::string master_addr;              // the address where the ranks meet; empty only for one node
  std::optional<uint16_t> master_port;  // empty: not stated; then every node uses the same default
};

// A conflict with the command line (`asked`) is never resolved silently: a different number of nodes or GPUs is an
// error; a master address or port on the command line overrides the environment.

// A number, auto, gpu or cpu. Throws UserError(78) for anything else and for a number different from that of `asked`.
// `num_cpus`: used for cpu.
RanksPerNode read_ranks_per_node(const Environment& environment, const HostOptions& asked, int num_cpus);

// PET_NNODES (N, or N:N), PET_NODE_RANK (or RANK of the pod, or JOB_COMPLETION_INDEX), PET_NPROC_PER_NODE,
// PET_MASTER_ADDR and PET_MASTER_PORT (or MASTER_ADDR, MASTER_PORT, or PET_RDZV_ENDPOINT). Inside a pod, RANK and
// WORLD_SIZE without LOCAL_RANK count pods (PyTorchJobs of older operators set only these). Empty if none of these is
// set. Throws UserError(78) with names and values for a set of variables that is incomplete, contradictory or different
// from `asked`, and for an elastic job (PET_NNODES=2:4), whose number of nodes varies while dslaunch needs a fixed one.
std::optional<ClusterMembership> read_kubeflow(const Environment& environment, const HostOptions& asked, int num_cpus);

// For mpirun with one process per node: the variables of Open MPI, Intel MPI, MPICH and PALS. Throws UserError(78) when
// the manager starts several processes per node (each would be a separate launcher; use `mpirun ... dsworker` to start
// ranks), when MASTER_ADDR is missing for several nodes, or when the variables contradict each other or `asked`.
std::optional<ClusterMembership> read_mpi(const Environment& environment, const HostOptions& asked);

// For an environment that neither Slurm's variables nor the functions above have made a membership of. Throws
// UserError(78) if it has a part of the variables of a job of several nodes or processes, as a container has that was
// given some of them: every node would train alone, and each would look like the whole job.
void refuse_incomplete_sets(const Environment& environment);

}  // namespace dslaunch::hostfile
