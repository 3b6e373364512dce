// One row of the key table: describes a key of the job file and how it is handled. Constants only.
#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "config/binding.hpp"

namespace dslaunch::config {

enum class Kind {
  kBool,
  kInt,
  kFloat,
  kString,
  kEnum,     // one of `values`
  kIntList,  // a single number is read as a list of one
  kFloatList,
  kStringList,  // a single text is read as a list of one
  kAny,         // not checked
  kSection,     // an object with the keys of this table
  kNamed,       // an object with user-defined names; PATH.* describes each member
};

enum class Status {
  kSupported,
  kNotYet,         // enabling it is rejected as "not supported yet"
  kTuning,         // adjusts a feature that is not implemented yet; checked, and has no effect while the feature is off
  kNoCounterpart,  // accepted with a note that it has no counterpart
};

struct KeySpec {
  std::string_view path;  // dotted; a * stands for a user-defined name
  Kind kind = Kind::kAny;
  std::string_view fallback;  // the default as JSON; empty: that of the member
  Status status = Status::kSupported;
  std::string_view effect;
  std::string_view values;         // kEnum without a table of names: a|b|c
  std::string_view later_values;   // a|b, or >1: values rejected as "not supported yet"
  std::string_view value_aliases;  // kEnum: NAME=VALUE|NAME=VALUE, other names of values
  std::string_view refusals;       // kEnum: VALUE: why it is refused, instead of "not supported yet"
  std::string_view auto_value;     // the value of "auto", as JSON; empty: the default; `late`: the worker resolves it
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false, high_excluded = false;
  bool nullable = false;                          // null is a valid value; a default of null allows null anyway
  bool any_case = false;                          // kEnum: case-insensitive; the listed spelling is used
  bool comma_list = false;                        // kStringList on the command line: a,b
  bool per_group = false;                         // kFloat: may be a list with one number per optimizer group
  bool takes_index = false;                       // kString: an integer from 0 on is read as its digits
  bool cuts_fraction = false;                     // kInt: of a number that was computed, with a note
  bool needed = false;                            // required in its section
  bool absent_by_default = false;                 // kSection: unless it is given, its keys have no value
  const Binding* binding = nullptr;               // the member that holds the value; null: none does
  std::vector<std::string> (*names)() = nullptr;  // kEnum: the texts of its table of names

  // The default is this JSON instead of the member's: null or "auto", where a rule or a reader of the config chooses.
  constexpr KeySpec& unset(std::string_view json = "null") {
    fallback = json;
    return *this;
  }
  // Makes a text one of these.
  constexpr KeySpec& one_of(std::string_view list) {
    kind = Kind::kEnum, values = list;
    return *this;
  }
  constexpr KeySpec& later(std::string_view list) {
    later_values = list;
    return *this;
  }
  constexpr KeySpec& also(std::string_view list) {
    value_aliases = list;
    return *this;
  }
  constexpr KeySpec& refuses(std::string_view text) {
    refusals = text;
    return *this;
  }
  constexpr KeySpec& when_auto(std::string_view json) {
    auto_value = json;
    return *this;
  }
  constexpr KeySpec& min(double bound) {
    low = bound;
    return *this;
  }
  constexpr KeySpec& max(double bound) {
    high = bound;
    return *this;
  }
  constexpr KeySpec& above(double bound) {
    low = bound, low_excluded = true;
    return *this;
  }
  constexpr KeySpec& below(double bound) {
    high = bound, high_excluded = true;
    return *this;
  }
  constexpr KeySpec& or_null() {
    nullable = true;
    return *this;
  }
  constexpr KeySpec& in_any_case() {
    any_case = true;
    return *this;
  }
  constexpr KeySpec& split_at_commas() {
    comma_list = true;
    return *this;
  }
  constexpr KeySpec& or_index() {
    takes_index = true;
    return *this;
  }
  constexpr KeySpec& or_fraction() {
    cuts_fraction = true;
    return *this;
  }
  constexpr KeySpec& required() {
    needed = true;
    return *this;
  }
};

// Another name for a key or section.
struct KeyAlias {
  std::string_view old_path;
  std::string_view path;
  bool deprecated = false;
  bool is_low_priority = false;  // ignored if the other name is given as well; otherwise giving both is an error
  bool is_foreign = false;       // of another program: a note tells the name here
};

}  // namespace dslaunch::config
