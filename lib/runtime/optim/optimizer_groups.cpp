#include "runtime/optim/optimizer_groups.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "config/dims_condition.hpp"

namespace dslaunch::runtime::optim {
namespace {

// The meaning of "no_decay": "auto": biases and the weights of norms, which nearly always have one dim.
const std::vector<std::string> kNoDecay = {"ndim<2",        "bias",          "*.bias",     "*norm.weight",
                                           "*norm?.weight", "*.ln_?.weight", "ln_?.weight"};

bool matches_any(const std::vector<std::string>& patterns, const ParameterInfo& parameter) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, parameter); });
}

void require_match(const std::string& pattern, const std::string& key, const ParameterTable& table) {
  std::vector<std::string> names;
  for (const auto& parameter : table.parameters) {
    if (matches_pattern(pattern, parameter)) return;
    names.push_back(parameter.name);
  }
  std::string hint = did_you_mean(pattern, names, 3);
  if (hint.empty() && !names.empty()) {
    names.resize(std::min<size_t>(names.size(), 3));
    hint = fmt::format(" (the model has {} parameters: {}{})", table.parameters.size(), fmt::join(names, ", "),
                       table.parameters.size() > names.size() ? ", …" : "");
  }
  throw UserError(ExitCode::kBadInput,
                  fmt::format("'{}': the pattern '{}' matches no parameter of the model{}", key, pattern, hint));
}

config::Optimizer with_group(const config::Optimizer& settings, const config::ParameterGroup& group) {
  config::Optimizer out = settings;
  if (group.lr) out.lr = out.muon_lr = *group.lr;
  if (group.beta1) out.beta1 = *group.beta1;
  if (group.beta2) out.beta2 = *group.beta2;
  if (group.eps) out.eps = *group.eps;
  if (group.weight_decay) out.weight_decay = *group.weight_decay;
  if (group.momentum) out.momentum = *group.momentum;
  return out;
}

bool is_muon_by_name(const ParameterInfo& parameter) {
  std::string name = parameter.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("embed") == name.npos && name.find("lm_head") == name.npos;
}

// A group of the config with its patterns. The default group has no rule.
struct Rule {
  std::string name;
  config::ParameterGroup group;
};

std::vector<Rule> rules_of(const config::Optimizer& settings, const ParameterTable& table) {
  std::vector<Rule> rules;
  for (const auto& group : settings.groups) {
    for (const auto& pattern : group.match) {
      require_match(pattern, fmt::format("optimizer.param_groups.{}.match", group.name), table);
    }
    rules.push_back({group.name, group});
  }
  if (settings.no_decay.empty()) return rules;
  config::ParameterGroup group{.name = "no_decay", .match = settings.no_decay, .weight_decay = 0.0};
  if (settings.no_decay == std::vector<std::string>{"auto"}) {
    group.match = kNoDecay;
  } else {
    for (const auto& pattern : group.match) require_match(pattern, "optimizer.no_decay", table);
  }
  rules.push_back({group.name, group});
  return rules;
}

}  // namespace

bool matches_pattern(const std::string& pattern, const ParameterInfo& parameter) {
  if (const auto condition = config::dims_condition(pattern)) {
    return condition->holds(static_cast<int64_t>(parameter.shape.size()));
  }
  const auto matches = [&](const std::string& name) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
  return matches(parameter.name) || std::any_of(parameter.aliases.begin(), parameter.aliases.end(), matches);
}

int default_group_of(const config::Optimizer& settings) {
  const size_t num_rules = settings.groups.size() + (settings.no_decay.empty() ? 0 : 1);
  return static_cast<int>(settings.type == config::OptimizerType::kMuon ? 2 * num_rules : num_rules);
}

OptimizerGroups plan_optimizer_groups(const config::Optimizer& settings, const ParameterTable& table) {
  const bool muon = settings.type == config::OptimizerType::kMuon;
  const std::vector<Rule> rules = rules_of(settings, table);
  OptimizerGroups out;
  const auto add = [&](const std::string& name, const config::Optimizer& of_group) {
    if (muon) {
      out.groups.push_back({name + "/muon", of_group, true});
      out.groups.back().settings.lr = of_group.muon_lr;
    }
    out.groups.push_back({name, of_group, false});
  };
  for (const Rule& rule : rules) add(rule.name, with_group(settings, rule.group));
  out.default_group = default_group_of(settings);
  add("default", settings);

  for (const auto& parameter : table.parameters) {
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&](const Rule& each) { return matches_any(each.group.match, parameter); });
    int group = static_cast<int>(rule - rules.begin());
    if (muon) {
      const std::optional<bool> use_muon = rule == rules.end() ? std::nullopt : rule->group.use_muon;
      if (use_muon.value_or(false) && parameter.shape.size() < 2) {
        throw UserError(ExitCode::kBadInput, fmt::format("'optimizer.param_groups.{}.use_muon': Muon needs matrices, "
                                                         "but '{}' has {} dims; put it into a separate group",
                                                         rule->name, parameter.name, parameter.shape.size()));
      }
      const bool by_muon = parameter.shape.size() >= 2 && use_muon.value_or(is_muon_by_name(parameter));
      group = 2 * group + (by_muon ? 0 : 1);
    }
    out.of_parameter.push_back(group);
  }
  return out;
}

}  // namespace dslaunch::runtime::optim
