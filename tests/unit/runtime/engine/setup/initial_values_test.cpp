// Where a run's first weights come from, and which models cannot be trained.
#include "runtime/engine/setup/initial_values.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/engine/setup/saved_tensors.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/expect_error.hpp"
#include "support/mixed_net.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using model::torchscript::load_script_model;
using test::expect_error;

namespace {

int index_of(const model::Model& model, const std::string& name) {
  for (size_t i = 0; i < model.facts.table.parameters.size(); ++i) {
    if (model.facts.table.parameters[i].name == name) return static_cast<int>(i);
  }
  throw std::logic_error(name);
}

}  // namespace

TEST_CASE("a model's own values are read in parts, and init is said to be without effect",
          "[runtime][engine][initial_values]") {
  test::TempDir folder;
  const auto net = test::make_mixed_net();
  net.save(folder / "net.pt");
  const auto model = load_script_model(folder / "net.pt", {});
  at::Tensor part = at::zeros({4});
  initial_values(*model, {}, "net.pt")(index_of(*model, "head"), 5, part);
  CHECK(part.equal(test::random_weight({5, 3}, 3).detach().reshape({-1}).narrow(0, 5, 4)));
  CHECK(note_on_init(*model, {}, "net.pt").empty());
  CHECK_THAT(note_on_init(*model, config::Init{}, "net.pt"), Catch::Contains("\"init\" has no effect"));
  CHECK_NOTHROW(require_trainable(model->facts, folder / "net.pt"));
}

TEST_CASE("an empty model's values do not depend on the part that is read", "[runtime][engine][initial_values]") {
  test::TempDir folder;
  test::make_mixed_net().save(folder / "net.pt");
  model::torchscript::write_model_skeleton(folder / "net.pt", folder / "empty.pt");
  const auto model = load_script_model(folder / "empty.pt", {});
  const auto read = initial_values(*model, config::Init{.seed = 4, .std = 1}, "empty.pt");
  at::Tensor whole = at::zeros({15}), part = at::zeros({6});
  read(index_of(*model, "head"), 0, whole);
  read(index_of(*model, "head"), 7, part);
  CHECK(part.equal(whole.narrow(0, 7, 6)));
  CHECK(whole.abs().max().item<double>() > 0);
  CHECK(note_on_init(*model, config::Init{}, "empty.pt").empty());
  expect_error(ExitCode::kBadInput, {"'empty.pt' was exported empty"},
               [&] { initial_values(*model, {}, "empty.pt")(index_of(*model, "head"), 0, whole); });
}

TEST_CASE("a tensor rank reads its ranges of whole values, wherever they come from",
          "[runtime][engine][initial_values]") {
  test::TempDir folder;
  test::make_mixed_net().save(folder / "net.pt");
  model::torchscript::write_model_skeleton(folder / "net.pt", folder / "empty.pt");
  const bool is_empty = GENERATE(true, false), has_source = GENERATE(true, false);
  const auto model = load_script_model(folder / (is_empty ? "empty.pt" : "net.pt"), {});
  const int head = index_of(*model, "head");  // [5, 3]
  if (has_source) {
    model->initial.set_source([](int, int64_t begin, const at::Tensor& out) {
      out.copy_(at::arange(begin, begin + out.numel(), at::kFloat));
    });
  }
  const auto read = initial_values(*model, config::Init{.seed = 4, .std = 1}, "net.pt");
  at::Tensor whole = at::zeros({5, 3}), part = at::zeros({9});
  read(head, 0, whole.view({-1}));
  auto& info = model->facts.table.parameters[static_cast<size_t>(head)];
  info.slice = LocalSlice{1, 3, {{2, 3}, {0, 1}}};
  info.shape = {5, 2}, info.numel = 10;
  read(head, 1, part);
  CHECK(part.equal(at::stack({whole.select(1, 2), whole.select(1, 0)}, 1).reshape({-1}).narrow(0, 1, 9)));
}

TEST_CASE("a model without trainable parameters is refused", "[runtime][engine][initial_values]") {
  test::TempDir folder;
  const char* forward = "def forward(self, x):\n    return x * self.w\n";
  test::compile({"Frozen", forward, {{"w", at::ones({3})}}}).save(folder / "frozen.pt");
  expect_error(ExitCode::kBadInput, {"all parameters are frozen"},
               [&] { require_trainable(load_script_model(folder / "frozen.pt", {})->facts, folder / "frozen.pt"); });
  test::compile({"Bare", forward, {}, {{"w", at::ones({3})}}}).save(folder / "bare.pt");
  expect_error(ExitCode::kBadInput, {"no parameters at all"},
               [&] { require_trainable(load_script_model(folder / "bare.pt", {})->facts, folder / "bare.pt"); });
}

TEST_CASE("a checkpoint lists parameters with their other names, and buffers", "[runtime][engine][saved_tensors]") {
  test::TempDir folder;
  auto net = test::make_mixed_net();
  net.register_buffer("steps", at::zeros({2}, at::kLong));
  net.save(folder / "net.pt");
  const auto tensors = saved_tensors_of(*load_script_model(folder / "net.pt", {}));
  REQUIRE(tensors.size() == 8);
  for (const auto& tensor : tensors) {
    INFO(tensor.name);
    CHECK(tensor.is_buffer == (tensor.name == "steps"));
    CHECK(tensor.trainable == (tensor.name != "steps" && tensor.name != "frozen"));
    CHECK(tensor.aliases ==
          (tensor.name == "encode.weight" ? std::vector<std::string>{"decode.weight"} : std::vector<std::string>{}));
    if (tensor.is_buffer) CHECK(tensor.dtype == at::kLong);
    if (tensor.name == "head") CHECK(tensor.shape == std::vector<int64_t>{5, 3});
  }
}
