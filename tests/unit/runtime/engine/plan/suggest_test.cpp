// What a plan suggests: predicted times against sums by hand, and that the choice fits, is the fastest, and runs.
#include "runtime/engine/plan/suggest.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/engine/plan/largest_gpt.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::plan;
using Catch::Matchers::Contains;
using config::OffloadDevice;
using test::json;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
const Rates kRates{.flops = 400e12,
                   .device_bytes = 3e12,
                   .link_bytes = 50e9,
                   .host_bytes = 200e9,
                   .network_bytes = 100e9,
                   .file_bytes = 0};

SuggestInputs inputs_of(int64_t gpu_bytes, int64_t host_bytes, int gpus, const std::string& train_batch) {
  SuggestInputs out;
  out.stages = {{1, {{gpt_model({2048, 24, 50304, 1024})}}}};
  out.job = {"",
             {{"bf16.enabled", "true", "test"},
              {"train_batch_size", train_batch, "test"},
              {"zero_optimization.stage", "1", "test"}},
             gpus};
  out.report.device = at::kCUDA;
  out.report.ranks_of_node = out.report.num_data_ranks = gpus;
  out.report.capacity = {gpu_bytes, host_bytes, gpus, true};
  out.rates = kRates;
  out.positions_per_sample = 1024;
  return out;
}

// As the tensor ranks hold it: half of every matrix; a block has two products whose results they add up.
PlannedModel split_in_two(PlannedModel model) {
  for (auto& parameter : model.table.parameters) {
    if (parameter.shape.size() != 2) continue;
    parameter.slice = LocalSlice{.dim = 0, .whole = parameter.shape[0], .ranges = {{0, parameter.shape[0] / 2}}};
    parameter.shape[0] /= 2;
    parameter.numel /= 2;
  }
  model.reduced_width = 2 * 24 * 2048;
  return model;
}

}  // namespace

TEST_CASE("ranks of one host send at the rate of its links or of its memory", "[runtime][engine][plan]") {
  CHECK(rate_within_host(kRates, at::kCUDA, 8) == kRates.link_bytes);
  CHECK(rate_within_host(kRates, at::kCPU, 5) == Approx(200e9 / 4 / 5));
}

TEST_CASE("the time of a step is a sum of bounds", "[runtime][engine][plan]") {
  const Rates rates{.flops = 1e12,
                    .device_bytes = 28e9,
                    .link_bytes = 1e9,
                    .host_bytes = 56e9,
                    .network_bytes = 1e9,
                    .file_bytes = 24e9};
  const StepWork work{.num_parameters = 1'000'000'000,
                      .num_trained = 1'000'000'000,
                      .positions_per_sample = 100,
                      .compute_size = 2,
                      .num_data_ranks = 2,
                      .ranks_of_host = 2};
  config::JobConfig config;
  config.batch = {4, 1, 2};
  StepTimes times = predict_step(config, work, rates);
  CHECK(times.compute == Approx(6e9 * 200 / 1e12));   // 0.4 + 0.8
  CHECK(times.communication == Approx(2 * 0.5 * 2));  // reduced and gathered once, half of 2 GB each
  CHECK(times.update == Approx(1));                   // on every rank
  CHECK(times.step == Approx(1.2 + 2 + 1));
  config.zero.stage = 2;  // reduced for each micro batch, updated in halves
  times = predict_step(config, work, rates);
  CHECK(times.communication == Approx(3));
  CHECK(times.step == Approx(1.2 + 3 + 0.5));
  config.recomputation.enabled = true;
  CHECK(predict_step(config, work, rates).compute == Approx(1.6));
  config.recomputation.enabled = false;
  config.zero.offload_optimizer.device = OffloadDevice::kHost;
  times = predict_step(config, work, rates);
  CHECK(times.update == Approx(0.5));       // 14 GB at 28 for each of two ranks
  CHECK(times.transfers == Approx(1 + 6));  // half of 2 GB up; fp32 gradients down, up and down
  // The update is hidden by the first forward only, and longer; so are the trips of gradients by backwards.
  CHECK(times.step == Approx(1 + 0.2 + 6 + 3));
  config.zero.stage = 3;
  config.zero.overlap_comm = true;
  config.zero.offload_optimizer.device = OffloadDevice::kNone;
  times = predict_step(config, work, rates);
  CHECK(times.communication == Approx(6));   // gathered twice and reduced once for each micro batch
  CHECK(times.step == Approx(2 + 4 + 0.5));  // hidden in part
}

TEST_CASE("units that stay gathered for backward are gathered and brought once", "[runtime][engine][plan]") {
  const Rates rates{.flops = 1e15, .device_bytes = 28e9, .link_bytes = 1e9, .host_bytes = 56e9, .network_bytes = 1e9};
  StepWork work{.num_parameters = 1'000'000'000, .num_trained = 1'000'000'000, .compute_size = 2, .num_data_ranks = 2};
  config::JobConfig config;
  config.batch = {2, 1, 1};
  config.zero.stage = 3;
  CHECK(predict_step(config, work, rates).communication == Approx(3));
  work.share_kept = 0.25;
  StepTimes times = predict_step(config, work, rates);
  CHECK(times.communication == Approx(1 + 0.75 + 1));
  CHECK(times.step == Approx(1 + 0.75 + 1 + 0.5).epsilon(0.01));
  work.num_data_ranks = 1;
  config.zero.offload_param.device = OffloadDevice::kHost;
  CHECK(predict_step(config, work, rates).transfers == Approx(2 * 1.75));
  // Of a model: those that max_reuse_distance keeps; all but the first two units and the root, or none.
  const PlannedModel model = gpt_model({256, 8, 1000, 64});
  const auto share = [&](int64_t distance) {
    config.zero.max_reuse_distance = distance;
    return share_kept_gathered(model, config, {.num_data_ranks = 2});
  };
  CHECK(share(0) == 0);
  CHECK(share(1'000'000) == Approx((256e3 + 788'736) / static_cast<double>(model.table.num_elements())).epsilon(0.02));
  CHECK(share(1'000'000'000) > 0.9);
  config.zero.stage = 2;
  CHECK(share(1'000'000'000) == 0);
}

TEST_CASE("attention counts as multiply-adds with every key and value", "[runtime][engine][plan]") {
  CHECK(count_attention_width(gpt_model({256, 8}).table) == 8 * 256);
  ParameterTable table;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    table.parameters.push_back({name, std::move(shape), 1, at::kFloat, true, 0, {}});
  };
  add("h.0.attn.c_attn.weight", {64, 192});
  add("h.0.attn.c_proj.weight", {64, 64});
  add("layer.1.self_attn.k_proj.weight", {16, 128});
  add("layer.1.self_attn.q_proj.weight", {128, 128});
  add("layer.1.self_attn.q_norm.weight", {128});
  add("layer.1.mlp.up.weight", {512, 128});
  add("attention_scale", {1, 1});
  CHECK(count_attention_width(table) == 64 + 128);
  const Rates rates{.flops = 1e12, .device_bytes = 1e15};
  config::JobConfig config;
  config.batch = {6, 3, 2};
  const StepWork work{.num_parameters = 1000, .num_trained = 1000, .positions_per_sample = 10, .attention_width = 50};
  CHECK(predict_step(config, work, rates).compute == Approx(3 * 2 * 60 * (1000 + 2 * 50 * 10) / 1e12));
}

TEST_CASE("tensor ranks add up activations in every pass", "[runtime][engine][plan]") {
  const Rates rates{.flops = 1e12, .device_bytes = 1e15};
  StepWork work{.num_parameters = 1'000'000'000, .num_trained = 1'000'000'000, .compute_size = 2};
  config::JobConfig config;
  config.batch = {2, 1, 2};
  const StepTimes alone = predict_step(config, work, rates);  // forward 4 ms, backward 8
  work.tensor_ranks = 4;
  work.reduced_width = 1'000'000;
  work.tensor_bytes = 1e9;
  const StepTimes split = predict_step(config, work, rates);
  CHECK(split.communication == Approx(2 * (2 * 0.75 * 2 * 2e6 / 1e9)));  // forward and backward, of two positions
  CHECK(split.step == Approx(alone.step + 6e-3 + 2e-3));                 // gradients of weights hide 4 of 6 ms
  config.tensor_parallel.overlap = false;
  CHECK(predict_step(config, work, rates).step == Approx(alone.step + 12e-3));
  config.recomputation.enabled = true;
  CHECK(predict_step(config, work, rates).communication == Approx(18e-3));
}

TEST_CASE("tensor ranks are suggested where they communicate least", "[runtime][engine][plan]") {
  auto inputs = inputs_of(16 * kGiB, kGiB, 2, "2");
  const PlannedModel whole = inputs.stages.at(1).with_chunked_heads[0];
  const auto alone = suggest(inputs);
  CHECK(alone.chosen.setting.config.tensor_parallel.size == 1);
  inputs.stages[2] = {{split_in_two(whole)}};
  const auto suggestion = suggest(inputs);
  const auto text = suggestion_text(suggestion, inputs, "out.json");
  INFO(text);
  CHECK(suggestion.num_candidates > alone.num_candidates);
  CHECK(suggestion.chosen.setting.config.tensor_parallel.size == 2);
  CHECK(suggestion.chosen.num_data_ranks == 1);
  CHECK_THAT(text, Contains("on 1 data rank: 2 tensor ranks, ZeRO"));
  CHECK(json::parse(suggestion_json(suggestion, inputs, "out.json"))["suggested"]["tensor_ranks"] == 2);
  const auto written = config::load_text(config_text(suggestion.chosen, inputs.job), "out.json", config::Format::kHjson,
                                         {}, {.world_size = 2});
  CHECK(written.config.tensor_parallel.size == 2);
  CHECK(written.config.batch.train_batch == 2);
}

TEST_CASE("a pipeline waits while it fills and drains", "[runtime][engine][plan]") {
  const Rates rates{.flops = 1e12, .device_bytes = 1e15};
  const StepWork work{.num_parameters = 1'000'000'000, .num_trained = 1'000'000'000};
  config::JobConfig config;
  config.batch = {8, 1, 8};
  config.pipeline.stages = 4;
  // A forward of a micro batch takes 2 ms, a backward 4; three of each more than the eight of the step.
  CHECK(predict_step(config, work, rates).step == Approx(11 * 6e-3).epsilon(0.001));
  config.pipeline.schedule = config::PipelineSchedule::kZbH1;
  CHECK(predict_step(config, work, rates).step == Approx(8 * 6e-3 + 3 * 2e-3).epsilon(0.001));
}

TEST_CASE("a pipeline's setting has room for each stage", "[runtime][engine][plan]") {
  auto inputs = inputs_of(24 * kGiB, 128 * kGiB, 4, "32");
  inputs.stages = {{1, {gpt_stages({2048, 24, 50304, 1024}, 4)}}};
  inputs.job.overrides.push_back({"pipeline.stages", "4", "test"});
  inputs.report.num_data_ranks = 1;
  const auto suggestion = suggest(inputs);
  const auto& config = suggestion.chosen.setting.config;
  const auto text = suggestion_text(suggestion, inputs, "out.json");
  CHECK_THAT(text, Contains("on 1 data rank x 4 pipeline stages: ZeRO"));
  INFO(text);
  CHECK(config.batch.micro_batch * config.batch.accumulation == 32);
  CHECK(config.batch.accumulation > 1);  // one micro batch would leave three stages without work
  CHECK(suggestion.chosen.fit == memory_plan::Fit::kYes);
  for (const auto& stage : inputs.stages.at(1).of(config)) {
    const auto memory = plan_rank(stage, config, {.device = at::kCUDA});
    CHECK(memory.total(memory_plan::Tier::kDevice) < 24 * kGiB);
  }
}

TEST_CASE("with room for everything nothing is given up", "[runtime][engine][plan]") {
  const auto inputs = inputs_of(1024 * kGiB, 1024 * kGiB, 1, "32");
  const auto suggestion = suggest(inputs);
  CHECK(suggestion.chosen.setting.config.batch.micro_batch == 32);
  CHECK_FALSE(suggestion.chosen.setting.config.recomputation.enabled);
  CHECK(suggestion.chosen.setting.optimizer == OffloadDevice::kNone);
  CHECK_FALSE(suggestion.next_better);
  CHECK_THAT(suggestion_text(suggestion, inputs, "out.json"),
             Contains("no other setting is predicted to be faster") && Contains("written to out.json"));
}

TEST_CASE("the fastest setting that fits is suggested, with the next better one", "[runtime][engine][plan]") {
  const auto [gpu, gpus] = GENERATE(table<int64_t, int>({{80, 1}, {40, 1}, {24, 1}, {24, 4}, {12, 4}}));
  const auto inputs = inputs_of(gpu * kGiB, 128 * kGiB, gpus, "32");
  const auto suggestion = suggest(inputs);
  const auto& config = suggestion.chosen.setting.config;
  INFO(suggestion_text(suggestion, inputs, "out.json"));
  CHECK(config.batch.train_batch == 32);
  CHECK(config.batch.micro_batch * config.batch.accumulation * gpus == 32);
  CHECK(suggestion.chosen.fit == memory_plan::Fit::kYes);
  CHECK(suggestion.chosen.peak.gpu_bytes <= gpu * kGiB);
  if (suggestion.next_better) {
    CHECK(suggestion.next_better->times.step <= suggestion.chosen.times.step);
    CHECK(suggestion.next_better->fit == memory_plan::Fit::kNo);
    CHECK_THAT(suggestion_text(suggestion, inputs, "out.json"), Contains("the next better one does not fit: ZeRO"));
  }
  // As a job file it is the same setting.
  const auto written = config::load_text(config_text(suggestion.chosen, inputs.job), "out.json", config::Format::kHjson,
                                         {}, {.world_size = gpus});
  config::throw_if_bad(written);
  CHECK(written.config.batch.micro_batch == config.batch.micro_batch);
  CHECK(written.config.zero.stage == suggestion.chosen.setting.stage);
  CHECK(written.config.zero.offload_optimizer.device == suggestion.chosen.setting.optimizer);
  CHECK(written.config.recomputation.enabled == config.recomputation.enabled);
  CHECK(plan_rank(inputs.stages.at(1).of(written.config)[0], written.config,
                  {.device = at::kCUDA, .num_data_ranks = gpus}) == suggestion.chosen.setting.memory);
}

TEST_CASE("measured activations scale the estimate", "[runtime][engine][plan]") {
  auto inputs = inputs_of(80 * kGiB, 128 * kGiB, 1, "8");
  inputs.job.overrides.push_back({"train_micro_batch_size_per_gpu", "2", "test"});
  const auto estimated = suggest(inputs).own->activations;
  inputs.report.activations = {memory_plan::points_of(2 * estimated), "given"};
  const auto known = suggest(inputs);
  CHECK(known.own->activations == 2 * estimated);
  const double micro_batch = static_cast<double>(known.chosen.setting.config.batch.micro_batch);
  CHECK(static_cast<double>(known.chosen.activations) == Approx(estimated * micro_batch));
}

TEST_CASE("where nothing fits the nearest setting is named", "[runtime][engine][plan]") {
  const auto inputs = inputs_of(kGiB / 8, 128 * kGiB, 1, "8");
  test::expect_error(ExitCode::kUnavailable,
                     {"no setting fits: the nearest (ZeRO 3, ", "on each GPU, which has 0.12 GiB"},
                     [&] { suggest(inputs); });
}

TEST_CASE("a suggested config trains", "[runtime][engine][plan]") {
  const test::JobFiles job(test::make_mixed_net());
  job.folder.write("ds.json", job.config({{"zero_optimization", {{"stage", 1}}}}).dump());
  const int64_t host_bytes = GENERATE(int64_t{1} << 30, int64_t{1} << 14);
  SuggestInputs inputs;
  inputs.job = {job.folder / "ds.json", {}, 2};
  const auto config = load_job(inputs.job).config;
  inputs.stages = {{1, {{planned_model(*engine::setup::load_model(job.model, config, device::Device(at::kCPU)))}}}};
  inputs.report.ranks_of_node = inputs.report.num_data_ranks = 2;
  inputs.report.capacity = {{}, host_bytes, 2, false};
  inputs.rates = kRates;
  const auto suggestion = suggest(inputs);
  const auto text = config_text(suggestion.chosen, inputs.job);
  test::run_mesh({.data = 2}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, json::parse(text), groups);
    CHECK(rank.config.batch.train_batch == test::JobFiles::kTrainBatch);
    CHECK(std::isfinite(rank.step().loss));
  });
}
