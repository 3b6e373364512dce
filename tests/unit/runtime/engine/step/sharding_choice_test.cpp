// What the engine chooses for sharding from a config and a model's parameters.
#include "runtime/engine/step/sharding_choice.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/engine/step/engine.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;
using test::expect_error;

namespace {

ParameterTable table_of(const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters,
                        at::ScalarType dtype = at::kFloat) {
  ParameterTable table;
  table.units = {{"", {}}};
  for (const auto& [name, shape] : parameters) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    table.units[0].parameters.push_back(static_cast<int>(table.parameters.size()));
    table.parameters.push_back({name, shape, numel, dtype, true, 0, {}});
  }
  return table;
}

EngineOptions in(at::ScalarType dtype) {
  EngineOptions options;
  options.dtypes = precision::ModelDtypes({dtype, /*keep_model_dtypes=*/false, true}, {});
  return options;
}

}  // namespace

TEST_CASE("auto sizes follow the model's width", "[runtime][engine][sharding_choice]") {
  config::Zero zero;
  zero.reduce_bucket_size = zero.prefetch_bucket_size = zero.param_persistence_threshold = std::nullopt;
  solve_auto_sizes(table_of({{"a.weight", {30, 20}}, {"norm.weight", {8}}, {"norm.bias", {9}}}), zero);
  CHECK(zero.reduce_bucket_size == 64);  // the norm's width, squared
  CHECK(zero.prefetch_bucket_size == 57);
  CHECK(zero.param_persistence_threshold == 80);
  config::Zero given;
  given.reduce_bucket_size = 5;
  given.prefetch_bucket_size = std::nullopt;
  solve_auto_sizes(table_of({{"a.weight", {30, 20}}}), given);
  CHECK(given.reduce_bucket_size == 5);
  CHECK(given.prefetch_bucket_size == 360);
}

TEST_CASE("gradients are divided before the sum where it would overflow, or as the user says",
          "[runtime][engine][sharding_choice]") {
  const auto table = table_of({{"w", {4, 4}}});
  const auto predivide = [&](const config::JobConfig& config, at::ScalarType dtype) {
    return choose_sharding(table, config, in(dtype), /*data_ranks=*/8, /*num_moments=*/0).predivide;
  };
  config::JobConfig config;
  CHECK(predivide(config, at::kFloat) == 1);
  CHECK(predivide(config, at::kBFloat16) == 1);
  CHECK(predivide(config, at::kHalf) == 8);
  config.communication_data_type = config::ScalarType::kFp32;
  CHECK(predivide(config, at::kHalf) == 1);
  config.communication_data_type = config::ScalarType::kFp16;
  CHECK(predivide(config, at::kFloat) == 8);
  config.gradient_predivide_factor = 4;
  CHECK(predivide(config, at::kHalf) == 4);
  config.prescale_gradients = true;
  CHECK(predivide(config, at::kFloat) == 8);
}

TEST_CASE("sizes, stage and types are passed on", "[runtime][engine][sharding_choice]") {
  config::JobConfig config;
  config.zero.stage = 3;
  config.zero.reduce_bucket_size = 100;
  config.zero.allgather_bucket_size = 60;
  config.zero.param_persistence_threshold = 7;
  config.zero.quantized_gradients = true;
  config.zero.loco = {0.5, 16};
  config.grad_accum_dtype = config::ScalarType::kBf16;
  const auto chosen = choose_sharding(table_of({{"w", {4, 4}}}), config, in(at::kBFloat16), 2, 0);
  CHECK(chosen.stage == 3);
  CHECK(chosen.max_group_numel == 60);
  CHECK(chosen.persistence_threshold == 7);
  CHECK(chosen.accumulation_dtype == at::kBFloat16);
  CHECK(chosen.compute_dtypes == std::vector<at::ScalarType>{at::kBFloat16});
  CHECK((chosen.quantized_gradients && chosen.loco && chosen.loco->reset_interval == 16));
}

TEST_CASE("parameters in fp64 have no masters", "[runtime][engine][sharding_choice]") {
  expect_error(ExitCode::kBadInput, {"'w' is float64", ".float()"}, [] {
    choose_sharding(table_of({{"w", {2}}}, at::kDouble), {}, {}, 1, 0);
  });
}

TEST_CASE("gradients are added up over several micro batches, and over those of a pipeline",
          "[runtime][engine][sharding_choice]") {
  config::JobConfig config;
  const auto accumulates = [&] {
    return choose_sharding(table_of({{"w", {4, 4}}}), config, in(at::kFloat), 1, /*num_moments=*/2).accumulates;
  };
  CHECK_FALSE(accumulates());
  config.batch.accumulation = 2;
  CHECK(accumulates());
  config.batch.accumulation = 1;
  config.pipeline.stages = 2;
  CHECK(accumulates());
}

TEST_CASE("what is offloaded follows stage, devices and use", "[runtime][engine][sharding_choice]") {
  config::JobConfig config;
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = config::OffloadDevice::kHost;
  config.zero.offload_optimizer.ratio = 0.25;
  config.zero.offload_param.device = config::OffloadDevice::kHost;
  const auto offload = [&](bool for_evaluation = false) {
    EngineOptions options = in(at::kBFloat16);
    options.for_evaluation = for_evaluation;
    return choose_sharding(table_of({{"w", {4, 4}}}), config, options, 1, /*num_moments=*/2).offload;
  };
  CHECK(offload().optimizer_share == 0.25);
  CHECK(offload().parameters);
  CHECK(offload().state_bytes == 12);
  CHECK(offload(/*for_evaluation=*/true).optimizer_share == 0);
  CHECK(offload(/*for_evaluation=*/true).parameters);
  config.zero.stage = 2;
  CHECK_FALSE(offload().parameters);
  config.zero.offload_optimizer.device = config::OffloadDevice::kFile;
  CHECK(offload().state_bytes == 0);
  config.zero.offload_optimizer.device = config::OffloadDevice::kNone;
  CHECK(offload().optimizer_share == 0);
}
