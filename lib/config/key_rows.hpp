// The functions with which the tables of supported keys are written. Included by the keys_*.cpp files only.
#pragma once
#include "config/enum_names.hpp"
#include "config/key_table.hpp"

namespace dslaunch::config {

using enum Kind;

template <class Type>
inline constexpr bool kIsPerGroup = false;
template <>
inline constexpr bool kIsPerGroup<MemberType<PerGroup>> = true;
template <>
inline constexpr bool kIsPerGroup<MemberType<std::optional<PerGroup>>> = true;

// A key that `Type` converts to the member at the end of the path, and back.
template <class Type, auto... kPath>
constexpr KeySpec key_as(std::string_view path, std::string_view effect) {
  KeySpec row{.path = path, .kind = Type::kKind, .effect = effect};
  row.binding = &BindingOf<Type, kPath...>::kBinding;
  if constexpr (requires { Type::names; }) row.names = Type::names;
  row.per_group = kIsPerGroup<Type>;
  return row;
}

// key<&JobConfig::zero, &Zero::stage>("zero_optimization.stage", "…"): type and default are those of the member.
template <auto... kPath>
constexpr KeySpec key(std::string_view path, std::string_view effect) {
  return key_as<MemberType<MemberOf<kPath...>>, kPath...>(path, effect);
}

// A key that a rule reads and no member holds; `fallback`: the default as JSON.
constexpr KeySpec rule_key(std::string_view path, Kind kind, std::string_view fallback, std::string_view effect) {
  return {path, kind, fallback, Status::kSupported, effect};
}

// The same for one of a table of names; by default null.
template <const auto& kTable>
constexpr KeySpec rule_enum(std::string_view path, std::string_view effect) {
  KeySpec row = rule_key(path, kEnum, "null", effect);
  row.names = EnumMember<kTable>::names;
  return row;
}

// A section with supported keys.
constexpr KeySpec section(std::string_view path, std::string_view effect = "") {
  return {path, Kind::kSection, "null", Status::kSupported, effect};
}
// A section whose keys count only if it is given.
constexpr KeySpec optional_section(std::string_view path, std::string_view effect) {
  KeySpec row = section(path, effect);
  row.absent_by_default = true;
  return row;
}
// A section with user-defined names, each an object with the keys PATH.*.
constexpr KeySpec named_section(std::string_view path, std::string_view effect) {
  return {path, Kind::kNamed, "null", Status::kSupported, effect};
}

}  // namespace dslaunch::config
