// One function a command: reads its options, does it, returns the exit code.
#pragma once
#include "arguments.hpp"

namespace dslaunch::launcher {

int run_command(const Arguments& arguments);
int exec_command(const Arguments& arguments);
int hosts_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int config_command(const Arguments& arguments);
int infer_command(const Arguments& arguments);
int consolidate_command(const Arguments& arguments);
int import_command(const Arguments& arguments);
int jobs_command(const Arguments& arguments);
int logs_command(const Arguments& arguments);
int attach_command(const Arguments& arguments);
int stop_command(const Arguments& arguments);
int agent_command(const Arguments& arguments);

// `dslaunch` without arguments.
int short_help();

// A line for each command.
const char* command_list();

}  // namespace dslaunch::launcher
