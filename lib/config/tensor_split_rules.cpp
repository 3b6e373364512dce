// How a job file says that products are split among tensor ranks: tensor_parallel.policy, and DeepSpeed's
// injection_policy and partition_config. All become one list of rules.
#include <algorithm>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/result.hpp"
#include "config/enum_names.hpp"
#include "config/key_table.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kPolicy = "tensor_parallel.policy", kInjection = "injection_policy",
                  kTuple = "tensor_parallel.injection_policy_tuple", kPartition = "tensor_parallel.partition_config",
                  kSpecs = kPartition + ".layer_specs";

using Rules = std::vector<TensorSplitRule>;

Result<TensorSplit> split_of(const Value& value, const char* whole) {
  for (const auto& [text, split] : kTensorSplits) {
    if (value.is_text(split == TensorSplit::kWhole ? whole : text)) return split;
  }
  const std::string hint = value.is_string() ? did_you_mean(value.text, {"column", "row", whole}) : "";
  return Failure{fmt::format("must be column, row or {}, not {}{}", whole, describe(value), hint)};
}

// Sizes above 0 of at least two parts.
Result<std::vector<int64_t>> parts_of(const Value& value) {
  std::vector<int64_t> out;
  for (const auto& item : value.items) {
    if (!item.is_int() || item.integer < 1) return Failure{fmt::format("has a part of size {}", describe(item))};
    out.push_back(item.integer);
  }
  if (out.size() < 2) return Failure{fmt::format("must be a list with the sizes of two or more parts")};
  return out;
}

Result<> check_members(const Value& object, const std::vector<std::string>& names) {
  for (const auto& member : object.members) {
    if (std::find(names.begin(), names.end(), member.key) != names.end()) continue;
    return Failure{fmt::format("has an unknown key '{}'{}", member.key, did_you_mean(member.key, names))};
  }
  return {};
}

// An entry of tensor_parallel.policy.
Result<TensorSplitRule> policy_rule(const std::string& module, const Value& value) {
  TensorSplitRule rule{.module = module, .key = join_path(kPolicy, module)};
  const Value* split = value.is_object() ? value.find("split") : &value;
  if (split == nullptr) return Failure{std::string("needs 'split': column, row or whole")};
  const auto read = split_of(*split, "whole");
  if (!read.ok()) return Failure{read.error()};
  rule.split = *read;
  if (const auto known = check_members(value, {"split", "parts"}); !known.ok()) return Failure{known.error()};
  const Value* parts = value.find("parts");
  if (parts == nullptr) return rule;
  auto sizes = parts_of(*parts);
  if (!sizes.ok()) return Failure{"'parts' " + sizes.error()};
  rule.parts = *std::move(sizes);
  return rule;
}

// The parts that DeepSpeed's logical shape has at the split dim: a number of equal ones, or their sizes.
Result<std::vector<int64_t>> parts_of_shape(const Value& shape, size_t dim) {
  if (!shape.is_array() || shape.items.size() < 2) return Failure{std::string("'shape' must be a list of two or more")};
  for (size_t i = 0; i < shape.items.size(); ++i) {
    const Value& size = shape.items[i];
    if (size.is_array() && i == dim) continue;
    if (size.is_array()) return Failure{fmt::format("'shape' has a list at dim {}, and the split dim is {}", i, dim)};
    if (!size.is_int() || (size.integer < 1 && size.integer != -1))
      return Failure{fmt::format("'shape' has {}; sizes are positive or -1", describe(size))};
  }
  if (dim >= shape.items.size())
    return Failure{fmt::format("'shape' has {} dims, and the split dim is {}", shape.items.size(), dim)};
  const Value& at_dim = shape.items[dim];
  if (at_dim.is_array()) {
    auto sizes = parts_of(at_dim);
    return sizes.ok() ? std::move(sizes) : Failure{"'shape' " + sizes.error()};
  }
  constexpr int64_t kMaxParts = 1024;
  if (at_dim.integer > kMaxParts) return Failure{fmt::format("'shape' has {} parts", at_dim.integer)};
  if (at_dim.integer < 2) return std::vector<int64_t>{};
  return std::vector<int64_t>(static_cast<size_t>(at_dim.integer), 1);
}

Result<> check_pattern(const Value& pattern) {
  if (!pattern.is_string() || pattern.text.empty()) return Failure{std::string("'patterns' must be texts")};
  try {
    const std::regex compiled(pattern.text, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    return Failure{fmt::format("'{}' is not a regular expression ({})", pattern.text, error.what())};
  }
  return {};
}

// An entry of layer_specs: a rule for each of its patterns.
Result<Rules> layer_spec_rules(const Value& spec, const std::string& key) {
  if (!spec.is_object()) return Failure{"must be an object, not " + describe(spec)};
  const auto known = check_members(spec, {"patterns", "partition_type", "shape", "partition_dim", "model_types"});
  if (!known.ok()) return Failure{known.error()};
  if (const Value* types = spec.find("model_types"); types != nullptr && !types->is_null()) {
    return Failure{
        std::string("has 'model_types', and a model's file does not say its type: keep the entries for this "
                    "model, without model_types")};
  }
  TensorSplitRule rule{.split = TensorSplit::kColumn, .key = key};
  if (const Value* type = spec.find("partition_type")) {
    const auto read = split_of(*type, "skip");
    if (!read.ok()) return Failure{"'partition_type' " + read.error()};
    rule.split = *read;
  }
  const int64_t own_dim = rule.split == TensorSplit::kRow ? 1 : 0;
  const Value* dim = spec.find("partition_dim");
  if (dim != nullptr && !dim->is_null() && !(dim->is_int() && dim->integer == own_dim)) {
    return Failure{fmt::format(
        "'partition_dim' is {}, but a weight's outputs are dim 0 (column), its inputs dim 1 (row)", describe(*dim))};
  }
  if (const Value* shape = spec.find("shape"); shape != nullptr && !shape->is_null()) {
    auto parts = parts_of_shape(*shape, static_cast<size_t>(own_dim));
    if (!parts.ok()) return Failure{parts.error()};
    rule.parts = *std::move(parts);
  }
  const Value* patterns = spec.find("patterns");
  const auto texts = patterns == nullptr    ? std::vector<Value>{}
                     : patterns->is_array() ? patterns->items
                                            : std::vector<Value>{*patterns};
  Rules out;
  for (const auto& pattern : texts) {
    if (const auto valid = check_pattern(pattern); !valid.ok()) return Failure{valid.error()};
    rule.parameter_pattern = pattern.text;
    out.push_back(rule);
  }
  return out;
}

// The settings with user-defined names in a section, in the order in which they were given.
std::vector<const Setting*> entries_of(const Settings& settings, const std::string& section) {
  std::vector<const Setting*> out;
  for (const auto& [path, setting] : settings.all()) {
    if (setting.given() && setting.spec->path == section + ".*") out.push_back(&setting);
  }
  std::sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->order < b->order; });
  return out;
}

// Calls `add` for the rules of each entry, or `refuse` with the entry's key and why it makes none.
template <class Add, class Refuse>
void read_rules(const Settings& settings, Add add, Refuse refuse) {
  for (const Setting* entry : entries_of(settings, kPolicy)) {
    const std::string& module = entry->parts.back();
    auto rule = policy_rule(module, entry->value);
    if (rule.ok()) {
      add(*std::move(rule));
    } else {
      refuse(join_path(kPolicy, module), fmt::format("'{}' of '{}' {}", module, kPolicy, rule.error()));
    }
  }
  for (const Setting* entry : entries_of(settings, kInjection)) {
    const std::string& block = entry->parts.back();
    for (const auto& name : entry->value.items) {
      add({.block_class = block.substr(block.rfind('.') + 1),
           .module = name.text,
           .split = TensorSplit::kRow,
           .key = join_path(kInjection, block)});
    }
  }
  for (const auto& name : settings.at(kTuple).value.items)
    add({.module = name.text, .split = TensorSplit::kRow, .key = kTuple});
  const Value& specs = settings.at(kSpecs).value;
  if (!specs.is_array() && !specs.is_null())
    refuse(kSpecs, fmt::format("'{}' must be a list of objects, not {}", kSpecs, describe(specs)));
  for (size_t i = 0; i < specs.items.size(); ++i) {
    auto rules = layer_spec_rules(specs.items[i], fmt::format("{}[{}]", kSpecs, i));
    if (!rules.ok()) refuse(kSpecs, fmt::format("entry {} of '{}' {}", i + 1, kSpecs, rules.error()));
    if (!rules.ok()) continue;
    for (auto& rule : *rules) add(std::move(rule));
  }
}

}  // namespace

void check_split_rules(Settings& settings) {
  const auto refuse = [&](const std::string& key, std::string message) {
    settings.add_error(Issue::Kind::kType, key, std::move(message));
  };
  read_rules(
      settings, [](const TensorSplitRule&) {}, refuse);
}

std::vector<TensorSplitRule> split_rules(const Settings& settings) {
  Rules out;
  read_rules(
      settings, [&](TensorSplitRule rule) { out.push_back(std::move(rule)); },
      [](const std::string&, const std::string&) {});
  const std::string defaults = kPartition + ".use_default_specs";
  if (!settings.boolean(defaults)) out.push_back({.split = TensorSplit::kWhole, .key = defaults});
  return out;
}

}  // namespace dslaunch::config
