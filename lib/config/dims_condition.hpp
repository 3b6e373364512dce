// "ndim<2": a pattern of a parameter group that tests the number of dimensions instead of the name. Pure.
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

// Empty unless the text is ndim, one of < <= == >= >, and a number; spaces are ignored.
std::optional<DimsCondition> dims_condition(std::string_view pattern);

}  // namespace dslaunch::config
