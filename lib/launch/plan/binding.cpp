#include "launch/plan/binding.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"
#include "launch/plan/cpu_list.hpp"

namespace dslaunch::launch {
namespace {

using Cpus = std::vector<Cpu>;

constexpr std::array kNumaWords{
    std::pair{"none", BindingKind::kNone},
    std::pair{"node", BindingKind::kNode},
    std::pair{"socket", BindingKind::kSocket},
    std::pair{"exclusive", BindingKind::kExclusive},
    std::pair{"core-complex", BindingKind::kCoreComplex},
};

const char* word_of(BindingKind kind) {
  for (const auto& [word, named] : kNumaWords) {
    if (named == kind) return word;
  }
  return "";
}

std::vector<int> numbers_of(const Cpus& cpus) {
  std::vector<int> numbers;
  for (const auto& cpu : cpus) numbers.push_back(cpu.number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Cpus those(const Cpus& cpus, const std::function<bool(const Cpu&)>& wanted) {
  Cpus found;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(found), wanted);
  return found;
}

std::vector<int> nodes_of(const Cpus& cpus) {
  std::set<int> nodes;
  for (const auto& cpu : cpus) nodes.insert(cpu.node);
  return {nodes.begin(), nodes.end()};
}

// Usable CPUs by physical core; ordered by NUMA node, then by number.
std::vector<Cpus> cores_of(const Cpus& cpus) {
  std::map<std::pair<int, int>, Cpus> cores;
  for (const auto& cpu : cpus) cores[{cpu.node, cpu.core}].push_back(cpu);
  std::vector<Cpus> ordered;
  ordered.reserve(cores.size());
  for (auto& [place, core] : cores) ordered.push_back(std::move(core));
  return ordered;
}

std::string usable_text(const Topology& topology) {
  return cpu_list_text(numbers_of(topology.cpus));
}

// ---- a rank's GPU and its NUMA node

std::string device_of(const std::string& visible, size_t local_rank) {
  const auto entries = split(visible, ',');
  if (entries.size() == 1) return entries[0];
  return local_rank < entries.size() ? entries[local_rank] : std::string();
}

// By index or by a UUID, which may be abbreviated. -1: not known.
int node_of_device(const Topology& topology, const std::string& device) {
  if (const auto index = parse_int<size_t>(device)) {
    return *index < topology.gpus.size() ? topology.gpus[*index].node : -1;
  }
  for (const auto& gpu : topology.gpus) {
    if (device.starts_with("GPU-") && gpu.uuid.starts_with(device)) return gpu.node;
  }
  return -1;
}

bool has_cpus(const Topology& topology, int node) {
  return std::any_of(topology.cpus.begin(), topology.cpus.end(), [&](const auto& cpu) { return cpu.node == node; });
}

// The NUMA node that a rank should run on.
int wanted_node(BindingKind kind, const Topology& topology, const std::vector<std::string>& visible, size_t rank) {
  auto nodes = nodes_of(topology.cpus);
  if (nodes.size() == 1) return nodes[0];
  if (visible[rank].empty()) return nodes[rank * nodes.size() / visible.size()];
  std::string device = device_of(visible[rank], rank);
  int node = node_of_device(topology, device);
  if (node >= 0 && has_cpus(topology, node)) return node;
  std::string why = node < 0 ? "the kernel does not say which NUMA node it belongs to"
                             : fmt::format("none of the CPUs of its NUMA node {} may be used (usable: {})", node,
                                           usable_text(topology));
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("--numa_binding {}: GPU {} of local rank {}: {}; leave the option out, or place the ranks "
                  "with --bind_cores_to_rank",
                  word_of(kind), device, rank, why));
}

// ---- shares of cores

// Equal consecutive parts; the remainder goes to the first ones. Throws when there is less than one core for each.
std::vector<Cpus> shares_of(const std::vector<Cpus>& cores, size_t num_ranks, const std::string& what) {
  if (cores.size() < num_ranks) {
    throw UserError(ExitCode::kUnavailable, fmt::format("{}: {} rank(s) on {} core(s); start at most {} rank(s) there",
                                                        what, num_ranks, cores.size(), cores.size()));
  }
  std::vector<Cpus> shares(num_ranks);
  size_t each = cores.size() / num_ranks, extra = cores.size() % num_ranks, next = 0;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    for (size_t left = each + (rank < extra); left > 0; --left, ++next) {
      shares[rank].insert(shares[rank].end(), cores[next].begin(), cores[next].end());
    }
  }
  return shares;
}

// ---- one function per kind: the CPUs of every rank; empty for a rank that is not bound

std::vector<Cpus> place_by_default(const Topology& topology, const std::vector<std::string>& visible) {
  std::vector<Cpus> placed(visible.size());
  if (nodes_of(topology.cpus).size() < 2) return placed;
  for (size_t rank = 0; rank < visible.size(); ++rank) {
    if (visible[rank].empty()) continue;
    int node = node_of_device(topology, device_of(visible[rank], rank));
    placed[rank] = those(topology.cpus, [&](const Cpu& cpu) { return cpu.node == node; });
  }
  return placed;
}

// The physical cores, each represented by its first thread; or the CPUs of the list, in its order.
std::vector<Cpus> cores_to_share(const BindingRequest& request, const Topology& topology) {
  std::vector<Cpus> cores;
  if (request.core_list.empty()) {
    for (const auto& core : cores_of(topology.cpus)) cores.push_back({core.front()});
    return cores;
  }
  std::vector<int> closed;
  for (int number : read_core_list(request.core_list)) {
    auto cpu = those(topology.cpus, [&](const Cpu& usable) { return usable.number == number; });
    if (cpu.empty()) closed.push_back(number);
    cores.push_back(std::move(cpu));
  }
  if (closed.empty()) return cores;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("--bind_core_list {}: core(s) {} cannot be used here (usable: {})", request.core_list,
                              cpu_list_text(closed), usable_text(topology)));
}

std::vector<Cpus> share_cores(const BindingRequest& request, const Topology& topology, size_t num_ranks) {
  auto cores = cores_to_share(request, topology);
  // The same number for every rank, as in DeepSpeed: the remaining cores stay idle.
  if (cores.size() > num_ranks) cores.resize(cores.size() / num_ranks * num_ranks);
  return shares_of(cores, num_ranks,
                   request.core_list.empty() ? "--bind_cores_to_rank" : "--bind_core_list " + request.core_list);
}

Cpus socket_of(const Topology& topology, int node) {
  std::set<int> packages;
  for (const auto& cpu : topology.cpus) {
    if (cpu.node == node) packages.insert(cpu.package);
  }
  return those(topology.cpus, [&](const Cpu& cpu) { return packages.contains(cpu.package); });
}

// Caches with more usable CPUs come first, then by number; ranks take them in turn.
Cpus core_complex(const Cpus& node, size_t turn) {
  std::map<int, Cpus> by_cache;
  for (const auto& cpu : node) by_cache[cpu.cache].push_back(cpu);
  std::vector<Cpus> complexes;
  complexes.reserve(by_cache.size());
  for (auto& [cache, cpus] : by_cache) complexes.push_back(std::move(cpus));
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const Cpus& a, const Cpus& b) { return a.size() > b.size(); });
  return complexes[turn % complexes.size()];
}

std::vector<Cpus> place_on_nodes(BindingKind kind, const Topology& topology, const std::vector<std::string>& visible) {
  std::map<int, std::vector<size_t>> ranks_of_node;
  for (size_t rank = 0; rank < visible.size(); ++rank) {
    ranks_of_node[wanted_node(kind, topology, visible, rank)].push_back(rank);
  }
  std::vector<Cpus> placed(visible.size());
  for (const auto& [number, ranks] : ranks_of_node) {
    Cpus node = those(topology.cpus, [&, wanted = number](const Cpu& cpu) { return cpu.node == wanted; });
    std::vector<Cpus> shares;
    if (kind == BindingKind::kExclusive) {
      shares = shares_of(cores_of(node), ranks.size(), fmt::format("--numa_binding exclusive: NUMA node {}", number));
    }
    for (size_t turn = 0; turn < ranks.size(); ++turn) {
      Cpus& cpus = placed[ranks[turn]];
      if (kind == BindingKind::kNode) cpus = node;
      if (kind == BindingKind::kSocket) cpus = socket_of(topology, number);
      if (kind == BindingKind::kExclusive) cpus = shares[turn];
      if (kind == BindingKind::kCoreComplex) cpus = core_complex(node, turn);
    }
  }
  return placed;
}

std::vector<Cpus> place(const BindingRequest& request, const Topology& topology,
                        const std::vector<std::string>& visible) {
  switch (request.kind) {
    case BindingKind::kDefault:
      return place_by_default(topology, visible);
    case BindingKind::kNone:
      return std::vector<Cpus>(visible.size());
    case BindingKind::kCores:
      return share_cores(request, topology, visible.size());
    default:
      return place_on_nodes(request.kind, topology, visible);
  }
}

// ---- threads and memory

// A core that several ranks may use counts as a fraction for each. Hyperthreads do not count: dense arithmetic gains
// nothing from the second one.
std::vector<double> cores_by_rank(const std::vector<Cpus>& reach) {
  std::vector<std::set<int>> cores(reach.size());
  for (size_t rank = 0; rank < reach.size(); ++rank) {
    for (const auto& cpu : reach[rank]) cores[rank].insert(cpu.core);
  }
  std::vector<double> parts;
  for (const auto& mine : cores) {
    auto meets = [&](const std::set<int>& theirs) {
      return std::any_of(theirs.begin(), theirs.end(), [&](int core) { return mine.contains(core); });
    };
    auto sharers = std::count_if(cores.begin(), cores.end(), meets);
    parts.push_back(static_cast<double>(mine.size()) / static_cast<double>(sharers));
  }
  return parts;
}

std::vector<int> num_threads(const BindingRequest& request, const Topology& topology, const std::vector<Cpus>& placed) {
  auto reach = placed;  // a rank that is not bound runs everywhere
  for (auto& cpus : reach) {
    if (cpus.empty()) cpus = topology.cpus;
  }
  auto cores = cores_by_rank(reach);
  std::vector<int> threads;
  for (size_t rank = 0; rank < placed.size(); ++rank) {
    // A user who lists CPUs wants a thread on each of them, also on a second hyperthread.
    double most = request.kind == BindingKind::kCores ? static_cast<double>(placed[rank].size()) : cores[rank];
    // All ranks share the cgroup's CPU quota.
    if (topology.quota_cores > 0) most = std::min(most, topology.quota_cores / static_cast<double>(placed.size()));
    threads.push_back(std::max(1, static_cast<int>(most)));
  }
  return threads;
}

std::optional<int> memory_of(const BindingRequest& request, const Cpus& cpus, const Topology& topology) {
  auto nodes = nodes_of(cpus);
  const auto& bindable = topology.memory_nodes;
  bool asked = request.kind == BindingKind::kCores && nodes.size() == 1;
  if (!asked || std::find(bindable.begin(), bindable.end(), nodes[0]) == bindable.end()) return std::nullopt;
  return nodes[0];
}

}  // namespace

BindingKind read_numa_binding(std::string_view word) {
  std::string name(word);
  std::replace(name.begin(), name.end(), '_', '-');
  for (const auto& [known, kind] : kNumaWords) {
    if (name == known) return kind;
  }
  throw UserError(ExitCode::kUsage,
                  fmt::format("--numa_binding {}: expected node, socket, exclusive, core-complex or none", word));
}

std::vector<int> read_core_list(const std::string& text) {
  auto cores = read_cpu_list(text);
  if (cores.ok() && !text.empty()) return *std::move(cores);
  const CpuListError error = text.empty() ? CpuListError{"expected a core number"} : cores.error();
  throw UserError(ExitCode::kUsage, fmt::format("--bind_core_list {}: column {}: {}; write it as 0-3,8-11", text,
                                                error.offset + 1, error.message));
}

std::vector<RankBinding> plan_binding(const BindingRequest& request, const Topology& topology,
                                      const std::vector<std::string>& visible_devices) {
  if (topology.cpus.empty()) return std::vector<RankBinding>(visible_devices.size());
  auto placed = place(request, topology, visible_devices);
  auto threads = num_threads(request, topology, placed);
  std::vector<RankBinding> bindings;
  for (size_t rank = 0; rank < placed.size(); ++rank) {
    bindings.push_back({.cpus = numbers_of(placed[rank]),
                        .memory_node = memory_of(request, placed[rank], topology),
                        .num_threads = threads[rank]});
  }
  return bindings;
}

void check_binding_environment(const BindingRequest& request, const std::map<std::string, std::string>& env) {
  auto affinity = env.find("KMP_AFFINITY");
  if (request.kind != BindingKind::kCores || affinity == env.end()) return;
  throw UserError(ExitCode::kContradiction,
                  fmt::format("--bind_cores_to_rank and KMP_AFFINITY='{}' in the environment both place threads; unset "
                              "KMP_AFFINITY or leave the option out",
                              affinity->second));
}

std::string describe(const RankBinding& binding) {
  std::string text = binding.cpus.empty() ? "cpus not bound" : "cpus " + cpu_list_text(binding.cpus);
  if (binding.memory_node) text += fmt::format(", memory of NUMA node {}", *binding.memory_node);
  return text + fmt::format(", {} thread{}", binding.num_threads, binding.num_threads == 1 ? "" : "s");
}

}  // namespace dslaunch::launch
