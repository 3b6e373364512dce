// When the cast of logits may become part of the loss and when it may not, and that replacements on the CPU compute
// what PyTorch computes.
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/layers/layer_norm.hpp"
#include "runtime/model/layers/linear.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <catch2/catch.hpp>

#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using torch::jit::Module;
using torch::jit::Node;

namespace {

// The body of a forward that makes `wide` and ends with its loss, and with `more` of it.
std::string with_loss(const std::string& body, const std::string& more = "") {
  return body + "    return torch.cross_entropy_loss(wide, labels)" + more + "\n";
}

// A model of (logits [6, 7], labels [6]) with a tensor `kept`, a flag and a method `change`.
Module model_of(const std::string& body) {
  Module model("Net");
  model.register_attribute("kept", c10::TensorType::get(), at::zeros({1}));
  model.register_attribute("flag", c10::BoolType::get(), true);
  model.define("def change(self, x):\n    return x * 1\n");
  model.define("def forward(self, logits, labels):\n" + body);
  return model;
}

struct Numbers {
  at::Tensor loss, gradient;
};

Numbers numbers(Module& model, at::ScalarType dtype) {
  torch::manual_seed(5);
  const at::Tensor logits = at::randn({6, 7}).to(dtype).requires_grad_();
  const torchscript::PlainExecution plain;
  const auto loss = model.forward({logits * 1, at::tensor({1, 2, 0, 3, 6, 5}, at::kLong)}).toTensor();
  return {loss.detach(), torch::autograd::grad({loss.to(at::kFloat)}, {logits}).at(0)};
}

// Whether the loss takes the logits as they were before the cast; the numbers are the same bits either way.
bool takes_uncast(
    const std::string& body, const std::function<void(Module&)>& prepare = [](Module&) {}) {
  std::vector<Numbers> expected;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    auto before = model_of(body);
    prepare(before);
    expected.push_back(numbers(before, dtype));
  }
  auto model = model_of(body);
  prepare(model);
  passes::PassContext context{.module = model};
  passes::run_passes(torchscript::graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
  size_t compared = 0;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto found = numbers(model, dtype);
    CHECK(at::equal(found.loss, expected[compared].loss));
    CHECK(at::equal(found.gradient, expected[compared].gradient));
    compared += 1;
  }
  bool in_float = false, is_replaced = false;
  for (const Node* node : model.get_method("forward").graph()->nodes()) {
    if (std::string_view(node->kind().toQualString()) != "dslaunch::cross_entropy") continue;
    is_replaced = true;
    in_float = torch::jit::toIValue(node->input(6))->toBool();
  }
  CHECK(is_replaced);
  return in_float;
}

}  // namespace

TEST_CASE("a cast of logits goes where only the loss and questions for sizes see it", "[runtime][model][fused]") {
  for (const char* between : {
           "    wide = logits.float()\n",
           "    wide = logits.to(6)\n",
           "    wide = logits.float()\n    n = wide.size(0) + wide.dim()\n    wide = wide.view(n - 2, -1)\n",
           "    wide = logits.float().flatten(0, 0).contiguous().reshape(6, 7).squeeze(0)\n",
       }) {
    CAPTURE(between);
    CHECK(takes_uncast(with_loss(between)));
  }
  CHECK(takes_uncast(
      with_loss("    wide = logits.float()\n    n = labels\n    if self.flag:\n        n = torch.relu(n)\n",
                " + n.sum() * self.kept.sum()")));
}

TEST_CASE("a cast of logits stays where it cannot be taken out", "[runtime][model][fused]") {
  for (const char* between : {
           // other casts, other operators between
           "    wide = logits.double()\n",
           "    wide = logits * 1.0\n",
           "    wide = logits.float() * 2\n",
           "    wide = torch.relu(logits.float())\n",
           "    wide = logits.float().t().t()\n",
           // in another block
           "    wide = logits\n    if self.flag:\n        wide = logits.float()\n",
           // others need its elements
           "    wide = logits.float()\n    self.kept = wide\n",
           // something may be written between
           "    wide = logits.float()\n    self.kept = labels\n",
           "    wide = logits.float()\n    labels.clamp_(0)\n",
           "    wide = logits.float()\n    if self.flag:\n        labels.clamp_(0)\n",
           "    wide = logits.float()\n    other = self.change(labels)\n",
       }) {
    CAPTURE(between);
    CHECK_FALSE(takes_uncast(with_loss(between)));
  }
}

TEST_CASE("a cast of logits stays where its elements are used again after the loss", "[runtime][model][fused]") {
  CHECK_FALSE(takes_uncast(with_loss("    wide = logits.float()\n", " + wide.sum()")));
  CHECK_FALSE(takes_uncast(with_loss("    whole = logits.float()\n    wide = whole.view(6, 7)\n", " + whole.max()")));
  CHECK_FALSE(takes_uncast(with_loss("    wide = logits.float()\n", " + torch.stack([wide, wide]).mean()")));
}

TEST_CASE("a cast of logits stays where a fork runs between", "[runtime][model][fused]") {
  CHECK_FALSE(takes_uncast(with_loss("    wide = logits.float()\n    other = self.change(labels)\n"),
                           [](Module& model) { test::fork_first_call(*model.get_method("forward").graph()); }));
}

TEST_CASE("functions between the cast and the loss count by what they do", "[runtime][model][fused]") {
  const auto with_function = [](const std::string& body) {
    const std::string net = R"(
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  def forward(self: __torch__.Net, logits: Tensor, labels: Tensor) -> Tensor:
    wide = torch.to(logits, 6)
    other = __torch__.functional.between(labels, )
    return torch.cross_entropy_loss(wide, labels)
)";
    auto module = test::ImportedClasses::make_net(
        {{"__torch__", net}, {"__torch__.functional", "def between(x: Tensor) -> Tensor:\n  return " + body + "\n"}},
        {});
    passes::PassContext context{.module = module};
    passes::run_passes(torchscript::graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
    const auto text = module.get_method("forward").graph()->toString(false);
    CHECK(text.find("dslaunch::cross_entropy") != std::string::npos);
    CHECK(text.find("prim::CallFunction") != std::string::npos);  // nothing of a loss in it, so it is not inlined
    return text.find("aten::to(") == std::string::npos;
  };
  CHECK(with_function("torch.mul(x, 2)"));
  CHECK_FALSE(with_function("torch.mul_(x, 2)"));
}

TEST_CASE("losses that the kernel does not compute are PyTorch's", "[runtime][model][fused]") {
  torch::manual_seed(5);
  const auto labels = at::tensor({1, 2, 0, 3, 6, -100}, at::kLong);
  const auto weight = at::rand({7});
  const auto compare = [&](const std::optional<at::Tensor>& weights, int64_t reduction, double smoothing,
                           bool in_float) {
    const auto logits = at::randn({6, 7}).to(in_float ? at::kBFloat16 : at::kFloat).requires_grad_();
    const auto found = layers::fused_cross_entropy(logits, labels, weights, reduction, -100, smoothing, in_float);
    const auto expected = at::cross_entropy_loss(logits.to(at::kFloat), labels, weights, reduction, -100, smoothing);
    CHECK(at::equal(found, expected));
    CHECK(at::equal(torch::autograd::grad({found.sum()}, {logits}).at(0),
                    torch::autograd::grad({expected.sum()}, {logits}).at(0)));
  };
  for (const bool in_float : {false, true}) {
    compare({}, at::Reduction::Mean, 0.0, in_float);
    compare({}, at::Reduction::Sum, 0.0, in_float);
    compare({}, at::Reduction::None, 0.0, in_float);
    compare(weight, at::Reduction::Mean, 0.0, in_float);
    compare({}, at::Reduction::Mean, 0.1, in_float);
  }
}

TEST_CASE("layer norms and linear layers on the CPU are PyTorch's, gradients too", "[runtime][model][fused]") {
  torch::manual_seed(5);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto x = at::randn({3, 8}).to(dtype).requires_grad_(), w = at::randn({4, 8}).to(dtype).requires_grad_(),
               b = at::randn({4}).to(dtype).requires_grad_(), g = at::randn({8}).to(dtype).requires_grad_(),
               h = at::randn({8}).to(dtype).requires_grad_();
    const auto same = [](const at::Tensor& found, const at::Tensor& expected, const std::vector<at::Tensor>& inputs) {
      CHECK(at::equal(found, expected));
      const auto gradients = torch::autograd::grad({found.sum()}, inputs);
      const auto of_expected = torch::autograd::grad({expected.sum()}, inputs);
      for (size_t i = 0; i < inputs.size(); ++i) CHECK(at::equal(gradients[i], of_expected[i]));
    };
    same(layers::fused_linear(x, w, b), at::linear(x, w, b), {x, w, b});
    same(layers::fused_linear(x, w, {}), at::linear(x, w), {x, w});
    same(layers::fused_layer_norm(x, {8}, g, h, 1e-3), at::layer_norm(x, {8}, g, h, 1e-3), {x, g, h});
    same(layers::fused_layer_norm(x, {3, 8}, {}, {}, 1e-5), at::layer_norm(x, {3, 8}), {x});
  }
}

TEST_CASE("a replaced operator keeps its result's name and its place in the source", "[runtime][model][fused]") {
  Module model("Net");
  model.define("def forward(self, x, w):\n    scores = torch.linear(x, w)\n    return torch.relu(scores)\n");
  const auto graph = model.get_method("forward").graph();
  const auto place = [&](const char* kind) {
    for (const Node* node : graph->nodes()) {
      if (node->kind().toQualString() == std::string_view(kind)) {
        return node->output()->debugName() + " " + std::to_string(std::get<1>(*node->sourceRange().file_line_col()));
      }
    }
    return std::string("none");
  };
  const auto before = place("aten::linear");
  passes::PassContext context{.module = model};
  passes::run_passes(torchscript::graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
  CHECK(place("dslaunch::linear").substr(0, 6) == before.substr(0, 6));
  CHECK(place("dslaunch::linear").back() == before.back());
  CHECK(place("aten::linear") == "none");
}
