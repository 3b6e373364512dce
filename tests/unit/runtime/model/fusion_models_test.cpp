// Regions in models as a job loads them: with units that are gathered, with recomputation, with losses that continue
// from there. On the CPU, by the reference, where a job itself has no regions.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd_nodes.hpp"
#include "runtime/model/fusion/fused_operator.hpp"
#include "runtime/model/interface/runnable_model.hpp"
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
  run.model->runnable->set_recomputation(RecomputationOptions{});
  run.model->runnable->set_device(at::kCPU, at::kFloat);
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

TEST_CASE("region models: the report names regions by unit, and what stands outside of them with the reason") {
  ModelRun run(make_model(), {"Block"}, false, {.kernels = {.layer_norm = false}, .regions_on_cpu = true});
  run.model->runnable->set_device(at::kCPU, at::kFloat);
  const auto report = run.model->runnable->report_graphs();
  std::vector<std::string> modules;
  for (const auto& region : report.regions) modules.push_back(region.module);
  CHECK(modules == std::vector<std::string>{"one", "one", "two", "two", ""});
  CHECK(report.regions[1].operators == std::vector<std::string>{"aten::silu", "aten::mul", "aten::add"});
  CHECK(report.regions[4].operators == std::vector<std::string>{"aten::tanh", "aten::mul"});
  CHECK(report.left.size() == 2);
  CHECK(report.left.at({"aten::mul", "stands alone between others"}) == 1);
  CHECK(report.left.at({"aten::sum", "of a kind that no region contains"}) == 1);  // over all dims
  CHECK(report.replaced == std::map<std::string, int64_t>{{"dslaunch::matmul", 2}});
  CHECK(report.switched_off == std::vector<std::string>{"chunked_cross_entropy", "fused_layer_norm"});
  CHECK(report.why_no_regions.empty());
}

TEST_CASE("region models: memory that is written to in place keeps an operator out") {
  ModelRun run(make_net(R"(
def forward(self, x):
    y = x * self.scale
    y.add_(1.0)
    return torch.exp(y).sum()
)",
                        {}),
               {}, false, {.regions_on_cpu = true});
  run.model->runnable->set_device(at::kCPU, at::kFloat);
  const auto report = run.model->runnable->report_graphs();
  CHECK(report.regions.empty());
  CHECK(report.left.at({"aten::mul", "its memory is written to in place"}) == 1);
}

TEST_CASE("region models: without regions the report says why") {
  for (const bool is_wanted : {false, true}) {
    ModelRun run(make_model(), {"Block"}, false, {.kernels = {.fused_regions = is_wanted}});
    run.model->runnable->set_device(at::kCPU, at::kFloat);
    const auto report = run.model->runnable->report_graphs();
    CHECK(report.regions.empty());
    CHECK(report.left.empty());
    CHECK(report.why_no_regions == (is_wanted ? "on CPUs operators run one by one" : "kernels.fused_regions is false"));
  }
}

TEST_CASE("region models: what groups became is collected where it is asked for") {
  const auto log = std::make_shared<fusion::ProgramLog>();
  ModelRun run(make_model(), {"Block"}, false, {.regions_on_cpu = true, .programs = log});
  ModelRun other(make_model(), {"Block"}, false, {.regions_on_cpu = true});
  run.model->runnable->set_device(at::kCPU, at::kFloat);
  other.model->runnable->set_device(at::kCPU, at::kFloat);
  log->keep_entries();
  run.forward({rows()});
  other.forward({rows()});  // of a model that has no log, or another one
  const auto entries = log->take_entries();
  CHECK(entries.size() == 3);  // both blocks are of one class
  for (const auto& entry : entries) {
    CHECK(entry.num_regions == 1);
    CHECK(entry.num_operators >= 2);
    CHECK(entry.why_none.empty());
  }
  run.forward({rows()});
  CHECK(log->take_entries().empty());  // of the same shapes
}

namespace {

constexpr char kScaled[] = "def forward(self, x):\n    return torch.silu(x * 2.0) + x\n";

// A model of one group of operators, and what is said of it.
struct OneGroup {
  OneGroup() {
    const auto log = std::make_shared<fusion::ProgramLog>(
        [this](const std::string&, const std::string& text) { said.push_back(text); });
    run.emplace(make_net(kScaled, {}), std::vector<std::string>{}, false,
                GraphPassOptions{.regions_on_cpu = true, .programs = log});
    run->model->runnable->set_device(at::kCPU, at::kFloat);
  }
  // Whether it runs as a region.
  bool is_fused(std::vector<int64_t> sizes) {
    const at::Tensor x = at::ones(sizes).requires_grad_();
    const at::Tensor out = run->forward({x});
    CHECK(at::allclose(out, at::silu(x * 2) + x));
    return count_regions({out}) == 1;
  }

  std::vector<std::string> said;
  std::optional<ModelRun> run;
};

}  // namespace

TEST_CASE("region models: samples of many lengths run the same kernels") {
  OneGroup group;
  const auto most = static_cast<int64_t>(fusion::kMaxShapesOfGroup);
  for (int64_t length = 1; length <= most; ++length) CHECK(group.is_fused({length, 3}));
  CHECK(group.said.empty());
  CHECK_FALSE(group.is_fused({most + 1, 3}));
  CHECK_FALSE(group.is_fused({most + 2, 3}));
  CHECK(group.is_fused({most, 3}));
  CHECK(group.said == std::vector<std::string>{
                          "3 operators of the model run one by one, which is slower, for inputs of new shapes such as "
                          "[1025, 3]: they ran with 1024 shapes, the most that have programs; pad the samples to fewer "
                          "lengths, such as multiples of 64"});
}

TEST_CASE("region models: lengths that need kernels of their own are fewer") {
  OneGroup group;
  const auto most = static_cast<int64_t>(fusion::kMaxCompiledOfGroup);
  for (int64_t columns = 1; columns <= most; ++columns) CHECK(group.is_fused({2, columns}));
  CHECK(group.said.empty());
  CHECK_FALSE(group.is_fused({2, most + 1}));
  CHECK_FALSE(group.is_fused({2, most + 2}));
  CHECK(group.is_fused({5, most}));  // the kernels are those of 2 rows
  CHECK(group.said == std::vector<std::string>{
                          "3 operators of the model run one by one, which is slower, for inputs of new shapes such as "
                          "[2, 65]: 64 shapes needed kernels of their own, the most that are compiled; pad the samples "
                          "to fewer lengths, such as multiples of 64"});
}
