// What keeps a model's steps from being recorded and replayed, read off its graphs.
#include "runtime/model/analysis/capture_obstacles.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>

#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::analysis;
using torch::jit::Module;

namespace {

Module model_of(const std::string& code) {
  Module module("M");
  module.register_buffer("mean", at::zeros({2}));
  module.register_attribute("count", c10::IntType::get(), 0);
  module.register_attribute("seen", c10::ListType::ofTensors(), c10::List<at::Tensor>());
  module.define(code);
  Module outer("Outer");
  outer.register_module("inner", module);
  outer.define("def forward(self, x):\n    return self.inner.forward(x)\n");
  return outer;
}

dslaunch::Result<> check(const std::string& code) {
  return check_capturable(model_of(code));
}

}  // namespace

TEST_CASE("a model that only computes may be recorded, also one that changes its buffers", "[runtime][recording]") {
  CHECK(check("def forward(self, x):\n    return torch.relu(x) + self.mean\n").ok());
  CHECK(check("def forward(self, x):\n    self.mean.add_(1)\n    return x + self.mean\n").ok());
  CHECK(check(R"(
def forward(self, x):
    parts = []
    for i in range(3):
        parts.append(x * i)
    return torch.cat(parts)
)")
            .ok());
}

TEST_CASE("what a model does on the host in its forward is not a part of a recording", "[runtime][recording]") {
  CHECK(check("def forward(self, x):\n    self.count += 1\n    return x * self.count\n").error() ==
        "the model sets its attribute 'count'");
  CHECK(check(R"(
def forward(self, x):
    if x.dim() > 1:
        self.mean = x.mean(0)
    return x
)")
            .error() == "the model sets its attribute 'mean'");
  CHECK(check("def forward(self, x):\n    self.seen.append(x)\n    return x\n").error() ==
        "the model changes the contents of its attribute 'seen'");
  CHECK(check("def forward(self, x):\n    print(x.sum())\n    return x\n").error() == "the model prints");
}

TEST_CASE("state on the host that is reached by a way round is found by what forward changes", "[runtime][recording]") {
  const Module model = model_of(R"(
def forward(self, x):
    seen = [x]
    if x.dim() > 1:
        seen = self.seen
    seen.append(x)
    return x
)");
  CHECK(check_capturable(model).ok());
  const HostState state = find_host_state(model, graph::scan_forward_effects(graph::flatten_resolved(model)));
  CHECK(state.is_analyzable);
  CHECK(state.changed == std::vector<std::string>{"inner.seen"});
  CHECK(check_capturable(model, state).error() == "the model changes attributes that are not tensors: inner.seen");
}

TEST_CASE("tensors that forward changes in place are not state on the host", "[runtime][recording]") {
  const Module model = model_of("def forward(self, x):\n    self.mean.add_(1)\n    return x + self.mean\n");
  const HostState state = find_host_state(model, graph::scan_forward_effects(graph::flatten_resolved(model)));
  CHECK(state.changed.empty());
  CHECK(check_capturable(model, state).ok());
}

TEST_CASE("what forward calls and no scan can follow speaks against a recording", "[runtime][recording]") {
  const Module model = model_of("def forward(self, x):\n    return torch.relu(x)\n");
  CHECK(check_capturable(model, {.changed = {}, .is_analyzable = false}).error() ==
        "the model calls code that cannot be analyzed before it runs (an interface, another thread)");
}

TEST_CASE("other threads, clocks and objects speak against a recording", "[runtime][recording]") {
  Module forked("M");
  forked.define("def twice(self, x):\n    return x * 2\n");
  forked.define("def forward(self, x):\n    return self.twice(x)\n");
  test::fork_first_call(*forked.get_method("forward").graph());
  CHECK(check_capturable(forked).error() == "the model runs parts of itself on other threads");
  Module timed("M");
  timed.define("def forward(self, x):\n    return x\n");
  const auto graph = timed.get_method("forward").graph();
  auto* clock = graph->create(c10::prim::TimePoint, {}, 1)->insertBefore(graph->return_node());
  clock->output()->setType(c10::IntType::get());
  CHECK(check_capturable(timed).error() == "the model reads the clock");
  const std::string source = R"(
class Pair:
  x : Tensor
  def twice(self: __torch__.Pair) -> Tensor:
    return torch.mul(self.x, 2)
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  pair : __torch__.Pair
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    pair = self.pair
    return (pair).twice()
)";
  CHECK(check_capturable(test::ImportedClasses::make_net(source, {{"pair.x", at::ones({1})}})).error() ==
        "the model calls methods of one of its objects, which may change the object");
}

TEST_CASE("a loss is examined by its methods alone", "[runtime][recording]") {
  Module dict("M");
  dict.register_attribute("seen", c10::DictType::create(c10::StringType::get(), c10::TensorType::get()),
                          c10::Dict<std::string, at::Tensor>());
  dict.define("def forward(self, x):\n    self.seen[\"x\"] = x\n    return x\n");
  CHECK(check_capturable(dict).error() == "the model changes the contents of its attribute 'seen'");
}
