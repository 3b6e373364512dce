// The report of a measured step.
#include "runtime/pipeline/measured_step.hpp"

#include <catch2/catch.hpp>

#include "runtime/pipeline/simulate.hpp"

using namespace dslaunch::runtime::pipeline;
using enum ActionKind;

TEST_CASE("a measured step is shown as a table, with what the schedule needs for the same times",
          "[runtime][pipeline]") {
  // Two micro batches on two stages; forwards of 2 ms, backwards of 4; each transfer takes 1 ms.
  const Timeline measured{{
      {{{kForward, 0}, 0, 2}, {{kForward, 1}, 2, 4}, {{kBackward, 0}, 10, 14}, {{kBackward, 1}, 16, 20}},
      {{{kForward, 0}, 3, 5}, {{kBackward, 0}, 5, 9}, {{kForward, 1}, 9, 11}, {{kBackward, 1}, 11, 15}},
  }};
  const auto lines = describe_measured_step(measured, ScheduleKind::k1F1B);
  CHECK(lines == std::vector<std::string>{
                     "pipeline as measured: 1f1b, 2 stages, 2 micro batches; a slot is 2 ms",
                     "stage 0 F0 F1 .  .  .  B0 B0 .  B1 B1",
                     "stage 1 .  F0 B0 B0 F1 B1 B1 .  .  .",
                     "bubble 40.0 % of 20 ms; 33.3 % of 18 ms if transfers took no time",
                     "stage 0: waits 40.0 % of the step; forward 2 ms, backward 4 ms",
                     "stage 1: waits 40.0 % of the step; forward 2 ms, backward 4 ms",
                 });
}

TEST_CASE("a split backward has two times", "[runtime][pipeline]") {
  const Timeline timeline =
      simulate(plan_all_stages(ScheduleKind::kZbH1, 2, 3), {{2, 1.5, 1}}, TransferOrder::kConcurrent).timeline;
  const auto lines = describe_measured_step(timeline, ScheduleKind::kZbH1);
  CHECK(lines.back().ends_with("forward 2 ms, input gradient 1.5 ms, weight gradient 1 ms"));
}
