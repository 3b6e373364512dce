// What a run that continues keeps of the run that saved its checkpoint, so that its numbers stay those of one run: the
// global batch on another number of data ranks, and the cut of a pipeline, which may have been measured. Pure, but for
// config_of_checkpoint().
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/load.hpp"

namespace dslaunch::launch {

struct KeptSettings {
  std::vector<std::string> sets;   // KEY=VALUE
  std::vector<std::string> lines;  // for people
};

// `recorded`: the resolved config of the earlier run; a text that is none keeps nothing. What the user has chosen for
// this run is not replaced.
KeptSettings settings_to_keep(const std::string& recorded, const config::LoadResult& now);

// The resolved config that a checkpoint records. `path`: a checkpoint, a directory of checkpoints, whose newest one
// counts, or a run directory. Empty: there is none that this host can read.
std::string config_of_checkpoint(const std::string& path);

// The number of steps to propose to those who want to train a finished run on: as many again, but not beyond the end of
// its learning rate schedule, after which the rate rises again or is zero. Empty: the schedule has ended. `steps`: of
// the run, where its config says so.
std::optional<int64_t> steps_to_train_on(const config::Scheduler& scheduler, std::optional<int64_t> steps,
                                         int64_t last_step);

}  // namespace dslaunch::launch
