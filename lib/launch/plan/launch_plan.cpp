#include "launch/plan/launch_plan.hpp"

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

std::string device_of(int slot, const std::vector<std::string>& visible) {
  return slot < static_cast<int>(visible.size()) ? visible[slot] : std::to_string(slot);
}

PlannedNode plan_node(const hostfile::Host& host, int node_rank, int first_rank) {
  PlannedNode node{.host = host.name, .user = host.user, .port = host.port, .node_rank = node_rank, .ranks = {}};
  for (int slot : host.slots) {
    int local_rank = static_cast<int>(node.ranks.size());
    PlannedRank& rank = node.ranks.emplace_back();
    rank.rank = first_rank + local_rank;
    rank.local_rank = local_rank;
    rank.slot = slot;
  }
  return node;
}

}  // namespace

void assign_devices(PlannedNode& node, DeviceRule rule, const std::vector<std::string>& visible) {
  std::vector<std::string> all;
  for (const auto& rank : node.ranks) all.push_back(device_of(rank.slot, visible));
  for (auto& rank : node.ranks) {
    rank.env["CUDA_VISIBLE_DEVICES"] =
        rule == DeviceRule::kOnePerRank ? all[rank.local_rank] : fmt::format("{}", fmt::join(all, ","));
  }
}

std::vector<PlannedNode> plan_nodes(const hostfile::Allocation& allocation, DeviceRule rule,
                                    const std::vector<std::string>& visible) {
  std::vector<PlannedNode> nodes;
  int first_rank = 0;
  for (const auto& host : allocation.hosts) {
    nodes.push_back(plan_node(host, static_cast<int>(nodes.size()), first_rank));
    if (rule != DeviceRule::kNone) assign_devices(nodes.back(), rule, visible);
    first_rank += static_cast<int>(nodes.back().ranks.size());
  }
  return nodes;
}

}  // namespace dslaunch::launch
