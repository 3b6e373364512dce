// "One dslaunch per node, started by somebody else": what Kubeflow (PyTorchJob, TrainJob), plain indexed jobs of
// Kubernetes and MPI's process managers say about a node's place in its job. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "hostfile/environment.hpp"
#include "hostfile/host_options.hpp"

namespace dslaunch::hostfile {

// PET_NPROC_PER_NODE, which stands for torchrun's --nproc_per_node wherever it is set.
struct RanksPerNode {
  std::optional<int> slots;  // empty: the node's devices, or one CPU rank where there is none
  bool cpu_ranks = false;    // "cpu": ranks on the CPU, also where there are devices
};

struct ClusterPlace {
  std::string source;  // "kubeflow (PET_NNODES)", "open mpi (OMPI_COMM_WORLD_SIZE)", ...
  int node_rank = 0;
  int num_nodes = 1;
  RanksPerNode ranks;                   // of this node
  std::string master_addr;              // where the ranks meet; empty only for one node
  std::optional<uint16_t> master_port;  // empty: not stated; the same default on every node then
};

// What the command line says about the same things (`asked`) is never resolved silently: another number of nodes or
// GPUs is refused, another meeting point wins over the environment.

// A number, auto, gpu or cpu. Throws UserError(78) for anything else and for another number than that of `asked`.
// `num_cpus`: for cpu.
RanksPerNode read_ranks_per_node(const Environment& environment, const HostOptions& asked, int num_cpus);

// PET_NNODES (N, or N:N), PET_NODE_RANK (or RANK of the pod, or JOB_COMPLETION_INDEX), PET_NPROC_PER_NODE,
// PET_MASTER_ADDR and PET_MASTER_PORT (or MASTER_ADDR, MASTER_PORT, or PET_RDZV_ENDPOINT). Inside a
// pod, RANK and WORLD_SIZE without LOCAL_RANK count pods (PyTorchJobs of older operators set these only). Nothing of
// this set: no place.
// Throws UserError(78) with names and values: an incomplete or contradicting set, one that differs from `asked`, and
// an elastic job (PET_NNODES=2:4), whose number of nodes is open where dslaunch needs a fixed one.
std::optional<ClusterPlace> read_kubeflow(const Environment& environment, const HostOptions& asked, int num_cpus);

// Started by mpirun with one process a node: Open MPI's, Intel MPI's, MPICH's and PALS' variables. Throws UserError(78)
// when the manager starts several processes a node (each would be a launcher of its own; `mpirun ... dsworker` is the
// way to start ranks), when no MASTER_ADDR is given for several nodes, or the set contradicts itself or `asked`.
std::optional<ClusterPlace> read_mpi(const Environment& environment, const HostOptions& asked);

}  // namespace dslaunch::hostfile
