#include "config/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "config/fill.hpp"

namespace dslaunch::config {
namespace {

const std::string kSection = "data.synthetic";

bool is_integer_type(const std::string& dtype) {
  return dtype.rfind("int", 0) == 0 || dtype.rfind("uint", 0) == 0 || dtype == "bool";
}

const Setting* member(const Settings& settings, const std::string& array, const char* name) {
  return settings.find(kSection + "." + array + "." + name);
}

std::string path_of(const std::string& array, const char* name) {
  return kSection + "." + array + "." + name;
}

ArraySpec array_of(const Settings& settings, const std::string& name) {
  ArraySpec array;
  array.name = name;
  const Setting* dtype = member(settings, name, "dtype");
  if (dtype && dtype->value.is_text("bool")) array.high = 2;
  fill_entry(array, settings, kSection, name);
  return array;
}

const ArraySpec* find_array(const std::vector<ArraySpec>& arrays, const std::string& name) {
  auto found = std::find_if(arrays.begin(), arrays.end(), [&](const ArraySpec& array) { return array.name == name; });
  return found == arrays.end() ? nullptr : &*found;
}

void check_like(Settings& settings, const std::vector<ArraySpec>& arrays, const ArraySpec& array) {
  std::string path = path_of(array.name, "like");
  std::vector<std::string> names;
  for (const auto& other : arrays) names.push_back(other.name);
  const ArraySpec* at = &array;
  for (size_t hops = 0; !at->like.empty(); ++hops) {
    const ArraySpec* next = find_array(arrays, at->like);
    if (!next) {
      if (at != &array) return;  // the error is reported for that array
      settings.add_error(Issue::Kind::kConflict, path,
                         fmt::format("'{}' is not the name of an array of data.synthetic: '{}'{}", path, array.like,
                                     did_you_mean(array.like, names)));
      return;
    }
    if (next == &array || hops > arrays.size()) {
      settings.add_error(Issue::Kind::kConflict, path, fmt::format("'{}' refers back to '{}'", path, array.name));
      return;
    }
    at = next;
  }
}

void check_values(Settings& settings, const ArraySpec& array) {
  const std::string path = kSection + "." + array.name, high = path_of(array.name, "high");
  if (is_integer_type(array.dtype) && array.dtype != "bool" && !member(settings, array.name, "high")) {
    settings.add_error(Issue::Kind::kConflict, path,
                       fmt::format("'{}' has an integer type and needs 'high', the exclusive upper bound", path));
  } else if (const auto range = check_range(array); !range.ok()) {
    settings.add_error(Issue::Kind::kRange, settings.given(high) ? high : path,
                       fmt::format("'{}': {}", path, range.error()));
  }
}

struct Limits {
  double low, high;  // low <= x < high
};

// Of the integers of the type that a number in a config holds exactly.
Limits limits_of(const std::string& dtype) {
  if (dtype == "bool") return {0, 2};
  if (dtype == "uint8") return {0, 256};
  if (dtype == "int8") return {-128, 128};
  if (dtype == "int16") return {-32768, 32768};
  if (dtype == "int32") return {-2147483648.0, 2147483648.0};
  return {-9007199254740992.0, 9007199254740992.0};
}

}  // namespace

Result<> check_range(const ArraySpec& array) {
  if (!std::isfinite(array.low) || !std::isfinite(array.high)) return Failure{"low and high must be finite"};
  if (array.low >= array.high) return Failure{fmt::format("low {} must be below high {}", array.low, array.high)};
  if (!is_integer_type(array.dtype)) return {};
  if (array.low != std::floor(array.low) || array.high != std::floor(array.high))
    return Failure{fmt::format("low and high of {} must be integers", array.dtype)};
  const Limits limits = limits_of(array.dtype);
  if (array.low < limits.low || array.high > limits.high)
    return Failure{fmt::format("no {} x has {} <= x < {}", array.dtype, array.low, array.high)};
  return {};
}

std::vector<ArraySpec> synthetic_arrays(const Settings& settings) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [path, setting] : settings.all()) {
    bool array = setting.parts.size() == 3 && setting.parts[0] == "data" && setting.parts[1] == "synthetic";
    if (array) order.emplace_back(setting.order, setting.parts[2]);
  }
  std::sort(order.begin(), order.end());
  std::vector<ArraySpec> out;
  for (const auto& [position, name] : order) out.push_back(array_of(settings, name));
  return out;
}

void check_synthetic(Settings& settings) {
  auto arrays = synthetic_arrays(settings);
  for (const auto& array : arrays) {
    if (!array.like.empty()) {
      check_like(settings, arrays, array);
      continue;
    }
    const Setting* shape = member(settings, array.name, "shape");
    if ((!shape || shape->value.is_null()) && !settings.has_error(path_of(array.name, "shape"))) {
      settings.add_error(Issue::Kind::kConflict, kSection + "." + array.name,
                         fmt::format("'{}.{}' needs 'shape' (of one sample) or 'like'", kSection, array.name));
    }
    check_values(settings, array);
  }
}

}  // namespace dslaunch::config
