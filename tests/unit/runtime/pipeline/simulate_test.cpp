// Schedules on a clock: they end, also where every transfer blocks, and take the time that the literature gives.
#include "runtime/pipeline/simulate.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "base/error.hpp"
#include "unit/runtime/pipeline/plans.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::pipeline;
using test::Plans;
using enum ActionKind;

namespace {

constexpr TransferOrder kOrders[] = {TransferOrder::kBlocking, TransferOrder::kConcurrent};

// The time of all steps if nothing but the pipeline's own dependencies made a stage wait. 1f1b and gpipe: Narayanan et
// al. 2021. zb-h1: Qi et al. 2023, section 3, where weight gradients are the shortest; with fewer micro batches than
// stages only one of them does not fit into a bubble.
double expected_duration(const Plans& plans, const ActionTimes& times) {
  const double rounds = plans.num_micro_batches + plans.num_stages - 1;
  const double both = times.forward + times.input_gradient;
  if (plans.num_stages == 1 || plans.kind != ScheduleKind::kZbH1) return rounds * (both + times.weight_gradient);
  return rounds * both + std::max(1, plans.num_micro_batches - plans.num_stages + 1) * times.weight_gradient;
}

// Whole numbers, so that sums are exact.
const std::vector<ActionTimes> kTimes{{1, 1, 1}, {3, 5, 2}, {7, 4, 4}, {2, 2, 1}};

}  // namespace

TEST_CASE("no schedule deadlocks, whichever way transfers wait", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    bool ends = true;
    for (const TransferOrder order : kOrders) {
      for (const double transfer : {0.0, 0.25, 10.0}) {
        ends = ends && simulate(plans.stages, {{1, 1, 1, transfer}}, order).deadlock.empty();
      }
    }
    CHECK(ends);
  });
}

TEST_CASE("no schedule of unequal stages deadlocks", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    std::vector<ActionTimes> slower, uneven;
    for (int stage = 0; stage < plans.num_stages; ++stage) {
      slower.push_back({1.0 + stage, 2.0 + stage, 1.0 + stage, 0.5});
      uneven.push_back({stage % 2 == 0 ? 5.0 : 1.0, stage % 3 == 0 ? 0.0 : 4.0, 1, 0.5});
    }
    bool ends = true;
    for (const TransferOrder order : kOrders) {
      ends = ends && simulate(plans.stages, slower, order).deadlock.empty() &&
             simulate(plans.stages, uneven, order).deadlock.empty();
    }
    CHECK(ends);
  });
}

TEST_CASE("a step takes as long as theory says", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    bool holds = true;
    for (const ActionTimes& times : kTimes) {
      const auto run = simulate(plans.stages, {times}, TransferOrder::kConcurrent);
      holds = holds && run.timeline.duration() == expected_duration(plans, times);
    }
    CHECK(holds);
  });
}

TEST_CASE("where transfers block, 1f1b and gpipe take no longer, and zb-h1 still less than 1f1b",
          "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    const ActionTimes equal;
    const double duration = simulate(plans.stages, {equal}, TransferOrder::kBlocking).timeline.duration();
    const double of_1f1b = 3.0 * (plans.num_micro_batches + plans.num_stages - 1);
    if (plans.kind == ScheduleKind::kZbH1 && plans.num_stages > 1) {
      CHECK(duration < of_1f1b);
    } else {
      CHECK(duration == of_1f1b);
    }
  });
}

TEST_CASE("the bubble of 1f1b and gpipe is (P - 1) / (M + P - 1) on every stage", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    if (plans.kind == ScheduleKind::kZbH1 && plans.num_stages > 1) return;
    INFO_OF(plans);
    const auto timeline = simulate(plans.stages, {{1, 1, 1}}, TransferOrder::kBlocking).timeline;
    const double theory = double(plans.num_stages - 1) / (plans.num_micro_batches + plans.num_stages - 1);
    CHECK(timeline.bubble() == Approx(theory));
    for (size_t stage = 0; stage < timeline.stages.size(); ++stage) CHECK(timeline.idle_share(stage) == Approx(theory));
  });
}

TEST_CASE("the bubble of zb-h1 is a third of that of 1f1b with equal times", "[runtime][pipeline]") {
  const auto idle_of = [](ScheduleKind kind) {
    const auto timeline = simulate(plan_all_stages(kind, 4, 8), {{1, 1, 1}}, TransferOrder::kConcurrent).timeline;
    return timeline.duration() - timeline.busy(0);
  };
  CHECK(idle_of(ScheduleKind::k1F1B) == 9);
  CHECK(idle_of(ScheduleKind::kZbH1) == 3);
}

TEST_CASE("no stage does two things at a time, and none before its input", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    bool holds = true;
    for (const TransferOrder order : kOrders) {
      const auto run = simulate(plans.stages, {{3, 2, 1, 0.5}}, order);
      for (size_t stage = 0; stage < run.timeline.stages.size(); ++stage) {
        double computed = 0, received = 0;
        for (const auto& timed : run.timeline.stages[stage]) {
          const bool is_transfer_of_it = is_transfer(timed.action.kind);
          holds = holds && timed.end >= timed.begin + (is_transfer_of_it ? 0.5 : 1);
          if (is_transfer_of_it) {
            // One action per micro batch and kind: the sender's has ended when the receiver's has.
            const auto& peer = run.timeline.stages[static_cast<size_t>(peer_of(timed.action.kind, int(stage)))];
            const auto counterpart = [&] {
              switch (timed.action.kind) {
                case kSendActivation:
                  return kReceiveActivation;
                case kReceiveActivation:
                  return kSendActivation;
                case kSendGradient:
                  return kReceiveGradient;
                default:
                  return kSendGradient;
              }
            }();
            const auto other = std::find_if(peer.begin(), peer.end(), [&](const TimedAction& each) {
              return each.action == Action{counterpart, timed.action.micro_batch};
            });
            holds = holds && other != peer.end() && other->end == timed.end;
            if (!is_send(timed.action.kind)) received = std::max(received, timed.end);
          } else {
            holds = holds && timed.begin >= computed;
            // A weight gradient needs nothing that is received; zb-h1 receives an activation before it.
            if (timed.action.kind != kWeightGradient) holds = holds && timed.begin >= received;
            computed = timed.end;
          }
        }
      }
    }
    CHECK(holds);
  });
}

TEST_CASE("two stages that both begin with a blocking send are a deadlock", "[runtime][pipeline]") {
  // As a 1f1b whose transfers were not grouped: a computation between them makes them exchanges of their own.
  const std::vector<std::vector<Action>> plans{{{kForward, 0},
                                                {kSendActivation, 0},
                                                {kForward, 1},
                                                {kSendActivation, 1},
                                                {kForward, 2},
                                                {kReceiveGradient, 0},
                                                {kBackward, 0}},
                                               {{kReceiveActivation, 0},
                                                {kForward, 0},
                                                {kBackward, 0},
                                                {kSendGradient, 0},
                                                {kForward, 3},
                                                {kReceiveActivation, 1}}};
  const auto run = simulate(plans, {{}}, TransferOrder::kBlocking);
  REQUIRE(run.deadlock.size() == 2);
  CHECK(describe(run.deadlock) == "stage 0: send activation 1; stage 1: send gradient 0");
}

TEST_CASE("a stage that waits for a transfer which nobody makes is named with it", "[runtime][pipeline]") {
  const std::vector<std::vector<Action>> plans{{{kForward, 0}, {kSendActivation, 0}, {kReceiveGradient, 0}},
                                               {{kReceiveActivation, 0}, {kForward, 0}}};
  for (const TransferOrder order : kOrders) {
    CHECK(describe(simulate(plans, {{}}, order).deadlock) == "stage 0: receive gradient 0");
  }
}

TEST_CASE("plans that do not fit together are our bug, named", "[runtime][pipeline]") {
  const auto run = [](const std::vector<std::vector<Action>>& plans) {
    return simulate(plans, {{}}, TransferOrder::kBlocking);
  };
  CHECK_THROWS_WITH(run({{{kForward, 0}, {kSendActivation, 0}}, {{kReceiveActivation, 1}}}),
                    Catch::Contains("the send activation 0 of stage 0 meets the receive activation 1 of stage 1"));
  CHECK_THROWS_WITH(run({{{kBackward, 0}}}), Catch::Contains("backward 0 before its forward"));
  CHECK_THROWS_WITH(run({{{kForward, 0}, {kWeightGradient, 0}}}),
                    Catch::Contains("weight gradient 0 before its input gradient"));
  CHECK_THROWS_WITH(run({{{kSendGradient, 0}}}), Catch::Contains("stage 0 has no peer to send gradient 0"));
  CHECK_THROWS_AS(simulate({{}, {}, {}}, {{}, {}}, TransferOrder::kBlocking), InternalError);
}

TEST_CASE("an evaluation through stages takes no longer than the pipeline is deep", "[runtime][pipeline]") {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      std::vector<std::vector<Action>> plans;
      for (int stage = 0; stage < stages; ++stage) plans.push_back(plan_evaluation(stages, stage, micro_batches));
      for (const TransferOrder order : kOrders) {
        const auto run = simulate(plans, {{}}, order);
        CHECK((run.deadlock.empty() && run.timeline.duration() == stages + micro_batches - 1));
      }
    }
  }
}
