#include "config/dims_condition.hpp"

#include <charconv>
#include <string>
#include <utility>

namespace dslaunch::config {

bool DimsCondition::holds(int64_t num_dims) const {
  switch (comparison) {
    case Comparison::kLess:
      return num_dims < dims;
    case Comparison::kAtMost:
      return num_dims <= dims;
    case Comparison::kEqual:
      return num_dims == dims;
    case Comparison::kAtLeast:
      return num_dims >= dims;
    case Comparison::kMore:
      return num_dims > dims;
  }
  return false;
}

std::optional<DimsCondition> dims_condition(std::string_view pattern) {
  std::string text;
  for (const char c : pattern) {
    if (c != ' ') text += c;
  }
  if (text.rfind("ndim", 0) != 0) return std::nullopt;
  using enum DimsCondition::Comparison;
  // Longer operators first.
  constexpr std::pair<std::string_view, DimsCondition::Comparison> kSigns[] = {
      {"<=", kAtMost}, {">=", kAtLeast}, {"==", kEqual}, {"<", kLess}, {">", kMore}};
  const std::string_view rest = std::string_view(text).substr(4);
  for (const auto& [sign, comparison] : kSigns) {
    if (rest.substr(0, sign.size()) != sign) continue;
    DimsCondition out{comparison};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(rest.data() + sign.size(), end, out.dims);
    if (error == std::errc() && stop == end) return out;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace dslaunch::config
