// What makes a command line the same job as another one: nodes that are started by hand run node rank 0's command, so a
// node that was given another one has to hear of it. What is a node's own may differ: its rank, slots and devices, what
// its terminal shows, how long it waits. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "launch/launch_options.hpp"

namespace dslaunch::launch {

struct JobCommand {
  std::string text;   // for people, cut where it is long; without the values of --env, which may be secrets
  uint64_t hash = 0;  // of all of it, and those values
};

JobCommand job_command(const RunOptions& run);
JobCommand job_command(const ExecOptions& exec);

}  // namespace dslaunch::launch
