#include "runtime/precision/loss_scaler.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "support/expect_error.hpp"

namespace {

using dslaunch::config::LossScale;
using dslaunch::config::LossScaleKind;
using namespace dslaunch::runtime::precision;
using Kind = ScaleChange::Kind;

LossScale dynamic(double initial, int64_t window, int64_t hysteresis, double minimum = 1, bool consecutive = false) {
  LossScale policy;
  policy.kind = LossScaleKind::kDynamic;
  policy.initial = initial;
  policy.window = window;
  policy.hysteresis = hysteresis;
  policy.minimum = minimum;
  policy.consecutive_hysteresis = consecutive;
  return policy;
}

// The scales that the steps used, for overflows written as "x" and clean steps as ".".
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> out;
  for (char step : steps) out.push_back(scaler.update(step == 'x').scale);
  out.push_back(scaler.state().scale);
  return out;
}

struct RecordedTrace {
  bool with_hysteresis;  // ZeRO's scaler; else stage 0's
  double initial;
  int64_t window;
  double minimum;
  int64_t hysteresis;
  bool consecutive;
  int num_steps;
  uint64_t overflows;  // bit i: step i overflowed
  bool stopped;        // at the minimum, with the last step
  double last_scale;
  uint64_t digest;
};

constexpr RecordedTrace kTraces[] = {
#include "loss_scaler_traces.inc"
};

void mix(uint64_t& digest, uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) digest = (digest ^ (number >> shift & 0xFF)) * 0x100000001B3ULL;
}

}  // namespace

TEST_CASE("500 recorded traces of DeepSpeed's scalers are followed step by step", "[runtime][loss_scaler]") {
  STATIC_REQUIRE(std::size(kTraces) == 500);
  int stops = 0;
  for (const RecordedTrace& trace : kTraces) {
    LossScaler scaler(dynamic(trace.initial, trace.window, trace.hysteresis, trace.minimum, trace.consecutive));
    uint64_t digest = 0xCBF29CE484222325ULL;
    const int followed = trace.num_steps - (trace.stopped ? 1 : 0);
    for (int i = 0; i < followed; ++i) {
      const auto change = scaler.update((trace.overflows >> i & 1) != 0);
      // Stage 0's scaler goes on at the minimum, and so would its numbers here; that the run ends is ours.
      if (trace.with_hysteresis) REQUIRE(change.kind != Kind::kAtMinimum);
      const auto& state = scaler.state();
      mix(digest, static_cast<uint64_t>(state.iteration));
      mix(digest, static_cast<uint64_t>(state.last_overflow));
      mix(digest, static_cast<uint64_t>(state.budget));
      mix(digest, static_cast<uint64_t>(std::fmod(state.scale * 65536.0, 18446744073709551616.0)));
    }
    INFO("trace " << &trace - kTraces);
    CHECK(digest == trace.digest);
    CHECK(scaler.state().scale == trace.last_scale);
    if (trace.stopped) {
      CHECK(scaler.update(true).kind == Kind::kAtMinimum);
      ++stops;
    }
  }
  CHECK(stops > 50);
}

TEST_CASE("from 4294967296 with hysteresis 2 it stays once and then halves each step down to 1024",
          "[runtime][loss_scaler]") {
  LossScaler scaler(dynamic(4294967296.0, 1000, 2));
  std::vector<double> expected{4294967296.0};
  for (double scale = 4294967296.0; scale >= 1024; scale /= 2) expected.push_back(scale);
  CHECK(scales(scaler, std::string(23, 'x')) == expected);
  CHECK(scaler.state().overflows_in_row == 23);
  CHECK(scaler.state().applied_steps == 0);
  CHECK(scales(scaler, std::string(1000, '.')).back() == 1024);  // training goes on there
  CHECK(scaler.update(false).next_scale == 2048);                // until window + 1 clean steps have passed
  CHECK(scaler.state().applied_steps == 1001);
  CHECK(scaler.state().budget == 2);
}

TEST_CASE("a scale grows after window + 1 clean steps and then once a window, or without delay as GradScaler's does",
          "[runtime][loss_scaler]") {
  LossScaler deepspeed(dynamic(8, 3, 2));
  CHECK(scales(deepspeed, "........") == std::vector<double>{8, 8, 8, 8, 16, 16, 16, 32, 32});
  auto policy = dynamic(8, 3, 1);
  policy.late_growth = false;
  LossScaler torch(policy);
  CHECK(scales(torch, "......x...") == std::vector<double>{8, 8, 8, 16, 16, 16, 32, 16, 16, 16, 32});
}

TEST_CASE("the budget is refilled by a growth, or by every clean step when it is consecutive",
          "[runtime][loss_scaler]") {
  LossScaler plain(dynamic(64, 100, 2));
  CHECK(scales(plain, "x.x.x") == std::vector<double>{64, 64, 64, 32, 32, 16});
  LossScaler consecutive(dynamic(64, 100, 2, 1, true));
  CHECK(scales(consecutive, "x.x.xx") == std::vector<double>{64, 64, 64, 64, 64, 64, 32});
}

TEST_CASE("a scale stays within its minimum and maximum", "[runtime][loss_scaler]") {
  auto policy = dynamic(8, 1, 1, 3);
  policy.maximum = 16;
  policy.late_growth = false;
  LossScaler scaler(policy);
  CHECK(scales(scaler, "...xxx") == std::vector<double>{8, 16, 16, 16, 8, 4, 3});
  CHECK(scaler.update(true).kind == Kind::kAtMinimum);
}

TEST_CASE("a static scale stays and its overflows are skipped steps", "[runtime][loss_scaler]") {
  LossScale policy;
  policy.kind = LossScaleKind::kStatic;
  policy.initial = 128;
  LossScaler scaler(policy);
  CHECK(scales(scaler, "xx..x" + std::string(3000, '.')).back() == 128);
  CHECK(scaler.state().applied_steps == 3002);
  CHECK(scaler.update(true).kind == Kind::kHeld);
}

TEST_CASE("an overflow is told in DeepSpeed's words", "[runtime][loss_scaler]") {
  LossScaler scaler(dynamic(4294967296.0, 1000, 2));
  CHECK(describe(scaler.update(true)) ==
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, but hysteresis is 2. Reducing hysteresis to "
        "1");
  CHECK(describe(scaler.update(true)) ==
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648");
  CHECK(describe(scaler.update(false)).empty());
}

TEST_CASE("the end at the minimum says how many overflowed, since when, and what to do", "[runtime][loss_scaler]") {
  LossScaler scaler(dynamic(2, 1000, 1));
  for (bool overflow : {false, false, true, true}) scaler.update(overflow);
  const std::string text = explain_minimum(scaler.state(), 104);
  CHECK(text.find("2 steps in a row overflowed, from step 103 to step 104") != text.npos);
  CHECK(text.find("2 steps were applied before") != text.npos);
  CHECK(text.find("minimum 1:") != text.npos);
  CHECK(text.find("bf16") != text.npos);
}

TEST_CASE("a state goes through a checkpoint's scalars and continues where it was", "[runtime][loss_scaler]") {
  const auto policy = dynamic(65536, 5, 3);
  const std::string steps = "xx....x.........x..xxx....";
  LossScaler whole(policy), first(policy);
  const auto expected = scales(whole, steps + steps);
  scales(first, steps);
  LossScaler second(policy);
  second.restore(from_scalars(to_scalars(first.state(), true), second.state()));
  CHECK(second.state() == first.state());
  const auto rest = scales(second, steps);
  CHECK(std::vector<double>(expected.begin() + static_cast<int64_t>(steps.size()), expected.end()) == rest);
  CHECK(second.state() == whole.state());
}

TEST_CASE("a scalar that is no count is the checkpoint's damage", "[runtime][loss_scaler]") {
  const auto [name, value] = GENERATE(table<std::string, double>({
      {"applied_steps", 1e300},
      {"applied_steps", -1},
      {"applied_steps", 2.5},
      {"loss_scale_iteration", std::numeric_limits<double>::infinity()},
      {"loss_scale_budget", std::numeric_limits<double>::quiet_NaN()},
      {"loss_scale", std::numeric_limits<double>::quiet_NaN()},
      {"loss_scale", -2},
  }));
  dslaunch::test::expect_error(dslaunch::ExitCode::kBadInput, {"is damaged", name}, [&, name = name, value = value] {
    from_scalars({{name, value}}, {});
  });
}

TEST_CASE("what the job file sets wins over a checkpoint of other settings", "[runtime][loss_scaler]") {
  LossScaleState saved{.scale = 2, .iteration = 9, .last_overflow = 4, .budget = 7, .applied_steps = 8};
  LossScaler dynamic_scaler(dynamic(65536, 5, 3, 16));
  dynamic_scaler.restore(saved);
  CHECK(dynamic_scaler.state().scale == 16);
  CHECK(dynamic_scaler.state().budget == 3);
  LossScale policy;
  policy.kind = LossScaleKind::kStatic;
  policy.initial = 128;
  LossScaler static_scaler(policy);
  static_scaler.restore(saved);
  CHECK(static_scaler.state().scale == 128);
  CHECK(static_scaler.state().applied_steps == 8);
  // A checkpoint of an fp32 run knows the applied steps only.
  LossScaler fresh(dynamic(65536, 5, 3));
  fresh.restore(from_scalars({{"applied_steps", 40}}, fresh.state()));
  CHECK(fresh.state().scale == 65536);
  CHECK(fresh.state().applied_steps == 40);
}
