// The functions with which the key tables are written. Included by the keys_*.cpp files only.
#pragma once
#include "config/key_table.hpp"

namespace dslaunch::config {

using enum Kind;

constexpr KeySpec supported(std::string_view path, Kind kind, std::string_view fallback, std::string_view effect) {
  return {path, kind, fallback, Status::kSupported, effect};
}
constexpr KeySpec not_yet(std::string_view path, Kind kind, std::string_view fallback, std::string_view effect) {
  return {path, kind, fallback, Status::kNotYet, effect};
}
constexpr KeySpec tuning(std::string_view path, Kind kind, std::string_view fallback, std::string_view effect) {
  return {path, kind, fallback, Status::kTuning, effect};
}
constexpr KeySpec no_counterpart(std::string_view path, Kind kind, std::string_view fallback, std::string_view effect) {
  return {path, kind, fallback, Status::kNoCounterpart, effect};
}
// A section with supported keys, or with several features.
constexpr KeySpec section(std::string_view path) {
  return {path, Kind::kSection, "null", Status::kSupported, ""};
}
// The section of one feature that is not implemented yet.
constexpr KeySpec tuning_section(std::string_view path, std::string_view effect = "") {
  return {path, Kind::kSection, "null", Status::kTuning, effect};
}
constexpr KeySpec named(std::string_view path, std::string_view effect) {
  return {path, Kind::kNamed, "null", Status::kTuning, effect};
}

}  // namespace dslaunch::config
