#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("data takes one path, several, or synthetic", "[config][data_rules]") {
  CHECK(good("{data: {train: \"a.npz\"}}").data.train == std::vector<std::string>{"a.npz"});
  CHECK(good("{data: {train: [\"a\", \"b/*.npy\"], eval: \"c\"}}").data.train.size() == 2);
  CHECK(good("{data: {train: null}}").data.train.empty());
  Data data =
      good(
          "{data: {train: \"synthetic\", synthetic: {z: {shape: [2, 3]}, a: {shape: [], dtype: \"int64\", low: -2, "
          "high: 5}, b: {like: \"z\"}}}}")
          .data;
  CHECK(data.synthetic_train);
  CHECK(data.train.empty());
  REQUIRE(data.synthetic.size() == 3);
  CHECK(data.synthetic[0].name == "z");  // in the order of the file
  CHECK(data.synthetic[0].shape == std::vector<int64_t>{2, 3});
  CHECK(data.synthetic[0].dtype == "float32");
  CHECK(data.synthetic[1].shape.empty());
  CHECK(data.synthetic[1].low == -2);
  CHECK(data.synthetic[2].like == "z");
}

TEST_CASE("synthetic arrays that cannot be made are refused", "[config][data_rules]") {
  const std::string line = only_line("{data: {train: \"synthetic\"}}");
  CHECK_THAT(line, Contains("must describe at least one array"));
  const std::string example = line.substr(line.rfind("for example ") + 12);  // may be pasted as it stands
  CHECK(load("{data: {train: \"synthetic\", synthetic: " + example + "}}").ok());
  CHECK_THAT(only_line("{data: {train: [\"synthetic\", \"a\"]}}"), Contains("mixes \"synthetic\" with files"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {}}}}"), Contains("needs 'shape'"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shape: [1], dtype: \"float16\"}}}}"), Contains("must be float32,"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shape: [0]}}}}"), Contains("item 1 must be at least 1"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shape: [1], dtype: \"int64\"}}}}"), Contains("needs 'high'"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shape: [1], low: 2}}}}"), Contains("low 2 must be below high 1"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shape: [1], dtype: \"int8\", high: 1.5}}}}"),
             Contains("must be integers"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shape: [1], dtype: \"int8\", low: -129, high: 5}}}}"),
             Contains("no int8 x has -129 <= x < 5"));
  CHECK_THAT(only_line("{data: {synthetic: {abc: {shape: [1]}, d: {like: \"abd\"}}}}"),
             Contains("is not the name of an array") && Contains("did you mean 'abc'"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {like: \"a\"}}}}"), Contains("refers back to 'a'"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {stage: 1, shape: [1]}}}}"), Contains("unknown key 'stage'"));
  CHECK_THAT(only_line("{data: {synthetic: {a: {shap: [1], shape: [1]}}}}"),
             Contains("unknown key 'shap' in 'data.synthetic.a' (did you mean 'shape'?)"));
}

TEST_CASE("an end is missed where synthetic data has none", "[config][data_rules]") {
  const std::string data = "data: {train: \"synthetic\", synthetic: {a: {shape: [1]}}}";
  CHECK(has_note(load("{" + data + "}"), "never ends: a run also needs 'train.steps'"));
  CHECK_FALSE(has_note(load("{" + data + ", train: {steps: 3}}"), "never ends"));
}

TEST_CASE("one array of labels is named where one is taken", "[config][data_rules]") {
  const std::string two = "data: {labels: [\"a\", \"b\"]}";
  CHECK_THAT(only_line("{loss: \"cross_entropy\", " + two + "}"),
             Contains("'data.labels' names 2 arrays, but loss 'cross_entropy' takes one"));
  CHECK_THAT(only_line("{loss_average: \"tokens\", " + two + "}"), Contains("\"loss_average\": \"tokens\" takes one"));
  CHECK_THAT(only_line("{train: {metrics: [\"accuracy\"], eval_interval: 1}, data: {eval: \"e\", labels: []}}"),
             Contains("'data.labels' names 0 arrays, but 'train.metrics' takes one"));
  CHECK(good("{" + two + "}").data.labels.size() == 2);
}

TEST_CASE("evaluation needs files, and an interval needs an evaluation", "[config][data_rules]") {
  CHECK_THAT(only_line("{data: {eval: \"synthetic\"}}"), Contains("synthetic data is endless"));
  CHECK_THAT(only_line("{train: {eval_interval: 5}}"), Contains("nothing to evaluate on"));
  CHECK(good("{train: {eval_interval: 5}, data: {eval: \"e.npz\"}}").train.eval_interval == 5);
}

TEST_CASE("labels are counted with any loss", "[config][data_rules]") {
  CHECK(good("{loss: \"cross_entropy\", loss_average: \"tokens\"}").loss_average == LossAverage::kTokens);
  CHECK(good("{loss: \"mse\", loss_average: \"tokens\"}").loss_average == LossAverage::kTokens);
  CHECK(good("{loss: \"mse\"}").loss_average == LossAverage::kMicroBatches);
  CHECK(good("{loss_average: \"tokens\"}").loss_average == LossAverage::kTokens);
  CHECK(good("{loss: \"my/loss.pt\", loss_average: \"tokens\"}").loss_average == LossAverage::kTokens);
}

TEST_CASE("token streams need a sequence length", "[config][data_rules]") {
  CHECK_THAT(only_line("{data: {format: \"tokens\"}}"), Contains("needs 'data.seq_len'"));
  Data data = good("{data: {format: \"tokens\", dtype: \"uint8\", seq_len: 128}}").data;
  CHECK(data.dtype == "uint8");
  CHECK(data.seq_len == 128);
}

TEST_CASE("DeepSpeed's dataloader_drop_last sets ours unless ours is given", "[config][data_rules]") {
  CHECK(good("{}").data.drop_last);
  CHECK_FALSE(good("{dataloader_drop_last: false}").data.drop_last);
  CHECK(good("{dataloader_drop_last: false, data: {drop_last: true}}").data.drop_last);
}

TEST_CASE("loss is a known name or a file, and a typo is neither", "[config][data_rules]") {
  CHECK(good("{loss: \"mse\"}").loss == "mse");
  CHECK(good("{loss: \"losses/mine.pt\"}").loss == "losses/mine.pt");
  CHECK(good("{loss: null}").loss.empty());
  CHECK_THAT(only_line("{loss: \"cross_entropi\"}"), Contains("did you mean 'cross_entropy'?"));
  CHECK_THAT(only_line("{loss: \"\"}"), Contains("is empty"));
}

TEST_CASE("outputs are a name or an index, for a loss or a metric", "[config][data_rules]") {
  CHECK(good("{}").outputs.empty());
  CHECK(good("{loss: \"mse\", outputs: \"logits\"}").outputs == "logits");
  CHECK(good("{loss: \"mse\", outputs: 1}").outputs == "1");
  CHECK_FALSE(has_note(load("{train: {metrics: [\"accuracy\"]}, outputs: 1}"), "has no effect"));
  CHECK(has_note(load("{outputs: 1}"), "'outputs' has no effect"));
  CHECK_THAT(only_line("{loss: \"mse\", outputs: \"\"}"), Contains("'outputs' is empty"));
  CHECK_THAT(only_line("{loss: \"mse\", outputs: -1}"), Contains("'outputs' must be a name or an index, not -1"));
}

TEST_CASE("train, units and init reach the typed config", "[config][data_rules]") {
  JobConfig c =
      good("{train: {steps: 5, seed: 7}, units: [\"Block\", \"head\"], init: {std: 0.1}, deterministic: true}");
  CHECK(c.train.steps == 5);
  CHECK_FALSE(c.train.epochs);
  CHECK(c.train.seed == 7);
  CHECK(c.units == std::vector<std::string>{"Block", "head"});
  REQUIRE(c.init);
  CHECK(c.init->std == 0.1);
  CHECK(c.init->seed == 0);
  CHECK(c.deterministic);
  JobConfig d = good("{units: \"auto\", init: null, train: {epochs: 3, steps: null}}");
  CHECK(d.units.empty());
  CHECK_FALSE(d.init);
  CHECK(d.train.epochs == 3);
  CHECK(good("{init: {}}").init);
  CHECK(good("{units: \"Block\"}").units == std::vector<std::string>{"Block"});
  CHECK_THAT(only_line("{units: []}"), Contains("empty list"));
}

TEST_CASE("checkpoint holds our keys and DeepSpeed's side by side", "[config][data_rules]") {
  Checkpoint c = good(
                     "{checkpoint: {dir: \"d\", interval: 10, keep_last: 3, at_end: false, async: false, "
                     "tag_validation: \"warn\", use_node_local_storage: true}}")
                     .checkpoint;
  CHECK(c.dir == "d");
  CHECK(c.interval == 10);
  CHECK(c.keep_last == 3);
  CHECK_FALSE(c.at_end);
  CHECK_FALSE(c.async);
  CHECK(c.on_interrupt);
  CHECK(c.use_node_local_storage);
}

TEST_CASE("what is loaded of a checkpoint can be said in DeepSpeed's words", "[config][data_rules]") {
  const CheckpointLoad whole = good("{}").checkpoint.load;
  CHECK(whole.optimizer_states);
  CHECK_FALSE(whole.weights_only);
  CHECK(whole.strict);
  const CheckpointLoad ours =
      good("{checkpoint: {load: {optimizer_states: false, weights_only: true, strict: false}}}").checkpoint.load;
  const CheckpointLoad theirs =
      good("{checkpoint: {load: {load_optimizer_states: false, load_module_only: true, load_module_strict: false}}}")
          .checkpoint.load;
  for (const auto& load : {ours, theirs}) {
    CHECK_FALSE(load.optimizer_states);
    CHECK(load.weights_only);
    CHECK_FALSE(load.strict);
  }
  CHECK_THAT(only_line("{checkpoint: {load: {weight_only: true}}}"), Contains("weights_only"));
  CHECK(
      good("{zero_optimization: {stage3_gather_fp16_weights_on_model_save: true}}").zero.gather_16bit_weights_on_save);
}

TEST_CASE("pictures are described by channel, parts by height and width", "[config][data_rules]") {
  const Data data = good(
                        "{data: {normalize: {mean: [0.5, 0.4], std: [0.2, 1]}, random_crop: {size: [8, 9], padding: "
                        "2}, random_flip: true}}")
                        .data;
  CHECK(data.normalize->std == std::vector<double>{0.2, 1});
  CHECK(data.random_crop->size == std::vector<int64_t>{8, 9});
  CHECK(data.random_flip);
  CHECK_FALSE(good("{}").data.normalize);
  CHECK(good("{data: {random_crop: {padding: 4}}}").data.random_crop->size.empty());
  for (const char* keys : {"{}", "{mean: [0.5]}", "{mean: [], std: []}", "{mean: [0.5], std: [0.2, 0.2]}"}) {
    CHECK_THAT(only_line(std::string("{data: {normalize: ") + keys + "}}"),
               Contains("needs 'mean' and 'std' with one number for each channel"));
  }
  CHECK_THAT(only_line("{data: {normalize: {mean: [0.5], std: [0]}}}"), Contains("'data.normalize.std'"));
  CHECK_THAT(only_line("{data: {random_crop: {size: [8]}}}"), Contains("must be [height, width], not 1 numbers"));
  CHECK_THAT(only_line("{data: {random_crop: {padding: -1}}}"), Contains("'data.random_crop.padding'"));
}
