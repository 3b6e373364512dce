#include "config/coerce.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/split.hpp"
#include "config/document.hpp"
#include "config/key_table.hpp"
#include "config/readers.hpp"

namespace dslaunch::config {
namespace {

using Coerced = Result<Value, ValueError>;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e15) return std::to_string(static_cast<int64_t>(bound));
  return fmt::format("{}", bound);
}

std::string range_text(const KeySpec& spec) {
  std::string low = std::isinf(spec.low) ? "" : bound_text(spec.low);
  std::string high = std::isinf(spec.high) ? "" : bound_text(spec.high);
  if (!low.empty() && !high.empty() && !spec.low_excluded && !spec.high_excluded) return low + " to " + high;
  std::string out;
  if (!low.empty()) out = (spec.low_excluded ? "above " : "at least ") + low;
  if (!high.empty())
    out += (out.empty() ? "" : " and ") + std::string(spec.high_excluded ? "below " : "at most ") + high;
  return out;
}

bool in_range(const KeySpec& spec, double number) {
  bool low = spec.low_excluded ? number > spec.low : number >= spec.low;
  bool high = spec.high_excluded ? number < spec.high : number <= spec.high;
  return low && high;
}

Failure<ValueError> wrong(std::string_view wanted, const Value& value, std::string_view hint = {}) {
  const std::string of_text = hint.empty() && value.is_string() ? hint_for_text(value.text) : "";
  return {{fmt::format("must be {}, not {}{}{}", wanted, describe(value), hint, of_text)}};
}

Failure<ValueError> out_of_range(std::string_view wanted, const Value& value, std::string_view hint = {}) {
  Failure<ValueError> failure = wrong(wanted, value, hint);
  failure.error.out_of_range = true;
  return failure;
}

Coerced check_range(const KeySpec& spec, Value value) {
  double number = value.is_int() ? static_cast<double>(value.integer) : value.number;
  if (in_range(spec, number)) return value;
  return out_of_range(range_text(spec), value);
}

// A number, also one given as text; empty: neither.
std::optional<Value> number_of(const Value& value) {
  if (value.is_int() || value.is_float()) return value;
  Value parsed;
  if (value.is_string() && parse_number(value.text, parsed)) return parsed;
  return std::nullopt;
}

Coerced coerce_int(const KeySpec& spec, const Value& value) {
  auto number = number_of(value);
  if (!number) return wrong("an integer", value);
  if (number->is_int()) return check_range(spec, Value::of_int(number->integer));
  double real = number->number;
  if (std::abs(real) >= 9223372036854775808.0) return wrong("an integer of 64 bits", value);
  if (real != std::floor(real)) return wrong("an integer", value);
  return check_range(spec, Value::of_int(static_cast<int64_t>(real)));
}

Coerced coerce_list(const KeySpec& spec, const Value& value, Kind item_kind);

Coerced coerce_float(const KeySpec& spec, const Value& value) {
  if (value.is_array() && spec.per_group) {
    if (value.items.size() == 1) return coerce_float(spec, value.items.front());
    return coerce_list(spec, value, Kind::kFloat);  // the list's length is checked with the parameter groups
  }
  auto number = number_of(value);
  if (!number) return wrong("a number", value);
  double real = number->is_int() ? static_cast<double>(number->integer) : number->number;
  if (!std::isfinite(real)) return wrong("a finite number", value);
  return check_range(spec, Value::of_float(real));
}

Coerced coerce_bool(const Value& value) {
  if (value.is_bool()) return Value::of_bool(value.boolean);
  constexpr std::string_view kWanted = "true or false";
  if (value.is_string() && (lower(value.text) == "true" || lower(value.text) == "false")) {
    return wrong(kWanted, value, fmt::format(": write {} in small letters and without quotes", lower(value.text)));
  }
  return wrong(kWanted, value);
}

// Messages list the values that are accepted; the others are known, for an answer of their own.
Coerced coerce_enum(const KeySpec& spec, const Value& value) {
  const auto accepted = accepted_values(spec);
  if (!value.is_string()) return wrong(join_alternatives(accepted), value);
  const auto is_same = [&](const std::string& name) {
    return name == value.text || (spec.any_case && lower(name) == lower(value.text));
  };
  const auto known = enum_values(spec);
  const auto found = std::find_if(known.begin(), known.end(), is_same);
  if (found != known.end()) return Value::of_string(*found);
  if (auto name = value_of_alias(spec, value.text)) return Value::of_string(*std::move(name));
  return out_of_range(join_alternatives(accepted), value, did_you_mean(value.text, accepted));
}

Coerced coerce_list(const KeySpec& spec, const Value& value, Kind item_kind) {
  std::vector<Value> items = value.is_array() ? value.items : std::vector<Value>{value};
  KeySpec item_spec = spec;
  item_spec.kind = item_kind;
  item_spec.per_group = false;
  std::vector<Value> out;
  for (size_t i = 0; i < items.size(); ++i) {
    Coerced item = coerce(item_spec, items[i]);
    if (!item.ok()) {
      if (!value.is_array()) return item;
      return Failure{ValueError{fmt::format("item {} {}", i + 1, item.error().message), item.error().out_of_range}};
    }
    out.push_back(*std::move(item));
  }
  return Value::of_array(std::move(out));
}

// As people write a value in a file.
std::string as_written(const Value& value) {
  if (value.is_string()) return fmt::format("\"{}\"", value.text);
  if (value.is_float() && value.number == std::floor(value.number)) return fmt::format("{:.1f}", value.number);
  if (!value.is_array()) return describe(value);
  std::vector<std::string> items;
  for (const auto& item : value.items) items.push_back(as_written(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace

bool auto_is_a_value(const KeySpec& spec) {
  if (spec.kind == Kind::kAny || spec.fallback == "\"auto\"") return true;
  if (spec.kind != Kind::kEnum) return false;
  const auto known = enum_values(spec);
  return std::find(known.begin(), known.end(), "auto") != known.end();
}

bool null_is_a_value(const KeySpec& spec) {
  return spec.kind == Kind::kAny || spec.kind == Kind::kSection || spec.kind == Kind::kNamed || spec.nullable ||
         default_of(spec).is_null();
}

Result<Value, ValueError> coerce(const KeySpec& spec, const Value& value) {
  if (spec.kind == Kind::kAny) return value;
  if (value.is_text("auto") && auto_is_a_value(spec)) return Value::of_string("auto");
  if (value.is_null()) {
    if (null_is_a_value(spec)) return Value();
    return Failure{
        ValueError{fmt::format("must not be null; leave it out for the default, {}", as_written(default_of(spec)))}};
  }
  switch (spec.kind) {
    case Kind::kBool:
      return coerce_bool(value);
    case Kind::kInt:
      return coerce_int(spec, value);
    case Kind::kFloat:
      return coerce_float(spec, value);
    case Kind::kEnum:
      return coerce_enum(spec, value);
    case Kind::kString:
      if (value.is_string()) return Value::of_string(value.text);
      if (spec.takes_index && value.is_int() && value.integer >= 0) {
        return Value::of_string(std::to_string(value.integer));
      }
      return wrong(spec.takes_index ? "a name or an index" : "a text", value);
    case Kind::kIntList:
      return coerce_list(spec, value, Kind::kInt);
    case Kind::kFloatList:
      return coerce_list(spec, value, Kind::kFloat);
    case Kind::kStringList:
      return coerce_list(spec, value, Kind::kString);
    case Kind::kSection:
    case Kind::kNamed:
      if (value.is_object()) return value;
      return wrong("an object", value);
    case Kind::kAny:
      break;
  }
  return value;
}

bool is_unsupported(const KeySpec& spec, const Value& value) {
  bool off = value.is_null() || (value.is_bool() && !value.boolean);
  if (!spec.later_values.empty()) {
    if (spec.later_values == "*") return !off;
    if (spec.later_values[0] == '>') {
      return value.is_int() && value.integer > std::atoll(std::string(spec.later_values.substr(1)).c_str());
    }
    std::string written = value.is_string() ? value.text : describe(value);
    for (const auto& later : split(spec.later_values, '|')) {
      if (later == written) return true;
    }
    return false;
  }
  if (spec.status != Status::kNotYet || off) return false;
  if (spec.kind == Kind::kAny && value.is_object() && value.members.empty()) return false;
  return !same_content(value, default_of(spec));
}

std::vector<std::string> accepted_values(const KeySpec& spec) {
  auto names = spec.names == nullptr ? split(spec.values, '|') : spec.names();
  const auto later = spec.later_values.empty() ? std::vector<std::string>() : split(spec.later_values, '|');
  std::vector<std::string> accepted;
  for (const auto& name : names) {
    if (std::find(later.begin(), later.end(), name) == later.end()) accepted.push_back(name);
  }
  return accepted.empty() ? names : accepted;
}

std::optional<std::string> value_of_alias(const KeySpec& spec, std::string_view text) {
  if (spec.value_aliases.empty()) return std::nullopt;
  for (const auto& pair : split(spec.value_aliases, '|')) {
    const size_t equals = pair.find('=');
    if (lower(pair.substr(0, equals)) == lower(text)) return pair.substr(equals + 1);
  }
  return std::nullopt;
}

std::vector<std::string> enum_values(const KeySpec& spec) {
  if (spec.names == nullptr) return split(spec.values, '|');
  auto names = spec.names();
  if (spec.later_values.empty()) return names;
  for (auto& later : split(spec.later_values, '|')) names.push_back(std::move(later));
  return names;
}

Value default_of(const KeySpec& spec) {
  return spec.fallback.empty() && spec.binding ? spec.binding->initial() : parse_constant(spec, spec.fallback);
}

Value parse_constant(const KeySpec& spec, std::string_view json) {
  ReadResult read = read_hjson(fmt::format("{{\"v\": {}}}", json));
  const Value* value = read.root ? read.root->find("v") : nullptr;
  if (!value) return {};
  Value out = *value;
  if (spec.kind == Kind::kFloat && out.is_int()) out = Value::of_float(static_cast<double>(out.integer));
  out.position = {};
  for (auto& item : out.items) item.position = {};
  return out;
}

std::string join_alternatives(const std::vector<std::string>& names) {
  std::string out = names.front();
  for (size_t i = 1; i < names.size(); ++i) out += (i + 1 == names.size() ? " or " : ", ") + names[i];
  return out;
}

}  // namespace dslaunch::config
