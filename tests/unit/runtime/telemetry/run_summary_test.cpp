#include "runtime/telemetry/run_summary.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "base/quantity.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using std::chrono::milliseconds;
using Lines = std::vector<std::string>;

namespace {

RunDescription example() {
  RunDescription run;
  run.model = "/m/gpt.pt";
  run.num_parameters = 32'100'352;
  run.num_trainable = 32'100'352;
  run.num_samples = 1000;
  run.steps_per_epoch = 15;
  run.total_steps = 200;
  run.data_ranks = 4;
  run.run_dir = "/r";
  run.checkpoint_dir = "/r/checkpoints";
  return run;
}

config::JobConfig example_config() {
  config::JobConfig config;
  config.batch = {.train_batch = 64, .micro_batch = 8, .accumulation = 2};
  config.data.train = {"/d/a.npz", "/d/b.npz"};
  return config;
}

StepMetrics metrics(int64_t step, double loss) {
  StepMetrics out;
  out.step = step;
  out.loss = loss;
  out.step_ms = 100;
  out.samples_per_s = 40;
  out.tokens_per_s = 5000;
  return out;
}

}  // namespace

TEST_CASE("a run says once what it is", "[runtime][telemetry]") {
  CHECK(format_description(example(), example_config()) ==
        Lines{"model       /m/gpt.pt: 32.1 M parameters (32,100,352), all trainable", "precision   fp32; no ZeRO",
              "ranks       4 ranks on cpu", "batch       64 samples = 8 (micro) x 2 (accumulation) x 4 (data ranks)",
              "data        /d/a.npz, /d/b.npz: 1,000 samples, 15 steps an epoch; 200 steps in all",
              "written to  /r: metrics.jsonl, checkpoints/"});
}

TEST_CASE("what differs from the plainest run is said too", "[runtime][telemetry]") {
  RunDescription run = example();
  run.num_trainable = 5000;
  run.compute_dtype = "bf16";
  run.device = "cuda";
  run.data_ranks = 2;
  run.stages = 2;
  run.num_hosts = 2;
  run.num_samples = 0;
  run.first_step = 41;
  run.autos = {{"train_micro_batch_size_per_gpu", "8"}, {"optimizer.params.lr", "5e-05"}};
  run.checkpoint_dir = "/big";
  config::JobConfig config = example_config();
  config.data.train.clear();
  config.data.synthetic_train = true;
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = config::OffloadDevice::kHost;
  config.zero.offload_param.device = config::OffloadDevice::kFile;
  config.recomputation.enabled = true;
  CHECK(format_description(run, config) ==
        Lines{"model       /m/gpt.pt: 32.1 M parameters (32,100,352), 5 k trainable (5,000)",
              "precision   bf16, fp32 masters; ZeRO stage 3, optimizer state in host memory, parameters in files; "
              "activations are recomputed",
              "ranks       4 ranks on cuda of 2 hosts: 2 data x 2 stages",
              "batch       64 samples = 8 (micro) x 2 (accumulation) x 2 (data ranks)",
              "data        synthetic; steps 41 to 200",
              "auto        train_micro_batch_size_per_gpu = 8, optimizer.params.lr = 5e-05",
              "written to  /r: metrics.jsonl; checkpoints in /big"});
}

TEST_CASE("the mesh of a run is said with the axes that it has", "[runtime][telemetry]") {
  RunDescription run = example();
  run.data_ranks = 3;
  run.tensor_ranks = 2;
  CHECK_THAT(format_description(run, example_config())[2], Catch::EndsWith("6 ranks on cpu: 3 data x 2 tensor"));
  run.stages = 4;
  CHECK_THAT(format_description(run, example_config())[2],
             Catch::EndsWith("24 ranks on cpu: 3 data x 4 stages x 2 tensor"));
}

TEST_CASE("a run that has done its steps, or more, says that", "[runtime][telemetry]") {
  RunDescription run = example();
  run.first_step = run.total_steps + 1;
  CHECK_THAT(format_description(run, example_config())[4], Catch::EndsWith("; all 200 steps are done"));
  CHECK(format_steps_done(200, 200) == "200 of 200 steps");
  CHECK(format_steps_done(1, 1) == "1 of 1 step");
  CHECK(format_steps_done(2, 1) == "2 steps, more than the 1 step of this start");
}

TEST_CASE("selective recomputation is said where it has an effect", "[runtime][telemetry]") {
  RunDescription run = example();
  config::JobConfig config = example_config();
  config.recomputation.selective = true;
  CHECK(format_description(run, config)[1] == "precision   fp32; no ZeRO");
  run.device = "cuda";
  CHECK(format_description(run, config)[1] == "precision   fp32; no ZeRO; selective recomputation");
}

TEST_CASE("a run says at its end what it came to", "[runtime][telemetry]") {
  RunTotals totals;
  CHECK(totals.lines(200, milliseconds(5)).empty());
  for (const auto& [step, loss] :
       {std::pair{5, 3.0}, {6, 1.5}, {7, std::numeric_limits<double>::quiet_NaN()}, {8, 2.0}})
    totals.add(metrics(step, loss));
  CHECK(totals.lines(200, milliseconds(1234)) ==
        Lines{"steps       4 done in 1.2 s (now at 8 of 200), 100 ms/step, mean 5.0k tok/s",
              "loss        first 3.0000, last 2.0000, best 1.5000 at step 6"});
  totals.add_evaluation(8, 1.95e30);
  CHECK(totals.lines(8, milliseconds(1234)).back() == "eval_loss   1.95e+30 after step 8");
  totals.add_evaluation(8, 2.5, {{"accuracy", 0.5}, {"perplexity", 12.125}});
  const auto lines = totals.lines(8, milliseconds(1234), "eval_loss 2.2500 after step 4: /r/checkpoints/step_00000004");
  REQUIRE(lines.size() == 4);
  CHECK(lines[2] == "eval_loss   2.5000 after step 8, eval_accuracy 0.5000, eval_perplexity 12.1250");
  CHECK(lines[3] == "best        eval_loss 2.2500 after step 4: /r/checkpoints/step_00000004");
  CHECK(totals.lines(8, milliseconds(1), "", "steps waited").back() == "input       steps waited");
  StepMetrics on_gpu = metrics(9, 1);
  on_gpu.gpu_mem_bytes = 13ll << 30;
  on_gpu.gpu_reserved_bytes = 27ll << 29;
  totals.add(on_gpu);
  CHECK(
      totals.lines(9, milliseconds(1)).back() ==
      "memory      GPU of rank 0, at the peak: 13.00 GiB allocated, 13.50 GiB reserved, fragmentation 0.50 GiB (3.7%)");
}

TEST_CASE("times are two units at most", "[runtime][telemetry]") {
  CHECK(format_time(milliseconds(850)) == "850 ms");
  CHECK(format_time(milliseconds(42'300)) == "42.3 s");
  CHECK(format_time(milliseconds(59'960)) == "1 min 0 s");
  CHECK(format_time(milliseconds(187'000)) == "3 min 7 s");
  CHECK(format_time(milliseconds(7'500'000)) == "2 h 5 min");
  CHECK(format_time(milliseconds(273'600'000)) == "3 d 4 h");
}
