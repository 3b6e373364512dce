// Every schedule of up to 8 stages and 16 micro batches.
#pragma once
#include <functional>
#include <vector>

#include "runtime/pipeline/schedule.hpp"
#include "runtime/pipeline/simulate.hpp"

namespace dslaunch::test {

using runtime::pipeline::Action;
using runtime::pipeline::ActionKind;
using runtime::pipeline::ScheduleKind;

constexpr ScheduleKind kAllSchedules[] = {ScheduleKind::k1F1B, ScheduleKind::kGPipe, ScheduleKind::kZbH1};

struct Plans {
  ScheduleKind kind;
  int num_stages, num_micro_batches;
  std::vector<std::vector<Action>> stages;
};

inline void for_every_schedule(const std::function<void(const Plans&)>& check) {
  for (const ScheduleKind kind : kAllSchedules) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        check({kind, stages, micro_batches, runtime::pipeline::plan_all_stages(kind, stages, micro_batches)});
      }
    }
  }
}

}  // namespace dslaunch::test

#define INFO_OF(plans)                                                                            \
  INFO("schedule " << static_cast<int>((plans).kind) << ", " << (plans).num_stages << " stages, " \
                   << (plans).num_micro_batches << " micro batches")
