#include "hostfile/choose_source.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "hostfile/filter.hpp"
#include "hostfile/plain_name.hpp"

namespace dslaunch::hostfile {
namespace {

void check_node_rank(const HostOptions& asked) {
  if (asked.no_ssh && !asked.node_rank) {
    throw UserError(
        ExitCode::kUsage,
        "--no_ssh needs --node_rank K: dslaunch is started by hand on every node, and K is the rank of this "
        "node (0, 1, ...)");
  }
  if (asked.node_rank && !asked.no_ssh) {
    throw UserError(ExitCode::kUsage,
                    fmt::format("--node_rank {} belongs to --no_ssh, where dslaunch is started by hand on every node; "
                                "without it the order of the hosts determines the ranks",
                                *asked.node_rank));
  }
}

bool only_localhost(const std::string& filter) {
  auto names = names_of_filter(filter);
  return names.size() == 1 && same_host(names.front(), "localhost");
}

// Filters and counts select among hosts that dslaunch starts itself. Here each node has its own dslaunch, and an
// excluded one could not be told that it is excluded.
void reject_filter(const HostOptions& asked, const std::string& source, const std::string& instead) {
  const std::string& filter = asked.include.empty() ? asked.exclude : asked.include;
  if (filter.empty()) return;
  throw UserError(
      ExitCode::kContradiction,
      fmt::format("{} {}: each node already runs its own dslaunch ({}), so no host can be left out here; {}",
                  asked.include.empty() ? "--exclude" : "--include", filter, source, instead));
}

ClusterMembership membership_in_step(const SlurmSituation& slurm, const HostOptions& asked) {
  ClusterMembership membership;
  membership.source = slurm.allocation.source;
  membership.node_rank = slurm.node_rank;
  membership.num_nodes = slurm.num_nodes;
  if (slurm.slots_are_gpus || !slurm.slots_open) {
    membership.ranks.slots =
        static_cast<int>(slurm.allocation.hosts[static_cast<size_t>(slurm.node_rank)].slots.size());
  }
  membership.master_addr = asked.master_addr.empty() ? slurm.first_node : asked.master_addr;
  membership.master_port = asked.master_port == 0 ? slurm.rendezvous_port : asked.master_port;
  return membership;
}

Source slurm_source(SlurmSituation slurm, const HostOptions& asked) {
  Source source;
  source.kind = slurm.kind == SlurmKind::kTask ? SourceKind::kSlurmTask : SourceKind::kSlurmAllocation;
  source.notice = describe(slurm);
  if (source.kind == SourceKind::kSlurmTask) {
    reject_filter(asked, slurm.allocation.source, "choose nodes with srun's --nodes and --nodelist");
    if (asked.num_nodes && *asked.num_nodes != slurm.num_nodes) {
      throw UserError(ExitCode::kContradiction,
                      fmt::format("--num_nodes {} but srun has started dslaunch on {} nodes (step {}.{}): leave out "
                                  "--num_nodes, or give srun --nodes={}",
                                  *asked.num_nodes, slurm.num_nodes, slurm.job_id, slurm.step_id, *asked.num_nodes));
    }
    source.membership = membership_in_step(slurm, asked);
  }
  source.slurm = std::move(slurm);
  return source;
}

Source external_node_source(ClusterMembership membership, const HostOptions& asked) {
  reject_filter(asked, membership.source, "CUDA_VISIBLE_DEVICES chooses the devices of a node");
  Source source;
  source.kind = SourceKind::kExternalNode;
  source.notice = fmt::format("{}: node {} of {}", membership.source, membership.node_rank, membership.num_nodes);
  source.membership = std::move(membership);
  return source;
}

// torchrun uses this variable on any machine, so a user who has set it expects the same here.
void set_ranks_per_node(Source& source, const HostOptions& asked, const Surroundings& here) {
  source.ranks = read_ranks_per_node(here.environment, asked, here.num_cpus);
  if (source.ranks.slots && !asked.num_gpus) {
    source.notice = fmt::format("PET_NPROC_PER_NODE={}: {} rank(s) on this node",
                                *text_of(here.environment, "PET_NPROC_PER_NODE"), *source.ranks.slots);
  }
}

// The hostfile that Kubeflow's MPI runtime mounts, then DeepSpeed's.
std::optional<std::string> default_hostfile_notice(const Surroundings& here) {
  auto named = text_of(here.environment, "OMPI_MCA_orte_default_hostfile");
  if (named && here.exists(*named)) return named;
  if (!here.default_hostfile.empty() && here.exists(here.default_hostfile)) return here.default_hostfile;
  return std::nullopt;
}

}  // namespace

Source choose_source(const HostOptions& asked, const Surroundings& here) {
  check_node_rank(asked);
  Source source;
  source.hostfile = asked.hostfile;
  if (asked.no_ssh) {
    source.kind = SourceKind::kByHand;
    if (!source.hostfile) set_ranks_per_node(source, asked, here);
    return source;
  }
  if (asked.hostfile) {
    source.kind = SourceKind::kHostfile;
    return source;
  }
  if (only_localhost(asked.include) || only_localhost(asked.exclude)) return source;
  SlurmSituation slurm = read_slurm(here.environment);
  if (slurm.kind != SlurmKind::kNone) return slurm_source(std::move(slurm), asked);
  if (auto membership = read_kubeflow(here.environment, asked, here.num_cpus))
    return external_node_source(*membership, asked);
  if (auto membership = read_mpi(here.environment, asked)) return external_node_source(*membership, asked);
  source.hostfile = default_hostfile_notice(here);
  if (source.hostfile) {
    source.kind = SourceKind::kHostfile;
    source.notice = fmt::format("hosts from {}, since it exists and nothing else names hosts", *source.hostfile);
  } else {
    refuse_incomplete_sets(here.environment);
    set_ranks_per_node(source, asked, here);
  }
  return source;
}

}  // namespace dslaunch::hostfile
