// The rows, by family.
#pragma once
#include <array>
#include <span>
#include <string_view>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::operators {

struct Row {
  std::string_view names;  // of operators with the same traits, by spaces: "mm bmm"; of aten, or "prim::dtype"
  OperatorTraits traits;
};
using Rows = std::span<const Row>;

Rows pointwise_rows();
Rows gemm_rows();
Rows reduction_rows();
Rows movement_rows();
Rows value_rows();

inline std::array<Rows, 5> all_rows() {
  return {pointwise_rows(), gemm_rows(), reduction_rows(), movement_rows(), value_rows()};
}

}  // namespace dslaunch::runtime::model::operators
