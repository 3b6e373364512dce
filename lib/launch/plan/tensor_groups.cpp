#include "launch/plan/tensor_groups.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

// The node of each rank, by rank.
std::vector<const PlannedNode*> nodes_of_ranks(const LaunchPlan& plan) {
  std::vector<const PlannedNode*> out(static_cast<size_t>(plan.world_size()));
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) out.at(static_cast<size_t>(rank.rank)) = &node;
  }
  return out;
}

// What to change so that every group lies on one host.
std::string remedy(const LaunchPlan& plan) {
  const int tensor = plan.mesh.tensor;
  int common = tensor;
  for (const auto& node : plan.nodes) common = std::gcd(common, static_cast<int>(node.ranks.size()));
  if (common > 1) return fmt::format("with tensor_parallel.size (--tp) {} every group lies on one host", common);
  const auto odd = std::find_if(plan.nodes.begin(), plan.nodes.end(),
                                [&](const auto& node) { return static_cast<int>(node.ranks.size()) % tensor != 0; });
  return fmt::format("host {} has {} rank{}: with a multiple of {} on each host every group lies on one", odd->host,
                     odd->ranks.size(), odd->ranks.size() == 1 ? "" : "s", tensor);
}

}  // namespace

std::string tensor_groups_over_hosts(const LaunchPlan& plan) {
  const int tensor = plan.mesh.tensor;
  if (tensor == 1 || plan.nodes.size() == 1) return {};
  const auto nodes = nodes_of_ranks(plan);
  int num_split = 0, first_split = 0;
  for (int first = plan.world_size() - tensor; first >= 0; first -= tensor) {
    const auto *begin = nodes.data() + first, *end = begin + tensor;
    if (std::all_of(begin, end, [&](const auto* node) { return node == *begin; })) continue;
    ++num_split;
    first_split = first;
  }
  if (num_split == 0) return {};
  const int last = first_split + tensor - 1;
  return fmt::format(
      "{} of {} tensor groups lie on several hosts, the first ranks {}-{} on {} to {}: every layer exchanges its "
      "activations over the network, twice in forward and twice in backward; {}",
      num_split, plan.world_size() / tensor, first_split, last, nodes[static_cast<size_t>(first_split)]->host,
      nodes[static_cast<size_t>(last)]->host, remedy(plan));
}

}  // namespace dslaunch::launch
