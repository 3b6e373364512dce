// A run that cannot fit is refused before it allocates anything, with the plan's numbers.
#include "runtime/engine/plan/require_memory.hpp"

#include <catch2/catch.hpp>

#include "runtime/engine/plan/estimate_activations.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "two_matrices.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine;
using namespace dslaunch::runtime::engine::plan;
using Catch::Matchers::Contains;
using test::json;
using test::kGiB;
using test::two_matrices;

namespace {

config::JobConfig config_of(const json& text) {
  return test::load_config(text, 1).config;
}

const json kBf16{{"bf16", {{"enabled", true}}}};

}  // namespace

TEST_CASE("state that a GPU has no room for is refused, with what would help", "[runtime][engine][plan]") {
  const PlannedRank rank{.device = at::Device(at::kCUDA, 0)};
  const auto config = config_of(kBf16);
  const auto model = two_matrices();
  CHECK(require_memory(model, config, rank, {.gpu_bytes = 4 * kGiB}, 0).empty());
  test::expect_error(ExitCode::kUnavailable,
                     {"the run does not fit: its state needs 4.00 GiB on each GPU, which has 3.50 GiB",
                      "at ZeRO stage 0: parameters 0.50 GiB, gradients 0.50 GiB, optimizer state 3.00 GiB)",
                      "'dslaunch plan MODEL.pt --config FILE' shows what each setting needs"},
                     [&] { require_memory(model, config, rank, {.gpu_bytes = 7 * kGiB / 2}, 0); });
  CHECK(require_memory(model, config, rank, {}, 0).empty());  // a GPU that does not tell
  PlannedRank evaluation = rank;
  evaluation.for_evaluation = true;
  CHECK(require_memory(model, config, evaluation, {.gpu_bytes = kGiB}, 0).empty());
}

TEST_CASE("only the estimate with activations is a warning", "[runtime][engine][plan]") {
  const PlannedRank rank{.device = at::Device(at::kCUDA, 0)};
  const auto warning = require_memory(two_matrices(), config_of(kBf16), rank, {.gpu_bytes = 5 * kGiB},
                                      /*estimated_activations=*/2 * kGiB);
  CHECK_THAT(warning, Contains("the run may not fit: with an estimate of 2.00 GiB for the activations of a micro batch "
                               "of 1 it needs 5.50 GiB on each GPU, which has 5.00 GiB"));
}

TEST_CASE("state that a host has no room for is refused on CPU ranks", "[runtime][engine][plan]") {
  const auto config = config_of(json::object());
  const memory_plan::Capacity small{.host_bytes = 7 * kGiB, .ranks_of_host = 2, .has_gpus = false};
  test::expect_error(ExitCode::kUnavailable,
                     {"the run does not fit: its state needs 8.00 GiB of host memory (4.00 GiB for each of 2 ranks), "
                      "of which 7.00 GiB"},
                     [&] { require_memory(two_matrices(), config, {}, small, 0); });
  memory_plan::Capacity enough = small;
  enough.host_bytes = 8 * kGiB;
  CHECK(require_memory(two_matrices(), config, {}, enough, 0).empty());
}

// 163M on a GPU: a peak of 9.9 GiB with 2.1 GiB of parameters, masters and moments (docs/results/gpu_steps_1gpu.md).
TEST_CASE("activations of a GPT are estimated from its shapes", "[runtime][engine][plan]") {
  ParameterTable gpt;
  gpt.units.resize(1);
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    gpt.parameters.push_back({name, std::move(shape), 1, at::kFloat, true, 0, {}});
  };
  constexpr int64_t kWidth = 768, kVocabulary = 50304;
  add("wte.weight", {kVocabulary, kWidth});
  for (int block = 0; block < 12; ++block) {
    for (const char* norm : {"ln1.weight", "ln2.weight"}) add(norm, {kWidth});
    add("qkv.weight", {3 * kWidth, kWidth});
    add("proj.weight", {kWidth, kWidth});
    add("fc.weight", {4 * kWidth, kWidth});
    add("out.weight", {kWidth, 4 * kWidth});
    add("out.bias", {kWidth});
  }
  add("head.weight", {kVocabulary, kWidth});
  config::JobConfig config;
  const auto bytes = static_cast<double>(estimate_activations(gpt, config, 16 * 1024, at::kBFloat16));
  CHECK(bytes / kGiB == Approx(7.8).epsilon(0.07));
  config.tensor_parallel.size = 2;
  config.tensor_parallel.sequence_parallel = true;  // of the inputs of 24 norms each rank keeps a half
  const auto of_positions = static_cast<double>(estimate_activations(gpt, config, 16 * 1024, at::kBFloat16));
  CHECK(bytes - of_positions == Approx(24.0 * kWidth / 2 * 16 * 1024 * 2));
  config.pipeline.stages = 2;
  CHECK(estimate_activations(gpt, config, 16 * 1024, at::kBFloat16) == 0);
}

TEST_CASE("recomputation keeps the inputs of units", "[runtime][engine][plan]") {
  config::JobConfig config;
  config.recomputation.enabled = true;
  // Three units and the larger one again; the width is that of the matrices.
  PlannedModel model = two_matrices();
  CHECK(estimate_activations(model.table, config, 10, at::kFloat) == 10 * 4 * (2 * (1 << 14) + (1 << 13) + (1 << 14)));
}

TEST_CASE("positions are tokens, rows of features or pictures", "[runtime][engine][plan]") {
  setup::TrainingData data;
  CHECK(count_positions(data, 4) == 0);
  data.train = make_synthetic_samples(
      {{"x", {10, 5}, "float32"}, {"ids", {30}, "int64"}, {"y", {7}, "int64"}, {"picture", {3, 224, 224}, "uint8"}}, 1);
  data.train_arrays.inputs = {0};
  CHECK(count_positions(data, 4) == 40);
  data.train_arrays.inputs = {0, 1};
  CHECK(count_positions(data, 4) == 120);
  data.train_arrays.inputs = {3};
  CHECK(count_positions(data, 4) == 4);
}
