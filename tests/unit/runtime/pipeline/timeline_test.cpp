// Figures and tables of a step's timeline.
#include "runtime/pipeline/timeline.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/pipeline/simulate.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::pipeline;
using enum ActionKind;

namespace {

Timeline timeline_of(ScheduleKind kind, int num_stages, int num_micro_batches) {
  return simulate(plan_all_stages(kind, num_stages, num_micro_batches), {{}}, TransferOrder::kConcurrent).timeline;
}

}  // namespace

TEST_CASE("a table has a line per stage and a cell per slot", "[runtime][pipeline]") {
  CHECK(format_table(timeline_of(ScheduleKind::k1F1B, 2, 3), 1, 0) ==
        "stage 0 F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2\n"
        "stage 1 .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .\n");
  CHECK(format_table(timeline_of(ScheduleKind::kZbH1, 3, 3), 1, 0) ==
        "stage 0 F0 F1 F2 .  .  I0 W0 I1 W1 I2 W2\n"
        "stage 1 .  F0 F1 .  I0 F2 I1 W0 I2 W1 W2\n"
        "stage 2 .  .  F0 I0 F1 I1 F2 I2 W0 W1 W2\n");
  CHECK(format_table(timeline_of(ScheduleKind::kGPipe, 1, 1), 1, 0) == "stage 0 F0 B0 B0\n");
}

TEST_CASE("a table that is wider than the terminal continues in further blocks", "[runtime][pipeline]") {
  const Timeline timeline = timeline_of(ScheduleKind::k1F1B, 2, 3);
  CHECK(format_table(timeline, 1, 23) ==
        "slots 0 to 4\n"
        "stage 0 F0 F1 .  .  B0\n"
        "stage 1 .  F0 B0 B0 F1\n"
        "\n"
        "slots 5 to 9\n"
        "stage 0 B0 F2 B1 B1 .\n"
        "stage 1 B1 B1 F2 B2 B2\n"
        "\n"
        "slots 10 to 11\n"
        "stage 0 B2 B2\n"
        "stage 1 .  .\n");
  CHECK(format_table(timeline, 1, 43) == format_table(timeline, 1, 0));
  CHECK(format_table(timeline_of(ScheduleKind::kGPipe, 1, 1), 1, 1).starts_with("slots 0 to 0\nstage 0 F0\n"));
}

TEST_CASE("a measured timeline is shown by what runs in the middle of each slot", "[runtime][pipeline]") {
  const Timeline measured{{{{{kForward, 0}, 0.1, 1.2}, {{kSendActivation, 0}, 1.2, 1.4}, {{kBackward, 0}, 2.6, 4.3}}}};
  CHECK(format_table(measured, 1, 0) == "stage 0 F0 .  .  B0 .\n");
  CHECK(measured.duration() == Approx(4.3));
  CHECK(measured.busy(0) == Approx(2.8));
  CHECK(measured.idle_share(0) == Approx(1.5 / 4.3));
  CHECK_THROWS_AS(format_table(measured, 0, 0), InternalError);
}

TEST_CASE("the bubble is the mean of the stages' idle shares, and nothing has none", "[runtime][pipeline]") {
  const Timeline uneven{{{{{kForward, 0}, 0, 4}}, {{{kForward, 0}, 0, 1}}}};
  CHECK(uneven.idle_share(0) == 0);
  CHECK(uneven.idle_share(1) == Approx(0.75));
  CHECK(uneven.bubble() == Approx(0.375));
  CHECK(Timeline{}.bubble() == 0);
  CHECK(Timeline{{{}}}.bubble() == 0);
}
