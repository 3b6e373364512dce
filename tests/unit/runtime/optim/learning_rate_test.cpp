// The expected numbers were recorded from DeepSpeed 0.18.2: its lr_schedules.py on a torch.optim.SGD with one group of
// lr 0.01, read before each optimizer step (K: steps applied), printed with 17 digits.
#include "runtime/optim/learning_rate.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <utility>
#include <vector>

namespace {

using dslaunch::config::Scheduler;
using dslaunch::config::SchedulerType;
using dslaunch::config::WarmupType;
using dslaunch::runtime::optim::learning_rate;

using Table = std::vector<std::pair<int64_t, double>>;

// A few ulps: log and the order of two multiplications differ between libraries.
void check_table(const Scheduler& scheduler, double base_lr, const Table& table) {
  for (const auto& [applied, expected] : table) {
    INFO("after " << applied << " steps");
    CHECK(std::abs(learning_rate(scheduler, base_lr, 12345, applied) - expected) <= 1e-15 * std::abs(expected) + 1e-22);
  }
}

}  // namespace

TEST_CASE("without a scheduler the rate is the optimizer's", "[runtime][learning_rate]") {
  check_table(Scheduler{}, 0.25, {{0, 0.25}, {1, 0.25}, {1'000'000, 0.25}});
}

TEST_CASE("WarmupLR rises logarithmically from its minimum, which the first two steps use",
          "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupLR, .warmup_min_lr = 0.001, .warmup_num_steps = 10};
  check_table(s, 0.01,
              {{0, 0.001},
               {1, 0.001},
               {2, 0.0037092699609758304},
               {3, 0.0052940912924769618},
               {5, 0.0072907300390241681},
               {8, 0.0091278098829274922},
               {9, 0.0095881825849539228},
               {10, 0.0099999999999999985},
               {11, 0.010000000000000002},
               {50, 0.010000000000000002}});
}

TEST_CASE("WarmupLR rises linearly to a maximum of its own", "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupLR,
              .warmup_min_lr = 0.001,
              .warmup_max_lr = 0.02,
              .warmup_num_steps = 10,
              .warmup_type = WarmupType::kLinear};
  check_table(s, 0.01,
              {{0, 0.001},
               {1, 0.001},
               {2, 0.0028999999999999998},
               {3, 0.0048000000000000004},
               {5, 0.0086},
               {8, 0.0143},
               {9, 0.016199999999999999},
               {10, 0.018100000000000002},
               {11, 0.02},
               {50, 0.02}});
}

TEST_CASE("a warm-up of one step counts as two", "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupLR, .warmup_num_steps = 1};
  check_table(s, 0.01, {{0, 0.0}, {1, 0.0}, {2, 0.01}, {3, 0.01}, {4, 0.01}});
}

TEST_CASE("WarmupLR's defaults are DeepSpeed's", "[runtime][learning_rate]") {
  check_table(Scheduler{.type = SchedulerType::kWarmupLR}, 3e-4,
              {{0, 0.0},
               {1, 0.0},
               {2, 3.0102999566398115e-05},
               {500, 0.00026989700043360184},
               {999, 0.00029995654882259819},
               {1000, 0.00029999999999999997},
               {1001, 0.00029999999999999997},
               {2000, 0.00029999999999999997}});
}

TEST_CASE("WarmupDecayLR falls in a line to its minimum at the total and stays there", "[runtime][learning_rate]") {
  Scheduler s{
      .type = SchedulerType::kWarmupDecayLR, .warmup_min_lr = 0.0005, .warmup_num_steps = 5, .total_num_steps = 20};
  check_table(s, 0.01,
              {{0, 0.0005},
               {1, 0.0005},
               {2, 0.0045914273016972335},
               {4, 0.0086828546033944683},
               {5, 0.01},
               {6, 0.01},
               {7, 0.0093666666666666672},
               {10, 0.0074666666666666666},
               {19, 0.0017666666666666666},
               {20, 0.0011333333333333334},
               {21, 0.0005},
               {22, 0.0005},
               {40, 0.0005}});
  s.warmup_min_lr = 0.0;
  s.warmup_max_lr = 0.003;
  s.warmup_type = WarmupType::kLinear;
  check_table(s, 0.01,
              {{0, 0.0},
               {1, 0.0},
               {2, 0.00060000000000000006},
               {4, 0.0018},
               {5, 0.0024000000000000002},
               {6, 0.0030000000000000001},
               {7, 0.0028},
               {10, 0.0021999999999999997},
               {19, 0.00040000000000000002},
               {20, 0.00020000000000000001},
               {21, 0.0},
               {22, 0.0}});
}

TEST_CASE("WarmupDecayLR with a total inside the warm-up drops to its minimum after it", "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupDecayLR,
              .warmup_max_lr = 0.003,
              .warmup_num_steps = 5,
              .warmup_type = WarmupType::kLinear,
              .total_num_steps = 3};
  check_table(s, 0.01, {{0, 0.0}, {3, 0.0012000000000000001}, {5, 0.0024000000000000002}, {6, 0.0}, {8, 0.0}});
}

TEST_CASE("WarmupCosineLR falls along a cosine and turns up behind the total", "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupCosineLR, .warmup_num_steps = 5, .total_num_steps = 20};
  check_table(s, 0.01,
              {{0, 0.0},
               {1, 0.0},
               {2, 0.0043067655807339303},
               {4, 0.0086135311614678606},
               {5, 0.01},
               {6, 0.0098907489298686608},
               {7, 0.0095677705154841829},
               {10, 0.00750025},
               {19, 0.00011025107013133847},
               {20, 1.0000000000000002e-06},
               {21, 0.00011025107013133847},
               {22, 0.00043322948451581704},
               {30, 0.00750025}});
  s.warmup_min_ratio = 0.1;
  s.cos_min_ratio = 0.05;
  s.warmup_type = WarmupType::kLinear;
  check_table(s, 0.01,
              {{0, 0.0},  // not the minimum ratio: DeepSpeed's rate before its first update
               {1, 0.001},
               {2, 0.0028000000000000004},
               {4, 0.0064000000000000003},
               {5, 0.0082000000000000007},
               {6, 0.0098962011034855763},
               {7, 0.0095893409238023541},
               {10, 0.0076249999999999998},
               {19, 0.00060379889651442304},
               {20, 0.0005},
               {21, 0.00060379889651442304},
               {30, 0.0076249999999999998}});
}

TEST_CASE("WarmupCosineLR with a total inside the warm-up follows the formula", "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupCosineLR, .warmup_num_steps = 5, .total_num_steps = 3};
  check_table(s, 0.01,
              {{4, 0.0086135311614678606}, {5, 0.01}, {6, 0.0050004999999999997}, {7, 1.0000000000000002e-06}});
}

TEST_CASE("WarmupCosineLR without room for the cosine stays at its minimum", "[runtime][learning_rate]") {
  Scheduler s{.type = SchedulerType::kWarmupCosineLR, .warmup_num_steps = 5, .total_num_steps = 5};
  check_table(s, 0.01, {{4, 0.0086135311614678606}, {5, 0.01}, {6, 1e-6}, {7, 1e-6}, {100, 1e-6}});
}

TEST_CASE("an automatic total is the run's number of steps", "[runtime][learning_rate]") {
  Scheduler given{.type = SchedulerType::kWarmupDecayLR, .warmup_num_steps = 4, .total_num_steps = 30};
  Scheduler automatic = given;
  automatic.total_num_steps.reset();
  for (int64_t applied = 0; applied < 40; ++applied) {
    CHECK(learning_rate(automatic, 0.1, 30, applied) == learning_rate(given, 0.1, 999, applied));
  }
}

TEST_CASE("a schedule that does not end with the run says how its rate ends", "[runtime][learning_rate]") {
  using dslaunch::config::Scheduler;
  using dslaunch::config::SchedulerType;
  using dslaunch::runtime::optim::describe_schedule_end;
  Scheduler schedule{.type = SchedulerType::kWarmupCosineLR, .warmup_num_steps = 2, .total_num_steps = 16};
  const auto rising = describe_schedule_end(schedule, 1e-3, 32, 0);
  REQUIRE(rising);
  CHECK(rising->rises);
  CHECK_THAT(rising->text,
             Catch::Contains("ends after 16 of the run's 32 steps") &&
                 Catch::Contains("rises again after it, as in DeepSpeed, from 1e-07: it is 0.0009875 at the last"));
  const auto cut = describe_schedule_end(schedule, 1e-3, 8, 0);
  REQUIRE(cut);
  CHECK_FALSE(cut->rises);
  CHECK_THAT(cut->text, Catch::Contains("step 8 of the schedule's 16"));
  CHECK_FALSE(describe_schedule_end(schedule, 1e-3, 16, 0));
  schedule.type = SchedulerType::kWarmupDecayLR;
  const auto flat = describe_schedule_end(schedule, 1e-3, 32, 0);
  REQUIRE(flat);
  CHECK_FALSE(flat->rises);
  CHECK_THAT(flat->text, Catch::Contains("stays at its end after it: it is 0 at the last step"));
  for (const auto type : {SchedulerType::kNone, SchedulerType::kWarmupLR, SchedulerType::kOneCycle}) {
    CHECK_FALSE(describe_schedule_end({.type = type, .total_num_steps = 16}, 1e-3, 32, 0));
  }
}
