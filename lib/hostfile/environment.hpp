// Environment variables as data, so that all code that reads a cluster's variables is pure: it maps them to a value or
// to an error that names the variable. A variable that is set but empty counts as not set: schedulers and pod templates
// leave many of those.
#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

namespace dslaunch::hostfile {

using Environment = std::map<std::string, std::string>;

std::optional<std::string> text_of(const Environment& environment, const std::string& name);

// A whole number in decimal digits. Throws UserError(78) with name, value and bounds for anything else.
std::optional<int> number_of(const Environment& environment, const std::string& name, int lowest, int highest);

// For variables that contradict each other or the options. Throws UserError(78).
[[noreturn]] void contradiction(const std::string& message);

// The number in a variable, with the variable's name for messages.
struct NamedNumber {
  std::string name;
  int value = 0;
};

// The first of `names` that is set.
std::optional<NamedNumber> first_number(const Environment& environment, std::initializer_list<const char*> names,
                                        int lowest, int highest);

// A variable with more nodes or processes than any job has is taken as damaged.
constexpr int kMaxProcesses = 1 << 20;

}  // namespace dslaunch::hostfile
