#include "hostfile/choose_source.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "hostfile/filter.hpp"
#include "hostfile/plain_name.hpp"

namespace dslaunch::hostfile {
namespace {

void check_by_hand(const SourceOptions& options) {
  if (options.no_ssh && !options.node_rank) {
    throw UserError(ExitCode::kUsage,
                    "--no_ssh needs --node_rank K: dslaunch is started by hand on every node, and K says which of them "
                    "this is (0, 1, ...)");
  }
  if (options.node_rank && !options.no_ssh) {
    throw UserError(ExitCode::kUsage,
                    fmt::format("--node_rank {} belongs to --no_ssh, where dslaunch is started by hand on every node; "
                                "without it the order of the hosts makes the ranks",
                                *options.node_rank));
  }
}

bool only_localhost(const std::string& filter) {
  auto names = names_of_filter(filter);
  return names.size() == 1 && same_host(names.front(), "localhost");
}

// Filters and counts choose among hosts that dslaunch starts itself. Here each node has its own dslaunch, and one that
// was left out would have nobody to tell it.
void refuse_choice(const SourceOptions& options, const std::string& source, const std::string& instead) {
  const std::string& filter = options.include.empty() ? options.exclude : options.include;
  if (filter.empty()) return;
  throw UserError(
      ExitCode::kContradiction,
      fmt::format("{} {}: each node runs a dslaunch of its own already ({}), so no host can be left out here; {}",
                  options.include.empty() ? "--exclude" : "--include", filter, source, instead));
}

ClusterPlace place_in_step(const SlurmSituation& slurm, const SourceOptions& options) {
  ClusterPlace place;
  place.source = slurm.allocation.source;
  place.node_rank = slurm.node_rank;
  place.num_nodes = slurm.num_nodes;
  if (slurm.slots_are_gpus || !slurm.slots_open) {
    place.slots = static_cast<int>(slurm.allocation.hosts[static_cast<size_t>(slurm.node_rank)].slots.size());
  }
  place.master_addr = options.master_addr.empty() ? slurm.first_node : options.master_addr;
  place.master_port = options.master_port == 0 ? slurm.meeting_port : options.master_port;
  return place;
}

Source slurm_source(SlurmSituation slurm, const SourceOptions& options) {
  Source source;
  source.kind = slurm.kind == SlurmKind::kTask ? SourceKind::kSlurmTask : SourceKind::kSlurmAllocation;
  source.notice = describe(slurm);
  if (source.kind == SourceKind::kSlurmTask) {
    refuse_choice(options, slurm.allocation.source, "choose nodes with srun's --nodes and --nodelist");
    if (options.num_nodes && *options.num_nodes != slurm.num_nodes) {
      throw UserError(
          ExitCode::kContradiction,
          fmt::format("--num_nodes {} but srun has started dslaunch on {} nodes (step {}.{}): leave out "
                      "--num_nodes, or give srun --nodes={}",
                      *options.num_nodes, slurm.num_nodes, slurm.job_id, slurm.step_id, *options.num_nodes));
    }
    source.place = place_in_step(slurm, options);
  }
  source.slurm = std::move(slurm);
  return source;
}

Source place_source(ClusterPlace place, const SourceOptions& options) {
  refuse_choice(options, place.source, "CUDA_VISIBLE_DEVICES chooses the devices of a node");
  Source source;
  source.kind = SourceKind::kPlace;
  source.notice = fmt::format("{}: node {} of {}", place.source, place.node_rank, place.num_nodes);
  source.place = std::move(place);
  return source;
}

// The hostfile that Kubeflow's MPI runtime mounts, then DeepSpeed's.
std::optional<std::string> unspoken_hostfile(const SourceOptions& options, const Environment& environment,
                                             const std::function<bool(const std::string&)>& exists) {
  auto named = text_of(environment, "OMPI_MCA_orte_default_hostfile");
  if (named && exists(*named)) return named;
  if (!options.default_hostfile.empty() && exists(options.default_hostfile)) return options.default_hostfile;
  return std::nullopt;
}

}  // namespace

Source choose_source(const SourceOptions& options, const Environment& environment,
                     const std::function<bool(const std::string&)>& exists) {
  check_by_hand(options);
  Source source;
  source.hostfile = options.hostfile;
  if (options.no_ssh) {
    source.kind = SourceKind::kByHand;
    return source;
  }
  if (options.hostfile) {
    source.kind = SourceKind::kHostfile;
    return source;
  }
  if (only_localhost(options.include) || only_localhost(options.exclude)) return source;
  SlurmSituation slurm = read_slurm(environment);
  if (slurm.kind != SlurmKind::kNone) return slurm_source(std::move(slurm), options);
  StatedPlace stated{options.num_nodes, options.num_gpus, options.master_addr, options.master_port};
  if (auto place = read_kubeflow(environment, stated, options.num_cpus)) return place_source(*place, options);
  if (auto place = read_mpi(environment, stated)) return place_source(*place, options);
  source.hostfile = unspoken_hostfile(options, environment, exists);
  if (source.hostfile) {
    source.kind = SourceKind::kHostfile;
    source.notice = fmt::format("hosts from {}, since it exists and nothing else names hosts", *source.hostfile);
  }
  return source;
}

}  // namespace dslaunch::hostfile
