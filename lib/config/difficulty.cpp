#include "config/difficulty.hpp"

#include <algorithm>
#include <cmath>

namespace dslaunch::config {
namespace {

// The first level whose last step has not passed.
int64_t discrete_level(const Difficulty& difficulty, int64_t step) {
  const auto& last = difficulty.last_steps;
  for (size_t i = 0; i < last.size(); ++i) {
    if (step <= last[i] || difficulty.levels[i] >= difficulty.maximum) return difficulty.levels[i];
  }
  return difficulty.levels.back();
}

int64_t root_level(const Difficulty& difficulty, int64_t step) {
  const bool is_linear = difficulty.schedule == DifficultySchedule::kFixedLinear;
  const double progress = static_cast<double>(step) / static_cast<double>(difficulty.total_steps);
  const double share = std::pow(progress, 1.0 / static_cast<double>(is_linear ? 1 : difficulty.root_degree));
  const auto range = static_cast<double>(difficulty.maximum - difficulty.minimum);
  const double raw = std::floor(share * range + static_cast<double>(difficulty.minimum));
  if (raw >= static_cast<double>(difficulty.maximum) + static_cast<double>(difficulty.granularity)) {
    return difficulty.maximum;
  }
  const auto whole = static_cast<int64_t>(raw);
  const int64_t rest = ((whole % difficulty.granularity) + difficulty.granularity) % difficulty.granularity;
  return std::min(whole - rest, difficulty.maximum);
}

}  // namespace

int64_t difficulty_at(const Difficulty& difficulty, int64_t step) {
  if (difficulty.minimum >= difficulty.maximum) return difficulty.minimum;
  return difficulty.schedule == DifficultySchedule::kFixedDiscrete ? discrete_level(difficulty, step)
                                                                   : root_level(difficulty, step);
}

std::vector<DifficultyChange> difficulty_changes(const Difficulty& difficulty, int64_t num_steps) {
  std::vector<DifficultyChange> changes;
  for (int64_t step = 1; step <= num_steps;) {
    const int64_t level = difficulty_at(difficulty, step);
    changes.push_back({step, level});
    if (level >= difficulty.maximum) break;
    // The last step with this level lies in [low, high): doubling finds an end, halving the step. Levels of a list may
    // fall and return, so there each level ends with its entry.
    int64_t low = step, high = num_steps + 1;
    if (difficulty.schedule == DifficultySchedule::kFixedDiscrete) {
      const auto& last = difficulty.last_steps;
      const auto end = std::lower_bound(last.begin(), last.end(), step);
      high = end == last.end() ? high : std::min(high, *end + 1);
      low = high - 1;
    }
    for (int64_t reach = 1; low + reach < high; reach *= 2) {
      if (difficulty_at(difficulty, low + reach) == level) continue;
      high = low + reach;
      break;
    }
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (difficulty_at(difficulty, middle) == level ? low : high) = middle;
    }
    step = high;
  }
  return changes;
}

}  // namespace dslaunch::config
