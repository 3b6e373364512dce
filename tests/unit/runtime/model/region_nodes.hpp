// Whether operators of ours really ran: their nodes in autograd's graph.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dslaunch::test {

inline int count_nodes(const std::vector<at::Tensor>& outputs, const std::string& name) {
  int count = 0;
  std::set<const torch::autograd::Node*> seen;
  std::vector<std::shared_ptr<torch::autograd::Node>> open;
  for (const auto& output : outputs) open.push_back(output.grad_fn());
  while (!open.empty()) {
    const auto node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node.get()).second) continue;
    if (node->name().find(name) != std::string::npos) count += 1;
    for (const auto& edge : node->next_edges()) open.push_back(edge.function);
  }
  return count;
}

inline int count_regions(const std::vector<at::Tensor>& outputs) {
  return count_nodes(outputs, "RegionFunction");
}

}  // namespace dslaunch::test
