// Tables of the names that a format or a language gives to element types.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>
#include <span>
#include <string_view>

namespace dslaunch::runtime {

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};

inline std::optional<at::ScalarType> dtype_named(std::span<const DtypeName> table, std::string_view name) {
  for (const auto& known : table) {
    if (name == known.name) return known.dtype;
  }
  return std::nullopt;
}

// Null for a type that is not in the table.
inline const char* name_of(std::span<const DtypeName> table, at::ScalarType dtype) {
  for (const auto& known : table) {
    if (dtype == known.dtype) return known.name;
  }
  return nullptr;
}

}  // namespace dslaunch::runtime
