// "ndim<2": a pattern of a parameter group that looks at the number of dims instead of the name. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::config {

struct DimsCondition {
  enum class Comparison { kLess, kAtMost, kEqual, kAtLeast, kMore };
  Comparison comparison = Comparison::kEqual;
  int64_t dims = 0;
  bool holds(int64_t num_dims) const;
};

// Empty for every text that is not ndim, one of < <= == >= >, and a number; spaces do not count.
std::optional<DimsCondition> dims_condition(std::string_view pattern);

}  // namespace dslaunch::config
