// Outputs of regions that their readers do not keep for backward: which ones are on offer, that a step's numbers stay
// the same bits, and what memory it saves. On the CPU, by the reference.
#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/fusion/autograd_function.hpp"
#include "runtime/model/fusion/fusion_passes.hpp"
#include "runtime/model/fusion/segmenter.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/model/torchscript/units/recomputed_tensor.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using dslaunch::test::add_parameter;
using dslaunch::test::make_net;
using dslaunch::test::ModelRun;
using torch::jit::Module;
using units::offer_recomputation;
using units::RecomputedTensor;

namespace {

constexpr char kMlp[] = R"(
def norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5) * self.scale

def forward(self, x):
    h = self.norm(x)
    gate = torch.matmul(h, self.gate)
    up = torch.matmul(h, self.up)
    return x + torch.matmul(torch.silu(gate) * up, self.down)
)";
constexpr int64_t kRows = 32, kWidth = 4, kHidden = 64;

Module make_block() {
  Module block("Block");
  add_parameter(block, "scale", {kWidth});
  add_parameter(block, "gate", {kWidth, kHidden});
  add_parameter(block, "up", {kWidth, kHidden});
  add_parameter(block, "down", {kHidden, kWidth});
  block.define(kMlp);
  return block;
}

Module make_model() {
  const auto block = make_block();
  return make_net(
      "def forward(self, x):\n    return (self.two.forward(self.one.forward(x)) * self.scale).tanh().sum()\n",
      {{"one", block}, {"two", block.deepcopy()}});
}

at::Tensor rows() {
  at::manual_seed(6);
  return at::randn({kRows, kWidth});
}

std::unique_ptr<ModelRun> run_of(const Module& net, bool recomputes, bool in_recomputed_units = false) {
  auto run = std::make_unique<ModelRun>(net, std::vector<std::string>{"Block"}, false,
                                        GraphPassOptions{.regions_on_cpu = true, .recomputes_outputs = recomputes},
                                        in_recomputed_units ? std::optional(RecomputationOptions{}) : std::nullopt);
  run->model->runnable->set_device(at::kCPU, at::kFloat);
  return run;
}

// Of this thread, while it exists.
class AllocatedBytes {
 public:
  AllocatedBytes() : guard_(c10::DebugInfoKind::PROFILER_STATE, reports_) {}
  int64_t count() const { return reports_->bytes; }

 private:
  struct Reports : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes += size; }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t bytes = 0;
  };
  const std::shared_ptr<Reports> reports_ = std::make_shared<Reports>();
  const c10::DebugInfoGuard guard_;
};

struct OneUnit : UnitParameters {
  UnitValues acquire(int, UnitCall) override { return {}; }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor> of_unit) override { gradients = std::move(of_unit); }
  std::vector<at::Tensor> gradients;
};

// Outputs on offer in a model with a norm, weights [8, 8] and this forward.
int count_offered(const std::string& body) {
  Module net("Net");
  for (const char* name : {"first", "second"}) add_parameter(net, name, {8, 8});
  add_parameter(net, "bias", {8});
  net.define(R"(
def norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5)
)");
  net.define("def forward(self, x):\n" + body);
  layers::take_weight_gradients(net, /*writes=*/true);
  fusion::fuse_regions(net);
  return fusion::offer_outputs(net);
}

}  // namespace

TEST_CASE("recomputed outputs: those that only GEMMs with weights read are on offer") {
  CHECK(count_offered("    h = self.norm(x)\n    return torch.matmul(h, self.first)\n") == 1);
  CHECK(count_offered("    h = self.norm(x)\n    return torch.matmul(h, self.first).sum() + "
                      "torch.linear(h, self.second, self.bias).sum()\n") == 1);
  CHECK(count_offered("    h = self.norm(x).view([-1, 8])\n    return torch.addmm(self.bias, h, self.first)\n") == 1);
  CHECK(count_offered("    return self.norm(x)\n") == 0);
  CHECK(count_offered("    h = self.norm(x)\n    return torch.matmul(h, self.first), h\n") == 0);
  CHECK(count_offered("    h = self.norm(x)\n    return torch.matmul(h, self.first).sum() + h.cumsum(0).sum()\n") == 0);
  CHECK(count_offered("    h = self.norm(x)\n    return torch.matmul(self.first, h)\n") == 0);  // as second factor
  CHECK(count_offered("    h = self.norm(x)\n    return torch.matmul(h, h.t())\n") == 0);
}

TEST_CASE("recomputed outputs: a step has the same bits, in units that are gathered and recomputed as well") {
  for (const bool in_recomputed_units : {false, true}) {
    torch::manual_seed(1);
    const auto net = make_model();
    const auto plain = run_of(net, false, in_recomputed_units), again = run_of(net, true, in_recomputed_units);
    dslaunch::test::check_same(again->step({rows()}), plain->step({rows()}));
    CHECK(again->gathered->num_held() == 0);
    CHECK(again->gathered->take_events() == plain->gathered->take_events());
  }
}

TEST_CASE("recomputed outputs: between forward and backward they take no memory, and leave none behind") {
  torch::manual_seed(1);
  const auto net = make_model();
  int64_t bytes_kept[2] = {};
  for (const bool recomputes : {false, true}) {
    const auto run = run_of(net, recomputes);
    run->step({rows()});  // constants and programs are made
    const at::Tensor input = rows();
    const AllocatedBytes allocated;
    {
      const at::Tensor loss = run->forward({input});
      bytes_kept[recomputes ? 1 : 0] = allocated.count();
      loss.backward();
      run->gathered->gradients.clear();
    }
    CHECK(allocated.count() == 0);
  }
  // In each block the norm's output, and that of the activation.
  CHECK(bytes_kept[0] - bytes_kept[1] == 2 * kRows * (kWidth + kHidden) * 4);
}

TEST_CASE("recomputed outputs: gradients of gradients") {
  fusion::Region region{.num_leading_dims = 1};
  fusion::Builder build(region);
  const auto x_id = build.input({at::kDouble, kWidth, {true}}), scale_id = build.input({at::kDouble, kWidth, {false}});
  const auto mean = build.row_mean(build.power(x_id, 2));
  const auto inverse = build.unary(fusion::Op::kRsqrt, build.binary(fusion::Op::kAdd, mean, build.constant(1e-5)));
  const auto product = build.binary(fusion::Op::kMultiply, x_id, inverse);
  region.outputs.push_back({build.binary(fusion::Op::kMultiply, product, scale_id), at::kDouble});
  const auto plan = c10::make_intrusive<fusion::RegionPlan>(
      region, std::vector<int64_t>{kRows}, std::vector<fusion::RegionPlan::Result>{{{kRows, kWidth}, {kWidth, 1}}},
      std::vector<size_t>{}, /*offered=*/std::vector<size_t>{0});

  const at::Tensor scale = at::randn({kWidth}, at::kDouble), weight = at::randn({kWidth, 5}, at::kDouble);
  const at::Tensor x = rows().to(at::kDouble).requires_grad_(), plain_x = x.detach().clone().requires_grad_();
  OneUnit unit;
  std::vector<at::Tensor> views{scale.variable_data(), weight.variable_data()};
  units::attach_gather_node(
      views, std::make_shared<units::CallInBackward>(units::CallInBackward{.parameters = &unit, .unit = 0}));
  const at::Tensor normed = fusion::run_region(plan, {x, views[0]})[0];
  const at::Tensor out = layers::fused_matmul(normed, views[1], {.writes_gradient = true});
  out.pow(3).sum().backward({}, /*keep_graph=*/true, /*create_graph=*/true);

  const at::Tensor plain_scale = scale.clone().requires_grad_(), plain_weight = weight.clone().requires_grad_();
  const at::Tensor plain_normed = plain_x * at::rsqrt(plain_x.pow(2).mean({-1}, true) + 1e-5) * plain_scale;
  plain_normed.matmul(plain_weight).pow(3).sum().backward({}, true, true);
  REQUIRE(unit.gradients.size() == 2);
  CHECK(at::allclose(unit.gradients[1], plain_weight.grad(), 1e-9, 1e-9));
  for (const auto power : {2, 3}) {
    const auto second = [power](const at::Tensor& gradient, const at::Tensor& of) {
      return torch::autograd::grad({gradient.pow(power).sum()}, {of}, {}, /*retain_graph=*/true)[0];
    };
    CHECK(at::allclose(second(unit.gradients[1], x), second(plain_weight.grad(), plain_x), 1e-9, 1e-9));
    CHECK(at::allclose(second(x.grad(), x), second(plain_x.grad(), plain_x), 1e-9, 1e-9));
  }
  for (const auto& leaf : {x, plain_x, plain_scale, plain_weight}) leaf.mutable_grad().reset();  // they hold graphs
}

TEST_CASE("recomputed tensors: readers that follow one another share what is computed") {
  const at::Tensor x = rows().requires_grad_(), y = x * 2;
  int computed = 0;
  offer_recomputation(y, [&, values = x.detach()] {
    computed += 1;
    return values * 2;
  });
  const auto first = RecomputedTensor::of(y), second = RecomputedTensor::of(y),
             flat = RecomputedTensor::of(y.view({-1}));
  REQUIRE((first && second && flat));
  const at::Tensor sum = y.sum();
  const at::NoGradGuard in_backward;
  for (const int backward : {1, 2}) {
    CHECK(first->value().equal(y));
    CHECK(second->value().equal(y));
    CHECK(flat->value().equal(y.view({-1})));
    CHECK(computed == backward);
  }
  auto left = first->value().storage().getWeakStorageImpl();
  CHECK_FALSE(left.expired());  // for the other readers
  sum.backward();
  CHECK(left.expired());
}

TEST_CASE("recomputed tensors: what is not the whole result is kept") {
  const at::Tensor x = rows().requires_grad_(), y = x * 2;
  CHECK_FALSE(RecomputedTensor::of(y));  // it is not on offer
  offer_recomputation(y, [&] { return x.detach() * 2; });
  CHECK_FALSE(RecomputedTensor::of(x));
  CHECK_FALSE(RecomputedTensor::of(y.t()));
  CHECK_FALSE(RecomputedTensor::of(y.narrow(0, 0, 4)));
  CHECK_FALSE(RecomputedTensor::of(y.detach()));
  CHECK_FALSE(RecomputedTensor::of(y + 0));
  CHECK(RecomputedTensor::of(y));
  const at::Tensor written = x * 2;
  offer_recomputation(written, [&] { return x.detach() * 2; });
  at::Tensor(written).add_(1);
  CHECK_FALSE(RecomputedTensor::of(written));
  const at::NoGradGuard none;
  CHECK_FALSE(RecomputedTensor::of(y.view({-1})));  // without an edge to the result's node
}
