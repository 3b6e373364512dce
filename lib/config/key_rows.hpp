// The functions with which the tables of supported keys are written. Included by the keys_*.cpp files only.
#pragma once
#include "config/key_table.hpp"

namespace dslaunch::config {

using enum Kind;

constexpr KeySpec supported(std::string_view path, Kind kind, std::string_view fallback, std::string_view effect) {
  return {path, kind, fallback, Status::kSupported, effect};
}
// A section with supported keys.
constexpr KeySpec section(std::string_view path) {
  return {path, Kind::kSection, "null", Status::kSupported, ""};
}

}  // namespace dslaunch::config
