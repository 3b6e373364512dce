// A model of one trained weight of two elements, replicated on all ranks.
#pragma once
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::test {

inline runtime::ParameterTable one_weight() {
  runtime::ParameterTable table;
  table.parameters.push_back({"w", {2}, 2, at::kFloat, true, 0, {}});
  table.units = {{"", {0}}};
  return table;
}

inline runtime::ShardingOptions replicated() {
  runtime::ShardingOptions options;
  options.compute_dtypes = {at::kFloat};
  return options;
}

}  // namespace dslaunch::test
