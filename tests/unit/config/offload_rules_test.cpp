// Keys of offload_optimizer, offload_param and aio: what they set, which combinations are refused and which are noted.
#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

// A job file with this zero_optimization and other keys.
std::string job(const std::string& zero, const std::string& others = "") {
  return "{zero_optimization: {" + zero + "}" + (others.empty() ? "" : ", " + others) + "}";
}

const std::string kHost = "offload_optimizer: {device: \"cpu\"}";

}  // namespace

TEST_CASE("offloading is off by default, with DeepSpeed's values", "[config][offload]") {
  const JobConfig config = good("{}");
  const OffloadOptimizer& optimizer = config.zero.offload_optimizer;
  CHECK(optimizer.device == OffloadDevice::kNone);
  CHECK(optimizer.nvme_path.empty());
  CHECK(optimizer.buffer_count == 4);
  CHECK_FALSE(optimizer.pin_memory);
  CHECK_FALSE(optimizer.pipeline_read);
  CHECK_FALSE(optimizer.pipeline_write);
  CHECK(optimizer.ratio == 1.0);
  CHECK(optimizer.cores_share == 1.0);  // DeepSpeed: 0.8
  CHECK_FALSE(optimizer.delayed_update);
  CHECK(optimizer.delayed_after_steps == 0);
  const OffloadParam& param = config.zero.offload_param;
  CHECK(param.device == OffloadDevice::kNone);
  CHECK(param.nvme_path.empty());
  CHECK(param.buffer_count == 5);
  CHECK(param.buffer_size == 100'000'000);
  CHECK(param.max_in_cpu == 1'000'000'000);
  CHECK_FALSE(param.pin_memory);
  CHECK(config.zero.sub_group_size == 1'000'000'000);
  CHECK(config.aio.block_size == 1048576);
  CHECK(config.aio.queue_depth == 8);
  CHECK(config.aio.num_threads == 1);
}

TEST_CASE("every key of the sections is read", "[config][offload]") {
  const JobConfig config =
      good(job("stage: 3, sub_group_size: 1e8, "
               "offload_optimizer: {device: \"nvme\", nvme_path: \"/a\", buffer_count: 6, pin_memory: true, "
               "pipeline_read: true, pipeline_write: true, fast_init: true, ratio: 0.25, cpuadam_cores_perc: 0.5, "
               "delayed_update: true}, "
               "offload_param: {device: \"nvme\", nvme_path: [\"/b\", \"$C\"], buffer_count: 7, buffer_size: 2e8, "
               "max_in_cpu: 0, pin_memory: true}",
               "aio: {block_size: 262144, queue_depth: 32, thread_count: 3, single_submit: true, "
               "overlap_events: false}"));
  const OffloadOptimizer& optimizer = config.zero.offload_optimizer;
  CHECK(optimizer.device == OffloadDevice::kFile);
  CHECK(optimizer.nvme_path == std::vector<std::string>{"/a"});
  CHECK(optimizer.buffer_count == 6);
  CHECK(optimizer.pin_memory);
  CHECK(optimizer.pipeline_read);
  CHECK(optimizer.pipeline_write);
  CHECK(optimizer.ratio == 0.25);
  CHECK(optimizer.cores_share == 0.5);
  CHECK(optimizer.delayed_update);
  CHECK(optimizer.delayed_after_steps == 0);
  const OffloadParam& param = config.zero.offload_param;
  CHECK(param.device == OffloadDevice::kFile);
  CHECK(param.nvme_path == std::vector<std::string>{"/b", "$C"});
  CHECK(param.buffer_count == 7);
  CHECK(param.buffer_size == 200'000'000);
  CHECK(param.max_in_cpu == 0);
  CHECK(param.pin_memory);
  CHECK(config.zero.sub_group_size == 100'000'000);
  CHECK(config.aio.block_size == 262144);
  CHECK(config.aio.queue_depth == 32);
  CHECK(config.aio.num_threads == 3);
}

TEST_CASE("each device is accepted at each stage that has it", "[config][offload]") {
  struct Case {
    const char* zero;
    OffloadDevice optimizer, param;
  };
  using enum OffloadDevice;
  auto c = GENERATE(values<Case>({
      {"stage: 1, offload_optimizer: {device: \"cpu\"}", kHost, kNone},
      {"stage: 2, offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}", kFile, kNone},
      {"stage: 3, offload_optimizer: {device: \"cpu\"}", kHost, kNone},
      {"stage: 3, offload_param: {device: \"cpu\"}", kNone, kHost},
      {"stage: 3, offload_param: {device: \"nvme\", nvme_path: \"/a\"}", kNone, kFile},
      {"stage: 3, offload_optimizer: {device: \"cpu\"}, offload_param: {device: \"nvme\", nvme_path: \"/a\"}", kHost,
       kFile},
      {"stage: 2, offload_optimizer: {device: \"none\", pin_memory: true}", kNone, kNone},
      {"stage: 2, offload_optimizer: null, offload_param: null", kNone, kNone},
      {"stage: 2, offload_optimizer: {device: \"auto\", nvme_path: \"auto\", ratio: \"auto\"}", kNone, kNone},
      {"stage: 0, offload_optimizer: {device: \"none\"}", kNone, kNone},
  }));
  auto result = load(job(c.zero));
  INFO(c.zero << "\n" << all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.zero.offload_optimizer.device == c.optimizer);
  CHECK(result.config.zero.offload_param.device == c.param);
  CHECK(num_notes(result, "offload") == 0);
}

TEST_CASE("the deprecated switches mean the device cpu, and say what to write", "[config][offload]") {
  auto result = load(job("stage: 3, cpu_offload: true, cpu_offload_param: true, cpu_offload_use_pin_memory: true"));
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.zero.offload_optimizer.device == OffloadDevice::kHost);
  CHECK(result.config.zero.offload_param.device == OffloadDevice::kHost);
  CHECK_FALSE(result.config.zero.offload_optimizer.pin_memory);
  CHECK(has_note(result,
                 "'zero_optimization.cpu_offload' is deprecated: write "
                 "'zero_optimization.offload_optimizer.device'"));
  CHECK(has_note(result,
                 "'zero_optimization.cpu_offload_param' is deprecated: write "
                 "'zero_optimization.offload_param.device'"));
  CHECK(has_note(result, "'zero_optimization.cpu_offload_use_pin_memory' has no counterpart here: deprecated"));
  CHECK(good(job("stage: 2, cpu_offload: false")).zero.offload_optimizer.device == OffloadDevice::kNone);
  CHECK(good(job("stage: 2, cpu_offload: true, offload_optimizer: {pin_memory: true}")).zero.offload_optimizer.device ==
        OffloadDevice::kHost);
}

TEST_CASE("an update may be delayed, from the start or after some steps", "[config][offload]") {
  struct Case {
    const char* text;
    bool delayed;
    int64_t after;
  };
  auto c = GENERATE(values<Case>({{"false", false, 0},
                                  {"true", true, 0},
                                  {"null", false, 0},
                                  {"\"auto\"", false, 0},
                                  {"{}", true, 0},
                                  {"{warmup_steps: 40}", true, 40},
                                  {"{warmup_steps: 0}", true, 0},
                                  {"{warmup_steps: \"4e1\"}", true, 40}}));
  INFO(c.text);
  const auto optimizer =
      good(job("stage: 2, offload_optimizer: {device: \"cpu\", delayed_update: " + std::string(c.text) + "}"))
          .zero.offload_optimizer;
  CHECK(optimizer.delayed_update == c.delayed);
  CHECK(optimizer.delayed_after_steps == c.after);
}

TEST_CASE("a delay that is none is an error", "[config][offload]") {
  struct Case {
    const char *text, *message;
    Issue::Kind kind;
  };
  const std::string key = "zero_optimization.offload_optimizer.delayed_update";
  auto c = GENERATE_COPY(values<Case>({
      {"1", "' must be true, false or {\"warmup_steps\": N}, not 1", Issue::Kind::kType},
      {"\"yes\"", "' must be true, false or {\"warmup_steps\": N}, not the text \"yes\"", Issue::Kind::kType},
      {"[40]", "' must be true, false or {\"warmup_steps\": N}, not a list", Issue::Kind::kType},
      {"{warmup_steps: -1}", ".warmup_steps' must be at least 0, not -1", Issue::Kind::kRange},
      {"{warmup_steps: 1.5}", ".warmup_steps' must be an integer, not 1.5", Issue::Kind::kType},
      {"{warmup_steps: null}", ".warmup_steps' must not be null; leave it out for the default, 0", Issue::Kind::kType},
      {"{warmup_step: 4}", "' (did you mean 'warmup_steps'?)", Issue::Kind::kUnknownKey},
  }));
  auto result = load(job("stage: 2, offload_optimizer: {delayed_update: " + std::string(c.text) + "}"));
  INFO(c.text << "\n" << all_lines(result));
  REQUIRE(result.issues.size() == 1);
  CHECK(result.issues[0].kind == c.kind);
  CHECK(result.issues[0].key == key);
  CHECK(result.issues[0].position.line == 1);
  CHECK_THAT(result.issues[0].message, Contains(key + c.message));
}

TEST_CASE("what cannot be offloaded is refused with key, reason and what to do", "[config][offload]") {
  struct Case {
    std::string text;
    const char *key, *message;
  };
  const std::string optimizer = "zero_optimization.offload_optimizer";
  auto c = GENERATE_COPY(values<Case>({
      {job("offload_optimizer: {device: \"cpu\"}"), "zero_optimization.offload_optimizer.device",
       "'zero_optimization.offload_optimizer.device' cpu needs ZeRO stage 1, 2 or 3, but zero_optimization.stage is 0; "
       "set it to 1, also for one rank, or leave offload_optimizer out"},
      {job("stage: 0, cpu_offload: true"), "zero_optimization.offload_optimizer.device",
       "'zero_optimization.cpu_offload' cpu needs ZeRO stage 1, 2 or 3"},
      {job("stage: 9, offload_optimizer: {device: \"cpu\"}"), "zero_optimization.stage", "must be 0 to 3, not 9"},
      {job("stage: 2, offload_optimizer: {device: \"cpu\", ratio: 0.3}"), "zero_optimization.offload_optimizer.ratio",
       "'zero_optimization.offload_optimizer.ratio' 0.3 needs ZeRO stage 3, but zero_optimization.stage is 2: only "
       "there is state offloaded unit by unit; set the stage to 3, or the ratio to 1"},
      {job("stage: 3, offload_optimizer: {device: \"nvme\"}"), "zero_optimization.offload_optimizer.device",
       "'zero_optimization.offload_optimizer.device' nvme needs 'zero_optimization.offload_optimizer.nvme_path': a "
       "directory on a disk of each node, for example \"/local_nvme\", or a list of directories"},
      {job("stage: 3, offload_param: {device: \"nvme\", nvme_path: []}"), "zero_optimization.offload_param.device",
       "'zero_optimization.offload_param.device' nvme needs 'zero_optimization.offload_param.nvme_path'"},
      {job("stage: 3, offload_param: {device: \"nvme\", nvme_path: [\"/a\", \"\"]}"),
       "zero_optimization.offload_param.nvme_path", "'zero_optimization.offload_param.nvme_path' has an empty name"},
      {job("stage: 3, offload_param: {device: \"nvme\", nvme_path: [5]}"), "zero_optimization.offload_param.nvme_path",
       "item 1 must be a text, not 5"},
      {job("stage: 2, " + kHost, "optimizer: {type: \"Lamb\"}"), "optimizer.type",
       "'optimizer.type' Lamb cannot be offloaded: its step needs the norm of each whole parameter, whose parts are on "
       "other ranks; choose an element-wise optimizer, for example AdamW, SGD or Lion, or leave "
       "zero_optimization.offload_optimizer out"},
      {job("stage: 2, " + kHost, "optimizer: {type: \"muon\"}"), "optimizer.type",
       "'optimizer.type' Muon cannot be offloaded: its step needs whole matrices, whose parts are on other ranks"},
      {job("stage: 1, " + kHost, "amp: {enabled: true, opt_level: \"O3\"}"), "amp.opt_level",
       "'amp.opt_level' O3: without fp32 master weights the optimizer cannot be offloaded; set amp.master_weights to "
       "true, or leave zero_optimization.offload_optimizer out"},
      {job("stage: 1, " + kHost, "amp: {enabled: true, opt_level: \"O2\", master_weights: false}"),
       "amp.master_weights", "'amp.master_weights' false: without fp32 master weights"},
      {job("stage: 2, offload_optimizer: {super_offload: true}"), "zero_optimization.offload_optimizer.super_offload",
       "not supported yet: 'zero_optimization.offload_optimizer.super_offload' = true (SuperOffload "},
      {job("stage: 2, zenflow: {}"), "zero_optimization.zenflow",
       "not supported yet: 'zero_optimization.zenflow' (ZenFlow "},
      {job("stage: 2, " + kHost, "fp16: {enabled: true, fp16_master_weights_and_grads: true}"),
       "fp16.fp16_master_weights_and_grads",
       "not supported yet: 'fp16.fp16_master_weights_and_grads' = true (masters and gradients in fp16: "},
      {"{aio: {use_gds: true}}", "aio.use_gds", "not supported yet: 'aio.use_gds' = true (GPUDirect Storage "},
      {job("stage: 2, offload_optimizer: {device: \"gpu\"}"), "zero_optimization.offload_optimizer.device",
       "'zero_optimization.offload_optimizer.device' must be none, cpu or nvme, not the text \"gpu\""},
      {job("stage: 3, offload_optimizer: {ratio: 1.5}"), "zero_optimization.offload_optimizer.ratio",
       "must be 0 to 1, not 1.5"},
      {job("stage: 3, offload_optimizer: {cpuadam_cores_perc: 2}"),
       "zero_optimization.offload_optimizer.cpuadam_cores_perc", "must be 0 to 1, not 2"},
      {job("stage: 3, offload_optimizer: {buffer_count: 0}"), "zero_optimization.offload_optimizer.buffer_count",
       "must be 1 to 1024, not 0"},
      {job("stage: 3, sub_group_size: -1"), "zero_optimization.sub_group_size", "must be at least 0, not -1"},
      {"{aio: {queue_depth: 0}}", "aio.queue_depth", "must be 1 to 4096, not 0"},
      {job("stage: 2, offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}", "aio: {block_size: 10000}"),
       "aio.block_size",
       "must be a multiple of 4096, which reads and writes past the page cache need, not 10000; set it to 12288"},
      {"{aio: {thread_count: 0}}", "aio.intra_op_parallelism", "must be 1 to 1024, not 0"},
      {job("stage: 3, offload_optimizer: {pin_memry: true}"), "zero_optimization.offload_optimizer.pin_memry",
       "(did you mean 'pin_memory'?)"},
  }));
  auto result = load(c.text);
  INFO(c.text << "\n" << all_lines(result));
  REQUIRE(result.issues.size() == 1);
  CHECK(result.issues[0].key == c.key);
  CHECK(result.issues[0].position.line == 1);
  CHECK_THAT(result.issues[0].message, Contains(c.message));
  const bool has_device = c.text.find("device:") != c.text.npos;
  if (has_device) CHECK(num_notes(result, "'device' is not given") == 0);
}

TEST_CASE("optimizers and precisions that can be offloaded are", "[config][offload]") {
  for (const char* type : {"AdamW", "Adam", "SGD", "Lion", "Adagrad"}) {
    INFO(type);
    CHECK(load(job("stage: 2, " + kHost, "optimizer: {type: \"" + std::string(type) + "\"}")).ok());
  }
  for (const char* precision :
       {"bf16: {enabled: true}", "fp16: {enabled: true}", "fp16: {enabled: \"auto\"}",
        "torch_autocast: {enabled: true}", "amp: {enabled: true, opt_level: \"O1\", master_weights: false}",
        "amp: {enabled: true, opt_level: \"O2\"}", "amp: {enabled: true, opt_level: \"O3\", master_weights: true}",
        "amp: {enabled: false, opt_level: \"O3\"}"}) {
    INFO(precision);
    CHECK(load(job("stage: 2, " + kHost, precision)).ok());
  }
  CHECK(load(job("stage: 2", "optimizer: {type: \"Lamb\"}")).ok());
  CHECK(load(job("stage: 3, offload_param: {device: \"cpu\"}", "optimizer: {type: \"Lamb\"}")).ok());
  CHECK(load(job("stage: 3, offload_optimizer: {device: \"cpu\", ratio: 0}")).ok());
}

TEST_CASE("what has no effect with offloading, or without it, has one line", "[config][offload]") {
  struct Case {
    std::string text;
    const char* note;
  };
  auto c = GENERATE_COPY(values<Case>({
      {job("stage: 2, offload_param: {device: \"cpu\"}"),
       "ds.json:1:48: 'zero_optimization.offload_param.device' cpu has no effect at ZeRO stage 2: parameters stay on "
       "the GPU there; set zero_optimization.stage to 3 to offload them"},
      {job("stage: 0, offload_param: {device: \"nvme\"}"), "nvme has no effect at ZeRO stage 0: parameters stay"},
      {job("stage: 1, cpu_offload_param: true"),
       "'zero_optimization.cpu_offload_param' cpu has no effect at ZeRO stage 1"},
      {job("stage: 2, " + kHost, "graph_harvesting: true"),
       "'graph_harvesting' has no effect with offloading: such steps are not captured as a CUDA graph"},
      {job("stage: 3, offload_param: {device: \"cpu\"}", "graph_harvesting: true"),
       "'graph_harvesting' has no effect with offloading"},
      {job("stage: 2, offload_optimizer: {}"),
       "'zero_optimization.offload_optimizer' has no effect: its 'device' is not given, and none is the default; set "
       "it to \"cpu\" or \"nvme\""},
      {job("stage: 3, offload_param: {pin_memory: true}"),
       "'zero_optimization.offload_param' has no effect: its 'device' is not given"},
      {job("stage: 3, " + kHost, "aio: {queue_depth: 32}"), "'aio' has no effect: nothing is kept in files"},
      {job("stage: 3, sub_group_size: 1e8"),
       "'zero_optimization.sub_group_size' has no effect without offload_optimizer"},
  }));
  auto result = load(c.text);
  INFO(c.text << "\n" << all_lines(result));
  REQUIRE(result.ok());
  CHECK(has_note(result, c.note));
  CHECK(num_notes(result, "has no effect") == 1);
  CHECK(result.config.graph_harvesting != true);
}

TEST_CASE("what has an effect has no such line", "[config][offload]") {
  for (const auto& text : {
           job("stage: 3, sub_group_size: 1e8, offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}",
               "aio: {queue_depth: 32, block_size: 8192, thread_count: 2}"),
           job("stage: 3, offload_optimizer: {device: \"nvme\", nvme_path: \"/a\", pipeline_read: true, "
               "pipeline_write: true, buffer_count: 5}"),
           job("stage: 3, offload_param: {device: \"nvme\", nvme_path: \"/a\", buffer_count: 6, buffer_size: 2e8, "
               "max_in_cpu: 5}",
               "aio: {queue_depth: 32}"),
           job("stage: 3, sub_group_size: 1e9", "aio: {queue_depth: 8}"),
           job("stage: 2, offload_optimizer: {device: \"none\", pin_memory: true, ratio: 0.5}"),
           job("stage: 2", "graph_harvesting: true"),
           job("stage: 2, offload_param: {device: \"none\"}"),
       }) {
    auto result = load(text);
    INFO(text << "\n" << all_lines(result));
    REQUIRE(result.ok());
    CHECK(num_notes(result, "no effect") == 0);
  }
  CHECK(good(job("stage: 2", "graph_harvesting: true")).graph_harvesting == true);
}

TEST_CASE("graph_harvesting is measured by default, and off with offloading without a word", "[config][offload]") {
  CHECK_FALSE(good("{}").graph_harvesting.has_value());
  CHECK_FALSE(good("{graph_harvesting: \"auto\"}").graph_harvesting.has_value());
  CHECK(good("{graph_harvesting: false}").graph_harvesting == false);
  CHECK(good("{graph_harvesting: true}").graph_harvesting == true);
  CHECK_FALSE(load("{graph_harvesting: \"sometimes\"}").ok());
  auto offloaded = load(job("stage: 2, " + kHost, "graph_harvesting: \"auto\""));
  REQUIRE(offloaded.ok());
  CHECK(offloaded.config.graph_harvesting == false);
  CHECK(num_notes(offloaded, "graph_harvesting") == 0);
}

TEST_CASE("thread_count is the published name of intra_op_parallelism, which wins", "[config][offload]") {
  for (const char* text :
       {"{aio: {thread_count: 2, intra_op_parallelism: 5}}", "{aio: {intra_op_parallelism: 5, thread_count: 2}}"}) {
    auto result = load(text);
    INFO(all_lines(result));
    REQUIRE(result.ok());
    CHECK(result.config.aio.num_threads == 5);
    CHECK(has_note(result, "'aio.thread_count' is not used, since 'aio.intra_op_parallelism' is given as well"));
  }
  CHECK(good("{zero_optimization: {aio: {thread_count: 2}}}").aio.num_threads == 2);
}

TEST_CASE("keys about a training script's optimizer are accepted either way", "[config][offload]") {
  for (const char* value : {"true", "false"}) {
    auto result = load(job("stage: 2, " + kHost, "zero_force_ds_cpu_optimizer: " + std::string(value)));
    REQUIRE(result.ok());
    CHECK(has_note(result, "'zero_force_ds_cpu_optimizer' has no counterpart here: "));
  }
}
