// Every member of the typed sections has one row of the key table, or is derived from several keys.
#include "config/binding.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/coerce.hpp"
#include "config/job_config.hpp"
#include "config/key_table.hpp"

using namespace dslaunch::config;

// Aggregate initialization accepts it in place of a member of any type. Never called.
struct AnyMember {
  template <class T>
  operator T() const;
};

namespace {

template <class Struct, class... Before>
consteval size_t num_members() {
  if constexpr (requires { Struct{Before{}..., AnyMember{}}; }) {
    return num_members<Struct, Before..., AnyMember>();
  } else {
    return sizeof...(Before);
  }
}

// The rows that are bound to members of this object, which lies in `root` or is a default-constructed section.
template <class Struct, class Root>
std::vector<std::string> rows_of(const Struct& object, const Root& root) {
  const char *begin = reinterpret_cast<const char*>(&object), *end = begin + sizeof(Struct);
  std::vector<std::string> out;
  for (const auto* row : all_keys()) {
    if (!row->binding || row->binding->struct_id != &kStructId<Root>) continue;
    const char* member = static_cast<const char*>(row->binding->find(&root));
    if (member >= begin && member < end) out.emplace_back(row->path);
  }
  return out;
}

// `others`: members that are sections, are named by their section, or are derived from several keys.
template <class Struct, class Root>
void check_members(const char* name, const Struct& object, const Root& root, std::vector<std::string> others = {}) {
  const auto rows = rows_of(object, root);
  INFO(name);
  CAPTURE(rows, others);
  CHECK(rows.size() + others.size() == num_members<Struct>());
}

const JobConfig kDefaults;

}  // namespace

TEST_CASE("every member of the typed sections is bound by a row or is derived", "[config][binding]") {
  const JobConfig& config = kDefaults;
  check_members("Batch", config.batch, config);
  check_members("Optimizer", config.optimizer, config,
                {"beta2, with beta1", "groups", "eta_minus", "eta_plus", "min_step_size", "max_step_size"});
  check_members("Scheduler", config.scheduler, config);
  check_members("OffloadOptimizer", config.zero.offload_optimizer, config, {"delayed_update", "delayed_after_steps"});
  check_members("OffloadParam", config.zero.offload_param, config);
  check_members("Aio", config.aio, config);
  check_members("Loco", default_constructed<Zero::Loco>(), config);
  check_members("Data", config.data, config, {"synthetic_train", "synthetic", "normalize", "random_crop"});
  check_members("Normalize", default_constructed<Normalize>(), config);
  check_members("RandomCrop", default_constructed<RandomCrop>(), config);
  check_members("DataEfficiency", config.data_efficiency, config,
                {"sequence_length", "metrics", "dynamic_batching", "random_ltd"});
  check_members("Train", config.train, config, {"metrics", "early_stopping", "samples"});
  check_members("Samples", default_constructed<Samples>(), config, {"prompts", "prompts_file"});
  check_members("EarlyStopping", default_constructed<EarlyStopping>(), config);
  check_members("KeepBest", default_constructed<KeepBest>(), config);
  check_members("CheckpointLoad", config.checkpoint.load, config);
  check_members("Recomputation", config.recomputation, config);
  check_members("Pipeline", config.pipeline, config, {"partition", "first_layers", "layer_type"});
  check_members("TensorParallel", config.tensor_parallel, config, {"probe", "rules", "needs_rules"});
  check_members("Kernels", config.kernels, config);
  check_members("Init", default_constructed<Init>(), config);
  check_members("MonitorFiles", config.tensorboard, config);
  check_members("MonitorFiles", config.csv_monitor, config);
  check_members("Wandb", config.wandb, config);
  check_members("FlopsProfiler", config.flops_profiler, config);
  check_members("CommsLogger", config.comms_logger, config);
  const ParameterGroup group;
  check_members("ParameterGroup", group, group, {"name", "beta1", "beta2"});
  const ArraySpec array;
  check_members("ArraySpec", array, array, {"name"});
}

// These three hold sections as members, whose rows were counted above.
TEST_CASE("every member beside the inner sections is bound by a row or is derived", "[config][binding]") {
  const JobConfig& config = kDefaults;
  const size_t in_load = num_members<CheckpointLoad>();
  CHECK(rows_of(config.checkpoint, config).size() - in_load == num_members<Checkpoint>() - 2);  // load, keep_best
  const size_t in_offload =
      rows_of(config.zero.offload_optimizer, config).size() + rows_of(config.zero.offload_param, config).size();
  const size_t zero_sections = 3;  // these two, and loco, which is empty
  CHECK(rows_of(config.zero, config).size() - in_offload == num_members<Zero>() - zero_sections);

  std::map<std::string, size_t> sections;
  const auto add = [&](const char* name, const auto& section) { sections[name] = rows_of(section, config).size(); };
  add("batch", config.batch), add("optimizer", config.optimizer), add("scheduler", config.scheduler);
  add("zero", config.zero), add("aio", config.aio), add("data", config.data),
      add("data_efficiency", config.data_efficiency), add("train", config.train);
  add("checkpoint", config.checkpoint), add("recomputation", config.recomputation), add("kernels", config.kernels);
  add("pipeline", config.pipeline), add("tensor_parallel", config.tensor_parallel);
  add("tensorboard", config.tensorboard), add("csv_monitor", config.csv_monitor), add("wandb", config.wandb);
  add("flops_profiler", config.flops_profiler), add("comms_logger", config.comms_logger);
  size_t direct = rows_of(config, config).size();
  for (const auto& [name, rows] : sections) direct -= rows;
  const std::vector<std::string> others{"init", "precision",       "loss_scale",  "autocast",
                                        "fp8",  "keep_batch_norm", "fp32_master", "deepspeed_lines"};
  CHECK(direct + sections.size() + others.size() == num_members<JobConfig>());
}

TEST_CASE("no member is bound twice", "[config][binding]") {
  const ParameterGroup group;
  const ArraySpec array;
  const std::map<const void*, const void*> roots{
      {&kStructId<JobConfig>, &kDefaults}, {&kStructId<ParameterGroup>, &group}, {&kStructId<ArraySpec>, &array}};
  std::set<std::pair<const void*, Kind>>
      seen;  // with the kind: betas are bound to the optimizer, where `type` is first
  for (const auto* row : all_keys()) {
    if (!row->binding) continue;
    INFO(row->path);
    CHECK(row->status == Status::kSupported);
    CHECK(seen.insert({row->binding->find(roots.at(row->binding->struct_id)), row->kind}).second);
  }
  CHECK(seen.size() > 100);
}

TEST_CASE("a key without a member states its default, a key with one takes the member's", "[config][binding]") {
  for (const auto* row : all_keys()) {
    INFO(row->path);
    CHECK((row->binding || !row->fallback.empty()));
    if (row->binding) CHECK((row->fallback.empty() || row->fallback == "null" || row->fallback == "\"auto\""));
  }
  CHECK(default_of(*find_key("zero_optimization.stage3_prefetch_bucket_size")).integer == 50'000'000);
  CHECK(default_of(*find_key("optimizer.type")).text == "AdamW");
  CHECK(default_of(*find_key("scheduler.type")).is_null());
  CHECK(default_of(*find_key("optimizer.params.betas")).items.size() == 2);
  CHECK(default_of(*find_key("init.std")).number == 0.02);
}

TEST_CASE("values reach members through optional sections, and null creates none", "[config][binding]") {
  const auto& beta = *find_key("zero_optimization.zeropp_loco_param.err_beta")->binding;
  JobConfig config;
  beta.store(&config, Value());
  CHECK_FALSE(config.zero.loco);
  beta.store(&config, Value::of_float(0.5));
  REQUIRE(config.zero.loco);
  CHECK(config.zero.loco->beta == 0.5);
  CHECK(config.zero.loco->reset_interval == 1024);
  find_key("zero_optimization.reduce_bucket_size")->binding->store(&config, Value());
  CHECK_FALSE(config.zero.reduce_bucket_size);
}

TEST_CASE("each text of an enumeration's key is read as its value", "[config][binding]") {
  JobConfig config;
  find_key("scheduler.type")->binding->store(&config, Value::of_string("OneCycle"));
  CHECK(config.scheduler.type == SchedulerType::kOneCycle);
  for (const auto* row : all_keys()) {
    if (!row->names || !row->binding) continue;
    for (const auto& text : row->names()) {
      INFO(row->path << " " << text);
      CHECK(coerce(*row, Value::of_string(text)).ok());
      row->binding->store(&config, Value::of_string(text));
    }
  }
}
