// Constants that an export baked into graphs: devices, minima of masks, numbers that a file stores as tensors.
#include "runtime/model/rewrites/graph_constants.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <catch2/catch.hpp>
#include <limits>

#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::rewrites;
using torch::jit::Module;

namespace {

// forward(x) = x * constant, with the constant in the graph; `through`: an operator between the two.
Module times_constant(const c10::IValue& constant, const char* through = nullptr) {
  Module module("Net");
  module.define("def forward(self, x):\n    return x\n");
  const auto graph = module.get_method("forward").graph();
  const torch::jit::WithInsertPoint at_end(graph->return_node());
  auto* factor = graph->insertConstant(constant);
  if (through != nullptr) factor = graph->insert(c10::Symbol::fromQualString(through), {factor});
  auto* product = graph->insert(c10::aten::mul, {graph->outputs().at(0), factor});
  graph->eraseOutput(0);
  graph->registerOutput(product);
  return module;
}

at::Tensor run(Module module, const at::Tensor& x) {
  const torchscript::PlainExecution plain;
  return module.forward({x}).toTensor();
}

constexpr double kLowest = -std::numeric_limits<float>::max();

}  // namespace

TEST_CASE("a mask's minimum becomes one that the dtype can hold", "[runtime][model][graph_constants]") {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const c10::IValue& constant : {c10::IValue(kLowest), c10::IValue(at::full({2}, kLowest))}) {
      std::vector<std::string> notes;
      auto module = times_constant(constant);
      fit_constants(module, dtype, notes);
      const auto found = run(module, at::ones({2})).to(dtype);
      CHECK(found.isfinite().all().item<bool>());
      CHECK(found.lt(-30000).all().item<bool>());
      REQUIRE(notes.size() == 1);
      CHECK_THAT(notes[0], Catch::StartsWith("1 constants of its graphs (minima of masks) are out of range for ") &&
                               Catch::Contains(dtype == at::kHalf ? "fp16" : "bf16"));
    }
  }
}

TEST_CASE("constants that fit stay, and all do in fp32", "[runtime][model][graph_constants]") {
  std::vector<std::string> notes;
  for (const double number : {-65504.0, 1.5, -std::numeric_limits<double>::infinity(), std::nan("")}) {
    auto module = times_constant(number);
    fit_constants(module, at::kHalf, notes);
    CHECK(at::equal(run(module, at::ones({1})).isnan(), at::full({1}, number).isnan()));
    if (!std::isnan(number)) CHECK(at::equal(run(module, at::ones({1})), at::full({1}, number)));
  }
  auto module = times_constant(kLowest);
  fit_constants(module, at::kFloat, notes);
  CHECK(run(module, at::ones({1})).item<float>() == static_cast<float>(kLowest));
  CHECK(notes.empty());
}

TEST_CASE("a number that a trace stores as a tensor takes the other operand's dtype, as in Python",
          "[runtime][model][graph_constants]") {
  const auto positions = at::arange(3);
  const auto half = at::ones({3}, at::kHalf);
  const auto number = times_constant(at::full({}, 0.1, at::kDouble));
  CHECK(run(times_constant(at::full({}, 0.1, at::kDouble)), half[0]).scalar_type() ==
        at::kDouble);  // what the file says
  restore_numbers(number);
  CHECK(run(number, positions).scalar_type() == at::kFloat);
  CHECK(at::equal(run(number, positions), positions * 0.1));
  CHECK(run(number, at::ones({}, at::kHalf)).scalar_type() == at::kHalf);
  const auto integer = times_constant(at::full({}, 2, at::kLong));
  restore_numbers(integer);
  CHECK(run(integer, at::ones({}, at::kInt)).scalar_type() == at::kInt);
  CHECK(at::equal(run(integer, half), half * 2));
}

TEST_CASE("tensors that the code made stay tensors", "[runtime][model][graph_constants]") {
  const auto x = at::ones({}, at::kHalf);
  for (const char* through : {"aten::detach", "aten::clone"}) {
    const auto module = times_constant(at::full({}, 0.5, at::kDouble), through);
    restore_numbers(module);
    CHECK(run(module, x).scalar_type() == at::kDouble);
  }
  for (const auto& tensor : {at::full({}, 0.5, at::kFloat), at::full({1}, 0.5, at::kDouble)}) {
    const auto module = times_constant(tensor);
    restore_numbers(module);
    CHECK(run(module, x).scalar_type() == tensor.scalar_type());
  }
}

TEST_CASE("devices in graphs become the run's, those of units too", "[runtime][model][graph_constants]") {
  const auto layer = [] {
    auto module = test::make_layer("def forward(self, x):\n    return torch.matmul(x, self.weight)\n");
    const auto graph = module.get_method("forward").graph();
    auto* product = graph->outputs().at(0)->node();
    const torch::jit::WithInsertPoint before(graph->return_node());
    auto* device = graph->insertConstant(at::Device("meta"));
    auto* zeros = graph->insert(c10::aten::zeros, {std::vector<int64_t>{4}}, {{"device", device}});
    auto* sum = graph->insert(c10::aten::add, {product->output(), zeros});
    graph->eraseOutput(0);
    graph->registerOutput(sum);
    return module;
  };
  const auto net =
      test::make_net("def forward(self, x):\n    return (self.two.forward(self.one.forward(x)) * self.scale).sum()\n",
                     {{"one", layer()}, {"two", layer()}});
  test::ModelRun run(net);
  run.model->to_device(
      at::kCPU, [](const std::string&, at::ScalarType own) { return own; },
      std::vector<bool>(run.model->facts.table.parameters.size()));
  const auto loss = run.forward({at::ones({2, 4})});
  CHECK(loss.device().is_cpu());
  const auto moved = times_constant(at::full({2}, 3.0));
  rewrite_device_constants(moved, at::kMeta);
  CHECK(run.model->facts.notes.empty());
  int num_tensors = 0;
  for (auto* node : moved.get_method("forward").graph()->nodes()) {
    if (node->kind() != c10::prim::Constant || !node->hasAttribute(c10::attr::value)) continue;
    CHECK(node->t(c10::attr::value).is_meta());
    num_tensors += 1;
  }
  CHECK(num_tensors == 1);
}

TEST_CASE("rows of the table of passes run where they are wanted", "[runtime][model][graph_constants]") {
  using namespace passes;
  static std::vector<std::string> ran;
  const std::vector<GraphPass> table{
      {"always",
       nullptr,
       PassNeeds::kGraphs,
       PassTarget::kModelAndLoss,
       {},
       {},
       {},
       [](PassContext&) { ran.emplace_back("always"); }},
      {"model",
       nullptr,
       PassNeeds::kGraphs,
       PassTarget::kModel,
       {},
       {},
       {},
       [](PassContext&) { ran.emplace_back("model"); }},
      {"switched",
       &dslaunch::config::Kernels::layer_norm,
       PassNeeds::kGraphs,
       PassTarget::kModelAndLoss,
       {},
       {},
       {},
       [](PassContext&) { ran.emplace_back("switched"); }},
      {"device",
       nullptr,
       PassNeeds::kDevice,
       PassTarget::kModelAndLoss,
       {},
       {},
       {},
       [](PassContext&) { ran.emplace_back("device"); }},
  };
  const auto module = times_constant(2.0);
  const auto run_rows = [&](PassNeeds needs, PassTarget target, bool layer_norm) {
    ran.clear();
    PassContext context{.module = module, .options = {.kernels = {.layer_norm = layer_norm}}};
    run_passes(table, needs, target, context);
    return ran;
  };
  using Names = std::vector<std::string>;
  CHECK(run_rows(PassNeeds::kGraphs, PassTarget::kModel, true) == Names{"always", "model", "switched"});
  CHECK(run_rows(PassNeeds::kGraphs, PassTarget::kModelAndLoss, true) == Names{"always", "switched"});
  CHECK(run_rows(PassNeeds::kGraphs, PassTarget::kModel, false) == Names{"always", "model"});
  CHECK(run_rows(PassNeeds::kDevice, PassTarget::kModel, true) == Names{"device"});
}

TEST_CASE("a loss from a file gets the passes for losses", "[runtime][model][graph_constants]") {
  auto loss = times_constant(at::full({}, 0.1, at::kDouble));
  torchscript::run_loss_passes(loss, {}, at::kCPU);
  CHECK(run(loss, at::arange(3)).scalar_type() == at::kFloat);
  Module net("Loss");
  test::mark_as_traced(net);
  net.define("def forward(self, x, y):\n    return torch.cross_entropy_loss(torch.dropout(x, 0.5, True), y)\n");
  torchscript::run_loss_passes(net, {}, at::kCPU);
  net.train(false);
  torch::manual_seed(3);
  const auto x = at::ones({4, 5}), y = at::arange(4);
  const auto found = net.forward({x, y}).toTensor();
  torch::manual_seed(3);
  CHECK(at::equal(found, at::cross_entropy_loss(at::dropout(x, 0.5, true), y)));  // training_flag is for models
}
