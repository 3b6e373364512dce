// 200 steps of every schedule, one and several parameter groups, against DeepSpeed's lr_schedules.py
// (tests/data/optimizers/schedules.json, made by tests/oracle/optimizer_numbers.py).
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "config/load.hpp"
#include "runtime/optim/learning_rate.hpp"
#include "support/checkout.hpp"

namespace {

using namespace dslaunch;
using namespace dslaunch::runtime;
using nlohmann::json;

// The groups of the cases match the parameters "a" and "b".
ParameterTable small_table() {
  ParameterTable table;
  for (const char* name : {"a", "b", "c"}) {
    ParameterInfo parameter;
    parameter.name = name;
    parameter.shape = {2, 2};
    parameter.numel = 4;
    table.parameters.push_back(parameter);
  }
  return table;
}

bool close(double got, double expected) {
  return std::abs(got - expected) <= 1e-12 * std::abs(expected) + 1e-22;
}

}  // namespace

TEST_CASE("200 steps of every schedule take DeepSpeed's rates and momenta", "[runtime][learning_rate]") {
  std::ifstream in(test::source_file("tests/data/optimizers/schedules.json"));
  const json file = json::parse(in);
  REQUIRE(file["cases"].size() >= 10);
  for (const auto& entry : file["cases"]) {
    INFO(entry["config"].dump());
    const auto loaded = config::load_text(entry["config"].dump(), "case", config::Format::kHjson);
    config::throw_if_bad(loaded);
    const auto groups = optim::plan_optimizer_groups(loaded.config.optimizer, small_table());
    const auto& rates = entry["lr"];
    REQUIRE(rates.size() == 200);
    for (size_t step = 0; step < rates.size(); ++step) {
      const auto got = optim::step_rates(loaded.config.scheduler, groups, 0, static_cast<int64_t>(step));
      INFO("step " << step + 1);
      REQUIRE(got.groups.size() == rates[step].size());
      for (size_t group = 0; group < got.groups.size(); ++group) {
        // Before its first step DeepSpeed's WarmupCosineLR sets the rate of the first group alone.
        const bool forgotten = entry["config"]["scheduler"]["type"] == "WarmupCosineLR" && step == 0 && group > 0;
        REQUIRE(close(got.groups[group].lr, forgotten ? 0.0 : rates[step][group].get<double>()));
        REQUIRE(got.groups[group].beta1.has_value() == !entry["betas"].is_null());
        if (entry["betas"].is_null()) continue;
        REQUIRE(close(got.groups[group].beta1.value(), entry["betas"][step][0]));
        REQUIRE(close(got.groups[group].beta2.value(), entry["betas"][step][1]));
      }
      CHECK(got.lr == got.groups.back().lr);
    }
  }
}
