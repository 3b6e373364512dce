// GEMMs whose output is cut become one operator where nothing else reads it, and gradients stay plain autograd's,
// bit by bit on the CPU.
#include "runtime/model/layers/linear.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <string>

#include "autograd_nodes.hpp"
#include "graph_fixtures.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using torch::jit::Module;

namespace {

// A unit of x [3, 4] with a layer for three pieces at once.
Module make_block(const std::string& body) {
  Module block("Block");
  test::add_parameter(block, "wide", {12, 4});
  test::add_parameter(block, "tall", {4, 12});
  test::add_parameter(block, "bias", {12});
  block.define("def forward(self, x):\n" + body);
  return block;
}

GraphPassOptions options_with(const config::Kernels& kernels) {
  return {.kernels = kernels, .regions_on_cpu = true};
}

// The number of GEMMs that were joined with their cuts, in two units, and of cuts in autograd's graph; the step
// keeps plain autograd's bits.
struct Found {
  int64_t joined = 0, cuts = 0;
  bool operator==(const Found&) const = default;
};

Found found_after(const std::string& body, const config::Kernels& kernels = {.fused_regions = false},
                  bool recomputes = false) {
  CAPTURE(body);
  torch::manual_seed(1);
  const auto block = make_block(body);
  const auto model =
      test::make_net("def forward(self, x):\n    return self.two.forward(self.one.forward(x * self.scale)).sum()\n",
                     {{"one", block}, {"two", block.deepcopy()}});
  test::ModelRun run(model, {"Block"}, false, options_with(kernels));
  if (recomputes) run.model->runnable->set_recomputation(RecomputationOptions{});
  run.model->runnable->set_device(at::kCPU, at::kFloat);
  run.check_step({at::linspace(-1, 1, 12).view({3, 4})});
  const auto replaced = run.model->runnable->report_graphs().replaced;
  Found found;
  for (const char* name : {"dslaunch::linear_cut", "dslaunch::addmm_cut"}) {
    if (const auto place = replaced.find(name); place != replaced.end()) found.joined += place->second;
  }
  const at::Tensor loss = run.forward({at::linspace(-1, 1, 12).view({3, 4})});
  found.cuts = test::count_nodes({loss}, "Split") + test::count_nodes({loss}, "Chunk");
  loss.backward();
  return found;
}

constexpr char kSplit[] =
    "    q, k, v = torch.linear(x, self.wide, self.bias).split(4, dim=1)\n"
    "    return torch.tanh(q) * k + v\n";

}  // namespace

TEST_CASE("a GEMM and the cut of its output are one operator", "[model][linear_cut]") {
  CHECK(found_after(kSplit) == Found{2, 0});
  CHECK(found_after(kSplit, {.fused_regions = false}, /*recomputes=*/true) == Found{2, 0});
  CHECK(found_after("    q, k = torch.linear(x, self.wide, self.bias).split([8, 4], dim=-1)\n"
                    "    return q[:, :4] * k + q[:, 4:]\n") == Found{2, 0});
  CHECK(found_after("    q, k, v = torch.chunk(torch.linear(x, self.wide, self.bias), 3, -1)\n"
                    "    return torch.tanh(q) * k + v\n") == Found{2, 0});
  // of transformers' Conv1D
  CHECK(found_after("    y = torch.addmm(self.bias, x, self.tall).view(1, 3, 12)\n"
                    "    q, k, v = y.split(4, dim=2)\n"
                    "    return (torch.tanh(q) * k + v).view(3, 4)\n") == Found{2, 0});
  // a piece that is not read
  CHECK(found_after("    q, k, v = torch.linear(x, self.wide, self.bias).split(4, dim=1)\n"
                    "    return torch.tanh(q) * k\n") == Found{2, 0});
}

TEST_CASE("cuts along another dim, and of views that end otherwise, run as they did", "[model][linear_cut]") {
  CHECK(found_after("    a, b, c = torch.linear(x, self.wide, self.bias).split(1, dim=0)\n"
                    "    return (a * b + c)[:, :4] + x\n") == Found{2, 2});
  CHECK(found_after("    y = torch.linear(x, self.wide, self.bias).view(9, 4)\n"
                    "    a, b = y.split([1, 3], dim=1)\n"
                    "    return (torch.tanh(a) * b).view(3, 9)[:, :4] + x\n") == Found{2, 2});
  CHECK(found_after("    q, k, v = torch.linear(x, self.wide).split(4, dim=1)\n    return torch.tanh(q) * k + v\n") ==
        Found{2, 2});
}

TEST_CASE("GEMMs that others read, whose inputs are written to, or without our backward stay", "[model][linear_cut]") {
  for (const char* body : {
           "    y = torch.linear(x, self.wide, self.bias)\n    q, k, v = y.split(4, dim=1)\n"
           "    return torch.tanh(q) * k + v + y.mean()\n",
           "    x = x * 1\n    y = torch.linear(x * 2, self.wide, self.bias)\n    x.add_(1.0)\n"
           "    q, k, v = torch.linear(x, self.wide, self.bias).split(4, dim=1)\n    x.mul_(2.0)\n"
           "    return torch.tanh(q) * k + v + y[:, :4].detach()\n",
           "    q, k, v = (torch.linear(x, self.wide, self.bias) * 2).split(4, dim=1)\n"
           "    return torch.tanh(q) * k + v\n",
       }) {
    CAPTURE(body);
    torch::manual_seed(1);
    Module model = make_block(body);
    passes::PassContext context{.module = model, .options = options_with({.fused_regions = false})};
    for (const auto needs : {passes::PassNeeds::kGraphs, passes::PassNeeds::kDevice}) {
      passes::run_passes(torchscript::graph_passes(), needs, passes::PassTarget::kModel, context);
    }
    CHECK(test::kinds_in_forward(model)["dslaunch::linear_cut"] == 0);
  }
  CHECK(found_after(kSplit, {.bias_gradient = false, .fused_regions = false}) == Found{0, 2});
}

TEST_CASE("a cut that does not fit says what PyTorch says", "[model][linear_cut]") {
  const at::Tensor x = at::ones({2, 4}).requires_grad_(), weight = at::ones({6, 4}), bias = at::ones({6});
  const auto cut = [&](layers::Cut how) { return layers::fused_linear_cut(x, weight, bias, how); };
  CHECK_THROWS_WITH(cut({layers::Cut::Kind::kSizes, {4, 4}, 1}), Catch::Contains("split_with_sizes expects"));
  CHECK_THROWS(cut({layers::Cut::Kind::kSize, {3}, 2}));
  CHECK_THROWS(cut({layers::Cut::Kind::kChunks, {0}, 1}));
  const auto pieces = cut({layers::Cut::Kind::kChunks, {4}, -1});
  REQUIRE(pieces.size() == 3);  // of two columns each, as at::chunk does it
  CHECK(pieces[2].sizes() == at::IntArrayRef({2, 2}));
}
