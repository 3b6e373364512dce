#include "config/key_table.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "config/coerce.hpp"

using namespace dslaunch::config;

TEST_CASE("every row has a default of its own kind and lies in a section of the table", "[config][key_table]") {
  std::set<std::string_view> seen;
  for (const auto* row : all_keys()) {
    INFO(row->path);
    CHECK(seen.insert(row->path).second);
    bool section = row->kind == Kind::kSection || row->kind == Kind::kNamed;
    CHECK((section || !row->effect.empty()));
    CHECK(coerce(*row, default_of(*row)).ok());
    CHECK(!is_unsupported(*row, default_of(*row)));
    if (row->kind == Kind::kEnum) CHECK(!enum_values(*row).empty());
    if (!row->auto_value.empty() && row->auto_value != "late") {
      CHECK(coerce(*row, parse_constant(*row, row->auto_value)).ok());
    }
    if (auto home = section_of(row->path); !home.empty()) {
      REQUIRE(find_key(home));
      CHECK((find_key(home)->kind == Kind::kSection || find_key(home)->kind == Kind::kNamed));
    }
  }
  CHECK(seen.size() > 400);
}

TEST_CASE("aliases lead to rows and hide none", "[config][key_table]") {
  for (const auto& alias : all_aliases()) {
    INFO(alias.old_path);
    CHECK(find_key(alias.path));
    CHECK_FALSE(find_key(alias.old_path));
    CHECK(find_alias(alias.old_path) == &alias);
  }
}

TEST_CASE("a key in the wrong section has one right place or none", "[config][key_table]") {
  CHECK(correct_path_of("aio")->path == "aio");
  CHECK(correct_path_of("partition_activations")->path == "activation_checkpointing.partition_activations");
  CHECK_FALSE(correct_path_of("enabled"));  // in many sections
  CHECK_FALSE(correct_path_of("steps"));    // ours: not a slip of a published file
  CHECK_FALSE(correct_path_of("nonsense"));
}

TEST_CASE("keys of every section of the reference are known", "[config][key_table]") {
  for (const char* path : {"train_batch_size",
                           "graph_harvesting",
                           "optimizer.legacy_fusion",
                           "optimizer.params.factor_threshold",
                           "scheduler.params.decay_mom_rate",
                           "fp16.fp16_master_weights_and_grads",
                           "bf16.check_grad_overflow",
                           "amp.enabled",
                           "torch_autocast.lower_precision_safe_modules",
                           "data_types.grad_accum_dtype",
                           "zero_optimization.zenflow.topk_ratio",
                           "zero_optimization.leaf_module.classes",
                           "aio.use_gds",
                           "activation_checkpointing.profile",
                           "pipeline.use_reentrant",
                           "checkpoint.tag_validation",
                           "datastates_ckpt",
                           "nebula.nebula_load_path",
                           "tensorboard.job_name",
                           "csv_monitor.output_path",
                           "wandb.team",
                           "comet.mode",
                           "flops_profiler.output_file",
                           "comms_logger.prof_ops",
                           "timers.throughput.synchronized",
                           "elasticity.version",
                           "autotuning.model_info.hidden_size",
                           "curriculum_learning.curriculum_type",
                           "data_efficiency.data_sampling.dynamic_batching.max_tokens",
                           "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.difficulty_type",
                           "data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step",
                           "progressive_layer_drop.gamma",
                           "compression_training.head_pruning.shared_parameters.num_heads",
                           "compression_training.weight_quantization.different_groups.*.params.start_bits",
                           "compression_training.layer_reduction.teacher_layer",
                           "sparse_attention.num_sliding_window_blocks",
                           "eigenvalue.tol",
                           "quantize_training",
                           "hybrid_engine.max_out_tokens",
                           "tensor_parallel.autotp_size",
                           "compile.double_buffer",
                           "weight_quantization.post_init_quant.*.group_size",
                           "dtype",
                           "moe.ep_size",
                           "quant.weight.num_bits",
                           "max_out_tokens",
                           "data.train",
                           "loss",
                           "train.steps",
                           "units",
                           "init.std"}) {
    INFO(path);
    CHECK(find_key(path));
  }
}

TEST_CASE("coercion takes integral floats and numeric texts as integers and nothing else", "[config][coerce]") {
  KeySpec spec = *find_key("zero_optimization.sub_group_size");
  CHECK(coerce(spec, Value::of_float(5e8))->integer == 500'000'000);
  CHECK(coerce(spec, Value::of_string("2"))->integer == 2);
  CHECK(coerce(spec, Value::of_string("1e9"))->integer == 1'000'000'000);
  CHECK(coerce(spec, Value::of_int(9999999999))->integer == 9999999999);
  CHECK(coerce(spec, Value::of_float(5.5)).error().message == "must be an integer, not 5.5");
  CHECK(coerce(spec, Value::of_string("5.5")).error().message == "must be an integer, not the text \"5.5\"");
  CHECK(coerce(spec, Value::of_string("two")).error().message == "must be an integer, not the text \"two\"");
  CHECK(coerce(spec, Value::of_bool(true)).error().message == "must be an integer, not true");
  CHECK(coerce(spec, Value::of_float(1e19)).error().message == "must be an integer of 64 bits, not 1e+19");
  CHECK(coerce(spec, Value::of_int(-1)).error().message == "must be at least 0, not -1");
  CHECK(coerce(spec, Value{}).error().message == "must not be null; leave it out for the default, 1000000000");
}
