// Regions in models as a job loads them: with units that are gathered, with recomputation, with losses that go on from
// there. On the CPU, by the reference, where a job itself has no regions.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "region_nodes.hpp"
#include "runtime/model/recomputation_options.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using dslaunch::test::add_parameter;
using dslaunch::test::count_regions;
using dslaunch::test::make_net;
using dslaunch::test::ModelRun;
using torch::jit::Module;

namespace {

Module make_block() {
  Module layer("Block");
  add_parameter(layer, "weight", {4, 4});
  add_parameter(layer, "scale", {4});
  layer.define(R"(
def forward(self, x):
    h = x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5) * self.scale
    return torch.silu(torch.matmul(h, self.weight)) * h + x
)");
  return layer;
}

constexpr char kTwoInTurn[] = R"(
def forward(self, x):
    x = self.one.forward(x * self.scale)
    x = self.two.forward(x)
    return (torch.tanh(x) * self.scale).sum()
)";

Module make_model() {
  const auto block = make_block();
  return make_net(kTwoInTurn, {{"one", block}, {"two", block.deepcopy()}});
}

at::Tensor rows() {
  return at::linspace(-1, 1, 12).view({3, 4});
}

void check_step(ModelRun& run) {
  const auto expected = run.plain_step({rows()});
  run.gathered->forget();
  const auto found = run.step({rows()});
  CHECK(run.gathered->num_held() == 0);
  CHECK(at::allclose(found.loss, expected.loss, 1e-5, 1e-6));
  REQUIRE(found.gradients.size() == expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    INFO(name);
    REQUIRE(found.gradients.count(name) == 1);
    CHECK(at::allclose(found.gradients.at(name), gradient, 1e-4, 1e-5));
  }
}

}  // namespace

TEST_CASE("region models: units are gathered around their regions, and gradients are autograd's") {
  for (const std::vector<std::string>& units : {std::vector<std::string>{"Block"}, {}}) {
    ModelRun run(make_model(), units, false, {.regions_on_cpu = true});
    run.model->runnable->set_device(at::kCPU, at::kFloat);
    check_step(run);
    const at::Tensor loss = run.forward({rows()});
    CHECK(count_regions({loss}) == 5);  // two in each block, one behind them
    loss.backward();
  }
}

TEST_CASE("region models: recomputed units run their regions again") {
  ModelRun run(make_model(), {"Block"}, false, {.regions_on_cpu = true});
  run.model->runnable->set_device(at::kCPU, at::kFloat);
  run.model->runnable->set_recomputation(RecomputationOptions{});
  check_step(run);
}

TEST_CASE("region models: a job on CPUs has none, nor has one that switched them off") {
  for (const bool on_cpu : {false, true}) {
    GraphPassOptions options{.regions_on_cpu = on_cpu};
    options.kernels.fused_regions = !on_cpu;
    ModelRun run(make_model(), {"Block"}, false, options);
    run.model->runnable->set_device(at::kCPU, at::kFloat);
    const at::Tensor loss = run.forward({rows()});
    CHECK(count_regions({loss}) == 0);
    loss.backward();
    run.gathered->forget();
    run.check_step({rows()});  // the bits of PyTorch
  }
}
