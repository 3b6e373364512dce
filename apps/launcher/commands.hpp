// One function per command: reads its options, executes the command, returns the exit code.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"

namespace dslaunch::launcher {

using Command = int (*)(const Arguments&);

// Null if there is no command of this name.
Command find_command(std::string_view name);
// The commands intended for users.
std::vector<std::string> command_names();
// "run" of "train", "jobs" of "list": the name under which the help lists a command.
std::string listed_name(const std::string& name);
// Those with options of their own, which describe_command() knows.
std::vector<std::string> commands_with_options();
// Executes the command that `words`, argv without the program's name, begin with; without words, short_help().
// `invoked_as`: the program's name as it was typed.
int dispatch(const std::vector<std::string>& words, const std::string& invoked_as = "dslaunch");

int help_command(const Arguments& arguments);
int version_command(const Arguments& arguments);
int complete_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);
int run_command(const Arguments& arguments);
int exec_command(const Arguments& arguments);
int hosts_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int config_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int tokenize_command(const Arguments& arguments);
int infer_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);
int consolidate_command(const Arguments& arguments);
int import_command(const Arguments& arguments);
int jobs_command(const Arguments& arguments);
int logs_command(const Arguments& arguments);
int attach_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int resume_command(const Arguments& arguments);
int stacks_command(const Arguments& arguments);
int stop_command(const Arguments& arguments);
int top_command(const Arguments& arguments);
int agent_command(const Arguments& arguments);

// Runs dsworker with these arguments in the foreground, and reports a signal that ended it. Throws SystemError(69).
int run_worker(const std::vector<std::string>& words);

// `dslaunch` without arguments.
int short_help();

// One line per command.
std::string command_list();
// The line of the list about a command; empty for one that is not listed.
std::string about_command(const std::string& name);

}  // namespace dslaunch::launcher
