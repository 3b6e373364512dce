// What a forward changes besides making its results, read off its graph.
#include "runtime/model/graph/aliases.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>

#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::graph;
using torch::jit::Module;

namespace {

Module module_of(const std::string& forward) {
  Module module("M");
  module.register_buffer("mean", at::zeros({2}));
  module.register_buffer("calls", at::zeros({}, at::kLong));
  module.register_attribute("count", c10::IntType::get(), 0);
  module.define(forward);
  return module;
}

ForwardEffects effects_of(const std::string& forward) {
  return scan_forward_effects(flatten_resolved(module_of(forward)));
}

size_t slot(const char* name) {
  static const Module kModule = module_of("def forward(self, x):\n    return x\n");
  return kModule.type()->getAttributeSlot(name);
}

std::vector<size_t> written(const ForwardEffects& effects) {
  std::vector<size_t> out;
  for (const auto& [object, index] : effects.written) out.push_back(index);
  return out;
}

}  // namespace

TEST_CASE("a forward that only computes changes nothing", "[runtime][forward_effects]") {
  const auto effects = effects_of("def forward(self, x):\n    y = x * 2\n    return torch.relu_(y) + self.mean\n");
  CHECK(effects.is_analyzable);
  CHECK_FALSE(effects.changes_tensors);
  CHECK_FALSE(effects.changes_containers);
  CHECK(effects.written.empty());
}

TEST_CASE("an operator in place on an argument is seen through views, branches and loops",
          "[runtime][forward_effects]") {
  CHECK(effects_of("def forward(self, x):\n    return torch.tanh_(x)\n").changes_tensors);
  CHECK(effects_of("def forward(self, x):\n    y = x.view(-1)[1:]\n    y.add_(1)\n    return x\n").changes_tensors);
  CHECK(effects_of(R"(
def forward(self, x, b: bool):
    y = x
    if b:
        y = x * 2
    return y.add_(1)
)")
            .changes_tensors);
  CHECK(effects_of(R"(
def forward(self, x):
    z = x * 3
    for i in range(3):
        y = z.add_(1)
        z = x
        x = x + y
    return x
)")
            .changes_tensors);
}

TEST_CASE("what is reached through a list is the argument still", "[runtime][forward_effects]") {
  const auto taken = effects_of("def forward(self, x: List[Tensor]):\n    x[0].add_(1)\n    return x[0]\n");
  CHECK(taken.changes_tensors);
  CHECK_FALSE(taken.changes_containers);
  CHECK(effects_of("def forward(self, x):\n    y = [x]\n    y[0].add_(1)\n    return x\n").changes_tensors);
  CHECK(effects_of("def forward(self, x: List[Tensor], y):\n    x.append(y)\n    return y\n").changes_containers);
}

TEST_CASE("a container that a forward makes may grow without a change of what it holds", "[runtime][forward_effects]") {
  CHECK(effects_of(R"(
def forward(self, x):
    seen = [self.mean]
    seen.append(self.mean * x)
    seen.append(self.mean)
    named = {"a": self.mean}
    named["b"] = x
    return torch.stack(seen).sum() + named["a"]
)")
            .written.empty());
  const auto filled = effects_of("def forward(self, x: List[Tensor], y):\n    z = x\n    z.append(y)\n    return y\n");
  CHECK(filled.changes_containers);
}

TEST_CASE("state is written through the pieces that it is split into", "[runtime][forward_effects]") {
  for (const char* pieces : {"self.mean.chunk(2)", "self.mean.unbind(0)", "torch.split(self.mean, 1)"}) {
    const std::string forward =
        std::string("def forward(self, x):\n    for part in ") + pieces + ":\n        part.add_(1)\n    return x\n";
    CHECK(written(effects_of(forward)) == std::vector<size_t>{slot("mean")});
  }
  CHECK(effects_of("def forward(self, x):\n    a, b = x.chunk(2)\n    a.add_(1)\n    return x\n").changes_tensors);
}

TEST_CASE("state that a forward writes is listed, running statistics too", "[runtime][forward_effects]") {
  CHECK(written(effects_of("def forward(self, x):\n    self.mean.add_(1)\n    return x\n")) ==
        std::vector<size_t>{slot("mean")});
  CHECK(written(effects_of("def forward(self, x):\n    self.count = self.count + 1\n    return x\n")) ==
        std::vector<size_t>{slot("count")});
  CHECK(written(effects_of(
            "def forward(self, x):\n    return torch.batch_norm(x, None, None, self.mean, self.mean, True, 0.1, 0.1, "
            "False)\n")) == std::vector<size_t>{slot("mean")});
}

TEST_CASE("code that the analysis cannot follow makes it say so", "[runtime][forward_effects]") {
  const std::string interface = R"(
class Layer(ModuleInterface):
  def forward(self: __torch__.Layer, x: Tensor) -> Tensor:
    pass
class Block(Module):
  __parameters__ = []
  __buffers__ = []
  def forward(self: __torch__.Block, x: Tensor) -> Tensor:
    return torch.mul(x, 2)
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  one : __torch__.Layer
  two : __torch__.Layer
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    if bool(torch.gt(torch.sum(x), 0)):
      chosen = self.one
    else:
      chosen = self.two
    return (chosen).forward(x, )
)";
  CHECK_FALSE(scan_forward_effects(
                  flatten_resolved(test::ImportedClasses::make_net(
                      interface, {{"one", std::string("__torch__.Block")}, {"two", std::string("__torch__.Block")}})))
                  .is_analyzable);
  Module forked("M");
  forked.define("def twice(self, x):\n    return x * 2\n");
  forked.define("def forward(self, x):\n    return self.twice(x)\n");
  test::fork_first_call(*forked.get_method("forward").graph());
  CHECK_FALSE(scan_forward_effects(flatten_resolved(forked)).is_analyzable);
}

TEST_CASE("a forward that computes gradients itself is seen", "[runtime][forward_effects]") {
  CHECK(effects_of("def forward(self, x):\n    return torch.grad([x.sum()], [x])[0]\n").calls_autograd);
  CHECK(effects_of("def forward(self, x):\n    y = x.sum()\n    y.backward()\n    return x\n").calls_autograd);
  CHECK_FALSE(effects_of("def forward(self, x):\n    return x.sum()\n").calls_autograd);
}

TEST_CASE("what an object that forward makes holds is what was put into it", "[runtime][forward_effects]") {
  const auto effects = [](const std::string& body) {
    const std::string source = R"(
class Pair:
  x : Tensor
  def __init__(self: __torch__.Pair, x: Tensor) -> NoneType:
    self.x = x
    return None
class Net(Module):
  __parameters__ = []
  __buffers__ = ["mean", ]
  mean : Tensor
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    pair = __torch__.Pair.__new__(__torch__.Pair)
)" + body;
    return scan_forward_effects(flatten_resolved(test::ImportedClasses::make_net(source, {{"mean", at::zeros({2})}})));
  };
  const auto of_argument = effects("    _0 = (pair).__init__(x, )\n    return torch.add_(pair.x, 1)\n");
  CHECK(of_argument.is_analyzable);
  CHECK(of_argument.changes_tensors);
  const auto of_state =
      effects("    mean = self.mean\n    _0 = (pair).__init__(mean, )\n    _1 = torch.add_(pair.x, 1)\n    return x\n");
  CHECK_FALSE(of_state.changes_tensors);
  CHECK(of_state.written.size() == 1);
  CHECK(effects("    _0 = (pair).__init__(torch.mul(x, 2), )\n    return torch.add_(pair.x, 1)\n").written.empty());
}

TEST_CASE("an object that a module holds is written like a module", "[runtime][forward_effects]") {
  const std::string source = R"(
class Pair:
  x : Tensor
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  pair : __torch__.Pair
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    pair = self.pair
    return torch.add_(pair.x, 1)
)";
  const auto net =
      test::ImportedClasses::make_net(source, {{"pair", std::string("__torch__.Pair")}, {"pair.x", at::zeros({2})}});
  const auto effects = scan_forward_effects(flatten_resolved(net));
  REQUIRE(effects.written.size() == 1);
  CHECK(effects.written.begin()->first == net.attr("pair").toObject().get());
}

TEST_CASE("state in a submodule that two names share is written by either", "[runtime][forward_effects]") {
  Module inner("Inner");
  inner.register_buffer("steps", at::zeros({1}));
  inner.define("def forward(self, x):\n    self.steps.add_(1)\n    return x * self.steps\n");
  Module outer("Outer");
  outer.register_module("a", inner);
  outer.define("def forward(self, x):\n    return self.a.forward(x)\n");
  const auto effects = scan_forward_effects(flatten_resolved(outer));
  REQUIRE(effects.written.size() == 1);
  CHECK(effects.written.begin()->first == inner._ivalue().get());
}
