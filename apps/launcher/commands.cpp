#include "commands.hpp"

#include <algorithm>
#include <iterator>

namespace dslaunch::launcher {
namespace {

enum class Use {
  kOptions,   // described by its options (describe_command)
  kWords,     // for people, too; its words are not described
  kInternal,  // used only between processes of ours
};
using enum Use;

struct Row {
  const char* name;
  Command command;
  Use use;
};

constexpr Row kCommands[] = {
    {"help", help_command, kWords},
    {"version", version_command, kWords},
    {"train", run_command, kOptions},
    {"list", jobs_command, kOptions},
    {"run", run_command, kOptions},
    {"launch", run_command, kOptions},
    {"exec", exec_command, kOptions},
    {"infer", infer_command, kOptions},
    {"hosts", hosts_command, kOptions},
    {"config", config_command, kOptions},
    {"plan", plan_command, kOptions},
    {"import", import_command, kOptions},
    {"jobs", jobs_command, kOptions},
    {"logs", logs_command, kOptions},
    {"attach", attach_command, kOptions},
    {"resume", resume_command, kOptions},
    {"stacks", stacks_command, kOptions},
    {"stop", stop_command, kOptions},
    {"doctor", doctor_command, kOptions},
    {"consolidate", consolidate_command, kOptions},
    {"bench", bench_command, kOptions},
    {"report", report_command, kOptions},
    {"top", top_command, kOptions},
    {"export", export_command, kWords},
    {"tokenize", tokenize_command, kWords},
    {"completion", completion_command, kWords},
    {"serve", serve_command, kOptions},
    {"agent", agent_command, kInternal},
    {"complete", complete_command, kInternal},
};

std::vector<std::string> names_where(bool (*is_wanted)(const Row&)) {
  std::vector<std::string> names;
  for (const Row& row : kCommands) {
    if (is_wanted(row)) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace

Command find_command(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Row& each) { return each.name == name; });
  return row == std::end(kCommands) ? nullptr : row->command;
}

std::vector<std::string> command_names() {
  return names_where([](const Row& row) { return row.use != kInternal; });
}

std::vector<std::string> commands_with_options() {
  return names_where([](const Row& row) { return row.use == kOptions; });
}

std::string listed_name(const std::string& name) {
  const Command command = find_command(name);
  for (const Row& row : kCommands) {
    if (row.command == command && !about_command(row.name).empty()) return row.name;
  }
  return name;
}

int dispatch(const std::vector<std::string>& words, const std::string& invoked_as) {
  if (words.empty()) return short_help();
  const Arguments arguments = split_arguments(with_config_from_input(words), invoked_as);
  return find_command(arguments.command)(arguments);
}

}  // namespace dslaunch::launcher
