// What the schedule sets for one optimizer step: plain numbers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch::runtime::optim {

struct GroupRates {
  double lr = 0.0;
  std::optional<double> beta1, beta2;  // set by a schedule that changes the momentum; empty: the group's own
};

// For the `step`-th applied step, counted from 1 (bias correction, first momentum).
struct StepRates {
  int64_t step = 1;
  double lr = 0.0;                 // shown in metrics: the default group's
  std::vector<GroupRates> groups;  // by optimizer group; empty: `lr` for all of them

  GroupRates of_group(size_t group) const { return groups.empty() ? GroupRates{lr, {}, {}} : groups.at(group); }
};

}  // namespace dslaunch::runtime::optim
