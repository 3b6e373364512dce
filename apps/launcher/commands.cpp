#include "commands.hpp"

#include <algorithm>
#include <iterator>

#include "config_input.hpp"

namespace dslaunch::launcher {
namespace {

struct Row {
  const char* name;
  Command command;
  bool for_people;  // false: used only between dslaunch processes
};

constexpr Row kCommands[] = {
    {"help", help_command, true},     {"version", version_command, true}, {"train", run_command, true},
    {"list", jobs_command, true},     {"run", run_command, true},         {"launch", run_command, true},
    {"exec", exec_command, true},     {"infer", infer_command, true},     {"hosts", hosts_command, true},
    {"config", config_command, true}, {"plan", plan_command, true},       {"import", import_command, true},
    {"jobs", jobs_command, true},     {"logs", logs_command, true},       {"attach", attach_command, true},
    {"resume", resume_command, true}, {"stacks", stacks_command, true},   {"stop", stop_command, true},
    {"doctor", doctor_command, true}, {"agent", agent_command, false},    {"consolidate", consolidate_command, true},
    {"bench", bench_command, true},   {"report", report_command, true},   {"top", top_command, true},
    {"export", export_command, true}, {"tokenize", tokenize_command, true},
};

}  // namespace

Command find_command(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Row& each) { return each.name == name; });
  return row == std::end(kCommands) ? nullptr : row->command;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Row& row : kCommands) {
    if (row.for_people) names.emplace_back(row.name);
  }
  return names;
}

int dispatch(const std::vector<std::string>& words, const std::string& invoked_as) {
  if (words.empty()) return short_help();
  const Arguments arguments = split_arguments(with_config_from_input(words), invoked_as);
  return find_command(arguments.command)(arguments);
}

}  // namespace dslaunch::launcher
