// What `dslaunch --help` shows, and the topics of `dslaunch help TOPIC`, which together have all options of `run`.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"

namespace dslaunch::launcher {

// The headings of options that belong to `run` only.
inline constexpr char kJobGroup[] = "Job", kParallelGroup[] = "Parallelism", kDataGroup[] = "Data";

struct HelpTopic {
  const char* name;
  const char* about;                // one line
  std::vector<std::string> groups;  // headings of its options
  const char* text;                 // before the options
};

const std::vector<HelpTopic>& help_topics();
// Null: there is none of this name.
const HelpTopic* find_topic(std::string_view name);
// "all": every option of `run`.
inline constexpr char kAllOptions[] = "all";

// The first line and the text before the options.
std::string help_usage(const std::string& topic);
std::string help_text(const std::string& topic);
// Leaves the options of the topic in the help of `line`; "": the most common ones.
void choose_help(CommandLine& line, const std::string& topic);

}  // namespace dslaunch::launcher
