// A model large enough that its memory is a matter of GiB, as the plan sees it: no file, no tensor.
#pragma once
#include "runtime/engine/plan/plan_rank.hpp"

namespace dslaunch::test {

constexpr int64_t kGiB = int64_t{1} << 30;

// 2^28 fp32 elements: a matrix of 2^13 x 2^14 in each of two units.
inline runtime::engine::plan::PlannedModel two_matrices() {
  runtime::engine::plan::PlannedModel out;
  out.table.units = {{"", {}}, {"a", {0}}, {"b", {1}}};
  for (const auto& [name, unit] : {std::pair{"a.weight", 1}, {"b.weight", 2}}) {
    out.table.parameters.push_back({name, {1 << 13, 1 << 14}, 1 << 27, at::kFloat, true, unit, {}});
  }
  return out;
}

}  // namespace dslaunch::test
