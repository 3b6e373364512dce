// The section "tensor_parallel": its names, how it says that products are split, and what it excludes.
#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch;
using namespace dslaunch::config;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

TensorParallel section_of(const std::string& text, int world = 12, const std::vector<Override>& overrides = {}) {
  const auto result = load(text, world, overrides);
  INFO(text << "\n" << all_lines(result));
  REQUIRE(result.ok());
  return result.config.tensor_parallel;
}

std::vector<TensorSplitRule> rules_of(const std::string& text) {
  auto rules = section_of(text).rules;
  for (auto& rule : rules) rule.key.clear();
  return rules;
}

}  // namespace

TEST_CASE("the section tensor_parallel has one rank and a probe of distinct units by default",
          "[config][tensor_parallel]") {
  const TensorParallel section = section_of("{}");
  CHECK(section.size == 1);
  CHECK_FALSE(section.sequence_parallel);
  CHECK_FALSE(section.overlap);
  CHECK(section.probe == TensorProbe::kDistinct);
  CHECK(section.rules.empty());
  const TensorParallel given =
      section_of("{tensor_parallel: {size: 3, sequence_parallel: false, overlap: false, probe: false}}");
  CHECK(given.size == 3);
  CHECK(given.overlap == false);
  CHECK(given.probe == TensorProbe::kOff);
  CHECK(section_of("{tensor_parallel: {probe: \"all\"}}").probe == TensorProbe::kAll);
  CHECK(section_of("{tensor_parallel: {probe: \"auto\"}}").probe == TensorProbe::kDistinct);
}

TEST_CASE("DeepSpeed's names of the size are the size", "[config][tensor_parallel]") {
  for (const char* text :
       {"{tensor_parallel: {autotp_size: 2}}", "{tensor_parallel: {tp_size: 2}}", "{tp: {tp_size: 2}}", "{mp_size: 2}",
        "{tensor_parallel: {tp: {tp_size: 2}}}", "{tensor_parallel: {partition_config: {tp_size: 2}}}",
        "{mp_size: 2, tensor_parallel: {autotp_size: 2, tp: {tp_size: 2}}}"}) {
    INFO(text);
    CHECK(section_of(text).size == 2);
    CHECK(load(text, 12).data_ranks == 6);
  }
  CHECK(section_of("{tensor_parallel: {autotp_size: 0}}").size == 1);
  CHECK(section_of("{tensor_parallel: {enabled: false, tp_size: 4}}").size == 1);
  CHECK(section_of("{tensor_parallel: {tp_overlap_comm: true}}").overlap == true);
}

TEST_CASE("two sizes of the tensor groups contradict each other, unless one is an option",
          "[config][tensor_parallel]") {
  const std::string text = "{tensor_parallel: {autotp_size: 2, tp: {tp_size: 4}}}";
  CHECK(only_line(text, 8) ==
        "ds.json:1:41: 'tensor_parallel.autotp_size' is 2 and 'tensor_parallel.tp.tp_size' is 4, but both are the size "
        "of the tensor groups; give one of them");
  CHECK_THAT(only_line("{mp_size: 2, tensor_parallel: {size: 1}}", 8), Contains("'mp_size' is 2"));
  CHECK(section_of(text, 12, {{"tensor_parallel.size", "3", "--tp"}}).size == 3);
  CHECK(section_of("{tensor_parallel: {size: 2}}", 12, {{"tensor_parallel.tp_size", "1"}}).size == 1);
}

TEST_CASE("a policy names the products that the graph shall not decide about", "[config][tensor_parallel]") {
  using Rules = std::vector<TensorSplitRule>;
  CHECK(rules_of("{tensor_parallel: {size: 2, policy: {\"attn.c_attn\": {split: \"column\", parts: [4, 1, 1]}, "
                 "\"mlp.c_proj\": \"row\", lm_head: \"whole\"}}}") ==
        Rules{{.module = "attn.c_attn", .split = TensorSplit::kColumn, .parts = {4, 1, 1}},
              {.module = "mlp.c_proj", .split = TensorSplit::kRow},
              {.module = "lm_head", .split = TensorSplit::kWhole}});
  const Rules of_t5{{.block_class = "T5Block", .module = "SelfAttention.o", .split = TensorSplit::kRow},
                    {.block_class = "T5Block", .module = "DenseReluDense.wo", .split = TensorSplit::kRow}};
  CHECK(rules_of("{mp_size: 2, injection_policy: {T5Block: [\"SelfAttention.o\", \"DenseReluDense.wo\"]}}") == of_t5);
  CHECK(rules_of("{mp_size: 2, injection_dict: {\"a.b.T5Block\": [\"SelfAttention.o\", \"DenseReluDense.wo\"]}}") ==
        of_t5);
  CHECK(rules_of("{mp_size: 2, injection_policy_tuple: \"wo\"}") ==
        Rules{{.module = "wo", .split = TensorSplit::kRow}});
}

TEST_CASE("DeepSpeed's partition_config becomes the same rules", "[config][tensor_parallel]") {
  const auto section = section_of(
      "{tensor_parallel: {size: 2, partition_config: {use_default_specs: false, strict_mode: true, layer_specs: ["
      "{patterns: [\".*\\\\.qkv\\\\.weight$\", \"x\"], shape: [3, -1]}, "
      "{patterns: \".*o_proj\", partition_type: \"row\"}, "
      "{patterns: \".*kv\", shape: [[8, 2, 2], -1], partition_dim: 0}, "
      "{patterns: \".*gate\", partition_type: \"skip\"}]}}}");
  REQUIRE(section.rules.size() == 6);
  CHECK(section.rules[0].parameter_pattern == ".*\\.qkv\\.weight$");
  CHECK(section.rules[0].parts == std::vector<int64_t>{1, 1, 1});
  CHECK(section.rules[1].parameter_pattern == "x");
  CHECK(section.rules[2].split == TensorSplit::kRow);
  CHECK(section.rules[3].parts == std::vector<int64_t>{8, 2, 2});
  CHECK(section.rules[4].split == TensorSplit::kWhole);
  CHECK(section.rules[5].split == TensorSplit::kWhole);  // all others, without default specs
  CHECK(section.rules[5].parameter_pattern.empty());
  CHECK(section.needs_rules);
  CHECK(section.rules[4].key == "tensor_parallel.partition_config.layer_specs[3]");
}

TEST_CASE("a split that is none is refused with the entry's name", "[config][tensor_parallel]") {
  const auto of_policy = [](const std::string& value) {
    return only_line("{tensor_parallel: {policy: {wo: " + value + "}}}");
  };
  CHECK_THAT(of_policy("\"rows\""), EndsWith("'wo' of 'tensor_parallel.policy' must be column, row or whole, not the "
                                             "text \"rows\" (did you mean 'row'?)"));
  CHECK_THAT(of_policy("3"), Contains("must be column, row or whole, not 3"));
  CHECK_THAT(of_policy("{parts: [1, 1]}"), Contains("needs 'split'"));
  CHECK_THAT(of_policy("{split: \"row\", parts: [1]}"), Contains("'parts' must be a list with the sizes of two"));
  CHECK_THAT(of_policy("{split: \"row\", part: [1, 2]}"), Contains("unknown key 'part' (did you mean 'parts'?)"));
  const auto of_spec = [](const std::string& members) {
    return only_line("{tensor_parallel: {partition_config: {layer_specs: [{" + members + "}]}}}");
  };
  CHECK_THAT(of_spec("patterns: [\"(\"]"),
             Contains("entry 1 of 'tensor_parallel.partition_config.layer_specs' '(' is not a regular expression"));
  CHECK_THAT(of_spec("partition_type: \"columns\""), Contains("'partition_type' must be column, row or skip"));
  CHECK_THAT(of_spec("partition_dim: 1"), Contains("'partition_dim' is 1"));
  CHECK_THAT(of_spec("shape: [3]"), Contains("'shape' must be a list of two or more"));
  CHECK_THAT(of_spec("shape: [0, -1]"), Contains("'shape' has 0; sizes are positive or -1"));
  CHECK_THAT(of_spec("shape: [-1, [1, 2]]"), Contains("'shape' has a list at dim 1, and the split dim is 0"));
  CHECK_THAT(of_spec("model_types: [\"llama\"]"), Contains("without model_types"));
  CHECK_THAT(only_line("{tensor_parallel: {partition_config: {layer_specs: 3}}}"), Contains("a list of objects"));
  CHECK_THAT(only_line("{tensor_parallel: {probe: \"some\"}}"), Contains("must be distinct, all or false"));
}

TEST_CASE("a world that tensor groups do not divide contradicts the config", "[config][tensor_parallel]") {
  CHECK(only_line("{tensor_parallel: {size: 4}}", 2) ==
        "ds.json:1:20: cannot divide the job into models: 2 ranks: one model takes 4 ranks (1 pipeline stage x 4 "
        "tensor-parallel ranks); start a multiple of 4 ranks, as 4, or set tensor_parallel.size (--tp) to 2");
  const std::string both = "{pipeline: {stages: 2}, tensor_parallel: {size: 2}}";
  CHECK_THAT(only_line(both, 6), EndsWith("start a multiple of 4 ranks, as 4 or 8, or set pipeline.stages (--stages) "
                                          "to 1 or 3, or set tensor_parallel.size (--tp) to 1 or 3"));
  const auto result = load("{train_batch_size: 8, pipeline: {stages: 2}, tensor_parallel: {size: 2}}", 8);
  REQUIRE(result.ok());
  CHECK(result.data_ranks == 2);
  CHECK_THAT(result.batch_explanation, Contains("× 2 data ranks"));
  CHECK(has_note(load("{tp: {tp_size: 2}}", 0), "one tensor group of 2 is assumed"));
  CHECK(has_note(load(both, 0), "one pipeline of 2 stages x 2 tensor ranks is assumed"));
}

TEST_CASE("what does not work on parts of layers is refused with more than one tensor rank",
          "[config][tensor_parallel]") {
  const std::string muon = "optimizer: {type: \"Muon\"}";
  CHECK(load("{" + muon + ", tensor_parallel: {size: 1}}", 2).ok());
  CHECK_THAT(only_line("{" + muon + ", tensor_parallel: {size: 2}}", 2),
             Contains("'optimizer.type' Muon does not go with 2 tensor ranks: its step needs whole matrices"));
}

TEST_CASE("sequence parallelism leaves partition_activations nothing to split", "[config][tensor_parallel]") {
  CHECK(section_of("{tensor_parallel: {size: 2, sequence_parallel: true}}").sequence_parallel);
  CHECK(has_note(load("{tensor_parallel: {size: 2, sequence_parallel: true}, "
                      "activation_checkpointing: {partition_activations: true}}",
                      2),
                 "tensor_parallel.sequence_parallel has split what blocks pass on already"));
  CHECK(has_note(load("{tensor_parallel: {sequence_parallel: true}}"),
                 "'tensor_parallel.sequence_parallel' has no effect with one tensor rank"));
}

TEST_CASE("what is for several tensor ranks has a line where there is one", "[config][tensor_parallel]") {
  CHECK(has_note(load("{tensor_parallel: {overlap: true}}"),
                 "'tensor_parallel.overlap' has no effect with one tensor rank; set 'tensor_parallel.size' or --tp T"));
  CHECK(has_note(load("{injection_policy: {B: \"o\"}}"), "'injection_policy' has no effect with one tensor rank"));
  CHECK(num_notes(load("{tensor_parallel: {size: 1, overlap: true}}"), "no effect") == 0);
  CHECK(has_note(load("{activation_checkpointing: {partition_activations: true}}"), "tensor_parallel.size is 1"));
  CHECK(num_notes(load("{mp_size: 2, activation_checkpointing: {partition_activations: true}}", 2), "effect") == 0);
}

TEST_CASE("DeepSpeed's other keys of tensor parallelism are answered with the reason", "[config][tensor_parallel]") {
  const auto result = load(
      "{tensor_parallel: {dtype: \"bf16\", preset_model: \"llama\", tp: {tp_grain_size: 64}, keep_module_on_host: "
      "true}, training_mp_size: 4}");
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(has_note(result, "'tensor_parallel.dtype' has no counterpart here: bf16.enabled and fp16.enabled"));
  CHECK(has_note(result, "'tensor_parallel.preset_model' has no counterpart here: the split follows from the model's"));
  CHECK(has_note(result, "'tensor_parallel.tp.tp_grain_size' has no counterpart here: heads are kept whole"));
  CHECK(has_note(result, "'training_mp_size' has no counterpart here: every checkpoint loads at every number"));
}
