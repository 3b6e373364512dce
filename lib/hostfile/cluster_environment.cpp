#include "hostfile/cluster_environment.hpp"

#include <algorithm>
#include <cctype>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "hostfile/hostfile.hpp"
#include "hostfile/slurm.hpp"

namespace dslaunch::hostfile {
namespace {

void require_same(const NamedNumber& told, const char* option, const std::optional<int>& given) {
  if (!given || *given == told.value) return;
  contradiction(
      fmt::format("{}={} in the environment but {} {}: the environment of this job contradicts the "
                  "command line; leave out {}, or unset {}",
                  told.name, told.value, option, *given, option, told.name));
}

// --- where the ranks meet ----------------------------------------------------------------------------------------

struct NamedText {
  std::string name, value;
};

std::optional<NamedText> named_text(const Environment& environment, const char* name) {
  auto value = text_of(environment, name);
  if (!value) return std::nullopt;
  return NamedText{name, *value};
}

// Both may be set, as PyTorchJob does; then they must be equal.
std::optional<NamedText> agreed(const Environment& environment, const char* first, const char* second) {
  auto a = named_text(environment, first), b = named_text(environment, second);
  if (a && b && a->value != b->value) {
    contradiction(fmt::format("{}={} but {}={}: they contradict each other; unset the wrong one", first, a->value,
                              second, b->value));
  }
  return a ? a : b;
}

struct Endpoint {
  std::string host;
  std::optional<uint16_t> port;
};

// HOST, HOST:PORT or [ADDRESS]:PORT.
Endpoint parse_endpoint(const NamedText& text) {
  const std::string& value = text.value;
  bool bracketed = value.starts_with('[');
  size_t close = bracketed ? value.find(']') : 0;
  size_t colon = close == std::string::npos ? close : value.find(':', close);
  Endpoint endpoint;
  endpoint.host = bracketed ? value.substr(1, close - 1) : value.substr(0, colon);
  if (colon != std::string::npos) {
    const auto port = parse_int<uint16_t>(std::string_view(value).substr(colon + 1), 1);
    if (!port) endpoint.host.clear();
    endpoint.port = port.value_or(0);
  }
  if (endpoint.host.empty() || (bracketed && close == std::string::npos)) {
    contradiction(fmt::format("{}='{}' is not HOST or HOST:PORT", text.name, printable(value)));
  }
  return endpoint;
}

void read_master_endpoint(const Environment& environment, const HostOptions& asked, ClusterMembership& membership) {
  auto address = agreed(environment, "PET_MASTER_ADDR", "MASTER_ADDR");
  auto port = agreed(environment, "PET_MASTER_PORT", "MASTER_PORT");
  if (port) membership.master_port = static_cast<uint16_t>(*number_of(environment, port->name, 1, 65535));
  if (address) {
    membership.master_addr = address->value;
  } else if (auto endpoint = named_text(environment, "PET_RDZV_ENDPOINT")) {
    Endpoint parsed = parse_endpoint(*endpoint);
    membership.master_addr = parsed.host;
    if (!membership.master_port) membership.master_port = parsed.port;
  }
  if (!asked.master_addr.empty()) membership.master_addr = asked.master_addr;
  if (asked.master_port != 0) membership.master_port = asked.master_port;
  if (membership.num_nodes == 1 || !membership.master_addr.empty()) return;
  contradiction(
      fmt::format("{} says {} nodes but MASTER_ADDR is not set: set it (or --master_addr) to the host of node "
                  "rank 0, the same on every node",
                  membership.source, membership.num_nodes));
}

void check_rank(const NamedNumber& rank, const std::string& size_name, int size) {
  if (rank.value < size) return;
  contradiction(fmt::format("{}={} does not fit {}={}: ranks count from 0", rank.name, rank.value, size_name, size));
}

// --- Kubeflow and Kubernetes -------------------------------------------------------------------------------------

// N, or MIN:MAX as in torchrun.
std::optional<NamedNumber> read_nnodes(const Environment& environment) {
  auto text = text_of(environment, "PET_NNODES");
  if (!text) return std::nullopt;
  size_t colon = text->find(':');
  if (colon == std::string::npos)
    return NamedNumber{"PET_NNODES", *number_of(environment, "PET_NNODES", 1, kMaxProcesses)};
  const auto low = parse_int<int>(std::string_view(*text).substr(0, colon), 1);
  const auto high = parse_int<int>(std::string_view(*text).substr(colon + 1), low.value_or(1), kMaxProcesses);
  if (!low || !high) {
    contradiction(fmt::format("PET_NNODES='{}' in the environment is neither N nor MIN:MAX with 0 < MIN <= MAX",
                              printable(*text)));
  }
  if (low < high) {
    contradiction(fmt::format(
        "PET_NNODES={}: an elastic job leaves the number of nodes open, and dslaunch needs it fixed, since batch sizes "
        "and shards follow from it. Set minReplicas and maxReplicas of the elasticPolicy to one number, or remove it",
        *text));
  }
  return NamedNumber{"PET_NNODES", *low};
}

// RANK and WORLD_SIZE of a pod: an operator counts pods with them. The rank of a process comes with LOCAL_RANK, and
// outside of a pod only a user's shell sets them.
bool counts_pods(const Environment& environment) {
  return text_of(environment, "KUBERNETES_SERVICE_HOST") && text_of(environment, "RANK") &&
         text_of(environment, "WORLD_SIZE") && !text_of(environment, "LOCAL_RANK");
}

std::optional<ClusterMembership> read_pod_count(const Environment& environment, const HostOptions& asked,
                                                int num_cpus) {
  if (!counts_pods(environment)) return std::nullopt;
  NamedNumber size{"WORLD_SIZE", *number_of(environment, "WORLD_SIZE", 1, kMaxProcesses)};
  NamedNumber rank{"RANK", *number_of(environment, "RANK", 0, kMaxProcesses)};
  check_rank(rank, size.name, size.value);
  require_same(size, "--num_nodes", asked.num_nodes);
  ClusterMembership membership;
  membership.source = "kubernetes (WORLD_SIZE)";
  membership.num_nodes = size.value;
  membership.node_rank = rank.value;
  membership.ranks = read_ranks_per_node(environment, asked, num_cpus);
  read_master_endpoint(environment, asked, membership);
  return membership;
}

// PET_NODE_RANK is the node's; RANK is the pod's in a PyTorchJob; a job without an operator has only the index of an
// indexed Job.
NamedNumber read_pet_rank(const Environment& environment, const NamedNumber& nnodes) {
  auto rank = first_number(environment, {"PET_NODE_RANK", "RANK", "JOB_COMPLETION_INDEX"}, 0, kMaxProcesses);
  if (rank) return *rank;
  if (nnodes.value == 1) return {"PET_NODE_RANK", 0};
  contradiction(fmt::format(
      "PET_NNODES={} but neither PET_NODE_RANK, RANK nor JOB_COMPLETION_INDEX says which of the nodes this is{}",
      nnodes.value,
      text_of(environment, "PET_RDZV_ENDPOINT")
          ? ": an elasticPolicy leaves that to torchrun's rendezvous; without it the operator numbers the pods"
          : ""));
}

// --- MPI ---------------------------------------------------------------------------------------------------------

// The variables of one process manager.
struct Manager {
  const char* name;
  std::initializer_list<const char*> rank, size, local_size, local_rank;
};

const Manager kManagers[] = {
    {"open mpi",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"}},
    {"pmi",
     {"PMI_RANK", "PMIX_RANK"},
     {"PMI_SIZE", "WORLD_SIZE"},
     {"MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "LOCAL_SIZE"},
     {"MPI_LOCALRANKID", "PALS_LOCAL_RANKID"}},
};

void refuse_ranks(const NamedNumber& proof, const NamedNumber& size) {
  contradiction(fmt::format(
      "{}={} ({}={}): mpirun starts several processes on this node, and each dslaunch starts all ranks of its node. "
      "Start one per node (Open MPI: --map-by ppr:1:node; MPICH and Intel MPI: -ppn 1), or let mpirun start the ranks "
      "themselves: mpirun ... dsworker",
      proof.name, proof.value, size.name, size.value));
}

std::optional<ClusterMembership> read_manager(const Environment& environment, const HostOptions& asked,
                                              const Manager& manager) {
  auto rank = first_number(environment, manager.rank, 0, kMaxProcesses);
  if (!rank) return std::nullopt;
  auto size = first_number(environment, manager.size, 1, kMaxProcesses);
  if (!size) {
    contradiction(fmt::format(
        "{}={} in the environment but {} is not set: the number of ranks is unknown; unset {} if mpirun did "
        "not start this",
        rank->name, rank->value, *manager.size.begin(), rank->name));
  }
  check_rank(*rank, size->name, size->value);
  auto local_size = first_number(environment, manager.local_size, 1, kMaxProcesses);
  if (local_size && local_size->value > 1) refuse_ranks(*local_size, *size);
  auto local_rank = first_number(environment, manager.local_rank, 0, kMaxProcesses);
  if (local_rank && local_rank->value > 0) refuse_ranks(*local_rank, *size);
  require_same(*size, "--num_nodes", asked.num_nodes);
  ClusterMembership membership;
  membership.source = fmt::format("{} ({})", manager.name, size->name);
  membership.num_nodes = size->value;
  membership.node_rank = rank->value;
  read_master_endpoint(environment, asked, membership);
  return membership;
}

// --- incomplete sets ---------------------------------------------------------------------------------------------

// A variable that, from `several` on, belongs to a job of several nodes or of several processes. Of a node list the
// nodes count.
struct Trace {
  const char* name;
  int several;
};

struct IncompleteSet {
  std::initializer_list<Trace> traces;
  const char* missing;  // what would complete the set
  const char* remedy;
  std::initializer_list<const char*> beside = {};  // the set counts beside one of these variables only; none: always
};

const IncompleteSet kIncompleteSets[] = {
    {{{"SLURM_JOB_NUM_NODES", 2},
      {"SLURM_NNODES", 2},
      {"SLURM_STEP_NUM_NODES", 2},
      {"SLURM_STEP_NUM_TASKS", 2},
      {"SLURM_NODEID", 1},
      {"SLURM_PROCID", 1},
      {"SLURM_JOB_NODELIST", 2},
      {"SLURM_NODELIST", 2}},
     "SLURM_JOB_ID and SLURM_JOB_NODELIST are not both set",
     "pass all SLURM_ variables into the container, or give --hostfile"},
    {{{"PET_NODE_RANK", 0}}, "PET_NNODES is not set", "set PET_NNODES, to 1 for a job of one node"},
    {{{"OMPI_COMM_WORLD_SIZE", 2},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", 2},
      {"OMPI_COMM_WORLD_LOCAL_RANK", 1},
      {"OMPI_COMM_WORLD_NODE_RANK", 1}},
     "OMPI_COMM_WORLD_RANK is not set",
     "pass all OMPI_ variables on"},
    {{{"PMI_SIZE", 2},
      {"MPI_LOCALNRANKS", 2},
      {"MPI_LOCALRANKID", 1},
      {"PALS_LOCAL_SIZE", 2},
      {"PALS_LOCAL_RANKID", 1}},
     "PMI_RANK is not set",
     "pass all variables of mpirun on"},
    // Stale in many a shell; with an address they are somebody's start of several nodes.
    {{{"WORLD_SIZE", 2}, {"RANK", 1}, {"GROUP_WORLD_SIZE", 2}, {"GROUP_RANK", 1}},
     "dslaunch takes nodes from RANK and WORLD_SIZE in a Kubernetes pod only, and from both",
     "give --no_ssh --num_nodes N --node_rank K --master_addr HOST",
     {"MASTER_ADDR", "KUBERNETES_SERVICE_HOST"}},
};

int count_of(const NamedText& variable) {
  if (variable.name.ends_with("NODELIST"))
    return static_cast<int>(expand_nodelist(variable.value, variable.name).size());
  return parse_int<int>(variable.value).value_or(-1);
}

std::optional<NamedText> first_trace(const Environment& environment, const IncompleteSet& set) {
  const auto is_set = [&](const char* name) { return text_of(environment, name).has_value(); };
  if (set.beside.size() != 0 && std::none_of(set.beside.begin(), set.beside.end(), is_set)) return std::nullopt;
  for (const Trace& trace : set.traces) {
    const auto variable = named_text(environment, trace.name);
    if (variable && count_of(*variable) >= trace.several) return variable;
  }
  return std::nullopt;
}

}  // namespace

RanksPerNode read_ranks_per_node(const Environment& environment, const HostOptions& asked, int num_cpus) {
  auto text = text_of(environment, "PET_NPROC_PER_NODE");
  if (!text || *text == "auto" || *text == "gpu") return {};
  if (*text == "cpu") return {.slots = asked.num_gpus.value_or(num_cpus), .cpu_ranks = true};
  if (text->find_first_not_of("0123456789") != std::string::npos) {
    contradiction(fmt::format("PET_NPROC_PER_NODE='{}' is neither a number nor auto, gpu or cpu", printable(*text)));
  }
  auto slots = number_of(environment, "PET_NPROC_PER_NODE", 1, kMaxSlots);
  require_same({"PET_NPROC_PER_NODE", *slots}, "--num_gpus", asked.num_gpus);
  return {.slots = slots};
}

std::optional<ClusterMembership> read_kubeflow(const Environment& environment, const HostOptions& asked, int num_cpus) {
  auto nnodes = read_nnodes(environment);
  if (!nnodes) return read_pod_count(environment, asked, num_cpus);
  require_same(*nnodes, "--num_nodes", asked.num_nodes);
  NamedNumber rank = read_pet_rank(environment, *nnodes);
  check_rank(rank, nnodes->name, nnodes->value);
  ClusterMembership membership;
  membership.source = "kubeflow (PET_NNODES)";
  membership.num_nodes = nnodes->value;
  membership.node_rank = rank.value;
  membership.ranks = read_ranks_per_node(environment, asked, num_cpus);
  read_master_endpoint(environment, asked, membership);
  return membership;
}

std::optional<ClusterMembership> read_mpi(const Environment& environment, const HostOptions& asked) {
  for (const Manager& manager : kManagers) {
    if (auto membership = read_manager(environment, asked, manager)) return membership;
  }
  return std::nullopt;
}

void refuse_incomplete_sets(const Environment& environment) {
  // The rank of a process comes with LOCAL_RANK, and a program that a rank starts is not a node of the rank's job.
  if (text_of(environment, "LOCAL_RANK")) return;
  for (const IncompleteSet& set : kIncompleteSets) {
    const auto trace = first_trace(environment, set);
    if (!trace) continue;
    contradiction(
        fmt::format("{}={} in the environment tells of a job of several nodes or processes, but {}: each of them would "
                    "train alone. "
                    "{}{}; for a run on this machine alone unset {}, or give --include localhost",
                    trace->name, trace->value, set.missing, static_cast<char>(std::toupper(set.remedy[0])),
                    set.remedy + 1, trace->name));
  }
}

}  // namespace dslaunch::hostfile
