// Divides a row of layers into consecutive parts. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch::runtime::model::stages {

struct PartitionProblem {
  std::vector<double> costs;       // by layer, none negative
  std::vector<bool> can_cut;       // by layer: in front of it; of the first layer unused
  std::vector<int64_t> cut_bytes;  // by layer: what a cut in front of it carries
  // By layer: its trainable parameters. Every part gets some.
  std::vector<int64_t> num_trainable;
};

// The first layers of parts 1 to num_parts - 1. Minimises the cost of the largest part; among those the bytes carried
// over all cuts; among those the sum of squares of the costs; then the earlier parts are the larger ones. Empty:
// no division has these properties.
std::optional<std::vector<size_t>> partition_layers(const PartitionProblem& problem, size_t num_parts);

}  // namespace dslaunch::runtime::model::stages
