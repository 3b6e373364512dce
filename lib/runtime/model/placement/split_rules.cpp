#include "runtime/model/placement/split_rules.hpp"

#include <algorithm>
#include <regex>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

bool ends_with_name(std::string_view path, std::string_view name) {
  return path.ends_with(name) && (path.size() == name.size() || path[path.size() - name.size() - 1] == '.');
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

bool matches(const config::TensorSplitRule& rule, const std::string& block_class, const std::string& parameter) {
  if (!rule.block_class.empty() && rule.block_class != block_class) return false;
  if (!rule.module.empty() && !ends_with_name(module_of(parameter), rule.module)) return false;
  return rule.parameter_pattern.empty() ||
         std::regex_search(parameter, std::regex(rule.parameter_pattern), std::regex_constants::match_continuous);
}

GemmSplit split_of(config::TensorSplit split) {
  switch (split) {
    case config::TensorSplit::kColumn:
      return GemmSplit::kColumn;
    case config::TensorSplit::kRow:
      return GemmSplit::kRow;
    case config::TensorSplit::kWhole:
      break;
  }
  return GemmSplit::kWhole;
}

}  // namespace

const config::TensorSplitRule* rule_for(const TensorParallelOptions& options, const std::string& block_class,
                                        const std::string& parameter) {
  for (const auto& rule : options.rules) {
    if (matches(rule, block_class, parameter)) return &rule;
  }
  return nullptr;
}

GivenSplit given_by(const config::TensorSplitRule& rule) {
  return {split_of(rule.split), rule.parts, fmt::format("{} says so", rule.key)};
}

void require_known_modules(const TensorParallelOptions& options, const ParameterTable& table) {
  for (const auto& rule : options.rules) {
    const bool is_known = std::any_of(table.parameters.begin(), table.parameters.end(), [&](const auto& parameter) {
      return ends_with_name(module_of(parameter.name), rule.module) ||
             std::any_of(parameter.aliases.begin(), parameter.aliases.end(),
                         [&](const auto& alias) { return ends_with_name(module_of(alias), rule.module); });
    });
    if (rule.module.empty() || is_known) continue;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{}: no module with parameters is named '{}', alone or at its end; check its spelling, "
                                "or leave it out",
                                rule.key, rule.module));
  }
}

void check_rules(const TensorParallelOptions& options, const std::string& block_class, const std::string& parameter,
                 const PlannedGemm& gemm) {
  const auto* rule = rule_for(options, block_class, parameter);
  if (rule == nullptr) {
    if (!options.needs_rules) return;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("tensor_parallel: no rule matches '{}', and \"partition_config\" demands one for each "
                                "weight; add a rule, or leave the choice to the graph",
                                parameter));
  }
  if (gemm.split == split_of(rule->split)) return;
  const std::string reason = gemm.reason.empty() ? "its input is split by what comes before" : gemm.reason;
  throw UserError(ExitCode::kBadInput, fmt::format("{}: '{}' cannot be split this way: {}; leave it out, and "
                                                   "the graph decides",
                                                   rule->key, parameter, reason));
}

}  // namespace dslaunch::runtime::model::placement
