#include "config/report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "config/key_table.hpp"
#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

const char* kJob = R"({
  "train_batch_size": 32,
  "zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"},
  "optimizer": {"type": "adamw", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_max_lr": "auto"}},
  "fp16": {"enabled": "auto"},
  "zero_allow_untested_optimizer": true,
  "data": {"train": "synthetic", "synthetic": {"z.z": {"shape": [4]}, "a": {"like": "z.z"}}},
  "init": {"std": 0.5}
})";

}  // namespace

TEST_CASE("explain gives value, origin and effect of every key", "[config][report]") {
  auto result = load(kJob, 4, {{"train.steps", "7"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  Json json = Json::parse(explain_json(result));
  const Json& keys = json["keys"];
  auto check = [&](const char* path, const Json& value, const char* origin) {
    INFO(path);
    REQUIRE(keys.contains(path));
    CHECK(keys[path]["value"] == value);
    CHECK(keys[path]["origin"] == origin);
    CHECK(!keys[path]["effect"].get<std::string>().empty());
  };
  check("zero_optimization.stage", 1, "file");
  check("train_batch_size", 32, "file");
  check("train_micro_batch_size_per_gpu", 8, "solved");
  check("gradient_accumulation_steps", 1, "solved");
  check("optimizer.type", "AdamW", "file");
  check("optimizer.params.lr", 5e-5, "auto");
  check("optimizer.params.betas", {0.9, 0.95}, "file");
  check("optimizer.params.eps", 1e-8, "default");
  check("scheduler.params.total_num_steps", 7, "auto");
  check("scheduler.params.warmup_max_lr", 5e-5, "auto");
  check("zero_optimization.reduce_bucket_size", "auto", "auto");
  check("fp16.enabled", "auto", "auto");
  check("train.steps", 7, "command line");
  check("gradient_clipping", 0.0, "default");
  check("units", "auto", "default");
  check("data.synthetic.z.z.shape", {4}, "file");
  check("zero_optimization.offload_optimizer.device", "none", "default");
  check("init", {{"from", nullptr}, {"seed", 0}, {"std", 0.5}}, "file");
  check("aio.intra_op_parallelism", 1, "default");
  CHECK(keys["data.synthetic"]["value"]["z.z"]["shape"] == Json({4}));
  CHECK(keys["zero_optimization.stage"]["line"] == 3);
  CHECK(keys["bf16.bf16_optimizer_states"]["status"] == "not supported yet");
  CHECK(json["batch"]["train_batch_size"] == 32);
  CHECK(json["world_size"] == 4);
  CHECK(json["world_size_assumed"] == false);
  for (const auto* row : all_keys()) {
    bool concrete = row->path.find('*') == row->path.npos && row->kind != Kind::kSection && row->kind != Kind::kNamed;
    INFO(row->path);
    if (concrete) CHECK(keys.contains(std::string(row->path)));
  }
}

TEST_CASE("explain works on a refused config and without a world size", "[config][report]") {
  auto result = load_text("{zero_optimization: {mics_shard_size: 2}}", "x.json", Format::kHjson);
  Json json = Json::parse(explain_json(result));
  CHECK(json["keys"]["zero_optimization.mics_shard_size"]["value"] == 2);
  CHECK(json["errors"].size() == 1);
  CHECK(json["world_size_assumed"] == true);
  CHECK_THAT(explain_text(result), Contains("\n  mics_shard_size ") && Contains(" 2                 file 1:22\n") &&
                                       Contains("not supported yet") && !Contains("note: "));
  auto broken = load("{");
  CHECK(Json::parse(explain_json(broken))["keys"].empty());
  CHECK_THAT(explain_text(broken), Contains("1 error"));
}

TEST_CASE("explain lists what was chosen, in lines for a terminal", "[config][report]") {
  auto result = load(kJob, 4, {{"train.steps", "7"}});
  const std::string section = explain_text(result, {.path = "scheduler"});
  CHECK_THAT(section, Contains("scheduler.params\n  warmup_min_lr ") && !Contains("\n  stage "));
  const std::string changed = explain_text(result, {.changed = true});
  CHECK_THAT(changed, Contains("\n  lr ") && !Contains("\n  eps ") && !Contains("warmup_min_lr"));
  const std::string usual = explain_text(result), all = explain_text(result, {.all = true});
  CHECK_THAT(usual, Contains("--all lists them") && !Contains("mics_shard_size"));
  CHECK_THAT(all, Contains("mics_shard_size") && !Contains("--all lists them"));
  CHECK(Json::parse(explain_json(result, {.path = "optimizer.params.lr"}))["keys"].size() == 1);
  CHECK(find_key_by_name("stage") == "zero_optimization.stage");
  CHECK(find_key_by_name("optimizer.params.learning_rate") == "optimizer.params.lr");
}

TEST_CASE("check says fine, or lists every error with its place", "[config][report]") {
  auto good = load("{train_batch_size: 8}", 2);
  CHECK_THAT(check_text(good), Contains("ds.json: fine") && Contains("batch: train_batch_size 8 = micro batch 4"));
  Json json = Json::parse(check_json(good));
  CHECK(json["ok"] == true);
  CHECK(json["errors"].empty());
  CHECK(json["batch"]["train_micro_batch_size_per_gpu"] == 4);

  auto bad = load("{gradient_clipp1ng: 1,\n fp16: {enabled: true, fp16_master_weights_and_grads: true}}");
  json = Json::parse(check_json(bad));
  CHECK(json["ok"] == false);
  REQUIRE(json["errors"].size() == 2);
  CHECK(json["errors"][0]["line"] == 1);
  CHECK(json["errors"][0]["column"] == 2);
  CHECK(json["errors"][0]["kind"] == "unknown_key");
  CHECK(json["errors"][1]["kind"] == "not_supported_yet");
  CHECK(json["errors"][1]["key"] == "fp16.fp16_master_weights_and_grads");
  CHECK_THAT(check_text(bad), Contains("ds.json: 2 errors"));
  CHECK(Json::parse(check_json(load_file("/nowhere/x.json")))["errors"][0]["kind"] == "file");
}

TEST_CASE("the resolved file loads again to the same job", "[config][report]") {
  auto first = load(kJob, 4, {{"train.steps", "7"}});
  REQUIRE(first.ok());
  std::string resolved = resolved_json(first);
  auto second = load(resolved, 4);
  INFO(resolved);
  INFO(all_lines(second));
  REQUIRE(second.ok());
  CHECK(resolved_json(second) == resolved);
  const JobConfig &a = first.config, &b = second.config;
  CHECK(b.batch.micro_batch == a.batch.micro_batch);
  CHECK(b.optimizer.lr == a.optimizer.lr);
  CHECK(b.optimizer.beta2 == a.optimizer.beta2);
  CHECK(b.scheduler.total_num_steps == a.scheduler.total_num_steps);
  CHECK(b.scheduler.warmup_max_lr == a.scheduler.warmup_max_lr);
  CHECK(b.precision == Precision::kAuto);
  CHECK_FALSE(b.zero.reduce_bucket_size);
  CHECK(b.train.steps == 7);
  CHECK_FALSE(b.train.epochs);
  CHECK(b.init->std == 0.5);
  REQUIRE(b.data.synthetic.size() == 2);
  CHECK(b.data.synthetic[0].name == "z.z");
  CHECK(b.data.synthetic[1].like == "z.z");
  Json json = Json::parse(resolved);
  CHECK(json["zero_optimization"]["stage"] == 1);
  CHECK(json["train"]["epochs"].is_null());
  CHECK_FALSE(json["optimizer"]["params"].contains("momentum"));
}

TEST_CASE("the resolved file shows offloading as it is in effect, and loads again without remarks",
          "[config][report]") {
  auto first = load(
      "{zero_optimization: {stage: 2, cpu_offload: true, offload_param: {device: \"cpu\"},\n"
      " offload_optimizer: {delayed_update: {warmup_steps: \"4e1\"}, nvme_path: \"~/$X\"}}, graph_harvesting: true}");
  INFO(all_lines(first));
  REQUIRE(first.ok());
  const std::string resolved = resolved_json(first);
  const Json json = Json::parse(resolved), &zero = json["zero_optimization"];
  CHECK(zero["offload_optimizer"] == Json{{"device", "cpu"},
                                          {"nvme_path", {"~/$X"}},
                                          {"buffer_count", 4},
                                          {"pin_memory", false},
                                          {"pipeline_read", false},
                                          {"pipeline_write", false},
                                          {"ratio", 1.0},
                                          {"cpuadam_cores_perc", 1.0},
                                          {"delayed_update", {{"warmup_steps", 40}}}});
  CHECK(zero["offload_param"]["device"] == "none");
  CHECK_FALSE(zero.contains("cpu_offload"));
  CHECK(json["graph_harvesting"] == false);
  CHECK(json["aio"] == Json{{"block_size", 1048576}, {"queue_depth", 8}, {"intra_op_parallelism", 1}});
  auto second = load(resolved);
  INFO(all_lines(second));
  REQUIRE(second.ok());
  CHECK(resolved_json(second) == resolved);
  CHECK(num_notes(second, "offload") == 0);
  CHECK(num_notes(second, "no effect") == 0);
}

TEST_CASE("the resolved defaults load again without new remarks", "[config][report]") {
  auto first = load_file("", {}, {2});
  auto second = load(resolved_json(first), 2);
  INFO(all_lines(second));
  REQUIRE(second.ok());
  CHECK(second.notes.empty());
  CHECK(resolved_json(second) == resolved_json(first));
}
