#include "launch/plan/hosts.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/log.hpp"
#include "hostfile/hostfile.hpp"
#include "hostfile/resolve.hpp"
#include "hostfile/this_machine.hpp"
#include "launch/plan/devices.hpp"
#include "launch/plan/query_slurm.hpp"
#include "rendezvous/launch_env.hpp"

namespace dslaunch::launch {
namespace {

using hostfile::Source;
using hostfile::SourceKind;
using namespace std::chrono_literals;

// Names that the resolver has not answered for by then are taken as other machines.
constexpr auto kResolveTime = 5000ms;

const hostfile::RanksPerNode& ranks_of_this_node(const Source& source) {
  return source.membership ? source.membership->ranks : source.ranks;
}

// --num_gpus, or its equivalent in the environment.
struct RequestedRanks {
  std::optional<int> number;
  const char* name = "--num_gpus ";
};

RequestedRanks requested_ranks(const LaunchOptions& options, const Source& source) {
  if (options.hosts.num_gpus) return {options.hosts.num_gpus};
  return {ranks_of_this_node(source).slots, "PET_NPROC_PER_NODE="};
}

DeviceSituation situation_for(const LaunchOptions& options, const Source& source) {
  bool cpu = options.device == DeviceChoice::kCpu || ranks_of_this_node(source).cpu_ranks;
  return cpu ? DeviceSituation{} : look_for_devices();
}

// DSLAUNCH_TOKEN.
std::vector<uint8_t> shared_token() {
  const char* text = std::getenv(rendezvous::kTokenVariable);
  if (text == nullptr || *text == '\0') return {};
  return rendezvous::parse_token(text);
}

// --- checks -------------------------------------------------------------------------------------------------------

std::string in_brackets(const std::string& text) {
  return text.empty() ? "" : fmt::format(" ({})", text);
}

// A hostfile may promise more slots than this machine has devices.
void refuse_missing_devices(const ResolvedHosts& resolved, const DeviceSituation& situation) {
  const auto& allocation = resolved.allocation;
  for (size_t i = 0; i < allocation.hosts.size(); ++i) {
    const auto& host = allocation.hosts[i];
    if (resolved.reach[i] != Reach::kPipe || host.slots.empty() ||
        host.slots.back() < static_cast<int>(situation.visible.size())) {
      continue;
    }
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("slot {} of {} ({}) has no GPU: {} of the {} GPU(s) of this machine are visible{}",
                                host.slots.back(), host.name, allocation.source, situation.visible.size(),
                                situation.num_present, in_brackets(situation.error)));
  }
}

void check_num_gpus(const RequestedRanks& asked, const DeviceSituation& situation) {
  if (!asked.number || *asked.number <= static_cast<int>(situation.visible.size())) return;
  std::string hidden = in_brackets(situation.error);
  if (hidden.empty() && situation.num_present > situation.visible.size()) {
    hidden = fmt::format(" (of {} in the machine; CUDA_VISIBLE_DEVICES hides the rest)", situation.num_present);
  }
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("{}{}: this host has {} GPU(s){}; ask for at most that many, or use --device cpu for CPU ranks",
                  asked.name, *asked.number, situation.visible.size(), hidden));
}

// --- where the list of hosts comes from ---------------------------------------------------------------------------

hostfile::Allocation this_machine(const LaunchOptions& options, const RequestedRanks& asked,
                                  const DeviceSituation& situation, const std::string& device) {
  hostfile::Request request{.asked = options.hosts};
  request.asked.num_gpus = asked.number;
  if (device == "cuda") {
    request.local_slots = hostfile::first_slots(static_cast<int>(situation.visible.size()));
  } else {
    request.any_local_slots = true;
  }
  return hostfile::resolve(request);
}

hostfile::Allocation of_hostfile(const LaunchOptions& options, const std::string& path) {
  hostfile::Request request{.asked = options.hosts};
  request.asked.hostfile = path;
  return hostfile::resolve(request);
}

hostfile::Allocation of_slurm(const LaunchOptions& options, const hostfile::SlurmSituation& slurm) {
  hostfile::Request request{.asked = options.hosts};
  request.allocated = slurm.allocation;
  request.allocated_slots_open = slurm.slots_open;
  return hostfile::resolve(request);
}

// How many ranks this node runs when no hostfile defines it.
int slots_of_this_node(const LaunchOptions& options, const Source& source, const DeviceSituation& situation,
                       const std::string& device) {
  hostfile::require_possible_slots(options.hosts);
  if (const auto asked = requested_ranks(options, source); asked.number) return *asked.number;
  return device == "cuda" ? static_cast<int>(situation.visible.size()) : 1;
}

// What lists the hosts; empty: they are this machine, or nodes that connect to it.
std::optional<hostfile::Allocation> listed_hosts(const LaunchOptions& options, const Source& source) {
  if (source.hostfile) return of_hostfile(options, *source.hostfile);
  if (source.kind == SourceKind::kSlurmAllocation) return of_slurm(options, *source.slurm);
  return std::nullopt;
}

// Empty: this process starts the other nodes' part of the job itself.
std::optional<NodeMembership> place_among_nodes(const LaunchOptions& options, const Source& source) {
  NodeMembership membership;
  if (source.membership) {
    membership.node_rank = source.membership->node_rank;
    membership.num_nodes = source.membership->num_nodes;
    membership.master_addr = source.membership->master_addr;
    membership.master_port = source.membership->master_port.value_or(rendezvous::kDefaultMasterPort);
  } else if (source.kind == SourceKind::kByHand) {
    membership.node_rank = *options.hosts.node_rank;
    membership.num_nodes = options.hosts.num_nodes.value_or(1);
    membership.master_addr = options.hosts.master_addr;
    membership.master_port =
        options.hosts.master_port == 0 ? rendezvous::kDefaultMasterPort : options.hosts.master_port;
  } else {
    return std::nullopt;
  }
  membership.token = shared_token();
  return membership;
}

// Externally started nodes: all assumed to equal this one until they report otherwise.
hostfile::Allocation nodes_like_this(const NodeMembership& membership, const Source& source, int num_slots) {
  hostfile::Allocation allocation{source.membership ? source.membership->source : "--no_ssh", {}};
  for (int node = 0; node < membership.num_nodes; ++node) {
    hostfile::Host host;
    host.name = source.slurm ? source.slurm->allocation.hosts.at(node).name : fmt::format("node{}", node);
    // The other nodes report their names when they connect.
    if (!source.slurm && node == membership.node_rank && hostfile::is_host_name(host_name())) host.name = host_name();
    host.slots = hostfile::first_slots(num_slots);
    allocation.hosts.push_back(std::move(host));
  }
  return allocation;
}

// --- the transports to the hosts ----------------------------------------------------------------------------------

std::vector<Reach> reach_through_ssh(const hostfile::Allocation& allocation) {
  std::vector<std::string> names;
  for (const auto& host : allocation.hosts) names.push_back(host.name);
  std::vector<Reach> reach;
  for (bool local : hostfile::which_are_this_machine(names, Deadline::after(kResolveTime))) {
    reach.push_back(local ? Reach::kPipe : Reach::kSsh);
  }
  return reach;
}

// Inside an allocation, the node that this process runs on is identified by its Slurm name.
std::vector<Reach> reach_through_srun(const hostfile::Allocation& allocation) {
  const char* here = std::getenv("SLURMD_NODENAME");
  std::vector<Reach> reach;
  for (const auto& host : allocation.hosts) {
    reach.push_back(here != nullptr && host.name == here ? Reach::kPipe : Reach::kSrun);
  }
  return reach;
}

// A login node's devices do not indicate the devices of the machines that it starts jobs on.
std::string device_elsewhere(DeviceChoice choice) {
  if (choice == DeviceChoice::kAuto) return "auto";
  return choice == DeviceChoice::kCuda ? "cuda" : "cpu";
}

// Hosts that a hostfile or Slurm lists, possibly including this machine.
void resolve_listed_hosts(ResolvedHosts& resolved, const LaunchOptions& options, const DeviceSituation& situation,
                          DeviceUser user) {
  size_t local = std::count(resolved.reach.begin(), resolved.reach.end(), Reach::kPipe);
  resolved.device = local == 0 ? device_elsewhere(options.device) : choose_device(options.device, situation, user);
  if (local > 0 && resolved.device == "cuda") refuse_missing_devices(resolved, situation);
  if (local < resolved.reach.size()) resolved.device = device_elsewhere(options.device);
}

// Node rank 0 is this machine, whatever its name; the other nodes connect to it.
void resolve_external_nodes(ResolvedHosts& resolved, const LaunchOptions& options, const HostList& list,
                            const DeviceSituation& situation, DeviceUser user) {
  std::string here = choose_device(options.device, situation, user);
  resolved.allocation = list.listed ? *list.listed
                                    : nodes_like_this(*list.membership, list.source,
                                                      slots_of_this_node(options, list.source, situation, here));
  if (list.membership->num_nodes > 1) resolved.master_port = list.membership->master_port;
  resolved.reach.assign(resolved.allocation.hosts.size(), Reach::kNodeJoin);
  resolved.reach.at(0) = Reach::kPipe;
  bool open = options.device == DeviceChoice::kAuto && resolved.reach.size() > 1 && !situation.visible.empty();
  resolved.device = open ? "auto" : here;
}

void resolve_this_machine(ResolvedHosts& resolved, const LaunchOptions& options, const Source& source,
                          const DeviceSituation& situation, DeviceUser user) {
  const RequestedRanks asked = requested_ranks(options, source);
  // The message has to contain the requested number, also when there is no device at all.
  if (options.device == DeviceChoice::kCuda) check_num_gpus(asked, situation);
  resolved.device = choose_device(options.device, situation, user);
  if (resolved.device == "cuda") check_num_gpus(asked, situation);
  resolved.allocation = this_machine(options, asked, situation, resolved.device);
  resolved.reach = {Reach::kPipe};
}

}  // namespace

Source find_source(const LaunchOptions& options) {
  const auto exists = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  };
  const int num_cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Source source = hostfile::choose_source(
      options.hosts, {.environment = environment_of_this_process(), .exists = exists, .num_cpus = num_cpus});
  if (source.kind == SourceKind::kSlurmAllocation && source.slurm->slots_open) {
    query_gpus(*source.slurm);
    source.notice = describe(*source.slurm);
  }
  return source;
}

HostList list_hosts(const LaunchOptions& options, Source source) {
  HostList list{.source = std::move(source), .listed = {}, .membership = {}};
  list.membership = place_among_nodes(options, list.source);
  list.listed = listed_hosts(options, list.source);
  if (list.listed && !list.listed->note.empty()) log::warning("{}", list.listed->note);
  if (!list.membership) return list;
  NodeMembership& membership = *list.membership;
  if (list.listed) {
    membership.num_nodes = static_cast<int>(list.listed->hosts.size());
    if (membership.master_addr.empty()) membership.master_addr = list.listed->hosts.at(0).name;
  }
  if (membership.node_rank < membership.num_nodes) return list;
  throw UserError(ExitCode::kUsage, fmt::format("--node_rank {}: there are {} nodes, counted from 0",
                                                membership.node_rank, membership.num_nodes));
}

ResolvedHosts resolve_hosts(const LaunchOptions& options, const HostList& list, DeviceUser user) {
  ResolvedHosts resolved;
  DeviceSituation situation = situation_for(options, list.source);
  if (list.membership) {
    resolve_external_nodes(resolved, options, list, situation, user);
  } else if (list.listed) {
    resolved.allocation = *list.listed;
    const bool by_slurm = list.source.kind == SourceKind::kSlurmAllocation;
    resolved.reach = by_slurm ? reach_through_srun(resolved.allocation) : reach_through_ssh(resolved.allocation);
    resolve_listed_hosts(resolved, options, situation, user);
  } else {
    resolve_this_machine(resolved, options, list.source, situation, user);
  }
  const bool takes_part = std::count(resolved.reach.begin(), resolved.reach.end(), Reach::kPipe) > 0;
  if (takes_part && resolved.device != "cpu" && !situation.error.empty()) {
    log::warning("{}; continuing without it", situation.error);
  }
  resolved.visible = std::move(situation.visible);
  return resolved;
}

AgentHello offer_of_this_node(const LaunchOptions& options, const HostList& list) {
  AgentHello offer;
  DeviceSituation situation = situation_for(options, list.source);
  offer.devices = situation.visible;
  offer.device_error = situation.error;
  if (list.listed) return offer;
  // Node rank 0 decides about GPUs that do not answer, so that all nodes get the error.
  std::string device = options.device == DeviceChoice::kAuto && situation.none_answers()
                           ? "cpu"
                           : choose_device(options.device, situation, DeviceUser::kAnyProgram);
  if (device == "cuda") check_num_gpus({options.hosts.num_gpus}, situation);
  offer.num_slots = slots_of_this_node(options, list.source, situation, device);
  return offer;
}

void apply_offers(ResolvedHosts& hosts, const std::vector<AgentHello>& offers) {
  for (size_t node = 1; node < hosts.allocation.hosts.size(); ++node) {
    const AgentHello& offer = offers.at(node - 1);
    if (offer.num_slots == 0) continue;  // the hostfile defines the slots
    if (offer.num_slots > hostfile::kMaxSlots) {
      throw UserError(ExitCode::kUnavailable, fmt::format("node rank {} offers {} slots; the maximum is {}", node,
                                                          offer.num_slots, hostfile::kMaxSlots));
    }
    auto& host = hosts.allocation.hosts[node];
    if (hostfile::is_host_name(offer.host_name)) host.name = offer.host_name;
    host.slots = hostfile::first_slots(offer.num_slots);
  }
}

int leave_out_surplus(ResolvedHosts& hosts, int ranks_per_model) {
  const int world_size = hosts.allocation.world_size();
  if (world_size < ranks_per_model || hosts.master_port != 0) return 0;
  const int surplus = world_size % ranks_per_model;
  auto& all = hosts.allocation.hosts;
  for (int left = surplus; left > 0; --left) {
    while (all.back().slots.empty()) all.pop_back();
    all.back().slots.pop_back();
  }
  while (all.back().slots.empty()) all.pop_back();
  hosts.reach.resize(all.size());
  return surplus;
}

}  // namespace dslaunch::launch
