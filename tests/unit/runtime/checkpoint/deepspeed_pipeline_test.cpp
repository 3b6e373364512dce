// DeepSpeed's checkpoints of pipelines: those that DeepSpeed itself made (tests/data), and small ones made here.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "imported_values.hpp"
#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/deepspeed/layer_match.hpp"
#include "runtime/checkpoint/deepspeed/model_fit.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "support/checkout.hpp"
#include "support/expect_error.hpp"
#include "torch_file_writer.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::deepspeed;
using namespace dslaunch::test::pickled;
using test::counting;
using test::joined_state;
using test::message_of;
using test::parameter;
using test::TempDir;
using test::TorchFileWriter;

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

struct File {
  TorchFileWriter tensors;
  Dict root;
};

// A parameter as a stage lists it: its name there, and the values of its master.
using Listed = std::pair<std::string, at::Tensor>;

struct Stage {
  std::vector<Listed> trained;
  Names buffers;
};

struct Pipeline {
  std::map<int, Tensors> layers;
  std::vector<Stage> stages;
  std::function<void(size_t stage, Dict& model)> change_model = [](size_t, Dict&) {};
  std::function<void(size_t stage, size_t rank, File& optim)> change_optim = [](size_t, size_t, File&) {};
  std::string layer_ending = "-model_states.pt";
  bool with_zero = true;

  std::string write(const TempDir& dir) const {
    const std::string directory = dir / "ckpt/global_step5/";
    fs::create_directories(directory);
    for (const auto& [layer, tensors] : layers) {
      File file;
      for (const auto& [name, values] : tensors) file.root.set(name, file.tensors.tensor(values));
      file.tensors.write(directory + "layer_0" + std::to_string(layer) + layer_ending, file.root.object());
    }
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      write_model(directory, stage);
      for (size_t rank = 0; with_zero && rank < 2; ++rank) write_optim(directory, stage, rank);
    }
    return dir / "ckpt";
  }

 private:
  void write_model(const std::string& directory, size_t stage) const {
    File file;
    Dict shapes;
    std::vector<Object> buffers;
    for (const auto& [name, values] : stages[stage].trained) shapes.set(name, integers(values.sizes().vec()));
    for (const auto& name : stages[stage].buffers) buffers.push_back(text(name));
    file.root = {{"module", none()},
                 {"global_steps", integer(5)},
                 {"skipped_steps", integer(0)},
                 {"global_samples", integer(40)},
                 {"mp_world_size", integer(static_cast<int64_t>(stages.size()))},
                 {"ds_version", text("0.18.2")},
                 {"buffer_names", list(buffers)},
                 {"param_shapes", with_zero ? list({shapes.object()}) : none()},
                 {"shared_params", Dict{}.object()}};
    if (!with_zero) file.root.set("optimizer", plain_optimizer(file.tensors, stages[stage]));
    change_model(stage, file.root);
    file.tensors.write(directory + "mp_rank_0" + std::to_string(stage) + "_model_states.pt", file.root.object());
  }

  // Half of the stage's row each: exp_avg is 100 more than the master.
  void write_optim(const std::string& directory, size_t stage, size_t rank) const {
    File file;
    std::vector<at::Tensor> flat;
    for (const auto& [name, values] : stages[stage].trained) flat.push_back(values.view({-1}));
    const at::Tensor row = at::cat(flat);
    const int64_t half = (row.numel() + 1) / 2, begin = rank == 0 ? 0 : half;
    const at::Tensor own = row.narrow(0, begin, rank == 0 ? half : row.numel() - half);
    const Dict moments{{"exp_avg", file.tensors.tensor(at::cat({own + 100, at::zeros({half - own.numel()})}))}};
    file.root = {{"zero_stage", integer(1)},
                 {"partition_count", list({integer(2)})},
                 {"single_partition_of_fp32_groups", list({file.tensors.tensor(own)})},
                 {"base_optimizer_state", Dict{{"state", dict({{integer(0), moments.object()}})}}.object()}};
    change_optim(stage, rank, file);
    file.tensors.write(
        directory + "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_0" + std::to_string(stage) + "_optim_states.pt",
        Dict{{"optimizer_state_dict", file.root.object()}}.object());
  }

  static Object plain_optimizer(TorchFileWriter& tensors, const Stage& stage) {
    std::vector<std::pair<Object, Object>> states;
    std::vector<Object> indices;
    for (const auto& [name, values] : stage.trained) {
      const auto index = integer(static_cast<int64_t>(states.size()));
      states.emplace_back(index, Dict{{"step", integer(5)}, {"exp_avg", tensors.tensor(values + 100)}}.object());
      indices.push_back(index);
    }
    return Dict{{"state", dict(states)}, {"param_groups", list({Dict{{"params", list(indices)}}.object()})}}.object();
  }
};

// Layer 0 is layer 4, tied; 2 is a function; 1 has a frozen vector and a buffer. "a" is cut between the ranks.
Pipeline tied() {
  const at::Tensor w = counting(0, 2), a = counting(10, 3), b = counting(20, 4).view({2, 2});
  return {
      .layers = {{0, {{"w", w}}},
                 {1, {{"a", a}, {"f", counting(50, 2)}, {"count", at::tensor({7}, at::kLong)}}},
                 {3, {{"b", b}}},
                 {4, {{"w", w}}}},
      .stages = {{{{"tied_modules.e.w", w}, {"1.a", a}}, {"1.count"}}, {{{"tied_modules.e.w", w}, {"3.b", b}}, {}}}};
}

Pipeline plain() {
  const at::Tensor a = counting(10, 3), b = counting(20, 4).view({2, 2}), c = counting(30, 3);
  return {.layers = {{0, {{"a", a}}}, {1, {}}, {2, {{"b", b}, {"f", counting(50, 5)}}}, {3, {{"c", c}}}},
          .stages = {{{{"0.a", a}}, {}}, {{{"2.b", b}, {"3.c", c}}, {}}}};
}

ImportedState read(const Pipeline& pipeline, const ReadOptions& options = {}) {
  TempDir dir;
  return read_checkpoint(pipeline.write(dir), options);
}

// The whole message with the checkpoint's directory as DIR; `change` gets it before it is read.
std::string refusal(const Pipeline& pipeline, const std::function<void(const std::string&)>& change = {}) {
  TempDir dir;
  const std::string written = pipeline.write(dir);
  if (change) change(written + "/global_step5/");
  return message_of(ExitCode::kBadInput, written + "/global_step5", [&] { read_checkpoint(written, {}); });
}

std::string refusal_without(const Pipeline& pipeline, const std::string& file) {
  return refusal(pipeline, [&](const std::string& directory) { fs::remove(directory + file); });
}

void expect(const ImportedState& state, const std::string& name, const at::Tensor& master) {
  INFO(name);
  CHECK(joined_state(state, name, "master").equal(master.view({-1})));
  CHECK(joined_state(state, name, "exp_avg").equal(master.view({-1}) + 100));
}

}  // namespace

TEST_CASE("a pipeline that DeepSpeed saved has the states that DeepSpeed said it had",
          "[runtime][checkpoint][deepspeed]") {
  const auto name = GENERATE(values<std::string>(
      {"pipe_stage0_bf16", "pipe_stage0_fp16", "pipe_stage0_fp32", "pipe_stage1_bf16", "pipe_stage1_bf16_sums",
       "pipe_stage1_fp16", "pipe_stage1_fp32", "pipe_tied_call_stage1_bf16", "pipe_tied_stage1_fp32"}));
  INFO(name);
  const std::string dir = test::source_file("tests/data/deepspeed_checkpoints/" + name);
  const auto state = read_checkpoint(dir, {});
  const auto facts = nlohmann::json::parse(test::read_file(dir + "/expected.json"));
  CHECK(state.stage == (name.find("stage1") == std::string::npos ? 0 : 1));
  CHECK(state.num_stages == 2);
  CHECK(state.shards.size() == (state.stage == 1 ? 4 : 1));
  CHECK(state.metadata.step == 3);
  CHECK(state.skipped_steps == facts.at("skipped_steps").get<int64_t>());
  CHECK(state.metadata.position == DataPosition{0, 24});
  const SafetensorsFile expected(dir + "/expected.safetensors");
  for (const auto& entry : expected.entries()) {
    const size_t slash = entry.name.find('/');
    INFO(entry.name);
    REQUIRE(joined_state(state, entry.name.substr(slash + 1), entry.name.substr(0, slash))
                .equal(expected.tensor(entry).view({-1})));
  }
  const bool has_moments = name != "pipe_stage0_bf16";
  const bool is_tied = name.starts_with("pipe_tied");
  CHECK(expected.entries().size() == (has_moments ? (is_tied ? 44 : 50) : 18));
  CHECK(state.optimizer_states ==
        (has_moments ? std::set<std::string>{"exp_avg", "exp_avg_sq"} : std::set<std::string>{}));
  const Names aliases = parameter(state, "0.weight").aliases;
  CHECK(aliases == (name == "pipe_tied_stage1_fp32" ? Names{"5.weight"} : Names{}));
}

TEST_CASE("stages and layers are joined under the numbers of the layers", "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = tied();
  pipeline.layer_ending = GENERATE("-model_states.pt", "-model_00-model_states.pt");
  const auto state = read(pipeline);
  CHECK(state.notes.empty());
  CHECK(state.stage == 1);
  CHECK(state.num_stages == 2);
  REQUIRE(state.shards.size() == 4);
  expect(state, "0.w", counting(0, 2));
  expect(state, "1.a", counting(10, 3));
  expect(state, "3.b", counting(20, 4));
  CHECK(joined_state(state, "1.f", "frozen").equal(counting(50, 2)));
  CHECK(joined_state(state, "1.count", "buffer").equal(at::tensor({7.0F})));
  CHECK(parameter(state, "0.w").aliases == Names{"4.w"});
  CHECK(parameter(state, "3.b").shape == std::vector<int64_t>{2, 2});
  CHECK_FALSE(parameter(state, "1.f").trainable);
  CHECK(state.metadata.parameters.size() == 5);
}

TEST_CASE("a tied module that a layer calls through a function has one file", "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = tied();
  pipeline.layers.erase(4);
  const auto state = read(pipeline);
  expect(state, "0.w", counting(0, 2));
  CHECK(parameter(state, "0.w").aliases.empty());
}

TEST_CASE("what a tied module does not tie is a parameter of each layer", "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = tied();
  const at::Tensor here = counting(60, 3), there = counting(70, 3);
  pipeline.layers[0].emplace_back("bias", here);
  pipeline.layers[4].emplace_back("bias", there);
  pipeline.stages[0].trained.emplace_back("tied_modules.e.bias", here);
  pipeline.stages[1].trained.emplace_back("tied_modules.e.bias", there);
  const auto state = read(pipeline);
  CHECK(state.notes.empty());
  expect(state, "0.w", counting(0, 2));
  expect(state, "0.bias", here);
  expect(state, "4.bias", there);
}

TEST_CASE("several tied modules with the same shapes are told apart by their weights",
          "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = tied();
  const at::Tensor other = counting(80, 2);
  pipeline.layers[2] = {{"w", other}};
  pipeline.layers[5] = {{"w", other}};
  for (auto& stage : pipeline.stages) stage.trained.emplace_back("tied_modules.z.w", other);
  const auto state = read(pipeline);
  expect(state, "0.w", counting(0, 2));
  expect(state, "2.w", other);
  CHECK(parameter(state, "2.w").aliases == Names{"5.w"});
  // A third layer with this shape could be either's.
  pipeline.layers[6] = {{"w", counting(90, 2)}};
  CHECK(refusal(pipeline) ==
        "'DIR/layer_00-model_states.pt': it cannot be told which layers are the tied module 'e': layers 0, 2, 6 all "
        "have "
        "its parameters, with different values");
}

TEST_CASE("stages that have different masters of a tied parameter are reported", "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = tied();
  pipeline.stages[1].trained[0].second = counting(1, 2);
  CHECK(
      read(pipeline).notes ==
      Names{"CHECK THIS: pipeline stages have different masters of 1 tied parameters (the first is 0.w); those of the "
            "first stage are imported"});
}

TEST_CASE("DeepSpeed's own optimizer for bf16 saves masters with their padding", "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = plain();
  pipeline.change_optim = [&](size_t stage, size_t rank, File& file) {
    // Stage 0 is "0.a", two elements and one; stage 1 is seven.
    const std::vector<at::Tensor> rows{counting(10, 3), at::cat({counting(20, 4), counting(30, 3)})};
    const int64_t half = stage == 0 ? 2 : 4;
    const at::Tensor padded = at::cat({rows[stage], at::full({1}, 99.0)});
    file.root.drop("zero_stage")
        .set("group_paddings", list({integer(rank == 0 ? 0 : 1)}))
        .set("single_partition_of_fp32_groups",
             list({file.tensors.tensor(padded.narrow(0, rank == 0 ? 0 : half, half))}));
  };
  const auto state = read(pipeline);
  CHECK(state.stage == 1);
  expect(state, "0.a", counting(10, 3));
  expect(state, "2.b", counting(20, 4));
  expect(state, "3.c", counting(30, 3));
}

TEST_CASE("without ZeRO the stages' optimizers are matched in the order of the layers",
          "[runtime][checkpoint][deepspeed]") {
  Pipeline pipeline = plain();
  pipeline.with_zero = false;
  SECTION("a frozen parameter between them") {
    const auto state = read(pipeline);
    CHECK(state.notes.empty());
    CHECK(state.stage == 0);
    expect(state, "0.a", counting(10, 3));
    expect(state, "2.b", counting(20, 4));
    expect(state, "3.c", counting(30, 3));
    CHECK(joined_state(state, "2.f", "frozen").equal(counting(50, 5)));
  }
  SECTION("an optimizer that has other parameters") {
    pipeline.stages[1].trained.pop_back();
    const auto state = read(pipeline);
    CHECK(state.optimizer_states.empty() == (state.notes.size() == 1));
  }
  SECTION("one stage has none") {
    pipeline.change_model = [](size_t stage, Dict& model) {
      if (stage == 1) model.set("optimizer", none());
    };
    const auto state = read(pipeline);
    CHECK(state.optimizer_states.empty());
    CHECK(joined_state(state, "3.c", "master").equal(counting(30, 3)));
    CHECK(state.notes.size() == 1);
  }
}

TEST_CASE("moments of several micro batches that DeepSpeed did not divide are reported",
          "[runtime][checkpoint][deepspeed]") {
  const auto notes = [](const Dict& config, const std::string& version = "0.18.2") {
    Pipeline pipeline = plain();
    pipeline.change_model = [&](size_t, Dict& model) {
      model.set("ds_config", config.object()).set("dp_world_size", integer(2)).set("ds_version", text(version));
    };
    return read(pipeline).notes;
  };
  const Dict sizes{{"train_batch_size", integer(24)}, {"train_micro_batch_size_per_gpu", integer(3)}};
  for (const Dict& config : {Dict{{"gradient_accumulation_steps", integer(4)}}, sizes}) {
    const auto found = notes(config);
    REQUIRE(found.size() == 1);
    CHECK(found[0].starts_with("CHECK THIS: the pipelines of DeepSpeed 0.18.2 add up"));
    CHECK(found[0].find("here 4: a first moment is 4 times") != std::string::npos);
  }
  CHECK(notes(sizes, "0.14.0").empty());
  CHECK(notes({{"gradient_accumulation_steps", integer(1)}}).empty());
  CHECK(notes({{"train_batch_size", text("auto")}}).empty());
}

TEST_CASE("a pipeline that is not complete is refused with the missing file", "[runtime][checkpoint][deepspeed]") {
  const std::string whole = "the checkpoint 'DIR' is not complete: ";
  CHECK(refusal_without(plain(), "layer_02-model_states.pt") ==
        whole + "layer_02-model_states.pt is missing, and 'mp_rank_01_model_states.pt' lists '2.b'");
  CHECK(refusal_without(plain(), "mp_rank_00_model_states.pt") ==
        whole + "the model states of stage 0 of at least 2 are missing");
  CHECK(refusal_without(plain(), "mp_rank_01_model_states.pt") ==
        whole + "the model states of stage 1 of at least 2 are missing");
  CHECK(refusal_without(plain(), "zero_pp_rank_1_mp_rank_01_optim_states.pt") ==
        whole + "the optimizer states of rank 1 of at least 2 of stage 1 are missing");
  CHECK(refusal(plain(), [](const std::string& directory) {
          for (const char* rank : {"0", "1"}) {
            fs::remove(directory + "zero_pp_rank_" + rank + "_mp_rank_01_optim_states.pt");
          }
          fs::remove(directory + "mp_rank_01_model_states.pt");
        }) == whole + "'mp_rank_00_model_states.pt' is of 2 pipeline stages, and the model states of 1 are there");
  Pipeline with_buffer = plain();
  with_buffer.stages[0].buffers = {"7.count"};
  CHECK(refusal(with_buffer) ==
        whole + "layer_07-model_states.pt is missing, and 'mp_rank_00_model_states.pt' lists '7.count'");
  for (const char* rank : {"0", "1"}) {
    CHECK(refusal(plain(),
                  [&](const std::string& directory) {
                    for (const char* stage : {"0", "1"}) {
                      fs::remove(directory + "zero_pp_rank_" + rank + "_mp_rank_0" + stage + "_optim_states.pt");
                    }
                  })
              .find(rank[0] == '0' ? "the optimizer states of rank 0"
                                   : "is of 2 ranks, but the files of 1 are there") != std::string::npos);
  }
}

TEST_CASE("layers that do not match their stage are refused", "[runtime][checkpoint][deepspeed]") {
  const auto with_layer = [](const Tensors& layer) {
    Pipeline pipeline = plain();
    pipeline.layers[2] = layer;
    return refusal(pipeline);
  };
  const std::string layer = "'DIR/layer_02-model_states.pt' ";
  CHECK(with_layer({{"b", counting(20, 4)}}) ==
        layer + "is of another model: 'b' has the shape (4), and 'mp_rank_01_model_states.pt' lists (2, 2)");
  CHECK(with_layer({{"x", counting(20, 4)}}) ==
        layer + "is of another model: it has no 'b', which 'mp_rank_01_model_states.pt' lists");
  CHECK(refusal(plain(), [](const std::string& directory) {
          TorchFileWriter().write(directory + "layer_02-model_states.pt", list({}));
        }) == layer + "is not a layer of a pipeline: it holds no dict");
  CHECK(refusal(plain(), [](const std::string& directory) {
          test::write_file(directory + "layer_02-model_states.pt", "no zip");
        }).find("layer_02-model_states.pt") != std::string::npos);
}

TEST_CASE("stages of different runs, and other kinds of pipelines, are refused", "[runtime][checkpoint][deepspeed]") {
  const auto with = [](const char* key, const Object& value) {
    Pipeline pipeline = plain();
    pipeline.change_model = [&](size_t stage, Dict& model) {
      if (stage == 1) model.set(key, value);
    };
    return refusal(pipeline);
  };
  CHECK(with("global_steps", integer(6)) ==
        "the checkpoint 'DIR' is mixed: 'mp_rank_00_model_states.pt' is of step 5, 'mp_rank_01_model_states.pt' of "
        "step 6");
  CHECK(with("param_shapes", none()) ==
        "the checkpoint 'DIR' is mixed: of 'mp_rank_00_model_states.pt' and 'mp_rank_01_model_states.pt' one was "
        "written "
        "with ZeRO and one without");
  CHECK(with("module", Dict{}.object()) ==
        "'DIR/mp_rank_01_model_states.pt' holds weights, which a stage of a pipeline has in the files of its layers");
  const std::string importable =
      "only checkpoints of data ranks (ZeRO stages 0 to 3) and of pipelines beside them (stages 0 and 1), as DeepSpeed "
      "saves them, can be imported";
  const auto with_file = [&](const std::string& name) {
    return refusal(plain(), [&](const std::string& directory) { test::write_file(directory + name, ""); });
  };
  CHECK(with_file("layer_00-model_01-model_states.pt") ==
        "the checkpoint 'DIR' is split by tensor parallelism, as 'layer_00-model_01-model_states.pt' shows; " +
            importable);
  CHECK(with_file("zero_pp_rank_0_mp_rank_00_model_states.pt") ==
        "the checkpoint 'DIR' is a pipeline with ZeRO stage 3, as 'zero_pp_rank_0_mp_rank_00_model_states.pt' shows; " +
            importable);
}

TEST_CASE("every flipped byte and every cut of a pipeline's files is refused or changes nothing",
          "[runtime][checkpoint][deepspeed]") {
  const std::string source = test::source_file("tests/data/deepspeed_checkpoints/pipe_tied_stage1_fp32");
  const auto whole = read_checkpoint(source, {});
  const std::string name = GENERATE("layer_05-model_states.pt", "mp_rank_01_model_states.pt");
  TempDir dir;
  fs::copy(source, dir / "c", fs::copy_options::recursive);
  const std::string path = dir / "c/global_step3/" + name, content = test::read_file(path);
  // Without the checksums as well, so that the pickles are read as they are.
  const bool check_sums = GENERATE(true, false);
  size_t num_refused = 0;
  for (size_t at = 0; at < content.size(); at += 11) {
    std::string flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    for (const std::string& bytes : {flipped, content.substr(0, at)}) {
      test::write_file(path, bytes);
      try {
        const auto state = read_checkpoint(dir / "c", {.check_sums = check_sums});
        if (!check_sums) continue;
        for (const auto& tensor : whole.metadata.parameters) {
          REQUIRE(joined_state(state, tensor.name, "exp_avg")
                      .nan_to_num()
                      .equal(joined_state(whole, tensor.name, "exp_avg").nan_to_num()));
        }
      } catch (const UserError& error) {
        ++num_refused;
        CHECK(error.code() == ExitCode::kBadInput);
      }
    }
  }
  CHECK(num_refused > content.size() / 11);
}

TEST_CASE("layers are modules by their order and shapes", "[runtime][checkpoint][deepspeed]") {
  const auto named = [](const char* name, std::vector<int64_t> shape, Names aliases = {}) {
    return SavedTensor{.name = name, .shape = std::move(shape), .aliases = std::move(aliases)};
  };
  const std::vector<SavedTensor> saved{named("0.weight", {5, 2}, {"9.weight"}), named("1.up.weight", {2, 2}),
                                       named("2.up.weight", {2, 2}), named("4.weight", {2, 2})};
  const std::vector<SavedTensor> model{named("wte.weight", {5, 2}, {"head.weight"}), named("h.0.up.weight", {2, 2}),
                                       named("h.1.up.weight", {2, 2}), named("mix.weight", {2, 2})};
  SECTION("layers of one kind in their order, a part of a layer is none") {
    const auto layers = match_layers(saved, model);
    REQUIRE(layers);
    // Both uses of the tied weight are the same tensor.
    CHECK(*layers == LayerNames{{0, "wte"}, {1, "h.0"}, {2, "h.1"}, {4, "mix"}, {9, "head"}});
    CHECK(rename_layer(*layers, "2.up.weight") == "h.1.up.weight");
    CHECK(rename_layer(*layers, "3.up.weight") == "3.up.weight");
    CHECK(rename_layer(*layers, "tied_modules.e.w") == "tied_modules.e.w");
  }
  SECTION("another number of layers of one kind") {
    auto more = model;
    more.push_back(named("h.2.up.weight", {2, 2}));
    CHECK_FALSE(match_layers(saved, more));
  }
  SECTION("a trained parameter that no layer has") {
    auto more = model;
    more.push_back(named("scale", {1}));
    CHECK_FALSE(match_layers(saved, more));
    more.back().trainable = false;
    CHECK(match_layers(saved, more));
  }
}

TEST_CASE("a pipeline fits a model by numbers, else by order, else it is refused", "[runtime][checkpoint][deepspeed]") {
  const auto fit = [](std::vector<SavedTensor> model) {
    auto state = read(plain());
    fit_to_model(state, model, [](const std::string&) { return at::zeros({5}); });
    return state;
  };
  const auto sequence = [](const std::string& first, const std::string& second, const std::string& third) {
    return std::vector<SavedTensor>{{.name = first + ".a", .shape = {3}},
                                    {.name = second + ".b", .shape = {2, 2}},
                                    {.name = second + ".f", .shape = {5}, .trainable = false},
                                    {.name = third + ".c", .shape = {3}}};
  };
  CHECK(fit(sequence("0", "2", "3")).notes.empty());
  CHECK(fit(sequence("net.0", "net.2", "net.3")).notes.empty());
  const auto state = fit(sequence("one", "two", "three"));
  CHECK(state.notes ==
        Names{"its layers are the model's modules by their order and shapes: 0 is one, 2 is two, 3 is three"});
  expect(state, "two.b", counting(20, 4));
  CHECK(joined_state(state, "two.f", "frozen").equal(counting(50, 5)));
  auto other = sequence("one", "two", "three");
  other[0].shape = {4};
  test::expect_error(ExitCode::kBadInput,
                     {"does not fit the model, neither by the numbers of its layers nor by their order and shapes:",
                      "'one.a' (4) is not in the checkpoint", "'0.a' is not in the model"},
                     [&] { fit(other); });
}
