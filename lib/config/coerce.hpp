// Checks one value against one row of the key table: its type, its bounds, its enum. Pure.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "config/key_spec.hpp"
#include "config/value.hpp"

namespace dslaunch::config {

struct ValueError {
  std::string message;        // "must be …"
  bool out_of_range = false;  // of the right type, but outside of the row's bounds or not in its enum
};

// The value in the row's kind: integral floats and numeric texts are converted to integers. `value` must not be "auto"
// unless the row accepts that word as an ordinary value.
Result<Value, ValueError> coerce(const KeySpec& spec, const Value& value);

// Whether "auto" is an ordinary value of this key.
bool auto_is_a_value(const KeySpec& spec);

// Whether null is an ordinary value of this key.
bool null_is_a_value(const KeySpec& spec);

// Whether this value enables a feature that is not implemented yet.
bool is_unsupported(const KeySpec& spec, const Value& value);

// The default of a row as a value: the row's own, or the initializer of its member.
Value default_of(const KeySpec& spec);
// A value written as in the table of keys.
Value parse_constant(const KeySpec& spec, std::string_view json);

// The texts that a kEnum accepts.
std::vector<std::string> accepted_values(const KeySpec& spec);
// The value that another name of it stands for ("FusedAdam"), in any case; empty: the text is not such a name.
std::optional<std::string> value_of_alias(const KeySpec& spec, std::string_view text);
// The texts that a kEnum knows, also those that are not supported yet.
std::vector<std::string> enum_values(const KeySpec& spec);

// Formats 1, 2, 3 as "1, 2 or 3".
std::string join_alternatives(const std::vector<std::string>& names);

}  // namespace dslaunch::config
