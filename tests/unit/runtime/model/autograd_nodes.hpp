// Whether operators of ours really ran: their nodes in autograd's graph.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dslaunch::test {

// Of the outputs' graph, as long as the outputs live.
inline std::set<const torch::autograd::Node*> autograd_nodes(const std::vector<at::Tensor>& outputs) {
  std::set<const torch::autograd::Node*> seen;
  std::vector<std::shared_ptr<torch::autograd::Node>> open;
  for (const auto& output : outputs) open.push_back(output.grad_fn());
  while (!open.empty()) {
    const auto node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node.get()).second) continue;
    for (const auto& edge : node->next_edges()) open.push_back(edge.function);
  }
  return seen;
}

inline bool has_name(const torch::autograd::Node& node, const std::string& name) {
  return node.name().find(name) != std::string::npos;
}
inline bool is_region(const torch::autograd::Node& node) {
  return has_name(node, "RegionFunction");
}

inline int count_nodes(const std::vector<at::Tensor>& outputs, const std::string& name) {
  int count = 0;
  for (const auto* node : autograd_nodes(outputs)) count += has_name(*node, name) ? 1 : 0;
  return count;
}
inline int count_regions(const std::vector<at::Tensor>& outputs) {
  return count_nodes(outputs, "RegionFunction");
}

}  // namespace dslaunch::test
