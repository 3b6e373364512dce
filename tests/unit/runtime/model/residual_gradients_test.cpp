// Layer norms that pass their input through: which readers of it move, and that gradients stay those of PyTorch's
// operators, bit by bit on the CPU.
#include "runtime/model/fusion/fusion_passes.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "autograd_nodes.hpp"
#include "graph_fixtures.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/layers/layer_norm.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using torch::jit::Module;
using Tensors = std::vector<at::Tensor>;

namespace {

// Of x [..., 8] with a layer norm's weight and bias.
Module net(const std::string& body) {
  Module model("Net");
  torch::manual_seed(3);
  for (const char* name : {"weight", "bias"}) {
    model.register_parameter(name, at::randn({8}).requires_grad_(), false);
  }
  model.define("def norm(self, x):\n    return torch.layer_norm(x, [8], self.weight, self.bias, 1e-5)\n");
  model.define("def forward(self, x):\n" + body);
  return model;
}

constexpr char kOperator[] = "dslaunch::layer_norm_and_input";

// The number of layer norms that pass their input through.
int count_in(const Module& model, const config::Kernels& kernels = {.fused_regions = false}) {
  passes::PassContext context{.module = model, .options = {.kernels = kernels, .regions_on_cpu = true}};
  for (const auto needs : {passes::PassNeeds::kGraphs, passes::PassNeeds::kDevice}) {
    passes::run_passes(torchscript::graph_passes(), needs, passes::PassTarget::kModel, context);
  }
  return test::kinds_in_forward(model)[kOperator];
}

int count_after(const std::string& body, const config::Kernels& kernels = {.fused_regions = false}) {
  return count_in(net(body), kernels);
}

// The output and the gradients of x, weight and bias.
Tensors step(Module& model, at::ScalarType dtype) {
  const torchscript::PlainExecution plain;
  torch::manual_seed(4);
  const at::Tensor x = at::randn({3, 8}).to(dtype).requires_grad_();
  Tensors leaves{x};
  for (const auto& parameter : model.parameters()) {
    parameter.set_data(parameter.to(dtype));
    leaves.push_back(parameter);
  }
  const at::Tensor out = model.forward({x}).toTensor();
  Tensors results{out.detach()};
  for (const auto& gradient : torch::autograd::grad({out}, leaves, {at::randn({3, 8}).to(dtype)})) {
    results.push_back(gradient);
  }
  return results;
}

void check_same_bits(const std::string& body, int count) {
  CAPTURE(body);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    auto before = net(body), after = net(body);
    CHECK(count_in(after) == count);
    const auto expected = step(before, dtype), found = step(after, dtype);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
  }
}

constexpr char kResidual[] = "    return x + torch.tanh(self.norm(x))\n";

}  // namespace

TEST_CASE("a residual stream goes through its layer norms, with the bits of before", "[model][residual_gradients]") {
  check_same_bits(kResidual, 1);
  check_same_bits("    x = x * 2\n    x = x + torch.tanh(self.norm(x))\n    return x + torch.exp(self.norm(x))\n", 2);
  // one stream, two norms
  check_same_bits("    return torch.tanh(self.norm(x)) + torch.exp(self.norm(x)) + x\n", 2);
  // several readers; one of them before
  check_same_bits("    y = x * x\n    n = self.norm(x)\n    return n + x * y - x / 2 + x.pow(2).mean([-1], True)\n", 1);
  // a reader in a branch
  check_same_bits("    n = self.norm(x)\n    if x.dim() == 2:\n        n = torch.tanh(n) + x\n    return n\n", 1);
}

TEST_CASE("an input of a layer norm stays where others may write to it or return it", "[model][residual_gradients]") {
  for (const char* body : {
           // no other reader, or only earlier ones
           "    return self.norm(x)\n",
           "    y = x * 2\n    return self.norm(x) + y\n",
           // writes
           "    x = x * 1\n    n = self.norm(x)\n    y = n + x\n    x.add_(1.0)\n    return y + x\n",
           "    x = x * 1\n    n = self.norm(x)\n    y = n + x\n    x.view(-1).mul_(2.0)\n    return y + x\n",
           // views, lists, calls of what is not known, results
           "    n = self.norm(x)\n    return n + x.view(3, 8)\n",
           "    n = self.norm(x)\n    return torch.stack([n, x])[0]\n",
           "    n = self.norm(x)\n    return x if n.dim() == 2 else n\n",
           // the norm is in a branch that the reader is not in
           "    n = x * 1\n    if x.dim() == 2:\n        n = self.norm(x)\n    return n + x\n",
       }) {
    CAPTURE(body);
    CHECK(count_after(body) == 0);
  }
  CHECK(count_after(kResidual, {.residual_gradient = false, .fused_regions = false}) == 0);
  CHECK(count_after(kResidual, {.layer_norm = false, .fused_regions = false}) == 0);
}

TEST_CASE("a region reads what a layer norm passes through; one that contains the norm has no need to",
          "[model][residual_gradients]") {
  CHECK(count_after("    n = torch.matmul(self.norm(x), x.t())\n    return torch.tanh(n.sum() + x) * 2\n", {}) == 1);
  CHECK(count_after("    return torch.tanh(self.norm(x)) + x\n", {}) == 0);
}

TEST_CASE("a region passes its input through to a later one, and adds its gradient", "[model][residual_gradients]") {
  // RMSNorm before a branch, twice; the second addition is in a region with the norm.
  const std::string body =
      "    h = torch.tanh(x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5) * self.weight)\n"
      "    x = x + torch.matmul(h, torch.ones([8, 8], dtype=x.dtype))\n"
      "    h = x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5) * self.bias\n"
      "    return x + torch.matmul(h, torch.ones([8, 8], dtype=x.dtype))\n";
  const auto num_results = [](const Module& model) {
    size_t count = 0;
    for (const auto* node : model.get_method("forward").graph()->nodes()) {
      if (std::string(node->kind().toQualString()) == "dslaunch::fused_region") count += node->outputs().size();
    }
    return count;
  };
  const auto regions_behind_regions = [](Module& model) {
    const torchscript::PlainExecution plain;
    const auto out = model.forward({at::ones({3, 8}).requires_grad_()}).toTensor();
    int count = 0;
    for (const auto* node : test::autograd_nodes({out})) {
      if (!test::is_region(*node)) continue;
      for (const auto& edge : node->next_edges()) count += edge.function && test::is_region(*edge.function) ? 1 : 0;
    }
    return count;
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    auto plain = net(body), with = net(body), without = net(body);
    count_in(with, {});
    count_in(without, {.residual_gradient = false});
    CHECK(num_results(with) == num_results(without) + 1);
    CHECK(regions_behind_regions(with) == 1);  // the stream goes from the second to the first
    CHECK(regions_behind_regions(without) == 0);
    const auto expected = step(plain, dtype), found = step(with, dtype);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const double bound = dtype == at::kFloat ? 1e-5 : 3e-2;
      CHECK(((found[i] - expected[i]).norm() / expected[i].norm()).item<double>() < bound);
    }
  }
}

TEST_CASE("a region that passes its input through has gradients of gradients", "[model][residual_gradients]") {
  const char* body =
      "    h = torch.exp(x) * self.weight\n    h = torch.matmul(h, torch.ones([8, 8]))\n    return h * x * x\n";
  const auto second = [](Module& model) {
    const torchscript::PlainExecution plain;
    torch::manual_seed(6);
    const at::Tensor x = at::randn({3, 8}).requires_grad_();
    const auto out = model.forward({x}).toTensor();
    const auto first = torch::autograd::grad({out.square().sum()}, {x}, {}, true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, {x})[0];
  };
  auto plain = net(body), fused = net(body);
  count_in(fused, {});
  CHECK(at::allclose(second(fused), second(plain), 1e-4, 1e-4));
  const torchscript::PlainExecution off;
  const at::NoGradGuard guard;
  const at::Tensor x = at::randn({3, 8});
  CHECK(at::allclose(fused.forward({x}).toTensor(), plain.forward({x}).toTensor()));
}

TEST_CASE("a layer norm that passes its input through is one node of autograd", "[model][residual_gradients]") {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({5, 8}).requires_grad_(), weight = at::randn({8}).requires_grad_(),
                   bias = at::randn({8}).requires_grad_();
  const auto made = [&](const at::Tensor& input) {
    return layers::fused_layer_norm_and_input(input, {8}, weight, bias, 1e-5);
  };
  const auto [out, again] = made(x);
  CHECK(out.grad_fn() == again.grad_fn());
  CHECK(again.data_ptr() == x.data_ptr());
  CHECK(at::equal(out, at::layer_norm(x, {8}, weight, bias, 1e-5)));

  SECTION("each result may go without a gradient") {
    const at::Tensor g = at::randn({5, 8});
    const auto of_input = torch::autograd::grad({again}, {x, weight}, {g}, true, false, /*allow_unused=*/true);
    CHECK(at::equal(of_input[0], g));
    CHECK_FALSE(of_input[1].defined());
    const auto of_out = torch::autograd::grad({out}, {x, weight, bias}, {g}, true);
    const auto expected = torch::autograd::grad({at::layer_norm(x, {8}, weight, bias, 1e-5)}, {x, weight, bias}, {g});
    for (size_t i = 0; i < 3; ++i) CHECK(at::equal(of_out[i], expected[i]));
  }
  SECTION("gradients of gradients") {
    const auto second = [&](const at::Tensor& from, const at::Tensor& input) {
      const auto first = torch::autograd::grad({(from * from.sin() + input.pow(3)).sum()}, {x, weight}, {}, true, true);
      return torch::autograd::grad({(first[0] * first[0]).sum() + first[1].sum()}, {x, weight, bias});
    };
    const auto found = second(out, again), expected = second(at::layer_norm(x, {8}, weight, bias, 1e-5), x);
    for (size_t i = 0; i < 3; ++i) CHECK(at::allclose(found[i], expected[i], 1e-4, 1e-5));
  }
  SECTION("without gradients, or of an input that has none, the input itself comes back") {
    const at::NoGradGuard guard;
    CHECK(made(x).second.is_same(x));
  }
  SECTION("a frozen stream") {
    const at::Tensor frozen = x.detach();
    const auto [trained, same] = made(frozen);
    CHECK(trained.requires_grad());
    CHECK(same.is_same(frozen));
  }
  SECTION("frozen parameters") {
    weight.set_requires_grad(false);
    bias.set_requires_grad(false);
    const auto [from, input] = made(x);
    const auto found = torch::autograd::grad({from + input}, {x}, {at::ones({5, 8})});
    const auto expected =
        torch::autograd::grad({at::layer_norm(x, {8}, weight, bias, 1e-5) + x}, {x}, {at::ones({5, 8})});
    CHECK(at::equal(found[0], expected[0]));
  }
}

TEST_CASE("units with residual streams keep plain autograd's gradients, recomputed or not",
          "[model][residual_gradients]") {
  Module block("Block");
  torch::manual_seed(2);
  for (const char* name : {"gain", "shift"}) test::add_parameter(block, name, {4});
  test::add_parameter(block, "weight", {4, 4});
  block.define(R"(
def forward(self, x):
    h = torch.layer_norm(x, [4], self.gain, self.shift, 1e-5)
    x = x + torch.tanh(torch.matmul(h, self.weight))
    h = torch.layer_norm(x, [4], self.gain, self.shift, 1e-5)
    return x + torch.exp(torch.matmul(h, self.weight))
)");
  const auto model =
      test::make_net("def forward(self, x):\n    return self.two.forward(self.one.forward(x * self.scale)).sum()\n",
                     {{"one", block}, {"two", block.deepcopy()}});
  for (const bool recomputes : {false, true}) {
    test::ModelRun run(model, {"Block"}, false, {.kernels = {.fused_regions = false}, .regions_on_cpu = true});
    if (recomputes) run.model->runnable->set_recomputation(RecomputationOptions{});
    run.model->runnable->set_device(at::kCPU, at::kFloat);
    CHECK(run.model->runnable->report_graphs().replaced.at(kOperator) == 4);
    run.check_step({at::linspace(-1, 1, 12).view({3, 4})});
  }
}
