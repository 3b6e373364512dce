// The options of each command, declared with CLI11, and the plain structs of lib/launch that they fill.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "config/report.hpp"
#include "launch/agent/agent.hpp"
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launcher {

// Each parses the words of one command. Throws UserError(64) for invalid options. Empty: help was requested and
// printed.
std::optional<launch::RunOptions> read_run_options(const Arguments& arguments);
std::optional<launch::ExecOptions> read_exec_options(const Arguments& arguments);
std::optional<launch::LaunchOptions> read_hosts_options(const Arguments& arguments);
std::optional<launch::AgentCommand> read_agent_options(const Arguments& arguments);

struct ConfigOptions {
  bool explain = false;      // false: check
  std::string file;          // empty: the defaults
  config::KeyChoice choice;  // of explain
  int world_size = 0;        // 0: not given
  std::vector<std::string> sets;
  bool json = false;
};
std::optional<ConfigOptions> read_config_options(const Arguments& arguments);

// The worker's arguments for its tool modes.
std::optional<std::vector<std::string>> read_infer_options(const Arguments& arguments);
std::optional<std::vector<std::string>> read_serve_options(const Arguments& arguments);
std::optional<std::vector<std::string>> read_consolidate_options(const Arguments& arguments);
std::optional<std::vector<std::string>> read_import_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
