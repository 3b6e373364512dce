// What depends only on sizes, constants and buffers is computed once per shape, and stays right whatever changes.
#include "runtime/model/constants/constant_region.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "graph_fixtures.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model;
using torch::jit::Module;

namespace {

// With a parameter `weight`, a buffer `angles` and a submodule without parameters, `rotary`.
Module make_model(const std::string& forward) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  Module rotary(c10::QualifiedName("__torch__.Rotary"), unit), model(c10::QualifiedName("__torch__.Net"), unit);
  rotary.register_buffer("angles", at::arange(4, at::kFloat) + 1);
  rotary.define(R"(
    def forward(self, positions):
        return torch.cos(positions.unsqueeze(1) * self.angles)
  )");
  model.register_parameter("weight", at::arange(4, at::kFloat), false);
  const at::Tensor angles = at::arange(4, at::kFloat) + 1;
  model.register_buffer("angles", angles);
  model.register_buffer("alias", angles);
  model.register_module("rotary", rotary);
  model.define(forward);
  return model;
}

at::Tensor input(int64_t rows) {
  return at::arange(rows * 4, at::kFloat).view({rows, 4}) / 7;
}

// Checks that the passes keep the results at these sizes, each twice. Returns how often forward computes a cosine then.
int cosines(const std::string& forward, const std::vector<int64_t>& sizes = {3, 5, 3, 5}) {
  auto before = make_model(forward), after = make_model(forward);
  run_all_passes(after);
  OperatorCalls calls;
  std::vector<at::Tensor> found;
  for (const int64_t size : sizes) found.push_back(after.forward({input(size)}).toTensor().clone());
  const int count = calls.count("aten::cos");
  for (size_t i = 0; i < sizes.size(); ++i) {
    INFO("call " << i);
    CHECK(found[i].equal(before.forward({input(sizes[i])}).toTensor()));
  }
  return count;
}

constexpr char kTable[] = R"(
    def forward(self, x):
        positions = torch.arange(x.size(0)).unsqueeze(1)
        return x * torch.cos(positions * self.angles)
  )";

}  // namespace

TEST_CASE("a table of sizes and a buffer is computed once per shape", "[model][constants]") {
  CHECK(cosines(kTable) == 2);
  CHECK(cosines(R"(
    def forward(self, x):
        return x * self.rotary.forward(torch.arange(x.size(0)))
  )") == 2);
}

TEST_CASE("a buffer that gets other values, or is replaced, gives another table", "[model][constants]") {
  auto before = make_model(kTable), after = make_model(kTable);
  run_all_passes(after);
  const auto check = [&] { CHECK(after.forward({input(3)}).toTensor().equal(before.forward({input(3)}).toTensor())); };
  check();
  for (auto* model : {&before, &after}) model->attr("angles").toTensor().mul_(2);
  check();
  for (auto* model : {&before, &after}) model->setattr("angles", at::full({4}, 0.5));
  check();
}

TEST_CASE("values that change from call to call are not kept", "[model][constants]") {
  CHECK(cosines(R"(
    def forward(self, x):
        table = torch.cos(torch.arange(x.size(0)).unsqueeze(1) * self.angles)
        self.angles.add_(1)
        return x * table
  )") == 4);
  CHECK(cosines(R"(
    def forward(self, x):
        return x * torch.cos(torch.arange(x.size(0)).unsqueeze(1) * self.weight)
  )") == 4);
  CHECK(cosines(R"(
    def forward(self, x):
        return torch.cos(x)
  )") == 4);
}

TEST_CASE("random numbers are drawn again", "[model][constants]") {
  auto model = make_model(R"(
    def forward(self, x):
        return x + torch.cos(torch.rand([4]) * self.angles)
  )");
  run_all_passes(model);
  CHECK_FALSE(model.forward({input(2)}).toTensor().equal(model.forward({input(2)}).toTensor()));
}

TEST_CASE("results that the model writes to are computed again", "[model][constants]") {
  // Directly, through a view, and where the write is hidden in another method.
  CHECK(cosines(R"(
    def forward(self, x):
        table = torch.cos(torch.arange(x.size(0)).unsqueeze(1) * self.angles)
        return x * table.add_(1)
  )") == 4);
  CHECK(cosines(R"(
    def forward(self, x):
        table = torch.cos(torch.arange(x.size(0)).unsqueeze(1) * self.angles)
        table[0].zero_()
        return x * table
  )") == 4);
  CHECK(cosines(R"(
    def change(self, table):
        table.mul_(3)
        return table
    def forward(self, x):
        table = torch.cos(torch.arange(x.size(0)).unsqueeze(1) * self.angles)
        return x * self.change(table)
  )") == 4);
}

TEST_CASE("operators do not move across a write to a buffer that they read", "[model][constants]") {
  // Under another name.
  CHECK(cosines(R"(
    def forward(self, x):
        first = torch.cos(self.angles * x.size(0))
        self.alias.add_(1)
        second = torch.cos(self.angles * x.size(0))
        self.alias.sub_(1)
        return x * first + second
  )") == 8);
}

TEST_CASE("a kept table has the gradients of a new one", "[model][constants]") {
  auto before = make_model(kTable), after = make_model(kTable);
  run_all_passes(after);
  for (int call = 0; call < 2; ++call) {
    const auto gradient = [](Module& model) {
      const at::Tensor x = input(3).requires_grad_();
      return torch::autograd::grad({model.forward({x}).toTensor().sum()}, {x}).at(0);
    };
    CHECK(gradient(after).equal(gradient(before)));
  }
}

TEST_CASE("a table that was first made without gradients serves training", "[model][constants]") {
  auto model = make_model(kTable);
  run_all_passes(model);
  {
    const at::NoGradGuard no_grad;
    model.forward({input(3)});
  }
  const at::Tensor x = input(3).requires_grad_();
  model.forward({x}).toTensor().sum().backward();
  CHECK(x.grad().defined());
}

TEST_CASE("as many shapes are kept as the limit says, and all are right", "[model][constants]") {
  std::vector<int64_t> sizes;
  for (int64_t i = 1; i <= static_cast<int64_t>(constants::kMaxShapes) + 1; ++i) sizes.push_back(i);
  sizes.push_back(2);  // the first one made room
  sizes.push_back(1);
  CHECK(cosines(kTable, sizes) == static_cast<int>(constants::kMaxShapes) + 2);
}

TEST_CASE("another state of autocast gives another result", "[model][constants]") {
  auto model = make_model(R"(
    def forward(self, x):
        positions = torch.arange(x.size(0)).float().unsqueeze(1)
        return torch.matmul(positions, self.angles.unsqueeze(0)) + x
  )");
  auto plain = model.clone();
  run_all_passes(model);
  const auto sum = [&](Module& net) { return net.forward({input(3) * 0}).toTensor(); };
  CHECK(sum(model).equal(sum(plain)));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto found = sum(model), expected = sum(plain);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(found.equal(expected));
  CHECK(sum(model).equal(sum(plain)));
}

TEST_CASE("while a graph is captured nothing new is kept, and what it reads stays", "[model][constants]") {
  static bool is_capturing = false;
  is_capturing = false;
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(graph(%n : int):
  %none : NoneType = prim::Constant()
  %device : Device = prim::Constant[value="cpu"]()
  %table : Tensor = aten::arange(%n, %none, %none, %device, %none)
  return (%table))",
                      graph.get());
  constants::ConstantRegion region(graph, {.masks = std::make_shared<constants::KnownMasks>(),
                                           .device = at::kCPU,
                                           .is_capturing = [](at::Device) { return is_capturing; }});
  const auto table = [&](int64_t size) {
    torch::jit::Stack stack{size};
    region.run(stack);
    return stack.back().toTensor();
  };
  const at::Tensor read = table(3), other = table(4);
  is_capturing = true;
  CHECK(table(3).is_same(read));
  CHECK_FALSE(table(5).is_same(table(5)));
  is_capturing = false;
  for (int64_t size = 10; size < 10 + 2 * static_cast<int64_t>(constants::kMaxShapes); ++size) table(size);
  CHECK(table(3).is_same(read));
  CHECK_FALSE(table(4).is_same(other));
}

TEST_CASE("constants have a switch", "[model][constants]") {
  auto model = make_model(kTable);
  run_all_passes(model, {.constants = false});
  CHECK(kinds_in_forward(model)["dslaunch::keep_constants"] == 0);
}

TEST_CASE("tensors of an object that is not a module are constants as buffers are", "[model][constants]") {
  const auto model =
      ImportedClasses::make_net(R"(
class Tables:
  angles : Tensor
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  tables : __torch__.Tables
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    tables = self.tables
    return torch.add(x, torch.cos(tables.angles))
)",
                                {{"tables", std::string("__torch__.Tables")}, {"tables.angles", input(1)}});
  run_all_passes(model);
  CHECK(Module(model).forward({input(2)}).toTensor().equal(input(2) + torch::cos(input(1))));
}
