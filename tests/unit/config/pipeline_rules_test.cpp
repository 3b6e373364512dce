// The section "pipeline": its values, what it excludes, and how many data ranks it leaves.
#include <catch2/catch.hpp>

#include "config/data_ranks.hpp"
#include "load_support.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::config;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

Pipeline pipeline_of(const std::string& members, int world = 12, const std::vector<Override>& overrides = {}) {
  const auto result = load("{pipeline: {" + members + "}}", world, overrides);
  INFO(members << "\n" << all_lines(result));
  REQUIRE(result.ok());
  return result.config.pipeline;
}

std::string error_of(int world, int64_t stages, int64_t tensor) {
  const auto ranks = solve_data_ranks(world, stages, tensor);
  REQUIRE_FALSE(ranks.ok());
  return ranks.error();
}

}  // namespace

TEST_CASE("the section pipeline has one stage, 1f1b and measured times by default", "[config][pipeline]") {
  const Pipeline pipeline = good("{}").pipeline;
  CHECK(pipeline.stages == 1);
  CHECK(pipeline.partition == PipelinePartition::kTime);
  CHECK(pipeline.schedule == PipelineSchedule::k1F1B);
  CHECK(pipeline.activation_checkpoint_interval == 0);
  CHECK(pipeline_of("stages: \"auto\"").stages == 1);
}

TEST_CASE("the keys of the section pipeline are read", "[config][pipeline]") {
  const Pipeline pipeline =
      pipeline_of("stages: 4, partition: \"uniform\", schedule: \"zb-h1\", activation_checkpoint_interval: 2");
  CHECK(pipeline.stages == 4);
  CHECK(pipeline.partition == PipelinePartition::kUniform);
  CHECK(pipeline.schedule == PipelineSchedule::kZbH1);
  CHECK(pipeline.activation_checkpoint_interval == 2);
  CHECK(pipeline_of("stages: \"2\", schedule: \"gpipe\"").schedule == PipelineSchedule::kGPipe);
}

TEST_CASE("stages come from --stages where the config leaves them open, and it wins over the config",
          "[config][pipeline]") {
  const std::vector<Override> flag{{"pipeline.stages", "3", "--stages"}};
  CHECK(pipeline_of("stages: \"auto\"", 12, flag).stages == 3);
  CHECK(pipeline_of("stages: 4", 12, flag).stages == 3);
}

TEST_CASE("a partition is a method in any case, or a pattern for class names", "[config][pipeline]") {
  const auto partition = [](const std::string& text) { return pipeline_of("stages: 2, partition: \"" + text + "\""); };
  CHECK(partition("best").partition == PipelinePartition::kTime);
  CHECK(partition("time").partition == PipelinePartition::kTime);
  CHECK(partition("Parameters").partition == PipelinePartition::kParameters);
  CHECK(partition("UNIFORM").partition == PipelinePartition::kUniform);
  const Pipeline by_type = partition("type:GPT2(Block|Layer)");
  CHECK(by_type.partition == PipelinePartition::kType);
  CHECK(by_type.layer_type == "GPT2(Block|Layer)");
  CHECK(partition("Type:block").layer_type == "block");
}

TEST_CASE("a partition may be the cuts themselves, as many as the stages need", "[config][pipeline]") {
  const Pipeline cut = pipeline_of("stages: 3, partition: \"layers:4,9\"", 3);
  CHECK(cut.partition == PipelinePartition::kLayers);
  CHECK(cut.first_layers == std::vector<int64_t>{4, 9});
  for (const char* text : {"layers:", "layers:0,4", "layers:4,4", "layers:9,4", "layers:4,", "layers:a"}) {
    INFO(text);
    CHECK_THAT(only_line(std::string("{pipeline: {stages: 3, partition: \"") + text + "\"}}", 3),
               Contains("in rising order, for example layers:4,9"));
  }
  CHECK_THAT(only_line("{pipeline: {stages: 4, partition: \"layers:4,9\"}}", 4),
             Contains("these are the cuts of 3 stages, and 'pipeline.stages' is 4"));
}

TEST_CASE("a deterministic pipeline is not cut by measured times", "[config][pipeline]") {
  const auto partition = [](const std::string& members) {
    const auto result = load("{deterministic: true, pipeline: {stages: 2" + members + "}}", 2);
    REQUIRE(result.ok());
    return result.config.pipeline.partition;
  };
  CHECK(partition("") == PipelinePartition::kParameters);
  CHECK(partition(", partition: \"best\"") == PipelinePartition::kParameters);
  CHECK(partition(", partition: \"time\"") == PipelinePartition::kTime);
}

TEST_CASE("a partition that is none is refused", "[config][pipeline]") {
  CHECK(only_line("{pipeline: {stages: 2, partition: \"balanced\"}}", 2) ==
        "ds.json:1:24: 'pipeline.partition' must be best, time, uniform, parameters, type:REGEX or layers:N,M, not the "
        "text "
        "\"balanced\"");
  CHECK_THAT(only_line("{pipeline: {stages: 2, partition: \"parameter\"}}", 2), Contains("did you mean 'parameters'?"));
  CHECK_THAT(only_line("{pipeline: {stages: 2, partition: \"type:\"}}", 2), Contains("there is nothing after 'type:'"));
  CHECK_THAT(only_line("{pipeline: {stages: 2, partition: \"type:(\"}}", 2),
             Contains("it is not a regular expression"));
  CHECK_THAT(only_line("{pipeline: {partition: 3}}"), Contains("'pipeline.partition'"));
  CHECK_THAT(only_line("{pipeline: {schedule: \"1b1f\"}}"), Contains("1f1b"));
  CHECK_THAT(only_line("{pipeline: {stages: 0}}"), Contains("'pipeline.stages' must be 1 to 65536, not 0"));
  CHECK_THAT(only_line("{pipeline: {stages: 1.5}}"), Contains("'pipeline.stages'"));
  CHECK_THAT(only_line("{pipeline: {activation_checkpoint_interval: -1}}"), Contains("at least 0"));
}

TEST_CASE("ZeRO stages 2 and 3 are refused with pipeline stages, with the reason", "[config][pipeline]") {
  for (const char* stage : {"0", "1"}) {
    CHECK(load("{zero_optimization: {stage: " + std::string(stage) + "}, pipeline: {stages: 2}}", 2).ok());
  }
  CHECK_THAT(
      only_line("{zero_optimization: {stage: 2}, pipeline: {stages: 4}}", 4),
      StartsWith("ds.json:1:22: 'zero_optimization.stage' 2 does not go with 4 pipeline stages: a pipeline adds up "
                 "the gradients of a step's micro batches and reduces the sum once, while ZeRO stage 2 keeps no "
                 "such sum") &&
          EndsWith("set it to 1 or 0 (DeepSpeed refuses it, too), or pipeline.stages to 1"));
  CHECK_THAT(only_line("{zero_optimization: {stage: 3}, pipeline: {stages: 4}}", 4),
             Contains("ZeRO stage 3 would gather and release the parameters of a stage again for every micro batch"));
  CHECK(load("{zero_optimization: {stage: 3}, pipeline: {stages: 1}}", 4).ok());
  const auto by_flag = load("{zero_optimization: {stage: 2}}", 4, {{"pipeline.stages", "2", "--stages"}});
  REQUIRE(by_flag.issues.size() == 1);
  CHECK_THAT(by_flag.issues[0].message, Contains("2 pipeline stages"));
}

TEST_CASE("the batch divides by data ranks, not by ranks", "[config][pipeline]") {
  const auto result = load("{train_batch_size: 32, train_micro_batch_size_per_gpu: 2, pipeline: {stages: 4}}", 8);
  REQUIRE(result.ok());
  CHECK(result.world_size == 8);
  CHECK(result.data_ranks == 2);
  CHECK(result.config.batch.accumulation == 8);
  CHECK(result.batch_explanation ==
        "train_batch_size 32 = micro batch 2 × accumulation 8 × 2 data ranks (accumulation solved)");
  CHECK_THAT(only_line("{train_batch_size: 3, pipeline: {stages: 4}}", 8), Contains("over 2 data ranks"));
  CHECK_THAT(load("{train_batch_size: 8}", 8).batch_explanation, Contains("× 8 ranks"));
}

TEST_CASE("without a number of ranks one pipeline is assumed", "[config][pipeline]") {
  const auto result = load("{train_batch_size: 6, pipeline: {stages: 4}}", 0);
  REQUIRE(result.ok());
  CHECK(result.world_size == 4);
  CHECK(result.data_ranks == 1);
  CHECK(has_note(result, "the number of ranks is not given: one pipeline of 4 is assumed"));
}

TEST_CASE("a world that stages do not divide contradicts the config", "[config][pipeline]") {
  const auto result = load("{train_batch_size: 6, pipeline: {stages: 4}}", 6);
  REQUIRE(result.issues.size() == 1);
  CHECK(result.issues[0].kind == Issue::Kind::kMesh);
  CHECK(lines_of(result)[0] ==
        "ds.json:1:34: cannot divide the job into models: 6 ranks: one model takes 4 ranks (4 pipeline stages x 1 "
        "tensor-parallel rank); start a multiple of 4 ranks, as 4 or 8, or set pipeline.stages (--stages) to 3 or 6");
  CHECK(result.exit_code() == ExitCode::kContradiction);
  test::expect_error(ExitCode::kContradiction, {"6 ranks"}, [&] { throw_if_bad(result); });
  const auto by_flag = load("{}", 6, {{"pipeline.stages", "4", "--stages"}});
  REQUIRE(by_flag.issues.size() == 1);
  CHECK_THAT(lines_of(by_flag)[0], StartsWith("--stages: cannot divide the job"));
  CHECK(load("{pipeline: {stages: 4}, train: {steps: 0}}", 6).exit_code() == ExitCode::kBadInput);
}

TEST_CASE("data ranks are what stages and tensor ranks leave", "[config][pipeline]") {
  for (int data = 1; data <= 6; ++data) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int tensor = 1; tensor <= 6; ++tensor)
        CHECK(*solve_data_ranks(data * stages * tensor, stages, tensor) == data);
    }
  }
}

TEST_CASE("the nearest possible numbers of ranks and stages are named", "[config][pipeline]") {
  CHECK_THAT(error_of(2, 4, 1), EndsWith("as 4, or set pipeline.stages (--stages) to 2"));
  CHECK_THAT(error_of(7, 2, 1), EndsWith("as 6 or 8, or set pipeline.stages (--stages) to 1 or 7"));
  CHECK_THAT(error_of(8, 3, 2), EndsWith("as 6 or 12, or set pipeline.stages (--stages) to 2 or 4"));
  CHECK_THAT(error_of(1, 1, 2),
             EndsWith("(1 pipeline stage x 2 tensor-parallel ranks); start a multiple of 2 ranks, as 2, or set "
                      "tensor_parallel.size (--tp) to 1"));
  CHECK_THAT(error_of(9, 2, 2), EndsWith("as 8 or 12"));
}

TEST_CASE("keys about stages have a line where there is one stage and nobody chose that", "[config][pipeline]") {
  const auto forgotten = load("{pipeline: {partition: \"uniform\", schedule: \"zb-h1\"}}");
  REQUIRE(forgotten.ok());
  CHECK(has_note(forgotten, "'pipeline.partition' has no effect with one stage; set 'pipeline.stages' or --stages P"));
  CHECK(has_note(forgotten, "'pipeline.schedule' has no effect with one stage"));
  CHECK(num_notes(load("{pipeline: {stages: 1, partition: \"uniform\"}}"), "no effect") == 0);
  CHECK(num_notes(load("{pipeline: {stages: 2, partition: \"uniform\"}}", 2), "no effect") == 0);
}

TEST_CASE("DeepSpeed's other keys of the section are answered with the reason", "[config][pipeline]") {
  const auto result =
      load("{pipeline: {seed_layers: true, pipe_partitioned: true, grad_partitioned: false, use_reentrant: false}}");
  REQUIRE(result.ok());
  CHECK(has_note(result, "'pipeline.seed_layers' has no counterpart here: layers are not built here"));
  CHECK(has_note(result, "'pipeline.pipe_partitioned' has no counterpart here: activations are sent whole"));
  CHECK(has_note(result, "'pipeline.grad_partitioned' has no counterpart here: gradients are sent whole"));
  CHECK(has_note(result, "'pipeline.use_reentrant' has no counterpart here: "));
}

TEST_CASE("activation_checkpoint_interval recomputes blocks in groups of that size", "[config][pipeline]") {
  const JobConfig config = good("{pipeline: {activation_checkpoint_interval: 3}}");
  CHECK(config.recomputation.enabled);
  CHECK_FALSE(config.recomputation.number_checkpoints);
  CHECK_FALSE(good("{pipeline: {activation_checkpoint_interval: 0}}").recomputation.enabled);
  CHECK_THAT(only_line("{pipeline: {activation_checkpoint_interval: 3}, activation_checkpointing: "
                       "{number_checkpoints: 2}}"),
             Contains("leave one of the two out"));
  CHECK_THAT(only_line("{pipeline: {activation_checkpoint_interval: 3}, activation_checkpointing: {enabled: false}}"),
             Contains("'activation_checkpointing.enabled' is false"));
}
