// The options of the `run` and `exec` command lines, after the syntax check: plain data.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/run_flags.hpp"
#include "hostfile/host_options.hpp"
#include "launch/channel/binding_request.hpp"
#include "launch/plan/default_grace.hpp"
#include "launch/plan/output_choices.hpp"
#include "launch/plan/reach_options.hpp"
#include "launch/records/job_record.hpp"

namespace dslaunch::launch {

enum class DeviceChoice { kAuto, kCpu, kCuda };

// Where and how ranks run: for both commands.
struct LaunchOptions {
  StartCommand start;  // these options as they were typed
  std::string name;    // of the job, for the commands on jobs; empty: none
  DeviceChoice device = DeviceChoice::kAuto;
  hostfile::HostOptions hosts;
  ReachOptions reach;
  std::chrono::milliseconds join_timeout{600000};  // for the other nodes of --no_ssh to connect; 0: no limit
  int max_restarts = 0;
  std::optional<int> min_nodes;  // empty: all of them
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds grace = kDefaultGrace;
  std::vector<std::pair<std::string, std::string>> env;  // --env NAME=VALUE, in order
  std::string chdir;                                     // empty: the current directory
  std::vector<std::string> env_files;                    // --env_file, in order
  std::string venv;                                      // empty: none
  std::string run_dir;                                   // empty: `run` uses runs/JOB, `exec` the job's own directory
  OutputChoices output;
  BindingRequest binding;
  bool detach = false;  // the job runs in the background
  bool dry_run = false, json = false, quiet = false, verbose = false;
};

// The options of `run` for the training itself.
struct RunOptions {
  LaunchOptions launch;
  std::string model;
  std::string config;             // empty: defaults
  std::vector<std::string> sets;  // --set KEY=VALUE, in order
  config::RunFlags flags;         // those that the ranks take too
  bool overwrite = false;
  std::optional<std::chrono::milliseconds> hang_timeout;
  bool timings = false;
  std::chrono::duration<double> started{};  // since 1970: start time of this dslaunch
};

struct ExecOptions {
  LaunchOptions launch;
  bool overwrite = false;            // the logs of an earlier job in the run directory
  std::vector<std::string> command;  // program and arguments, unchanged
  bool add_local_rank = false;       // append --local_rank=N, of each rank
};

}  // namespace dslaunch::launch
