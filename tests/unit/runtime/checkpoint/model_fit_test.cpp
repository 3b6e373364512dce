#include "runtime/checkpoint/deepspeed/model_fit.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::deepspeed;
using test::expect_error;

namespace {

SavedTensor tensor(const std::string& name, std::vector<int64_t> shape, bool trainable = true) {
  return {.name = name, .shape = std::move(shape), .dtype = at::kFloat, .trainable = trainable};
}

// "w" of four elements cut between two ranks, "f" frozen, both with DeepSpeed's prefix.
ImportedState example() {
  ImportedState state;
  state.files.directory = "ckpt/global_step1";
  state.metadata.parameters = {tensor("module.w", {2, 2}), tensor("module.f", {1}, false)};
  state.shards.resize(2);
  for (const char* name : {"master", "exp_avg"}) {
    state.shards[0].push_back({"module.w", name, 0, at::arange(3, at::kFloat)});
    state.shards[1].push_back({"module.w", name, 3, at::arange(1, at::kFloat)});
  }
  state.shards[0].push_back({"module.f", "frozen", 0, at::ones({1})});
  state.optimizer_states = {"exp_avg"};
  return state;
}

std::vector<std::string> names_of(const std::vector<StatePiece>& pieces) {
  std::vector<std::string> out;
  for (const auto& piece : pieces)
    out.push_back(piece.state + "@" + std::to_string(piece.begin) + "/" + piece.parameter);
  return out;
}

at::Tensor no_value(const std::string&) {
  throw std::logic_error("nothing is to be taken from the model");
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("prefixes are taken away or put in front", "[runtime][checkpoint][model_fit]") {
  const Names names{"module.a.w", "module.a.b"};
  CHECK(find_renaming(names, {})("module.a.w") == "a.w");
  CHECK(find_renaming({"module._orig_mod.w"}, {})("module._orig_mod.w") == "w");
  CHECK(find_renaming({"module.w", "head"}, {})("module.w") == "module.w");
  CHECK(find_renaming(names, {tensor("a.w", {1}), tensor("a.b", {1})})("module.a.w") == "a.w");
  CHECK(find_renaming(names, {tensor("net.a.w", {1}), tensor("net.a.b", {1})})("module.a.b") == "net.a.b");
  CHECK(find_renaming(names, {tensor("w", {1}), tensor("b", {1})})("module.a.b") == "b");
}

TEST_CASE("pieces keep their places under the model's names", "[runtime][checkpoint][model_fit]") {
  ImportedState state = example();
  fit_to_model(state, {tensor("w", {2, 2}), tensor("f", {1}, false)}, no_value);
  CHECK(names_of(state.shards[0]) == Names{"master@0/w", "exp_avg@0/w", "frozen@0/f"});
  CHECK(names_of(state.shards[1]) == Names{"master@3/w", "exp_avg@3/w"});
  CHECK(state.notes.empty());
}

TEST_CASE("a tied parameter is found under any of its names", "[runtime][checkpoint][model_fit]") {
  ImportedState state = example();
  SavedTensor tied = tensor("embedding", {2, 2});
  tied.aliases = {"w"};
  fit_to_model(state, {tied, tensor("f", {1}, false)}, no_value);
  CHECK(names_of(state.shards[1]) == Names{"master@3/embedding", "exp_avg@3/embedding"});
}

TEST_CASE("roles follow the model: frozen here, trained there", "[runtime][checkpoint][model_fit]") {
  ImportedState state = example();
  fit_to_model(state, {tensor("w", {2, 2}, false), tensor("f", {1})}, no_value);
  CHECK(names_of(state.shards[0]) == Names{"frozen@0/w", "master@0/f", "exp_avg@0/f"});
  CHECK(names_of(state.shards[1]) == Names{"frozen@3/w"});
  CHECK(state.notes.size() == 2);
}

TEST_CASE("what the checkpoint lacks comes from the model unless it is trained", "[runtime][checkpoint][model_fit]") {
  ImportedState state = example();
  SavedTensor buffer = tensor("mask", {2}, false);
  buffer.is_buffer = true;
  fit_to_model(state, {tensor("w", {2, 2}), buffer}, [](const std::string& name) {
    CHECK(name == "mask");
    return at::ones({2});
  });
  CHECK(names_of(state.shards[0]) == Names{"master@0/w", "exp_avg@0/w", "buffer@0/mask"});
  REQUIRE(state.notes.size() == 2);
  CHECK(state.notes[0].find("mask") != std::string::npos);
  CHECK(state.notes[1].find("left out: 'f'") != std::string::npos);
}

TEST_CASE("missing parameters and other shapes are listed together", "[runtime][checkpoint][model_fit]") {
  ImportedState state = example();
  expect_error(ExitCode::kBadInput,
               {"ckpt/global_step1", "'ww' (2, 2) is not in the checkpoint", "'f' has the shape (1) there and (3)",
                "'w' is not in the model"},
               [&] {
                 fit_to_model(state, {tensor("ww", {2, 2}), tensor("f", {3}, false)}, no_value);
               });
}
