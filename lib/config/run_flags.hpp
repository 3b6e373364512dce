// The flags of a training run that dslaunch and dsworker both take, one row each: dslaunch declares and checks them and
// passes them on, dsworker declares and applies them. A flag may set a key of the config. Plain data; any thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.hpp"

namespace dslaunch::config {

// What the value of a flag is. dslaunch makes paths absolute before it passes them on.
enum class FlagValue {
  kSwitch,  // none
  kText,
  kNumber,      // a whole number
  kPaths,       // a path, a glob, a list of them, or "synthetic"
  kFileOrName,  // a file if there is one of this name
  kPathOrAuto,  // a path, or "auto"
};

enum class FlagGroup { kJob, kParallel, kData };  // the heading in dslaunch --help

struct RunFlag {
  std::string_view name;  // "--seed"
  FlagGroup group = FlagGroup::kJob;
  FlagValue value = FlagValue::kText;
  std::string_view value_name;  // in --help
  std::string_view help;
  std::string_view key;         // the key that it sets; empty: the programs read the flag themselves
  std::string_view instead_of;  // another flag, whose key becomes null if only this flag is given
  std::string_view second_key;  // that it sets, too
};

// In the order in which dslaunch passes them on.
std::span<const RunFlag> run_flags();

// The smallest value of a kNumber flag: that of its key, or 1.
int64_t minimum_of(const RunFlag& flag);

// The flags that were given, with their values as text. A name without a row is a programming error.
class RunFlags {
 public:
  void set(std::string_view name, std::string value = {});
  bool has(std::string_view name) const;
  // Empty when the flag was not given.
  std::string text(std::string_view name) const;
  std::optional<int64_t> number(std::string_view name) const;

 private:
  std::map<std::string_view, std::string> values_;  // by the row's name
};

// The given flags as words of a command line, in the order of the table.
std::vector<std::string> words_of(const RunFlags& flags);

// What the flags and the texts of --set change in the config; the texts of --set win.
std::vector<Override> overrides_of(const RunFlags& flags, const std::vector<std::string>& sets);

}  // namespace dslaunch::config
