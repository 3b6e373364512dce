// What becomes of sharded and partial operands in each operator. Most of it follows from the operators' traits; the
// rules here are for those whose dims mean something. Pure; any thread.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "runtime/model/placement/operation.hpp"

namespace dslaunch::runtime::model::placement {

// For a node with a sharded or partial operand. Throws Coarsen, Divide, Shard or Refuse.
Outcome apply_rule(const Operation& operation);

// The inputs of a GEMM that may be of a parameter, and where its features are: null: it is not a GEMM.
struct GemmForm {
  size_t factor = 0, weight = 1;
  std::optional<size_t> bias = {};
  int64_t weight_in = 0, weight_out = 1;  // dims of the weight
  int64_t unit = 1;                       // elements of a split dim that stay together
};
std::optional<GemmForm> gemm_form(const Operation& operation);

using Rule = Outcome (*)(const Operation&);
struct RuleRow {
  std::string_view names;  // of aten, by spaces
  Rule rule;
};
// Null: no row names the operator.
Rule rule_among(std::string_view kind, std::span<const RuleRow> rows);

// By family.
Rule movement_rule(std::string_view kind);
Rule gemm_rule(std::string_view kind);
Rule reduction_rule(std::string_view kind);

}  // namespace dslaunch::runtime::model::placement
