#include "config/load.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "load_support.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("an unknown key is named with its place and the nearest known one", "[config][load]") {
  CHECK(only_line("{\n  \"gradient_clipp1ng\": 1.0\n}") ==
        "ds.json:2:3: unknown key 'gradient_clipp1ng' (did you mean 'gradient_clipping'?)");
  CHECK(only_line("{\"zero_optimization\": {\"stages\": 1}}") ==
        "ds.json:1:24: unknown key 'stages' in 'zero_optimization' (did you mean 'stage'?)");
  CHECK(only_line("{\"scheduler\": {\"steps\": 1}}") ==
        "ds.json:1:16: unknown key 'steps' in 'scheduler' (there is 'train.steps')");
  CHECK(only_line("{\"overlap_com\": true}") ==
        "ds.json:1:2: unknown key 'overlap_com' (did you mean 'zero_optimization.overlap_comm'?)");
  CHECK(only_line("{\"xyzzyplugh\": 1}") == "ds.json:1:2: unknown key 'xyzzyplugh'");
  CHECK(only_line("{checkpoint: {foo: 1}}") ==
        "ds.json:1:15: unknown key 'foo' in 'checkpoint'; its keys are 'dir', 'interval', 'keep_last', 'keep_best', "
        "'at_end', 'on_interrupt', 'async', 'load', 'use_node_local_storage'");
  CHECK(lines_of(load("{checkpoint: {foo: 1, bar: 2}}")).back() == "ds.json:1:23: unknown key 'bar' in 'checkpoint'");
  CHECK(only_line("{elasticty: {}}") == "ds.json:1:2: unknown key 'elasticty'");  // it is refused
  CHECK_THAT(only_line("{\"zero_optimization.stage\": 1}"), Contains("write zero_optimization: {stage: …}"));
}

TEST_CASE("a terminal takes no orders from what stands in a file", "[config][load]") {
  CHECK(only_line("{\"a\x1b[2Jb\": 1}") == "ds.json:1:2: unknown key 'a\\x1b[2Jb'");
  CHECK_THAT(only_line("{\"steps_per_print\": \"\x1b]0;title\x07\"}"), Contains("\\x1b]0;title\\x07"));
}

TEST_CASE("several errors are reported at once, in the order of the file", "[config][load]") {
  auto result = load(
      "{\n \"gradient_clipping\": \"high\",\n \"train_batch_sise\": 4,\n \"zero_optimization\": {\"stage\": 5},\n"
      " \"steps_per_print\": 0,\n \"data\": {\"format\": \"csv\"},\n \"bf16\": true,\n \"bf16\": {}\n}");
  CHECK(lines_of(result) ==
        std::vector<std::string>{
            "ds.json:2:23: 'gradient_clipping' must be a number, not the text \"high\"",
            "ds.json:3:2: unknown key 'train_batch_sise' (did you mean 'train_batch_size'?)",
            "ds.json:4:33: 'zero_optimization.stage' must be 0 to 3, not 5",
            "ds.json:5:21: 'steps_per_print' must be at least 1, not 0",
            "ds.json:6:21: 'data.format' must be auto, safetensors, npy, npz, tokens or megatron, not the text \"csv\"",
            "ds.json:7:10: 'bf16' must be an object, not true; write {\"enabled\": true}",
            "ds.json:8:2: the key 'bf16' is given twice in one object (first in line 7, column 2); remove one",
        });
  try {
    throw_if_bad(result);
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Contains("ds.json:2:23: ") && Contains("\nds.json:8:2: "));
  }
}

TEST_CASE("wrong types are errors with a proposal where there is one", "[config][load]") {
  CHECK(only_line("{\"zero_optimization\": {\"stage\": 1.5}}") ==
        "ds.json:1:33: 'zero_optimization.stage' must be an integer, not 1.5");
  CHECK_THAT(only_line("{\"dump_state\": \"True\"}"),
             Contains("must be true or false, not the text \"True\": write true"));
  CHECK_THAT(only_line("{dump_state: 1}"), Contains("must be true or false, not 1"));
  CHECK_THAT(only_line("{optimizer: []}"), Contains("'optimizer' must be an object, not a list"));
  CHECK_THAT(only_line("{optimizer: \"Adam\"}"), Contains("not the text \"Adam\"; write {\"type\": \"Adam\"}"));
  CHECK_THAT(only_line("{zero_optimization: 3}"), Contains("not 3; write {\"stage\": 3}"));
  CHECK_THAT(only_line("{zero_optimization: {offload_optimizer: \"cpu\"}}"), Contains("write {\"device\": \"cpu\"}"));
  CHECK_THAT(only_line("{train: {seed: null}}"), Contains("must not be null; leave it out for the default, 42"));
  CHECK_THAT(only_line("{gradient_clipping: 1e999}"), Contains("must be a finite number"));
  CHECK_THAT(only_line("{gradient_clipping: -1}"), Contains("must be at least 0, not -1"));
  CHECK_THAT(only_line("{gradient_predivide_factor: 0}"), Contains("must be above 0 and at most 1e+30, not 0"));
  CHECK_THAT(only_line("{gradient_predivide_factor: 1e300}"), Contains("at most 1e+30, not 1e+300"));
  CHECK_THAT(only_line("{optimizer: {params: {betas: [0.9, 1.0]}}}"),
             Contains("item 2 must be at least 0 and below 1, not 1"));
  CHECK_THAT(only_line("{optimizer: {params: {betas: [0.9]}}}"), Contains("must be two numbers, not 1"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupLr\"}}"), Contains("did you mean 'WarmupLR'?"));
}

TEST_CASE("numbers are taken as the reference says", "[config][load]") {
  auto result = load(
      "{steps_per_print: 9999999999, zero_optimization: {stage: \"1\", allgather_bucket_size: 5e8, "
      "reduce_bucket_size: \"2e8\"}, gradient_clipping: \"0.5\"}");
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.steps_per_print == 9999999999);
  CHECK(result.config.zero.stage == 1);
  CHECK(result.config.zero.allgather_bucket_size == 500'000'000);
  CHECK(*result.config.zero.reduce_bucket_size == 200'000'000);
  CHECK(result.config.gradient_clipping == 0.5);
}

TEST_CASE("a file that is not there is 66, other trouble 65", "[config][load]") {
  test::TempDir folder;
  auto missing = load_file(folder / "none.json");
  CHECK(missing.exit_code() == ExitCode::kNoInput);
  CHECK_THAT(all_lines(missing), Contains("cannot read the job file") && Contains("none.json': No such file"));
  CHECK_THROWS_AS(throw_if_bad(missing), UserError);
  auto directory = load_file(folder.path());
  CHECK(directory.exit_code() == ExitCode::kNoInput);
  CHECK_THAT(all_lines(directory), Contains("it is a directory"));
  auto empty = load_file(folder.write("empty.json", ""));
  CHECK(empty.exit_code() == ExitCode::kBadInput);
  CHECK_THAT(all_lines(empty), Contains("empty.json:1:1: empty"));
  auto yaml = load_file(folder.write("ok.yml", "train_batch_size: 4\n"), {}, {2});
  REQUIRE(yaml.ok());
  CHECK(yaml.config.batch.micro_batch == 2);
  CHECK(yaml.exit_code() == ExitCode::kSuccess);
}

TEST_CASE("a config is given as text where it begins with a brace or has lines", "[config][load]") {
  for (const char* text : {R"( {"train_batch_size": 4})", "// of HJSON\n{train_batch_size: 4}", "train_batch_size: 4\n",
                           "# of both\ntrain_batch_size: 4", "/* a\n b */ {train_batch_size: 4}"}) {
    CAPTURE(text);
    const auto result = load_file(text, {}, {2});
    REQUIRE(result.ok());
    CHECK(result.config.batch.micro_batch == 2);
  }
  const auto bad = load_file("{\"train_batch_size\": 4,\n \"trainn\": {}}", {}, {2});
  CHECK_THAT(all_lines(bad), Contains("--config:2:2: ") && Contains("trainn"));
  CHECK(bad.exit_code() == ExitCode::kBadInput);
  CHECK_FALSE(is_config_text("ds.json"));
  CHECK_THAT(all_lines(load_file("/* not closed\n")), Contains("--config:"));
}

TEST_CASE("without a file every key has its default, and that is said", "[config][load]") {
  auto result = load_file("", {}, {});
  REQUIRE(result.ok());
  CHECK(result.config.optimizer.lr == 1e-3);
  CHECK(result.config.batch.train_batch == 1);
  CHECK(result.config.train.epochs == 1);
  CHECK(result.config.precision == Precision::kFp32);
  CHECK(result.config.data.drop_last);
  CHECK(has_note(result, "no --config"));
  CHECK(has_note(result, "AdamW with learning rate 0.001"));
  CHECK(has_note(result, "micro batch 1"));
  CHECK(has_note(result, "1 is assumed"));
}

TEST_CASE("a known key in the wrong section is taken where it belongs, and that is said", "[config][load]") {
  auto result = load(
      "{\n \"zero_optimization\": {\n  \"stage\": 1,\n  \"aio\": {\"block_size\": 262144},\n"
      "  \"partition_activations\": true,\n  \"gradient_clipping\": 0.5\n }\n}");
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(has_note(result, "ds.json:4:3: 'aio' is in 'zero_optimization' but belongs at the top level; read as 'aio'"));
  CHECK(
      has_note(result, "'partition_activations' is in 'zero_optimization' but belongs in 'activation_checkpointing'"));
  CHECK(result.settings.integer("aio.block_size") == 262144);
  CHECK(result.config.gradient_clipping == 0.5);
  // An error inside a misplaced section is still one.
  CHECK_THAT(all_lines(load("{zero_optimization: {aio: {block_sise: 1}}}")),
             Contains("unknown key 'block_sise' in 'aio'"));
}

TEST_CASE("what published configs carry along without a meaning here is accepted with one note", "[config][load]") {
  struct Case {
    const char *text, *note;
  };
  const auto c = GENERATE(values<Case>({
      {"{bf16: {enabled: true, loss_scale: 0, initial_scale_power: 16, loss_scale_window: 1000, hysteresis: 2, "
       "min_loss_scale: 1}}",
       "ds.json:1:24: 'bf16.loss_scale', 'bf16.initial_scale_power', 'bf16.loss_scale_window', 'bf16.hysteresis', "
       "'bf16.min_loss_scale' have no counterpart here: bfloat16 needs no loss scale"},
      {"{\"_comment\": \"see docs\", \"//\": 1, \"$schema\": 2, bf16: {\"_url\": []}}",
       "taken as comments: '_comment', '//', '$schema', 'bf16._url'"},
      {"{\"#\": \"a comment\"}", "taken as a comment: '#'"},
      {"{compile: {enabled: true, backend: \"inductor\"}}",
       "'compile.enabled', 'compile.backend' have no counterpart here: torch.compile works on Python"},
  }));
  const auto result = load(c.text);
  INFO(c.text << "\n" << all_lines(result));
  REQUIRE(result.ok());
  CHECK(has_note(result, c.note));
  CHECK(num_notes(result, "counterpart") + num_notes(result, "comment") == 1);
  CHECK_THAT(all_lines(load("{}", 1, {{"_comment", "1"}})), Contains("unknown key '_comment'"));
}

TEST_CASE("Auto is auto, except where it is a name", "[config][load]") {
  const auto result = load("{train_batch_size: \"Auto\", bf16: {enabled: \"AUTO\"}, checkpoint: {dir: \"Auto\"}}");
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.batch.micro_batch == 8);
  CHECK(result.config.precision == Precision::kAuto);
  CHECK(result.config.checkpoint.dir == "Auto");
}

TEST_CASE("selective recomputation without the kernels that it needs has no effect, and says so", "[config][load]") {
  for (const std::string kernels : {"fused_regions", "weight_gradient"}) {
    const auto result = load("{activation_checkpointing: {selective: true}, kernels: {" + kernels + ": false}}");
    CHECK(has_note(result, "'activation_checkpointing.selective' has no effect: 'kernels." + kernels + "' is false"));
  }
  const auto result = load("{activation_checkpointing: {selective: true}}");
  CHECK(result.config.recomputation.selective);
  CHECK_FALSE(result.config.recomputation.enabled);  // of whole blocks
}

TEST_CASE("the right place wins over the wrong one, in either order", "[config][load]") {
  for (const char* text : {"{gradient_clipping: 2, zero_optimization: {gradient_clipping: 3}}",
                           "{zero_optimization: {gradient_clipping: 3}, gradient_clipping: 2}"}) {
    auto result = load(text);
    INFO(all_lines(result));
    REQUIRE(result.ok());
    CHECK(result.config.gradient_clipping == 2);
    CHECK(has_note(result, "'zero_optimization.gradient_clipping' is not used"));
  }
  for (const char* text : {"{aio: {block_size: 1}, zero_optimization: {aio: {block_size: 2, queue_depth: 3}}}",
                           "{zero_optimization: {aio: {block_size: 2, queue_depth: 3}}, aio: {block_size: 1}}"}) {
    auto result = load(text);
    REQUIRE(result.ok());
    CHECK(result.settings.integer("aio.block_size") == 1);
    CHECK(result.settings.integer("aio.queue_depth") == 8);
  }
}

TEST_CASE("aliases are the key itself; giving both is an error", "[config][load]") {
  auto result = load("{zero_optimization: {prefetch_bucket_size: 7}, bfloat16: {enabled: true}}");
  REQUIRE(result.ok());
  CHECK(result.settings.integer("zero_optimization.stage3_prefetch_bucket_size") == 7);
  CHECK(result.config.precision == Precision::kBf16);
  CHECK(has_note(result, "'bfloat16' is deprecated: write 'bf16'"));
  CHECK_THAT(only_line("{zero_optimization: {max_live_parameters: 7, stage3_max_live_parameters: 8}}"),
             Contains("ds.json:1:46: 'zero_optimization.max_live_parameters' and "
                      "'zero_optimization.stage3_max_live_parameters' are the same key; give one of them"));
  CHECK_THAT(only_line("{zero_optimization: {cpu_offload: false, offload_optimizer: {device: \"none\"}}}"),
             Contains("are the same key"));
  CHECK(load("{bf16: {enabled: false}, bfloat16: {enabled: true}}").config.precision == Precision::kFp32);
  CHECK(load("{bfloat16: {enabled: true}, bf16: {enabled: false}}").config.precision == Precision::kFp32);
}

TEST_CASE("features that are not built yet are refused only when they are switched on", "[config][load]") {
  struct Case {
    const char *off, *on, *key;
  };
  auto c = GENERATE(values<Case>({
      {"{fp16: {enabled: true}}", "{fp16: {enabled: true, fp16_master_weights_and_grads: true}}",
       "fp16.fp16_master_weights_and_grads"},
      {"{zero_optimization: {offload_optimizer: {super_offload: false}}}",
       "{zero_optimization: {stage: 3, offload_optimizer: {device: \"cpu\", super_offload: true}}}",
       "zero_optimization.offload_optimizer.super_offload"},
      {"{zero_optimization: {zenflow: null}}", "{zero_optimization: {stage: 2, zenflow: {topk_ratio: 0.1}}}",
       "zero_optimization.zenflow"},
      {"{aio: {use_gds: false}}", "{aio: {use_gds: true}}", "aio.use_gds"},
      {"{comet: {enabled: false, project: \"x\"}}", "{comet: {enabled: true}}", "comet.enabled"},
      {"{optimizer: {type: \"adamw\"}}", "{optimizer: {type: \"MuSGD\", params: {momentum: 0.9}}}", "optimizer.type"},
      {"{datastates_ckpt: false}", "{datastates_ckpt: {}}", "datastates_ckpt"},
      {"{weight_quantization: {enabled: false}}", "{weight_quantization: {num_bits: 4}}", "weight_quantization"},
      {"{sparse_attention: null}", "{sparse_attention: {mode: \"fixed\"}}", "sparse_attention"},
      {"{sequence_parallel_size: 1}", "{sequence_parallel_size: 2}", "sequence_parallel_size"},
      {"{zero_optimization: {mics_shard_size: -1}}", "{zero_optimization: {mics_shard_size: 4}}",
       "zero_optimization.mics_shard_size"},
      {"{elasticity: {enabled: false, micro_batch_sizes: [2, 4]}}", "{elasticity: {enabled: true}}",
       "elasticity.enabled"},
      {"{compression_training: {sparse_pruning: {shared_parameters: {enabled: false}, different_groups: {g: {params: "
       "{dense_ratio: 0.5}, modules: [\"a\"]}}}}}",
       "{compression_training: {sparse_pruning: {shared_parameters: {enabled: true}}}}",
       "compression_training.sparse_pruning.shared_parameters.enabled"},
      {"{dtype: null}", "{dtype: \"fp16\"}", "dtype"},
  }));
  INFO(c.off);
  INFO(all_lines(load(c.off)));
  CHECK(load(c.off).ok());
  auto on = load(c.on);
  INFO(c.on);
  INFO(all_lines(on));
  REQUIRE(on.issues.size() == 1);
  CHECK(on.issues[0].kind == Issue::Kind::kNotYet);
  CHECK(on.issues[0].key == c.key);
  CHECK(on.issues[0].position.line == 1);
  CHECK_THAT(on.issues[0].message, Contains("not supported yet: '" + std::string(c.key)));
}

TEST_CASE("a switch inside a feature that is off switches nothing on", "[config][load]") {
  CHECK(load("{data_efficiency: {enabled: false, data_routing: {enabled: true, random_ltd: {enabled: true}}}}").ok());
  CHECK(load("{bf16: {enabled: false, bf16_optimizer_states: true}}").ok());
  CHECK_THAT(only_line("{bf16: {enabled: true, bf16_optimizer_states: true}}"), Contains("bf16_optimizer_states"));
  CHECK_THAT(only_line("{bf16: {enabled: \"auto\", bf16_optimizer_states: true}}"), Contains("bf16_optimizer_states"));
}

TEST_CASE("ZeRO++ is refused at a stage that has nothing to apply it to", "[config][load]") {
  CHECK_THAT(
      only_line("{zero_optimization: {stage: 2, zero_hpz_partition_size: 4}}"),
      Contains("'zero_optimization.zero_hpz_partition_size' needs ZeRO stage 3, but zero_optimization.stage is 2"));
  CHECK_THAT(only_line("{zero_optimization: {stage: 2, zero_quantized_weights: true}}"),
             Contains("needs ZeRO stage 3"));
  CHECK_THAT(only_line("{zero_optimization: {stage: 2, zero_quantized_nontrainable_weights: true}}"),
             Contains("needs ZeRO stage 3"));
  CHECK_THAT(only_line("{zero_optimization: {stage: 1, zero_quantized_gradients: true}}"),
             Contains("needs ZeRO stage 2 or 3"));
  CHECK_THAT(only_line("{zero_optimization: {stage: 3, zeropp_loco_param: {err_beta: 0.5}}}"),
             Contains("needs zero_quantized_gradients"));
  CHECK(
      load("{zero_optimization: {stage: 2, zero_quantized_gradients: true, zeropp_loco_param: {err_beta: 0.8}}}").ok());
}

TEST_CASE("ranks that hpZ's groups do not divide are refused as a run refuses them", "[config][load]") {
  const std::string text = "{zero_optimization: {stage: 3, zero_hpz_partition_size: 8}}";
  const auto refused = load(text, 2);
  CHECK(refused.exit_code() == ExitCode::kContradiction);
  CHECK_THAT(only_line(text, 2), Contains("zero_hpz_partition_size 8 does not divide the 2 data-parallel ranks"));
  CHECK(load(text, 16).ok());
  CHECK(load_text(text, "ds.json", Format::kHjson, {}, {}).ok());  // the number of ranks is not known
}

TEST_CASE("a refusal says what is supported now", "[config][load]") {
  CHECK_THAT(only_line("{optimizer: {type: \"LBFGS\"}}"),
             Contains("supported now: AdamW, Adam, SGD, Adagrad, Lamb, Lion, Muon, RMSprop, NAdam, RAdam, Adamax, "
                      "Adadelta, Rprop, ASGD, Adafactor, AdamW8bit, OneBitAdam, OneBitLamb or ZeroOneAdam"));
  CHECK_THAT(only_line("{bf16: {enabled: true, bf16_optimizer_states: true}}"),
             Contains("leave it out or switch it off"));
}

TEST_CASE("keys without counterpart are accepted with one line each", "[config][load]") {
  auto result = load("{\n zero_allow_untested_optimizer: true,\n zero_optimization: {load_from_fp32_weights: true}\n}");
  REQUIRE(result.ok());
  CHECK(has_note(result, "ds.json:2:2: 'zero_allow_untested_optimizer' has no counterpart here: "));
  CHECK(has_note(result, "ds.json:3:22: 'zero_optimization.load_from_fp32_weights' has no counterpart here: "));
}

TEST_CASE("what adjusts a feature that is not built is accepted with one line a feature", "[config][load]") {
  struct Case {
    const char *text, *feature;
  };
  auto c = GENERATE(values<Case>({
      {"{checkpoint: {interval: 5, parallel_write: {pipeline_stage: true}}}", "1:28: 'checkpoint.parallel_write'"},
      {"{data_parallel_size: 2}", "'data_parallel_size'"},
      {"{use_data_before_expert_parallelism: true}", "'use_data_before_expert_parallelism'"},
      {"{moe: {enabled: true, moe_experts: [4]}}", "'moe'"},
      {"{moe: {enabled: true}}", "'moe'"},
      {"{zero_optimization: {mics_hierarchical_params_gather: true}}",
       "'zero_optimization.mics_hierarchical_params_gather'"},
      {"{seq_parallel_communication_data_type: \"bf16\"}", "'seq_parallel_communication_data_type'"},
      {"{triton_autotune: true}", "'triton_autotune'"},
      {"{max_out_tokens: 2048}", "'max_out_tokens'"},
      {"{comet: {project: \"p\", workspace: \"t\"}}", "'comet'"},
      {"{compression_training: {sparse_pruning: {different_groups: {g: {modules: [\"a\"]}}}}}",
       "'compression_training.sparse_pruning'"},
  }));
  auto result = load(c.text);
  INFO(c.text << "\n" << all_lines(result));
  REQUIRE(result.ok());
  CHECK(has_note(result, std::string(c.feature) + " has no effect: not supported yet"));
  CHECK(num_notes(result, "has no effect") == 1);
}

TEST_CASE("what asks for nothing has no line", "[config][load]") {
  for (const char* text : {
           "{comet: {enabled: false, project: \"x\"}}",
           "{wandb: {enabled: true, project: \"p\", group: null}}",
           "{zero_optimization: {offload_param: {device: \"none\", pin_memory: true}}}",
           "{pipeline: {stages: 1, partition: \"uniform\"}}",
           "{compression_training: {sparse_pruning: {shared_parameters: {enabled: false, method: \"topk\"}, "
           "different_groups: {g: {params: {dense_ratio: 0.5}}}}}}",
           "{quant: {enabled: false, activation: 1}}",
           "{eigenvalue: {enabled: true, max_iter: 50}}",
           "{triton_autotune: false, aio: {}, pipeline: null, tensor_parallel: {dtype: \"fp16\", tp_overlap_comm: "
           "\"auto\"}}",
           "{zero_optimization: true, allgather_size: 1000}",
       }) {
    INFO(text);
    REQUIRE(load(text).ok());
    CHECK(num_notes(load(text), "has no effect") == 0);
  }
  auto refused = load("{comet: {enabled: true, project: \"g\"}}");
  CHECK_FALSE(refused.ok());
  CHECK(num_notes(refused, "has no effect") == 0);
}

TEST_CASE("precision follows fp16, bf16 and auto", "[config][load]") {
  CHECK(load("{}").config.precision == Precision::kFp32);
  CHECK(load("{bf16: {enabled: true}}").config.precision == Precision::kBf16);
  CHECK(load("{bf16: {enabled: auto\n}}").config.precision == Precision::kAuto);
  CHECK(load("{fp16: {enabled: \"auto\"}}").config.precision == Precision::kAuto);
  CHECK(load("{fp16: {enabled: \"auto\"}, bf16: {enabled: true}}").config.precision == Precision::kBf16);
}

TEST_CASE("auto stands for the documented values", "[config][load]") {
  auto result = load(R"({gradient_clipping: "auto", optimizer: {type: "AdamW", params: {lr: "auto", betas: "auto",
      eps: "auto", weight_decay: "auto"}}, zero_optimization: {reduce_bucket_size: "auto", overlap_comm: "auto"},
      scheduler: {type: "WarmupDecayLR", params: {total_num_steps: "auto", warmup_min_lr: "auto", warmup_max_lr: "auto",
      warmup_num_steps: "auto"}}, train_batch_size: "auto", train_micro_batch_size_per_gpu: "auto",
      gradient_accumulation_steps: "auto"})",
                     2);
  INFO(all_lines(result));
  REQUIRE(result.ok());
  const JobConfig& c = result.config;
  CHECK(c.gradient_clipping == 1.0);
  CHECK(c.optimizer.lr == 5e-5);
  CHECK(c.optimizer.beta1 == 0.9);
  CHECK(c.optimizer.beta2 == 0.999);
  CHECK(c.optimizer.eps == 1e-8);
  CHECK(c.optimizer.weight_decay == 0);
  CHECK_FALSE(c.zero.reduce_bucket_size);
  CHECK_FALSE(c.zero.overlap_comm);
  CHECK(c.scheduler.warmup_num_steps == 0);
  CHECK(c.scheduler.warmup_max_lr == 5e-5);
  CHECK_FALSE(c.scheduler.total_num_steps);
  CHECK(c.batch.micro_batch == 8);
  CHECK(c.batch.accumulation == 1);
  CHECK(c.batch.train_batch == 16);
}

TEST_CASE("the deprecated boolean form of zero_optimization means stage 1 or 0", "[config][load]") {
  auto on = load("{zero_optimization: true, allgather_size: 1000}");
  REQUIRE(on.ok());
  CHECK(on.config.zero.stage == 1);
  CHECK(on.config.zero.allgather_bucket_size == 1000);
  CHECK(has_note(on, "deprecated"));
  CHECK(load("{zero_optimization: false}").config.zero.stage == 0);
  CHECK_THAT(only_line("{zero_optimization: {legacy_stage1: true}}"), Contains("was removed"));
}

TEST_CASE("a section that cannot do without enabled says so", "[config][load]") {
  CHECK_THAT(only_line("{amp: {opt_level: \"O1\"}}"), Contains("ds.json:1:2: 'amp' needs 'enabled'"));
  CHECK_THAT(only_line("{progressive_layer_drop: {}}"), Contains("needs 'enabled'"));
}

TEST_CASE("what a model file asks for is the default, and the job file wins over it", "[config][load]") {
  const auto load_with = [](const char* text) {
    return load_text(
        text, "job.json", Format::kHjson, {},
        {.world_size = 1, .model = {.averages_over_labels = true, .recomputes = true, .units = {"Block"}}});
  };
  const auto taken = load_with("{}");
  CHECK(taken.config.loss_average == LossAverage::kTokens);
  CHECK(taken.config.recomputation.enabled);
  CHECK(taken.config.units == std::vector<std::string>{"Block"});
  CHECK(taken.settings.at("loss_average").origin == "model file");
  const auto given =
      load_with("{loss_average: \"micro_batches\", activation_checkpointing: {enabled: false}, units: [\"Other\"]}");
  CHECK(given.ok());
  CHECK(given.config.loss_average == LossAverage::kMicroBatches);
  CHECK_FALSE(given.config.recomputation.enabled);
  CHECK(given.config.units == std::vector<std::string>{"Other"});
  CHECK(load_with("{activation_checkpointing: {enabled: false}}").config.units.empty());
  CHECK(load_with("{units: [\"Other\"]}").config.units == std::vector<std::string>{"Other"});
  CHECK_FALSE(load_text("{}", "job.json", Format::kHjson).config.recomputation.enabled);
}

TEST_CASE("a computed number of elements loses its fraction, which is said", "[config][load]") {
  const auto result =
      load("{zero_optimization: {stage: 3, stage3_prefetch_bucket_size: 3774873.6}, train_batch_size: 2}");
  REQUIRE(result.ok());
  CHECK(result.config.zero.prefetch_bucket_size == 3774873);
  CHECK_THAT(result.notes.front(),
             Catch::Matchers::Contains("'zero_optimization.stage3_prefetch_bucket_size' 3774873.6 is read as 3774873"));
  CHECK_FALSE(load("{zero_optimization: {stage: 2.5}, train_batch_size: 2}").ok());
  CHECK_FALSE(load("{zero_optimization: {sub_group_size: -0.5}, train_batch_size: 2}").ok());
}
