// What people bring from other tools: the names that those give to what a key or an option sets here, and how their
// config files are recognized. Data and lookups. Any thread.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.hpp"

namespace dslaunch::config {

// One of `key` and `option`, or both; or a sentence instead of them.
struct OtherName {
  std::string_view name;  // lower case with '_', or several: "a|b|prefix_*"; "checkpoint.every": only in that section
  std::string_view key;   // a supported key, or KEY=VALUE for a switch that has no value of its own
  std::string_view option = {};  // "--steps"
  std::string_view remark = {};  // why there is neither, and what to do
};

std::span<const OtherName> other_names();
// Options rather than keys; what other_names() has comes first.
std::span<const OtherName> other_options();
// Null: no known tool calls anything so. Case and '-' against '_' do not count.
const OtherName* find_other_name(std::string_view section, std::string_view name);
// "'train.steps'", "the option --run_dir", or the remark.
std::string describe(const OtherName& other);

// Recognizes a config file of another tool: the sentence that names the tool and what its keys are called here. Empty:
// a job file, or a file of no tool that is known.
std::optional<std::string> describe_other_file(const Value& root);

// The options of ours that do what a config of another tool says.
struct TakenOptions {
  std::vector<std::string> words;  // "--num_gpus", "8", "--set", "gradient_clipping=1.0"
  std::vector<std::string> keys;   // of the file, that they are for
};

// Only what a job would accept as it stands; a value that means something else here is left out.
TakenOptions take_options(const Value& root);

}  // namespace dslaunch::config
