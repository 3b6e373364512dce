// The properties of schedules that training relies on, proved by trying all of up to 8 stages and 16 micro batches. One
// CHECK for each schedule: Catch takes longer than the plans.
#include "runtime/pipeline/schedule.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/pipeline/timeline.hpp"
#include "unit/runtime/pipeline/plans.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::pipeline;
using test::Plans;
using enum ActionKind;

namespace {

// "F0 RA1 F1 ..."
std::string text_of(const std::vector<Action>& plan) {
  std::vector<std::string> labels;
  for (const Action& action : plan) labels.push_back(label(action));
  return fmt::format("{}", fmt::join(labels, " "));
}

std::vector<int> micro_batches_of(const std::vector<Action>& plan, ActionKind kind) {
  std::vector<int> out;
  for (const Action& action : plan) {
    if (action.kind == kind) out.push_back(action.micro_batch);
  }
  return out;
}

size_t position(const std::vector<Action>& plan, const Action& action) {
  return static_cast<size_t>(std::find(plan.begin(), plan.end(), action) - plan.begin());
}

// Every micro batch once in each of the kinds that it needs, in the order of the micro batches, and nothing else.
bool is_complete(const Plans& plans, int stage) {
  const auto& plan = plans.stages[static_cast<size_t>(stage)];
  std::vector<int> all(static_cast<size_t>(plans.num_micro_batches));
  std::iota(all.begin(), all.end(), 0);
  const bool is_split = plans.kind == ScheduleKind::kZbH1 && plans.num_stages > 1;
  const bool has_next = stage + 1 < plans.num_stages, has_previous = stage > 0;
  const std::map<ActionKind, bool> expected{{kForward, true},
                                            {kBackward, !is_split},
                                            {kInputGradient, is_split},
                                            {kWeightGradient, is_split},
                                            {kSendActivation, has_next},
                                            {kReceiveActivation, has_previous},
                                            {kSendGradient, has_previous},
                                            {kReceiveGradient, has_next}};
  return std::all_of(expected.begin(), expected.end(), [&](const auto& entry) {
    return micro_batches_of(plan, entry.first) == (entry.second ? all : std::vector<int>{});
  });
}

// For each micro batch: input, forward, output, gradient of the output, backward, gradient of the input, the rest.
bool follows_the_data(const Plans& plans, int stage) {
  const auto& plan = plans.stages[static_cast<size_t>(stage)];
  for (int micro_batch = 0; micro_batch < plans.num_micro_batches; ++micro_batch) {
    std::vector<size_t> order;
    for (const ActionKind kind :
         {kReceiveActivation, kForward, kSendActivation, kReceiveGradient, kBackward, kInputGradient, kSendGradient}) {
      const size_t at = position(plan, {kind, micro_batch});
      if (at < plan.size()) order.push_back(at);
    }
    if (!std::is_sorted(order.begin(), order.end())) return false;
    const size_t rest = position(plan, {kWeightGradient, micro_batch});
    if (rest < plan.size() && rest < position(plan, {kInputGradient, micro_batch})) return false;
  }
  return true;
}

// What one stage sends to its neighbour, in the order in which it sends it, and what the neighbour receives.
bool transfers_match(const Plans& plans, int stage) {
  const auto& plan = plans.stages[static_cast<size_t>(stage)];
  const auto& next = plans.stages[static_cast<size_t>(stage) + 1];
  return micro_batches_of(plan, kSendActivation) == micro_batches_of(next, kReceiveActivation) &&
         micro_batches_of(next, kSendGradient) == micro_batches_of(plan, kReceiveGradient);
}

bool holds_for_all_stages(const Plans& plans, bool (*property)(const Plans&, int)) {
  for (int stage = 0; stage < plans.num_stages; ++stage) {
    if (!property(plans, stage)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every micro batch takes each of its actions once, in the order of its data", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    CHECK((holds_for_all_stages(plans, is_complete) && holds_for_all_stages(plans, follows_the_data)));
  });
}

TEST_CASE("sends and receives of neighbouring stages match in order", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    bool match = true;
    for (int stage = 0; stage + 1 < plans.num_stages; ++stage) match = match && transfers_match(plans, stage);
    CHECK(match);
  });
}

TEST_CASE("a stage of 1f1b and zb-h1 keeps the activations of the stages from itself to the last",
          "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    bool holds = true;
    for (int stage = 0; stage < plans.num_stages; ++stage) {
      const bool keeps_all = plans.kind == ScheduleKind::kGPipe && plans.num_stages > 1;
      const int expected =
          keeps_all ? plans.num_micro_batches : std::min(plans.num_stages - stage, plans.num_micro_batches);
      holds = holds && peak_memory(plans.stages[static_cast<size_t>(stage)]).live_activations == expected;
    }
    CHECK(holds);
  });
}

TEST_CASE("zb-h1 defers the weight gradients of a micro batch more on each stage", "[runtime][pipeline]") {
  test::for_every_schedule([](const Plans& plans) {
    INFO_OF(plans);
    const bool is_split = plans.kind == ScheduleKind::kZbH1 && plans.num_stages > 1;
    bool holds = true;
    for (int stage = 0; stage < plans.num_stages; ++stage) {
      const int expected = is_split ? std::min(stage + 1, plans.num_micro_batches) : 0;
      holds = holds && peak_memory(plans.stages[static_cast<size_t>(stage)]).deferred_weight_gradients == expected;
    }
    CHECK(holds);
  });
}

TEST_CASE("with one stage every schedule is a forward and a backward in turns", "[runtime][pipeline]") {
  for (const ScheduleKind kind : test::kAllSchedules)
    CHECK(text_of(plan_schedule(kind, 1, 0, 3)) == "F0 B0 F1 B1 F2 B2");
}

TEST_CASE("the plans of three stages and four micro batches", "[runtime][pipeline]") {
  const auto plan = [](ScheduleKind kind, int stage) { return text_of(plan_schedule(kind, 3, stage, 4)); };
  CHECK(plan(ScheduleKind::k1F1B, 0) == "F0 SA0 F1 SA1 F2 SA2 RG0 B0 F3 SA3 RG1 B1 RG2 B2 RG3 B3");
  CHECK(plan(ScheduleKind::k1F1B, 1) ==
        "RA0 F0 SA0 RA1 F1 SA1 RG0 B0 SG0 RA2 F2 SA2 RG1 B1 SG1 RA3 F3 SA3 RG2 B2 SG2 RG3 B3 SG3");
  CHECK(plan(ScheduleKind::k1F1B, 2) == "RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 RA3 F3 B3 SG3");
  CHECK(plan(ScheduleKind::kGPipe, 1) ==
        "RA0 F0 SA0 RA1 F1 SA1 RA2 F2 SA2 RA3 F3 SA3 RG0 B0 SG0 RG1 B1 SG1 RG2 B2 SG2 RG3 B3 SG3");
  CHECK(plan(ScheduleKind::kZbH1, 0) == "F0 SA0 F1 SA1 F2 SA2 RG0 I0 W0 F3 SA3 RG1 I1 W1 RG2 I2 W2 RG3 I3 W3");
  CHECK(plan(ScheduleKind::kZbH1, 1) ==
        "RA0 F0 SA0 RA1 F1 SA1 RG0 I0 SG0 RA2 F2 SA2 RG1 I1 SG1 RA3 W0 F3 SA3 RG2 I2 SG2 W1 RG3 I3 SG3 W2 W3");
  CHECK(plan(ScheduleKind::kZbH1, 2) == "RA0 F0 I0 SG0 RA1 F1 I1 SG1 RA2 F2 I2 SG2 RA3 W0 F3 I3 SG3 W1 W2 W3");
}

TEST_CASE("a plan of 1f1b is the instruction list of DeepSpeed's TrainSchedule", "[runtime][pipeline]") {
  // DeepSpeed's formulas (steps t, of even or odd parity): which micro batch a stage works on in step t, and whether
  // that is a forward.
  const auto computations = [](int stages, int stage, int micro_batches) {
    std::string out;
    for (int t = 0; t < 2 * (micro_batches + stages - 1); ++t) {
      const bool is_forward = t % 2 == stage % 2;
      const int forward = t % 2 == 0 ? t / 2 - stage / 2 : (t - 1) / 2 - stage / 2;
      const int backward = t % 2 == 0 ? t / 2 - stages + (stage + 1) / 2 : (t - 1) / 2 - stages + 1 + stage / 2;
      const int id = is_forward ? forward : backward;
      if (id >= 0 && id < micro_batches) out += fmt::format("{}{} ", is_forward ? 'F' : 'B', id);
    }
    return out;
  };
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      for (int stage = 0; stage < stages; ++stage) {
        std::string ours;
        for (const Action& action : plan_schedule(ScheduleKind::k1F1B, stages, stage, micro_batches)) {
          if (!is_transfer(action.kind)) ours += label(action) + " ";
        }
        if (ours != computations(stages, stage, micro_batches))
          CHECK(ours == computations(stages, stage, micro_batches));
      }
    }
  }
}

TEST_CASE("adjacent transfers are one exchange, and it ends at a computation", "[runtime][pipeline]") {
  const auto plan = plan_schedule(ScheduleKind::k1F1B, 3, 1, 4);  // RA0 F0 SA0 RA1 F1 SA1 RG0 B0 ...
  const auto labels = [&](size_t begin) {
    const auto exchange = exchange_at(plan, begin);
    return text_of({exchange.begin(), exchange.end()});
  };
  CHECK(labels(0) == "RA0");
  CHECK(labels(1).empty());
  CHECK(labels(2) == "SA0 RA1");
  CHECK(labels(3) == "RA1");
  CHECK(labels(5) == "SA1 RG0");
  CHECK(labels(plan.size() - 1) == "SG3");
}

TEST_CASE("an evaluation passes each micro batch forward through the stages", "[runtime][pipeline]") {
  CHECK(text_of(plan_evaluation(1, 0, 2)) == "F0 F1");
  CHECK(text_of(plan_evaluation(3, 0, 2)) == "F0 SA0 F1 SA1");
  CHECK(text_of(plan_evaluation(3, 1, 2)) == "RA0 F0 SA0 RA1 F1 SA1");
  CHECK(text_of(plan_evaluation(3, 2, 2)) == "RA0 F0 RA1 F1");
}

TEST_CASE("transfers lead to the stage before or behind", "[runtime][pipeline]") {
  CHECK(peer_of(kSendActivation, 3) == 4);
  CHECK(peer_of(kReceiveGradient, 3) == 4);
  CHECK(peer_of(kSendGradient, 3) == 2);
  CHECK(peer_of(kReceiveActivation, 3) == 2);
  CHECK_THROWS_AS(peer_of(kForward, 3), InternalError);
}

TEST_CASE("a stage outside its pipeline and a step without micro batches have no schedule", "[runtime][pipeline]") {
  CHECK_THROWS_AS(plan_schedule(ScheduleKind::k1F1B, 0, 0, 1), InternalError);
  CHECK_THROWS_AS(plan_schedule(ScheduleKind::k1F1B, 2, 2, 1), InternalError);
  CHECK_THROWS_AS(plan_schedule(ScheduleKind::k1F1B, 2, -1, 1), InternalError);
  CHECK_THROWS_AS(plan_evaluation(2, 0, 0), InternalError);
}
