// Environment variables as data, so that everything that reads a cluster's variables is pure: a map in, a value or an
// error that names the variable out. A variable that is set but empty counts as not set: schedulers and pod templates
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

// Variables that contradict each other or what was asked for. Throws UserError(78).
[[noreturn]] void contradiction(const std::string& message);

// A variable that was found, with its name for messages.
struct NamedNumber {
  std::string name;
  int value = 0;
};

// The first of `names` that is set.
std::optional<NamedNumber> first_number(const Environment& environment, std::initializer_list<const char*> names,
                                        int lowest, int highest);

// More nodes or processes than any job has are a damaged variable.
constexpr int kMaxProcesses = 1 << 20;

}  // namespace dslaunch::hostfile
