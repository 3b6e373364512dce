// DeepSpeed's checkpoints: those that DeepSpeed itself made (tests/data), and small ones made here, in which element i
// of a state has a value that tells the state and i, so that a wrong place shows.
#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "imported_values.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/deepspeed/model_fit.hpp"
#include "runtime/checkpoint/deepspeed/write_imported.hpp"
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

// One file of a checkpoint: a dict, and the tensors in it.
struct File {
  TorchFileWriter tensors;
  Dict root;
};

struct Example {
  std::vector<File> model, optim;  // by rank; the root of `optim` is the dict inside "optimizer_state_dict"
  bool model_by_rank = false;

  std::string write(const TempDir& dir) const {
    const std::string directory = dir / "ckpt/global_step5/";
    fs::create_directories(directory);
    for (size_t rank = 0; rank < model.size(); ++rank) {
      const std::string name = model_by_rank ? "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" : "mp_rank_00_";
      model[rank].tensors.write(directory + name + "model_states.pt", model[rank].root.object());
    }
    for (size_t rank = 0; rank < optim.size(); ++rank) {
      optim[rank].tensors.write(directory + "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_optim_states.pt",
                                Dict{{"optimizer_state_dict", optim[rank].root.object()}}.object());
    }
    test::write_file(dir / "ckpt/latest", "global_step5\n");
    return dir / "ckpt";
  }
};

// What all stages have: step 5, of which one was skipped.
Dict counters() {
  return {{"global_steps", integer(5)},
          {"skipped_steps", integer(1)},
          {"global_samples", integer(40)},
          {"mp_world_size", integer(1)},
          {"lr_scheduler", Dict{{"last_batch_iteration", integer(3)}}.object()},
          {"ds_version", text("0.18.2")},
          {"ds_config", Dict{{"train_batch_size", integer(8)}}.object()},
          {"buffer_names", list({text("count")})},
          {"shared_params", Dict{}.object()}};
}

Object shapes_of_both() {
  return list({Dict{{"w", integers({2, 3})}, {"b", integers({3})}}.object()});
}

// A module of w [2, 3] and b [3], trained; f [2], frozen; count, a buffer; head, tied to w.
Object module_of(TorchFileWriter& tensors) {
  const Object w = tensors.storage(counting(0, 6));
  return Dict{{"w", view(w, 0, {2, 3}, {3, 1})},
              {"b", tensors.tensor(counting(6, 3))},
              {"f", tensors.tensor(counting(50, 2))},
              {"count", tensors.tensor(at::tensor({7}, at::kLong))},
              {"head", view(w, 0, {2, 3}, {3, 1})}}
      .object();
}

// Stages 1 and 2: w and b are nine elements in a row, five of rank 0 and four of rank 1, whose moments are padded.
// Element i of the row: i in the masters, 100 + i in exp_avg, 200 + i in exp_avg_sq.
Example partitioned(int stage) {
  Example out;
  File& model = out.model.emplace_back();
  model.root = counters();
  model.root.set("module", module_of(model.tensors)).set("param_shapes", shapes_of_both());
  for (int rank = 0; rank < 2; ++rank) {
    File& optim = out.optim.emplace_back();
    const int64_t first = 5 * rank;
    const Dict moments{{"step", integer(4)},
                       {"exp_avg", optim.tensors.tensor(counting(100 + first, 5))},
                       {"exp_avg_sq", optim.tensors.tensor(counting(200 + first, 5))}};
    optim.root = {{"zero_stage", integer(stage)},
                  {"partition_count", list({integer(2)})},
                  {"single_partition_of_fp32_groups", list({optim.tensors.tensor(counting(first, rank == 0 ? 5 : 4))})},
                  {"base_optimizer_state", Dict{{"state", dict({{integer(0), moments.object()}})}}.object()}};
  }
  return out;
}

at::Tensor padded(const at::Tensor& values, int64_t numel) {
  return at::cat({values, at::full({numel - values.numel()}, -1.0)});
}

// Stage 3 on two ranks: three of w's six elements and two of b's (one of them padding on rank 1), in sub-groups of two
// and three elements.
Example sliced() {
  Example out;
  out.model_by_rank = true;
  for (int rank = 0; rank < 2; ++rank) {
    File& model = out.model.emplace_back();
    model.root = counters();
    const Object empty = model.tensors.tensor(at::empty({0}));
    model.root
        .set("module", Dict{{"w", empty},
                            {"b", empty},
                            {"f", empty},
                            {"count", model.tensors.tensor(at::ones({1}))},
                            {"head", empty}}
                           .object())
        .set("param_shapes", shapes_of_both())
        .set("frozen_param_shapes", Dict{{"f", integers({2})}}.object())
        .set("frozen_param_fragments", Dict{{"f", model.tensors.tensor(counting(50 + rank, 1))}}.object())
        .set("shared_params", Dict{{"head", text("w")}}.object());
    File& optim = out.optim.emplace_back();
    const auto row = [&](int64_t base) {
      return at::cat({counting(base + 3 * rank, 3), padded(counting(base + 6 + 2 * rank, rank == 0 ? 2 : 1), 2)});
    };
    const auto group = [&](int64_t base, int64_t begin, int64_t count) {
      return optim.tensors.tensor(row(base).narrow(0, begin, count));
    };
    const auto moments = [&](int64_t begin, int64_t count) {
      return Dict{{"step", integer(4)}, {"exp_avg", group(100, begin, count)}, {"exp_avg_sq", group(200, begin, count)}}
          .object();
    };
    const Object states = dict({{integer(0), moments(0, 2)}, {integer(1), moments(2, 3)}});
    optim.root = {{"zero_stage", integer(3)},
                  {"partition_count", integer(2)},
                  {"fp32_flat_groups", list({group(0, 0, 2), group(0, 2, 3)})},
                  {"optimizer_state_dict", Dict{{"state", states}}.object()}};
  }
  return out;
}

// The optimizer of torch: a state for each parameter by its number.
Object plain_optimizer(TorchFileWriter& tensors,
                       const std::vector<std::vector<std::pair<int64_t, at::Tensor>>>& groups) {
  std::vector<std::pair<Object, Object>> states;
  std::vector<Object> param_groups;
  int64_t index = 0;
  for (const auto& group : groups) {
    std::vector<Object> indices;
    for (const auto& [base, like] : group) {
      const Dict moments{{"step", tensors.tensor(at::tensor(4.0F))},
                         {"exp_avg", tensors.tensor((100 + base + counting(0, like.numel())).view(like.sizes()))},
                         {"exp_avg_sq", tensors.tensor((200 + base + counting(0, like.numel())).view(like.sizes()))}};
      states.emplace_back(integer(index), moments.object());
      indices.push_back(integer(index++));
    }
    param_groups.push_back(Dict{{"lr", number(0.1)}, {"params", list(indices)}}.object());
  }
  return Dict{{"state", dict(states)}, {"param_groups", list(param_groups)}}.object();
}

Example unsharded() {
  Example out;
  File& model = out.model.emplace_back();
  model.root = counters();
  model.root.set("module", module_of(model.tensors))
      .set("optimizer", plain_optimizer(model.tensors, {{{0, at::empty({2, 3})}, {6, at::empty({3})}}}));
  return out;
}

ImportedState read(const Example& example) {
  TempDir dir;
  return read_checkpoint(example.write(dir), {});
}

void expect_values(const ImportedState& state, const Names& states) {
  const std::map<std::string, int64_t> base{{"master", 0}, {"exp_avg", 100}, {"exp_avg_sq", 200}};
  for (const auto& name : states) {
    INFO(name);
    CHECK(joined_state(state, "w", name).equal(counting(base.at(name), 6)));
    CHECK(joined_state(state, "b", name).equal(counting(base.at(name) + 6, 3)));
  }
  CHECK(joined_state(state, "f", "frozen").equal(counting(50, 2)));
  CHECK(parameter(state, "w").aliases == Names{"head"});
  CHECK(parameter(state, "w").trainable);
  CHECK_FALSE(parameter(state, "f").trainable);
  CHECK(parameter(state, "count").is_buffer);
}

// The whole message with the checkpoint's parent directory as DIR.
std::string refusal(const Example& example, ExitCode code = ExitCode::kBadInput) {
  TempDir dir;
  const std::string written = example.write(dir);
  return message_of(code, dir.path(), [&] { read_checkpoint(written, {}); });
}

const std::string kModel = "'DIR/ckpt/global_step5/mp_rank_00_model_states.pt' ";
const std::string kOptim0 = "'DIR/ckpt/global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt' ";
const std::string kOptim1 = "'DIR/ckpt/global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt' ";
const std::string kWhole = "the DeepSpeed checkpoint 'DIR/ckpt/global_step5' ";

}  // namespace

TEST_CASE("what DeepSpeed saved has the states that DeepSpeed said it had", "[runtime][checkpoint][deepspeed]") {
  const std::string name = GENERATE(values<std::string>(
      {"stage0_bf16", "stage0_fp16", "stage0_fp32", "stage0_sgd_fp32", "stage1_bf16", "stage1_fp32", "stage2_bf16",
       "stage2_fp16", "stage2_fp32", "stage2_groups_fp32", "stage3_bf16", "stage3_fp32"}));
  INFO(name);
  const std::string dir = test::source_file("tests/data/deepspeed_checkpoints/" + name);
  const auto state = read_checkpoint(dir, {});
  const auto facts = nlohmann::json::parse(test::read_file(dir + "/expected.json"));
  CHECK(state.stage == name[5] - '0');
  CHECK(state.version == "0.18.2");
  CHECK(state.metadata.step == 3);
  CHECK(state.skipped_steps == facts.at("skipped_steps").get<int64_t>());
  CHECK(state.metadata.position == DataPosition{0, 24});
  CHECK(nlohmann::json::parse(state.metadata.config).at("train_batch_size") == 8);
  const SafetensorsFile expected(dir + "/expected.safetensors");
  size_t num_checked = 0;
  for (const auto& entry : expected.entries()) {
    const size_t slash = entry.name.find('/');
    std::string kind = entry.name.substr(0, slash), of = entry.name.substr(slash + 1);
    if (of == "head.weight") continue;  // tied to the embedding
    if (kind == "momentum_buffer") kind = "momentum";
    if (kind == "master" && of == "frozen.weight") kind = "frozen";
    if (kind == "master" && of == "shift") kind = "buffer";
    if (name == "stage0_bf16" && kind.starts_with("exp_avg")) continue;  // DeepSpeed does not save them there
    INFO(entry.name);
    REQUIRE(joined_state(state, of, kind).equal(expected.tensor(entry).view({-1})));
    ++num_checked;
  }
  CHECK(num_checked >= 16);
  CHECK(state.optimizer_states == (name == "stage0_bf16"       ? std::set<std::string>{}
                                   : name == "stage0_sgd_fp32" ? std::set<std::string>{"momentum"}
                                                               : std::set<std::string>{"exp_avg", "exp_avg_sq"}));
}

TEST_CASE("the loss scaler of fp16 continues", "[runtime][checkpoint][deepspeed]") {
  for (const std::string name : {"stage2_fp16", "stage0_fp16"}) {
    INFO(name);
    const std::string dir = test::source_file("tests/data/deepspeed_checkpoints/" + name);
    const auto facts = nlohmann::json::parse(test::read_file(dir + "/expected.json"));
    const auto state = read_checkpoint(dir, {});
    const double skipped = facts.at("skipped_steps"), power = facts.at("config").at("fp16").at("initial_scale_power");
    const auto& scalars = state.metadata.scalars;
    CHECK(scalars.at("loss_scale") == std::exp2(power - skipped));
    CHECK(scalars.at("loss_scale_iteration") == 3);
    CHECK(scalars.at("loss_scale_last_overflow") == skipped - 1);
    // Without ZeRO, DeepSpeed's wrapper takes one step on zero gradients when it is created.
    const double extra = name == "stage0_fp16" ? 1 : 0;
    CHECK(scalars.at("applied_steps") == 3 - skipped + extra);
    CHECK(scalars.count("schedule_offset") == (extra > 0 ? 1 : 0));
  }
}

TEST_CASE("stages 1 and 2: parts of one row in which each parameter has its place",
          "[runtime][checkpoint][deepspeed]") {
  const int stage = GENERATE(1, 2);
  const auto state = read(partitioned(stage));
  CHECK(state.stage == stage);
  expect_values(state, {"master", "exp_avg", "exp_avg_sq"});
  CHECK(state.metadata.scalars.at("applied_steps") == 4);
  CHECK(state.notes.empty());
  REQUIRE(state.shards.size() == 2);
  for (const auto& piece : state.shards[1]) CHECK(piece.begin == (piece.parameter == "w" ? 5 : 0));
}

TEST_CASE("stage 3: a slice of each parameter through the sub-groups", "[runtime][checkpoint][deepspeed]") {
  const auto state = read(sliced());
  CHECK(state.stage == 3);
  expect_values(state, {"master", "exp_avg", "exp_avg_sq"});
  CHECK(state.unplaced.empty());
}

TEST_CASE("stage 0: the optimizer's numbers are matched by order and shape", "[runtime][checkpoint][deepspeed]") {
  const auto state = read(unsharded());
  CHECK(state.stage == 0);
  CHECK(state.notes.empty());
  for (const char* name : {"exp_avg", "exp_avg_sq"}) {
    const int64_t base = std::string(name) == "exp_avg" ? 100 : 200;
    CHECK(joined_state(state, "w", name).equal(counting(base, 6)));
    CHECK(joined_state(state, "b", name).equal(counting(base + 6, 3)));
  }
  CHECK(joined_state(state, "w", "master").equal(counting(0, 6)));
  CHECK_FALSE(parameter(state, "f").trainable);  // the optimizer does not have it
}

TEST_CASE("stage 0 with two groups: matrices and the rest, in either order", "[runtime][checkpoint][deepspeed]") {
  for (const bool swapped : {false, true}) {
    Example example = unsharded();
    File& model = example.model[0];
    const auto w = std::pair<int64_t, at::Tensor>{0, at::empty({2, 3})};
    const std::vector<std::pair<int64_t, at::Tensor>> rest{{6, at::empty({3})}, {50, at::empty({2})}};
    model.root.set("optimizer",
                   swapped ? plain_optimizer(model.tensors, {rest, {w}}) : plain_optimizer(model.tensors, {{w}, rest}));
    const auto state = read(example);
    CHECK(joined_state(state, "w", "exp_avg").equal(counting(100, 6)));
    CHECK(joined_state(state, "b", "exp_avg_sq").equal(counting(206, 3)));
    CHECK(joined_state(state, "f", "exp_avg").equal(counting(150, 2)));
    REQUIRE(state.notes.size() == 1);
    CHECK(state.notes[0] == "the optimizer has two groups and no names in them; their shapes say that group " +
                                std::string(swapped ? "1" : "0") +
                                " holds what has two dimensions or more, and group " + (swapped ? "0" : "1") +
                                " the rest");
  }
}

TEST_CASE("stage 0: names in the groups win over order and shape", "[runtime][checkpoint][deepspeed]") {
  Example example = unsharded();
  File& model = example.model[0];
  const auto moments = [&](int64_t base, std::vector<int64_t> shape) {
    const int64_t numel = c10::multiply_integers(shape);
    return Dict{{"exp_avg", model.tensors.tensor(counting(base, numel).view(shape))}}.object();
  };
  const Dict group{
      {"params", list({integer(0), integer(1)})}, {"param_names", list({text("b"), text("w")})}, {"step", integer(6)}};
  model.root.set("optimizer",
                 Dict{{"state", dict({{integer(0), moments(106, {3})}, {integer(1), moments(100, {2, 3})}})},
                      {"param_groups", list({group.object()})}}
                     .object());
  const auto state = read(example);
  CHECK(joined_state(state, "w", "exp_avg").equal(counting(100, 6)));
  CHECK(joined_state(state, "b", "exp_avg").equal(counting(106, 3)));
  CHECK(state.metadata.scalars.at("applied_steps") == 6);  // the optimizer's own count
  CHECK(state.metadata.scalars.at("schedule_offset") == -2);
}

TEST_CASE("stage 0: 1-bit Lamb's ratios come along, what its exchanges lost does not",
          "[runtime][checkpoint][deepspeed]") {
  Example example = unsharded();
  File& model = example.model[0];
  const auto states = [&](int64_t base, std::vector<int64_t> shape, double ratio) {
    const int64_t numel = c10::multiply_integers(shape);
    const auto values = [&](int64_t first) { return model.tensors.tensor(counting(first + base, numel).view(shape)); };
    return Dict{{"step", integer(6)},         {"lamb_coeff_freeze", number(ratio)}, {"last_factor", number(0.5)},
                {"exp_avg", values(100)},     {"exp_avg_sq", values(200)},          {"exp_avg_sq_fresh", values(300)},
                {"worker_error", values(400)}}
        .object();
  };
  const Dict group{{"params", list({integer(0), integer(1)})}};
  model.root.set("optimizer",
                 Dict{{"state", dict({{integer(0), states(0, {2, 3}, 0.25)}, {integer(1), states(6, {3}, 0.75)}})},
                      {"param_groups", list({group.object()})}}
                     .object());
  const auto state = read(example);
  CHECK(state.optimizer_states == std::set<std::string>{"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"});
  CHECK(joined_state(state, "b", "exp_avg_sq_fresh").equal(counting(306, 3)));
  const auto kept = [&](const std::string& of, const std::string& name) {
    return joined_state(state, of, name)[0].item<double>();
  };
  CHECK(kept("w", "lamb_coeff_freeze") == 0.25);
  CHECK(kept("b", "lamb_coeff_freeze") == 0.75);
  CHECK(kept("b", "last_factor") == 0.5);
  CHECK(kept("b", "scaling_coeff") == 0.0);
}

TEST_CASE("stage 0 with fp16: one flat master for all parameters of a group", "[runtime][checkpoint][deepspeed]") {
  Example example = unsharded();
  File& model = example.model[0];
  auto& tensors = model.tensors;
  model.root.set("module", Dict{{"w", tensors.tensor(counting(0, 6).view({2, 3}).to(at::kHalf))},
                                {"b", tensors.tensor(counting(6, 3).to(at::kHalf))},
                                {"count", tensors.tensor(at::ones({1}))}}
                               .object());
  const Dict moments{{"exp_avg", tensors.tensor(counting(100, 9))}, {"exp_avg_sq", tensors.tensor(counting(200, 9))}};
  const Dict inner{{"state", dict({{integer(0), moments.object()}})},
                   {"param_groups", list({Dict{{"params", list({integer(0)})}}.object()})}};
  model.root.set("optimizer", Dict{{"optimizer_state_dict", inner.object()},
                                   {"fp32_groups_flat", list({tensors.tensor(counting(0, 9) + 0.125)})},
                                   {"dynamic_loss_scale", boolean(true)},
                                   {"cur_scale", number(1)},
                                   {"cur_iter", integer(5)},
                                   {"last_overflow_iter", integer(-1)}}
                                  .object());
  const auto state = read(example);
  CHECK(joined_state(state, "w", "master").equal(counting(0, 6) + 0.125));
  CHECK(joined_state(state, "b", "master").equal(counting(6, 3) + 0.125));
  CHECK(joined_state(state, "b", "exp_avg_sq").equal(counting(206, 3)));
  CHECK(parameter(state, "w").dtype == at::kHalf);
  CHECK(state.metadata.scalars.at("loss_scale") == 1);
  CHECK(state.metadata.scalars.at("loss_scale_last_overflow") == -1);
  CHECK(state.metadata.scalars.count("loss_scale_budget") == 0);
  REQUIRE(state.notes.size() == 1);  // 0.125 more is not what fp16 rounds away
  CHECK(state.notes[0] ==
        "CHECK THIS: the fp32 masters of 2 parameters (the first is b) are not, rounded, the weights "
        "that the model computed with; compare the first losses with DeepSpeed's");
}

TEST_CASE("an optimizer that cannot be matched is left out, and that is said", "[runtime][checkpoint][deepspeed]") {
  Example example = unsharded();
  File& model = example.model[0];
  const std::string ambiguous =
      "its optimizer state names no parameters, and their order and shapes do not decide which is which: only weights "
      "are imported; give --model so that frozen parameters are known";
  SECTION("two parameters of one shape, of which one is trained") {
    model.root.set(
        "module",
        Dict{{"w", model.tensors.tensor(counting(0, 3))}, {"b", model.tensors.tensor(counting(6, 3))}}.object());
    model.root.set("optimizer", plain_optimizer(model.tensors, {{{6, at::empty({3})}}}));
    CHECK(read(example).notes == Names{ambiguous});
    // The model says that "w" is frozen, which leaves one.
    const std::vector<SavedTensor> known{{.name = "w", .shape = {3}, .trainable = false}, {.name = "b", .shape = {3}}};
    TempDir dir;
    const auto state = read_checkpoint(example.write(dir), {.model = &known});
    CHECK(state.notes.empty());
    CHECK(joined_state(state, "b", "exp_avg").equal(counting(106, 3)));
  }
  SECTION("names that the module does not have") {
    const Dict group{{"params", list({integer(0)})}, {"param_names", list({text("elsewhere")})}};
    model.root.set("optimizer", Dict{{"state", dict({})}, {"param_groups", list({group.object()})}}.object());
    CHECK(read(example).notes.size() == 1);
  }
  SECTION("three groups") {
    const std::pair<int64_t, at::Tensor> one{0, at::empty({3})};
    model.root.set("optimizer", plain_optimizer(model.tensors, {{one}, {one}, {one}}));
    CHECK(read(example).notes == Names{ambiguous});
  }
  SECTION("no optimizer") {
    model.root.drop("optimizer");
    const auto state = read(example);
    CHECK(state.notes == Names{"it holds no optimizer state: only weights are imported"});
    CHECK(state.optimizer_states.empty());
  }
}

TEST_CASE("what is unusual in a checkpoint of ZeRO is said", "[runtime][checkpoint][deepspeed]") {
  Example example = partitioned(2);
  Dict& model = example.model[0].root;
  SECTION("a schedule that counts otherwise") {
    model.set("lr_scheduler", Dict{{"last_batch_iteration", integer(8)}}.object());
    CHECK(read(example).notes ==
          Names{"its schedule stands at step 9, but 4 steps were applied; the imported run takes "
                "the learning rate of its own step count"});
  }
  SECTION("the user's own state") {
    model.set("epoch", integer(2)).set("note", text("x"));
    CHECK(read(example).notes == Names{"client_state is left out: epoch, note"});
  }
  SECTION("no optimizer state yet") {
    for (auto& optim : example.optim) optim.root.drop("base_optimizer_state");
    CHECK(read(example).notes == Names{"its optimizer has no state yet: only weights are imported"});
  }
  SECTION("no files of the optimizer: the weights are the masters") {
    example.optim.clear();
    const auto state = read(example);
    CHECK(state.stage == 0);
    CHECK(joined_state(state, "w", "master").equal(counting(0, 6)));
    REQUIRE(state.notes.size() == 1);
    CHECK(state.notes[0].starts_with("it holds no optimizer states"));
  }
  SECTION("an elastic checkpoint has a list of states") {
    for (size_t rank = 0; rank < 2; ++rank) {
      File& optim = example.optim[rank];
      const Dict moments{{"exp_avg", optim.tensors.tensor(counting(100 + 5 * static_cast<int64_t>(rank), 5))}};
      optim.root.set("base_optimizer_state", list({moments.object()}));
    }
    const auto state = read(example);
    CHECK(joined_state(state, "b", "exp_avg").equal(counting(106, 3)));
    CHECK(state.optimizer_states == std::set<std::string>{"exp_avg"});
  }
  SECTION("a moment that only one sub-group has") {
    Example three = sliced();
    for (auto& each : three.model) each.root.set("shared_params", Dict{}.object());
    const auto state = read(three);
    CHECK(state.unplaced == Names{"head"});
  }
}

TEST_CASE("model states that are damaged are refused", "[runtime][checkpoint][deepspeed]") {
  const auto with = [](const char* key, const Object& value) {
    Example example = partitioned(2);
    example.model[0].root.set(key, value);
    return refusal(example);
  };
  const auto without = [](const char* key) {
    Example example = partitioned(2);
    example.model[0].root.drop(key);
    return refusal(example);
  };
  CHECK(without("module") ==
        kModel + "is not a model state checkpoint of DeepSpeed: it has no 'module' and 'buffer_names'");
  CHECK(without("buffer_names") ==
        kModel + "is not a model state checkpoint of DeepSpeed: it has no 'module' and 'buffer_names'");
  CHECK(with("module", none()) == kModel + "holds no weights ('module' is none), as checkpoints of pipelines do");
  CHECK(with("module", dict({{integer(1), integer(2)}})) == kModel + "is damaged: a parameter without a name");
  CHECK(with("global_steps", integer(-1)) == kModel + "is damaged: 'global_steps' is not a count");
  CHECK(with("global_samples", text("many")) == kModel + "is damaged: 'global_samples' is not a count");
  CHECK(with("skipped_steps", integer(6)) == kModel + "is damaged: more steps were skipped than taken");
  CHECK(with("mp_world_size", integer(2)) ==
        kModel + "is split by tensor parallelism; only data-parallel checkpoints can be imported");
  CHECK(with("param_shapes", list({Dict{{"w", integers({2, -3})}}.object()})) ==
        kModel + "is damaged: 'w' has a bad shape");
  CHECK(with("param_shapes", list({Dict{{"w", integers({2, 3})}}.object(), Dict{{"w", integers({3})}}.object()})) ==
        kWhole + "lists 'w' twice");
  CHECK(with("shared_params", Dict{{"head", text("nothing")}}.object()) ==
        kWhole + "is damaged: 'head' is shared with 'nothing', which there is not");
  CHECK(with("param_shapes", list({Dict{{"w", integers({2, 3})}}.object()})) ==
        kOptim1 + "holds 3 elements of 'exp_avg' more than its model states list");
  CHECK(with("param_shapes", list({Dict{{"w", integers({2, 3})}, {"b", integers({4})}}.object()})) ==
        kWhole + "is not complete: it holds 3 of the 4 elements of 'exp_avg' of parameter 'b'");
  TempDir dir;
  Example list_only = partitioned(2);
  const std::string at = list_only.write(dir);
  list_only.model[0].tensors.write(at + "/global_step5/mp_rank_00_model_states.pt", list({}));
  CHECK(message_of(ExitCode::kBadInput, dir.path(), [&] { read_checkpoint(at, {}); }) ==
        kModel + "is not a model state checkpoint of DeepSpeed: it holds no dict");
}

TEST_CASE("optimizer states of stages 1 and 2 that are damaged are refused", "[runtime][checkpoint][deepspeed]") {
  const auto changed = [](const std::function<void(File&)>& change) {
    Example example = partitioned(2);
    change(example.optim[0]);
    return refusal(example);
  };
  CHECK(changed([](File& file) { file.root.drop("zero_stage"); }) ==
        kOptim0 + "is not an optimizer state of ZeRO: it does not name its stage");
  CHECK(changed([](File& file) { file.root.set("zero_stage", integer(4)); }) ==
        kOptim0 + "is not an optimizer state of ZeRO: it does not name its stage");
  CHECK(changed([](File& file) { file.root.drop("single_partition_of_fp32_groups"); }) ==
        kOptim0 + "is not an optimizer state of ZeRO stage 1 or 2: it has no 'single_partition_of_fp32_groups'");
  CHECK(changed([](File& file) { file.root.set("partition_count", list({integer(4)})); }) ==
        kOptim0 + "is of 4 ranks, but the files of 2 are there");
  CHECK(changed([](File& file) { file.root.set("single_partition_of_fp32_groups", list({})); }) ==
        kOptim0 + "has 0 parameter groups, the model states list 1");
  CHECK(changed([](File& file) { file.root.set("single_partition_of_fp32_groups", list({text("x")})); }) ==
        "torch.save file " + kOptim0 + "has no tensor in 'fp32 group 0'");
  for (const auto& [name, value, shown] :
       std::vector<std::tuple<const char*, Object, const char*>>{{"cur_scale", number(0), "0"},
                                                                 {"cur_scale", number(INFINITY), "inf"},
                                                                 {"cur_scale", text("65536"), "no number"},
                                                                 {"cur_iter", integer(-1), "-1"},
                                                                 {"cur_iter", number(1.5), "1.5"},
                                                                 {"last_overflow_iter", integer(-2), "-2"},
                                                                 {"cur_hysteresis", number(NAN), "nan"}}) {
    Dict scaler{{"cur_scale", number(65536)}, {"dynamic", boolean(true)}};
    scaler.set(name, value);
    CHECK(changed([&](File& file) {
            file.root.set("loss_scaler", with_state(call(global("deepspeed", "Scaler"), {}), scaler.object()));
          }) == kOptim0 + "is damaged: '" + name + "' of its loss scaler is " + shown);
  }
}

TEST_CASE("a count of steps that cannot be is refused", "[runtime][checkpoint][deepspeed]") {
  const auto with_step = [](const std::function<Object(TorchFileWriter&)>& step, bool by_group) {
    Example example = unsharded();
    File& model = example.model[0];
    Dict moments{{"exp_avg", model.tensors.tensor(counting(100, 6).view({2, 3}))}};
    Dict group{{"params", list({integer(0), integer(1), integer(2)})}};
    (by_group ? group : moments).set("step", step(model.tensors));
    const Dict optimizer{{"state", dict({{integer(0), moments.object()}})}, {"param_groups", list({group.object()})}};
    model.root.set("optimizer", optimizer.object());
    return refusal(example);
  };
  const auto minus_one = [](TorchFileWriter& tensors) { return tensors.tensor(at::tensor(-1.0F)); };
  CHECK(with_step(minus_one, false) == kModel + "is damaged: 'step' of its optimizer is -1");
  CHECK(with_step([](auto&) { return integer(-1); }, true) == kModel + "is damaged: 'step' of its optimizer is -1");
  CHECK(with_step([](auto&) { return number(NAN); }, true) == kModel + "is damaged: 'step' of its optimizer is nan");
}

TEST_CASE("optimizer states of stage 3 that are damaged are refused", "[runtime][checkpoint][deepspeed]") {
  const auto changed = [](const std::function<void(Example&)>& change) {
    Example example = sliced();
    change(example);
    return refusal(example);
  };
  CHECK(changed([](Example& e) { e.optim[1].root.drop("fp32_flat_groups"); }) ==
        kOptim1 + "is not an optimizer state of ZeRO stage 3: it has no 'fp32_flat_groups'");
  CHECK(changed([](Example& e) { e.optim[0].root.set("partition_count", integer(3)); }) ==
        kOptim0 + "cuts parameters into 3 parts, but the files of 2 ranks are there");
  CHECK(changed([](Example& e) { e.model.pop_back(); }) ==
        kWhole + "is not complete: 1 ranks have model states, 2 have optimizer states");
  CHECK(changed([](Example& e) { e.optim.clear(); }) ==
        kWhole + "holds no optimizer states, which have the weights of stage 3");
  CHECK(changed([](Example& e) {
          e.optim[0].root.set("fp32_flat_groups", list({e.optim[0].tensors.tensor(counting(0, 2))}));
        }) == kOptim0 + "is not complete: 'master' ends within 'w'");
  CHECK(changed([](Example& e) {
          const Object group = e.optim[0].tensors.tensor(counting(0, 3));
          e.optim[0].root.set("fp32_flat_groups", list({group, group}));
        }) == kOptim0 + "holds 1 elements of 'master' more than its model states list");
  CHECK(changed([](Example& e) {
          const Dict moments{{"exp_avg", e.optim[0].tensors.tensor(counting(0, 2))}};
          e.optim[0].root.set("optimizer_state_dict", Dict{{"state", dict({{integer(0), moments.object()}})}}.object());
        }) == kOptim0 + "is damaged: sub-group 1 has no 'exp_avg'");
  CHECK(changed([](Example& e) { e.model[1].root.drop("frozen_param_fragments"); }) ==
        kWhole + "is not complete: it holds 1 of the 2 elements of 'frozen' of parameter 'f'");
}

TEST_CASE("a parameter that never had a gradient starts with moments of zero", "[runtime][checkpoint][deepspeed]") {
  Example example = unsharded();
  File& model = example.model[0];
  const Dict moments{{"exp_avg", model.tensors.tensor(counting(100, 6).view({2, 3}))}};
  model.root.set("optimizer",
                 Dict{{"state", dict({{integer(0), moments.object()}})},
                      {"param_groups", list({Dict{{"params", list({integer(0), integer(1), integer(2)})}}.object()})}}
                     .object());
  const auto state = read(example);
  CHECK(joined_state(state, "w", "exp_avg").equal(counting(100, 6)));
  CHECK(joined_state(state, "b", "exp_avg").equal(at::zeros({3})));
  CHECK(state.notes == Names{"'exp_avg' starts at zero for what the optimizer has not updated yet: b, f"});
}

TEST_CASE("the files of a checkpoint are found by its tag", "[runtime][checkpoint][deepspeed]") {
  TempDir dir;
  const std::string at = partitioned(2).write(dir);
  const auto none = [&](const std::string& path, const std::string& tag) {
    return message_of(ExitCode::kNoInput, dir.path(), [&] { find_files(path, tag); });
  };
  CHECK(find_files(at, "").tag == "global_step5");
  CHECK(find_files(at, "global_step5").optim_states.size() == 2);
  CHECK(find_files(at + "/global_step5", "").tag == "global_step5");
  CHECK(holds_checkpoint(at));
  CHECK(holds_checkpoint(at + "/global_step5"));
  CHECK_FALSE(holds_checkpoint(dir.path()));
  CHECK(none(at, "global_step6") ==
        "'DIR/ckpt' holds no checkpoint with the tag 'global_step6' (did you mean 'global_step5'?); there are: "
        "global_step5");
  CHECK(none(dir.path(), "x") == "'DIR' holds no checkpoint with the tag 'x'; there are: none");
  CHECK(none(dir / "nowhere", "") == "there is no directory 'DIR/nowhere'");
  CHECK(none(dir.path(), "") ==
        "'DIR' is not a DeepSpeed checkpoint: neither it nor a directory in it holds …model_states.pt");
  test::write_file(dir / "ckpt/latest", "gone \r\n");
  CHECK(none(at, "") == "'DIR/ckpt/latest' names 'gone', which there is not; choose with --tag: global_step5");
  fs::remove(dir / "ckpt/latest");
  CHECK(find_files(at, "").tag == "global_step5");  // there is only one
  fs::copy(at + "/global_step5", at + "/older");
  CHECK(none(at, "") == "'DIR/ckpt/latest' is missing; choose with --tag: global_step5, older");
}

TEST_CASE("checkpoints that are not complete or of another kind are refused by name",
          "[runtime][checkpoint][deepspeed]") {
  const std::string kImportable =
      "only checkpoints of data ranks (ZeRO stages 0 to 3) and of pipelines beside them (stages 0 and 1), as DeepSpeed "
      "saves them, can be imported";
  struct Case {
    const char *removed, *added;
    std::string message;
  };
  const auto [removed, added, message] = GENERATE(values<Case>({
      {"zero_pp_rank_0_mp_rank_00_optim_states.pt", nullptr,
       "is not complete: the optimizer states of rank 0 of at least 2 are missing"},
      {"mp_rank_00_model_states.pt", "x_model_states.pt", "is not complete: mp_rank_00_model_states.pt is missing"},
      {nullptr, "mp_rank_01_model_states.pt",
       "is split by tensor parallelism, as 'mp_rank_01_model_states.pt' shows; "},
      {nullptr, "layer_0_expert_1_mp_rank_00_model_states.pt",
       "has experts (MoE), as 'layer_0_expert_1_mp_rank_00_model_states.pt' shows; "},
      {nullptr, "zero", "is a universal one (made by ds_to_universal), as 'zero' shows; "},
  }));
  TempDir dir;
  const std::string at = partitioned(2).write(dir);
  if (removed) fs::remove(at + "/global_step5/" + removed);
  if (added) test::write_file(at + "/global_step5/" + added, "");
  CHECK(message_of(ExitCode::kBadInput, dir.path(), [&] { find_files(at, ""); }) ==
        "the checkpoint 'DIR/ckpt/global_step5' " + message + (message.ends_with("shows; ") ? kImportable : ""));
}

TEST_CASE("the config comes as JSON, whatever Python kept in it", "[runtime][checkpoint][deepspeed]") {
  Example example = partitioned(2);
  const Object value_of_an_enumeration = call(global("deepspeed", "Stage"), {integer(2)});
  example.model[0].root.set("ds_config", dict({{text("on"), boolean(true)},
                                               {text("lr"), number(0.5)},
                                               {text("name"), text("größe")},
                                               {text("betas"), list({number(0.25), integer(1)})},
                                               {text("stage"), value_of_an_enumeration},
                                               {text("class"), global("torch.optim", "Adam")},
                                               {text("none"), none()},
                                               {integer(7), tuple({})}}));
  const auto config = nlohmann::json::parse(read(example).metadata.config);
  CHECK(config == nlohmann::json{{"on", true},
                                 {"lr", 0.5},
                                 {"name", "größe"},
                                 {"betas", {0.25, 1}},
                                 {"stage", 2.0},
                                 {"class", "torch.optim.Adam"},
                                 {"none", nullptr},
                                 {"7", nlohmann::json::array()}});
}

TEST_CASE("an imported checkpoint is read back with the same numbers", "[runtime][checkpoint][deepspeed]") {
  TempDir dir;
  const std::string source = sliced().write(dir);
  ImportedState state = read_checkpoint(source, {});
  strip_prefixes(state);
  const std::string out = write_imported(state, dir / "out", "");
  CHECK(out == dir / "out/step_00000005");
  CheckpointReader reader(dir / "out");
  CHECK(reader.world_size() == 2);
  CHECK(reader.metadata().step == 5);
  at::Tensor w = at::empty({6}), b = at::empty({3});
  reader.read_into("w", "exp_avg_sq", 0, w);
  reader.read_into("b", "master", 0, b);
  CHECK(w.equal(counting(200, 6)));
  CHECK(b.equal(counting(6, 3)));
  const auto unfinished = unfinished_files(state, dir / "out");
  REQUIRE(unfinished.size() == 6);
  for (const auto& file : unfinished) CHECK_FALSE(fs::exists(file));
}

TEST_CASE("every flipped byte and every cut of an optimizer's file is refused or changes nothing",
          "[runtime][checkpoint][deepspeed]") {
  const std::string source = test::source_file("tests/data/deepspeed_checkpoints/stage2_bf16");
  const auto whole = read_checkpoint(source, {});
  TempDir dir;
  fs::copy(source, dir / "c", fs::copy_options::recursive);
  const std::string name = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", path = dir / "c/global_step3/" + name;
  const std::string content = test::read_file(path);
  size_t num_refused = 0;
  for (size_t at = 0; at < content.size(); at += 53) {
    std::string flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    for (const std::string& bytes : {flipped, content.substr(0, at)}) {
      test::write_file(path, bytes);
      try {
        const auto state = read_checkpoint(dir / "c", {});
        for (const auto& tensor : whole.metadata.parameters) {
          REQUIRE(joined_state(state, tensor.name, "exp_avg")
                      .nan_to_num()
                      .equal(joined_state(whole, tensor.name, "exp_avg").nan_to_num()));
        }
      } catch (const UserError& error) {
        ++num_refused;
        CHECK(error.code() == ExitCode::kBadInput);
        CHECK_THAT(error.what(), Catch::Matchers::Contains(name));
      }
    }
  }
  CHECK(num_refused > content.size() / 53);
}
