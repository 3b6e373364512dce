// The options of the commands on jobs that are there already.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "launch/jobs/job_commands.hpp"

namespace dslaunch::launcher {

struct JobsOptions {
  std::vector<std::string> jobs;  // empty: a list
  bool all = false, json = false;
};
struct LogsWords {
  std::string job;
  launch::LogsOptions logs;
};
struct StacksWords {
  std::string job;  // empty: the newest that runs
  launch::StacksOptions stacks;
};
struct StopWords {
  std::vector<std::string> jobs;
  launch::StopOptions stop;
};

// Each reads the words of one command. UserError(64) for what is not understood. Empty: help was asked for and printed.
std::optional<JobsOptions> read_jobs_options(const Arguments& arguments);
std::optional<LogsWords> read_logs_options(const Arguments& arguments);
std::optional<std::string> read_attach_options(const Arguments& arguments);
std::optional<StacksWords> read_stacks_options(const Arguments& arguments);
std::optional<StopWords> read_stop_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
