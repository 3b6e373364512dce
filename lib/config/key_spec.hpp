// One row of the key table: what a key of the job file is, and what becomes of it here. Constants only.
#pragma once
#include <limits>
#include <string_view>

namespace dslaunch::config {

enum class Kind {
  kBool,
  kInt,
  kFloat,
  kString,
  kEnum,     // one of `values`
  kIntList,  // a single number is a list of one
  kFloatList,
  kStringList,  // a single text is a list of one
  kAny,         // not looked into
  kSection,     // an object with the keys of this table
  kNamed,       // an object with names of the user's choice; PATH.* is what each holds
};

enum class Status {
  kSupported,
  kNotYet,         // switching it on is refused as "not supported yet"
  kTuning,         // adjusts a feature that is not built yet; checked, and without effect while that is off
  kNoCounterpart,  // accepted with a line that says so
};

struct KeySpec {
  std::string_view path;  // dotted; a * stands for a name of the user's choice
  Kind kind = Kind::kAny;
  std::string_view fallback;  // the default as JSON
  Status status = Status::kSupported;
  std::string_view effect;
  std::string_view values;        // kEnum: a|b|c
  std::string_view later_values;  // a|b, or >1: values refused as "not supported yet"
  std::string_view auto_value;    // what "auto" stands for, as JSON; empty: the default; `late`: the worker solves it
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false, high_excluded = false;
  bool nullable = false;    // null is a value of its own; a default of null allows null anyway
  bool any_case = false;    // kEnum: upper and lower case are the same; the listed spelling is kept
  bool comma_list = false;  // kStringList on the command line: a,b
  bool per_group = false;   // kFloat: may be a list with one number for each optimizer group
  bool needed = false;      // its section cannot do without it

  constexpr KeySpec one_of(std::string_view list) const {
    return changed([&](KeySpec& s) { s.values = list; });
  }
  constexpr KeySpec later(std::string_view list) const {
    return changed([&](KeySpec& s) { s.later_values = list; });
  }
  constexpr KeySpec when_auto(std::string_view json) const {
    return changed([&](KeySpec& s) { s.auto_value = json; });
  }
  constexpr KeySpec min(double bound) const {
    return changed([&](KeySpec& s) { s.low = bound; });
  }
  constexpr KeySpec max(double bound) const {
    return changed([&](KeySpec& s) { s.high = bound; });
  }
  constexpr KeySpec above(double bound) const {
    return changed([&](KeySpec& s) { s.low = bound, s.low_excluded = true; });
  }
  constexpr KeySpec below(double bound) const {
    return changed([&](KeySpec& s) { s.high = bound, s.high_excluded = true; });
  }
  constexpr KeySpec or_null() const {
    return changed([](KeySpec& s) { s.nullable = true; });
  }
  constexpr KeySpec in_any_case() const {
    return changed([](KeySpec& s) { s.any_case = true; });
  }
  constexpr KeySpec split_at_commas() const {
    return changed([](KeySpec& s) { s.comma_list = true; });
  }
  constexpr KeySpec each_group() const {
    return changed([](KeySpec& s) { s.per_group = true; });
  }
  constexpr KeySpec required() const {
    return changed([](KeySpec& s) { s.needed = true; });
  }

 private:
  template <class Change>
  constexpr KeySpec changed(Change change) const {
    KeySpec copy = *this;
    change(copy);
    return copy;
  }
};

// Another name for a key or section.
struct KeyAlias {
  std::string_view old_path;
  std::string_view path;
  bool deprecated = false;
  bool yields = false;  // ignored when the other is given as well; otherwise giving both is an error
};

}  // namespace dslaunch::config
