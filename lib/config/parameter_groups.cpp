#include "config/parameter_groups.hpp"

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "config/dims_condition.hpp"
#include "config/fill.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kSection = "optimizer.param_groups";

const Value* member(const Settings& settings, const std::string& group, const char* name) {
  const Setting* setting = settings.find(parameter_group_path(group, name));
  return setting && !setting->value.is_null() ? &setting->value : nullptr;
}

ParameterGroup group_of(const Settings& settings, const std::string& name) {
  ParameterGroup group{.name = name};
  fill_entry(group, settings, kSection, name);
  if (const Value* betas = member(settings, name, "betas"); betas && betas->items.size() == 2) {
    group.beta1 = betas->items[0].number;
    group.beta2 = betas->items[1].number;
  }
  return group;
}

void check_patterns(Settings& settings, const std::string& path, const std::vector<std::string>& patterns) {
  for (const auto& pattern : patterns) {
    if (pattern.empty()) {
      settings.add_error(Issue::Kind::kRange, path, fmt::format("'{}' has an empty pattern", path));
    } else if (pattern.find_first_of("<>=") != pattern.npos && !dims_condition(pattern)) {
      settings.add_error(
          Issue::Kind::kRange, path,
          fmt::format(
              "'{}': '{}' is not a condition; write ndim, one of <, <=, ==, >=, > and a number, for example \"ndim<2",
              path, pattern));
    }
  }
}

void check_group(Settings& settings, const std::string& optimizer, const ParameterGroup& group) {
  const std::string section = kSection + "." + group.name, match = parameter_group_path(group.name, "match");
  if (group.name == "default" || group.name == "no_decay") {
    settings.add_error(
        Issue::Kind::kConflict, section,
        fmt::format("'{}': the name '{}' is reserved for a built-in group; choose another name", section, group.name));
  }
  if (group.match.empty() && !settings.has_error(match)) {
    settings.add_error(
        Issue::Kind::kConflict, section,
        fmt::format("'{}' needs 'match': patterns of parameter names, for example [\"*.bias\"]", section));
  }
  check_patterns(settings, match, group.match);
  const std::string betas = parameter_group_path(group.name, "betas");
  if (const Value* value = member(settings, group.name, "betas"); value && value->items.size() != 2) {
    settings.add_error(Issue::Kind::kRange, betas,
                       fmt::format("'{}' must be two numbers, not {}", betas, value->items.size()));
  }
  for (const char* name : {"lr", "betas", "eps", "weight_decay", "momentum"}) {
    if (!member(settings, group.name, name) || optimizer_accepts(optimizer, name)) continue;
    settings.add_error(Issue::Kind::kConflict, parameter_group_path(group.name, name),
                       fmt::format("'{}' is not a parameter of {}", parameter_group_path(group.name, name), optimizer));
  }
  if (group.use_muon && optimizer != "Muon") {
    settings.add_error(Issue::Kind::kConflict, parameter_group_path(group.name, "use_muon"),
                       fmt::format("'{}' applies to the optimizer Muon only, not to {}",
                                   parameter_group_path(group.name, "use_muon"), optimizer));
  }
}

}  // namespace

std::vector<std::string> parameter_group_names(const Settings& settings) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [path, setting] : settings.all()) {
    const bool group =
        setting.parts.size() == 3 && setting.parts[0] == "optimizer" && setting.parts[1] == "param_groups";
    if (group) order.emplace_back(setting.order, setting.parts[2]);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (auto& [position, name] : order) names.push_back(std::move(name));
  return names;
}

std::string parameter_group_path(const std::string& group, const char* name) {
  return kSection + "." + group + "." + name;
}

size_t num_optimizer_groups(const Settings& settings) {
  const size_t groups =
      parameter_group_names(settings).size() + (settings.texts("optimizer.no_decay").empty() ? 0 : 1) + 1;
  return settings.text("optimizer.type") == "Muon" ? 2 * groups : groups;
}

std::vector<ParameterGroup> parameter_groups(const Settings& settings) {
  std::vector<ParameterGroup> out;
  for (const auto& name : parameter_group_names(settings)) out.push_back(group_of(settings, name));
  return out;
}

void check_parameter_groups(Settings& settings, const std::string& optimizer) {
  for (const auto& group : parameter_groups(settings)) check_group(settings, optimizer, group);
  const auto no_decay = settings.texts("optimizer.no_decay");
  if (no_decay != std::vector<std::string>{"auto"}) check_patterns(settings, "optimizer.no_decay", no_decay);
  if (!no_decay.empty() && settings.number("optimizer.params.weight_decay") == 0.0) {
    settings.note("optimizer.no_decay",
                  "'optimizer.no_decay' has no effect: optimizer.params.weight_decay is 0 for all parameters");
  }
}

}  // namespace dslaunch::config
