// Traces follow train() and eval() again: the same numbers as the graph as traced in training, none of its noise after.
#include "runtime/model/rewrites/training_flag_rewrite.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "runtime/model/torchscript/training_modes.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::rewrites;
using torch::jit::Module;

namespace {

using Names = std::vector<std::string>;

at::Tensor rows() {
  return at::linspace(-1, 1, 24).view({2, 3, 4});
}

// A module as torch.jit.trace makes it, with what norms need.
Module traced(const std::string& forward, const char* name = "Layer") {
  Module module(name);
  test::mark_as_traced(module);
  module.register_buffer("mean", at::full({3}, 0.25));
  module.register_buffer("variance", at::full({3}, 2.0));
  module.register_buffer("num_batches_tracked", at::tensor(int64_t{4}));
  module.define("def forward(self, x):\n    return " + forward + "\n");
  return module;
}

at::Tensor run(Module& module) {
  torch::manual_seed(7);
  return module.forward({rows()}).toTensor();
}

struct Modes {
  at::Tensor as_traced, training, evaluation;
  TracedModes found;
};

Modes modes_of(const std::string& forward) {
  Modes out;
  auto before = traced(forward), module = traced(forward);
  out.as_traced = run(before);
  out.found = bind_training_flag(module);
  out.training = run(module);
  module.train(false);
  out.evaluation = run(module);
  return out;
}

void check_silent(const TracedModes& found) {
  CHECK(found.dropout_off.empty());
  CHECK(found.statistics_off.empty());
  CHECK(found.averages_fixed.empty());
  CHECK(found.unconditional_masks.empty());
}

std::string norm(const std::string& statistics, const std::string& training, const std::string& momentum) {
  return "torch.batch_norm(x, None, None, " + statistics + ", " + training + ", " + momentum + ", 1.0e-5, False)";
}

}  // namespace

TEST_CASE("dropout that was traced in train mode follows the flag", "[runtime][model][training_flag]") {
  for (const char* forward :
       {"torch.dropout(x, 0.5, True)", "torch.feature_dropout(x, 0.5, True)", "torch.alpha_dropout(x, 0.5, True)"}) {
    CAPTURE(forward);
    const auto modes = modes_of(forward);
    CHECK(at::equal(modes.training, modes.as_traced));
    CHECK_FALSE(at::equal(modes.training, rows()));
    CHECK(at::equal(modes.evaluation, rows()));
    check_silent(modes.found);
  }
}

TEST_CASE("the dropout of attention follows the flag by its probability", "[runtime][model][training_flag]") {
  const auto modes = modes_of("torch.scaled_dot_product_attention(x, x, x, None, 0.5, False)");
  CHECK(at::equal(modes.training, modes.as_traced));
  CHECK(at::equal(modes.evaluation, at::scaled_dot_product_attention(rows(), rows(), rows())));
  CHECK_FALSE(at::equal(modes.training, modes.evaluation));
  check_silent(modes.found);
}

TEST_CASE("a batch norm that was traced in train mode evaluates with its running statistics",
          "[runtime][model][training_flag]") {
  const auto modes = modes_of(norm("self.mean, self.variance", "True", "0.3"));
  CHECK(at::equal(modes.training, modes.as_traced));
  // The training step moved the statistics by 0.3 towards those of its batch.
  const auto mean = 0.25 * 0.7 + 0.3 * rows().mean(at::IntArrayRef{0, 2});
  const auto variance = 2.0 * 0.7 + 0.3 * rows().var(at::IntArrayRef{0, 2});
  const auto by_formula = (rows() - mean.view({1, 3, 1})) / (variance.view({1, 3, 1}) + 1e-5).sqrt();
  CHECK(at::allclose(modes.evaluation, by_formula));
  check_silent(modes.found);
}

TEST_CASE("a norm without running statistics has one mode only", "[runtime][model][training_flag]") {
  const auto modes = modes_of(norm("None, None", "True", "0.1"));
  CHECK(at::equal(modes.evaluation, modes.as_traced));
  check_silent(modes.found);
}

TEST_CASE("what was traced in eval mode stays off and is reported", "[runtime][model][training_flag]") {
  const auto dropout = modes_of("torch.dropout(x, 0.5, False)");
  CHECK(dropout.found.dropout_off == Names{""});
  CHECK(at::equal(dropout.training, rows()));
  const auto statistics = modes_of(norm("self.mean, self.variance", "False", "0.1"));
  CHECK(statistics.found.statistics_off == Names{""});
  CHECK(at::equal(statistics.training, statistics.as_traced));
  check_silent(modes_of("torch.dropout(x, 0.0, False)").found);  // nothing is lost
  check_silent(modes_of("torch.scaled_dot_product_attention(x, x, x, None, 0.0, False)").found);
}

TEST_CASE("a flag that the graph computes stays what it is", "[runtime][model][training_flag]") {
  const auto modes = modes_of("torch.dropout(x, 0.5, bool(x.sum() < 100))");
  CHECK(at::equal(modes.evaluation, modes.as_traced));
  check_silent(modes.found);
}

TEST_CASE("random masks without a flag are reported", "[runtime][model][training_flag]") {
  for (const char* mask : {"torch.bernoulli(x * 0 + 0.5)", "x.new_empty([2, 1, 1]).bernoulli_(0.5)",
                           "torch.floor(torch.rand([2, 1, 1]) + 0.5)", "torch.floor_(0.5 + torch.rand_like(x))"}) {
    CAPTURE(mask);
    CHECK(modes_of(std::string("x * ") + mask).found.unconditional_masks == Names{""});
  }
  check_silent(modes_of("torch.floor(x + 0.5)").found);
}

TEST_CASE("a momentum of 1 over the number of batches looks like a cumulative average",
          "[runtime][model][training_flag]") {
  for (const char* momentum : {"0.25", "0.2"}) {  // 4 batches, or this one is the fifth
    CHECK(modes_of(norm("self.mean, self.variance", "True", momentum)).found.averages_fixed == Names{""});
  }
  check_silent(modes_of(norm("self.mean, self.variance", "True", "0.3")).found);
  auto usual = traced(norm("self.mean, self.variance", "True", "0.1"));
  usual.setattr("num_batches_tracked", at::tensor(int64_t{10}));
  check_silent(bind_training_flag(usual));
}

TEST_CASE("modules are named by their paths, classes are rewritten once", "[runtime][model][training_flag]") {
  Module model("Model");
  test::mark_as_traced(model);
  const auto layer = traced("torch.dropout(torch.dropout(x, 0.5, False), 0.5, False)");
  model.register_module("first", layer);
  model.register_module("again", layer.deepcopy());  // of the same class
  Module inner("Inner");
  inner.register_module("other", traced("torch.dropout(x, 0.5, False)", "Other"));
  model.register_module("inner", inner);
  CHECK(bind_training_flag(model).dropout_off == Names{"first", "inner.other"});
}

TEST_CASE("flags inside branches and in other methods are followed too", "[runtime][model][training_flag]") {
  Module module("Layer");
  test::mark_as_traced(module);
  module.define(R"(
def forward(self, x):
    if x.dim() > 2:
        x = torch.dropout(x, 0.5, True)
    return self.rest(x)
def rest(self, x):
    return torch.dropout(x, 0.5, True)
)");
  check_silent(bind_training_flag(module));
  module.train(false);
  CHECK(at::equal(run(module), rows()));
}

TEST_CASE("a scripted module keeps its constants", "[runtime][model][training_flag]") {
  Module scripted("Layer");
  scripted.register_attribute("training", c10::BoolType::get(), true);
  scripted.register_attribute("_is_full_backward_hook", c10::NoneType::get(), c10::IValue());
  scripted.define("def forward(self, x):\n    return torch.dropout(x, 0.5, True)\n");
  const auto before = run(scripted);
  check_silent(bind_training_flag(scripted));
  scripted.train(false);
  CHECK(at::equal(run(scripted), before));
  CHECK_FALSE(is_trace(scripted));
}

TEST_CASE("a trace is told from a script by what a script has", "[runtime][model][training_flag]") {
  const auto with_weight = [] {
    Module module("Net");
    test::mark_as_traced(module);
    test::add_parameter(module, "weight", {4, 4});
    module.define("def forward(self, x):\n    return torch.matmul(x, self.weight)\n");
    return module;
  };
  CHECK(is_trace(with_weight()));
  SECTION("no parameters: nothing to follow") {
    Module empty("Net");
    test::mark_as_traced(empty);
    CHECK_FALSE(is_trace(empty));
  }
  SECTION("constants") {
    auto module = with_weight();
    module.type()->addConstant("size", 4);
    CHECK_FALSE(is_trace(module));
  }
  SECTION("a scripted child") {
    auto module = with_weight();
    Module child("Child");
    child.register_attribute("_is_full_backward_hook", c10::NoneType::get(), c10::IValue());
    module.register_module("child", child);
    CHECK_FALSE(is_trace(module));
  }
  SECTION("no flag") {
    Module module("Net");
    module.register_attribute("_is_full_backward_hook", c10::OptionalType::create(c10::BoolType::get()), c10::IValue());
    test::add_parameter(module, "weight", {4, 4});
    CHECK_FALSE(is_trace(module));
  }
  SECTION("calls of torch.nn.functional") {
    const std::string net = R"(
class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  training : bool
  _is_full_backward_hook : Optional[bool]
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    if True:
      y = __torch__.torch.nn.functional.dropout(x, )
    else:
      y = x
    return torch.matmul(y, self.weight)
)";
    const std::string functional = "def dropout(x: Tensor) -> Tensor:\n  return torch.dropout(x, 0.5, True)\n";
    const auto module = test::ImportedClasses::make_net(
        {{"__torch__", net}, {"__torch__.torch.nn.functional", functional}}, {{"weight", at::ones({4, 4})}});
    CHECK_FALSE(is_trace(module));
  }
}

TEST_CASE("values that a traced forward keeps lose their history after the step", "[runtime][model][training_flag]") {
  Module module("Net");
  test::mark_as_traced(module);
  test::add_parameter(module, "weight", {4});
  module.register_parameter("still", at::ones({4}), false);
  module.register_buffer("sum", at::zeros({4}));
  module.register_buffer("row", at::zeros({4}));
  const auto state = find_traced_state(module);
  REQUIRE(state.size() == 3);  // not the trained parameter
  const auto weight = module.attr("weight").toTensor();
  module.attr("sum").toTensor().add_(weight);
  module.setattr("row", (weight.view({2, 2}) * 2).view(-1));  // a view
  drop_history(state);
  CHECK_FALSE(module.attr("sum").toTensor().requires_grad());
  CHECK_FALSE(module.attr("row").toTensor().requires_grad());
  CHECK(at::equal(module.attr("row").toTensor(), weight.detach() * 2));
  CHECK(module.attr("weight").toTensor().requires_grad());
}

TEST_CASE("a traced model that adds to a buffer steps as one that detaches it", "[runtime][model][training_flag]") {
  Module net("Net");
  test::mark_as_traced(net);
  test::add_parameter(net, "weight", {4, 4});
  net.register_buffer("sum", at::zeros({4}));
  net.define(R"(
def forward(self, x):
    y = torch.matmul(x, self.weight)
    self.sum.add_(y.mean([0, 1]))
    return (y + self.sum * 2).sum()
)");
  test::ModelRun run(net);
  at::Tensor weight, sum = at::zeros({4});
  for (const auto& p : torch::jit::load(run.path()).named_parameters()) weight = p.value;
  for (int step = 0; step < 3; ++step) {
    const auto found = run.step({rows()});
    CHECK_FALSE(run.model->tensors.buffers().at(0).second.requires_grad());
    const auto y = rows().matmul(weight);
    const auto now = sum + y.mean(at::IntArrayRef{0, 1});
    const auto loss = (y + now * 2).sum();
    sum = now.detach();
    test::check_same(found, {loss.detach(), {{"weight", torch::autograd::grad({loss}, {weight}).at(0)}}});
  }
}

TEST_CASE("notes name the modules of each kind of loss", "[runtime][model][training_flag]") {
  const auto notes = torchscript::describe_traced_modes(
      {.dropout_off = {"", "a"}, .statistics_off = {"b"}, .averages_fixed = {"c"}, .unconditional_masks = {"d"}});
  REQUIRE(notes.size() == 4);
  CHECK_THAT(notes[0], Catch::Contains("their dropout is lost: the model itself, a;"));
  CHECK_THAT(notes[1], Catch::Contains("saved statistics: b;"));
  CHECK_THAT(notes[2], Catch::Contains("drop in evaluation as well: d;"));
  CHECK_THAT(notes[3], Catch::Contains("momentum=None: c;"));
  CHECK(torchscript::describe_traced_modes({}).empty());
}

TEST_CASE("modules that were saved in eval mode among others stay so in training", "[runtime][model][training_flag]") {
  const auto layer = [](bool trains) {
    Module module("Layer");
    module.register_attribute("training", c10::BoolType::get(), trains);
    test::add_parameter(module, "weight", {4});
    module.define("def forward(self, x):\n    return torch.dropout(x * self.weight, 0.5, self.training)\n");
    return module;
  };
  const auto net = [&](bool one, bool two) {
    Module module("Net");
    module.register_attribute("training", c10::BoolType::get(), one);
    module.register_module("one", layer(one));
    module.register_module("two", layer(two));
    module.define("def forward(self, x):\n    return self.two.forward(self.one.forward(x)).sum()\n");
    return module;
  };
  const auto mixed = torchscript::find_training_modes(net(true, false));
  CHECK(mixed.frozen_in_eval.size() == 1);
  CHECK(mixed.notes == Names{"kept in eval mode, as saved: two"});
  CHECK(torchscript::find_training_modes(net(true, true)).frozen_in_eval.empty());
  CHECK(torchscript::find_training_modes(net(false, false)).frozen_in_eval.empty());  // merely saved so
  // The whole model: one drops in training, two never.
  test::ModelRun run(net(true, false));
  const auto x = at::ones({64, 4});
  run.model->runnable->train(false);
  const auto evaluated = run.forward({x});
  run.model->runnable->train(true);
  const auto trained = run.forward({x});
  CHECK_FALSE(at::equal(trained, evaluated));
  test::check_same(run.step({x}), run.plain_step({x}));
}
