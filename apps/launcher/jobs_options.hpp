// The options of the commands on existing jobs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "launch/jobs/job_commands.hpp"

namespace dslaunch::launcher {

struct JobsOptions {
  std::vector<std::string> jobs;  // empty: list the jobs
  bool all = false, json = false;
};
struct LogsArguments {
  std::string job;
  launch::LogsOptions logs;
};
struct StacksArguments {
  std::string job;  // empty: the newest running job
  launch::StacksOptions stacks;
};
struct StopArguments {
  std::vector<std::string> jobs;
  launch::StopOptions stop;
};

// Each parses the words of one command. Throws UserError(64) for invalid options. Empty: help was requested and
// printed.
std::optional<JobsOptions> read_jobs_options(const Arguments& arguments);
std::optional<LogsArguments> read_logs_options(const Arguments& arguments);
std::optional<std::string> read_attach_options(const Arguments& arguments);
std::optional<StacksArguments> read_stacks_options(const Arguments& arguments);
std::optional<StopArguments> read_stop_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
