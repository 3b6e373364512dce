#include "launch/launch_plan.hpp"

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

std::string device_of(int slot, const std::vector<std::string>& visible) {
  return slot < static_cast<int>(visible.size()) ? visible[slot] : std::to_string(slot);
}

std::string visible_devices(DeviceRule rule, const hostfile::Host& host, int slot,
                            const std::vector<std::string>& visible) {
  if (rule == DeviceRule::kOnePerRank) return device_of(slot, visible);
  std::vector<std::string> all;
  for (int other : host.slots) all.push_back(device_of(other, visible));
  return fmt::format("{}", fmt::join(all, ","));
}

PlannedNode plan_node(const hostfile::Host& host, int node_rank, int first_rank, DeviceRule rule,
                      const std::vector<std::string>& visible) {
  PlannedNode node{.host = host.name, .node_rank = node_rank, .ranks = {}};
  for (int slot : host.slots) {
    int local_rank = static_cast<int>(node.ranks.size());
    PlannedRank& rank = node.ranks.emplace_back();
    rank.rank = first_rank + local_rank;
    rank.local_rank = local_rank;
    rank.slot = slot;
    if (rule != DeviceRule::kNone) rank.env["CUDA_VISIBLE_DEVICES"] = visible_devices(rule, host, slot, visible);
  }
  return node;
}

}  // namespace

std::vector<PlannedNode> plan_nodes(const hostfile::Allocation& allocation, DeviceRule rule,
                                    const std::vector<std::string>& visible) {
  std::vector<PlannedNode> nodes;
  int first_rank = 0;
  for (const auto& host : allocation.hosts) {
    nodes.push_back(plan_node(host, static_cast<int>(nodes.size()), first_rank, rule, visible));
    first_rank += static_cast<int>(nodes.back().ranks.size());
  }
  return nodes;
}

}  // namespace dslaunch::launch
