// The difficulty of a curriculum at a step: pure arithmetic, DeepSpeed's to the last bit (docs/data_efficiency.md).
#pragma once
#include <cstdint>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::config {

// At a step counted from 1. Once a difficulty has reached the maximum it stays there.
int64_t difficulty_at(const Difficulty& difficulty, int64_t step);

// The first step of each change of the difficulty within `num_steps` steps, beginning with step 1. Takes a number of
// evaluations in proportion to the changes, not to the steps.
struct DifficultyChange {
  int64_t first_step = 1;
  int64_t difficulty = 0;
  bool operator==(const DifficultyChange&) const = default;
};
std::vector<DifficultyChange> difficulty_changes(const Difficulty& difficulty, int64_t num_steps);

}  // namespace dslaunch::config
