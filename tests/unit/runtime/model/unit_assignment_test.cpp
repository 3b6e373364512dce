// Which modules are units, in which order they run, and which parameters belong to them.
#include "runtime/model/analysis/unit_assignment.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/torchscript/parameter_binding.hpp"
#include "script_fixtures.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::analysis;
using namespace dslaunch::runtime::model::graph;
using test::make_layer;
using test::make_net;
using torch::jit::Module;

namespace {

using Names = std::vector<std::string>;

Names candidates(const Module& model, const Names& names = {}) {
  Names out;
  for (const auto& candidate : find_unit_candidates(model, names)) {
    out.push_back(candidate.path + (candidate.is_block ? "" : " (a layer)"));
  }
  return out;
}

struct Assigned {
  ParameterTable table;
  UnitAssignment units;

  Names unit_names() const {
    Names out;
    for (const auto& unit : table.units) out.push_back(unit.name);
    return out;
  }
  std::string unit_of(const std::string& parameter) const {
    for (const auto& p : table.parameters) {
      if (p.name == parameter) return table.units[static_cast<size_t>(p.unit)].name;
    }
    return "no such parameter";
  }
};

Assigned assigned(const Module& model, const Names& names = {}) {
  auto binding = torchscript::bind_parameters(model, {});
  Assigned out{std::move(binding.table), {}};
  out.units = assign_units(model, find_unit_candidates(model, names), binding.locations, out.table);
  return out;
}

Module with_children(const char* name, const std::vector<std::pair<std::string, Module>>& children) {
  Module module(name);
  for (const auto& [child_name, child] : children) module.register_module(child_name, child);
  return module;
}

constexpr char kIdentity[] = "def forward(self, x):\n    return x\n";
constexpr char kTwoInTurn[] = "def forward(self, x):\n    return self.one.forward(self.two.forward(x) * self.scale)\n";

// A net that calls its units `one` and `two` through an interface.
Module behind_interface(const std::string& forward) {
  const std::string source = R"(
class Layer(ModuleInterface):
  def forward(self: __torch__.Layer, x: Tensor) -> Tensor:
    pass
class Block(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Block, x: Tensor) -> Tensor:
    return torch.matmul(x, self.weight)
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  one : __torch__.Layer
  two : __torch__.Layer
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
)" + forward;
  const auto weight = [] { return (at::randn({4, 4}) * 0.5).requires_grad_(true); };
  return test::ImportedClasses::make_net(source, {{"one", std::string("__torch__.Block")},
                                                  {"one.weight", weight()},
                                                  {"two", std::string("__torch__.Block")},
                                                  {"two.weight", weight()}});
}

at::Tensor rows() {
  return at::linspace(-1, 1, 12).view({3, 4});
}

}  // namespace

TEST_CASE("units are repeated blocks, the outermost ones, wherever their container is", "[runtime][model][units]") {
  const auto block = [] {
    auto module = with_children(
        "Layer", {{"a", make_layer(test::kTanhLayer, "Linear")}, {"b", make_layer(test::kTanhLayer, "Linear")}});
    module.define(kIdentity);
    return module;
  };
  const auto blocks = with_children("Blocks", {{"0", block()}, {"1", block()}});
  const auto model =
      with_children("Net", {{"body", with_children("Body", {{"blocks", blocks}})}, {"head", make_layer()}});
  CHECK(candidates(model) == Names{"body.blocks.0", "body.blocks.1"});
}

TEST_CASE("modules without a forward or without parameters are not units, what is inside them may be",
          "[runtime][model][units]") {
  const auto list = [] { return with_children("List", {{"0", make_layer()}, {"1", make_layer()}}); };
  Module relu("Relu");
  relu.define(kIdentity);
  const auto model = with_children("Net", {{"first", list()}, {"second", list()}, {"r1", relu}, {"r2", relu}});
  CHECK(candidates(model) == Names{"first.0", "first.1", "second.0", "second.1"});
}

TEST_CASE("a large layer outside of blocks is a unit, but no block", "[runtime][model][units]") {
  Module large("Embedding"), small("Head");
  large.register_parameter("weight", at::zeros({1 << 10, 1 << 6}), false);
  large.define(kIdentity);
  small.register_parameter("weight", at::zeros({(1 << 16) - 1}), false);
  small.define(kIdentity);
  CHECK(candidates(with_children("Net", {{"embedding", large}, {"head", small}})) == Names{"embedding (a layer)"});
  Module linear("__torch__.torch.nn.modules.linear.Linear");
  linear.register_parameter("weight", at::zeros({2, 2}), false);
  linear.define(kIdentity);
  CHECK(candidates(with_children("Net", {{"a", linear}, {"b", linear.deepcopy()}})) ==
        Names{"a (a layer)", "b (a layer)"});
}

TEST_CASE("units may be named by class or by path", "[runtime][model][units]") {
  const auto model =
      with_children("Net", {{"one", make_layer()}, {"two", make_layer()}, {"other", make_layer(kIdentity, "Other")}});
  CHECK(candidates(model, {"Block"}) == Names{"one", "two"});
  CHECK(candidates(model, {"two", "Other"}) == Names{"two", "other"});
  test::expect_error(ExitCode::kBadInput, {"units: the model does not have a class or module 'Blocck'", "'Block'"},
                     [&] { candidates(model, {"Blocck"}); });
}

TEST_CASE("names of classes are those of Python, without what TorchScript adds", "[runtime][model][units]") {
  CHECK(class_name(Module("__torch__.model.___torch_mangle_3.Block")) == "Block");
  const auto model = with_children("Net", {{"one", make_layer()}});
  const auto tree = module_tree(model);
  REQUIRE(tree.size() == 2);
  CHECK((tree[0].path.empty() && tree[1].path == "one"));
}

TEST_CASE("units are in the order of their first calls, those that are never called belong to the root",
          "[runtime][model][units]") {
  const auto found =
      assigned(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}, {"three", make_layer()}}));
  CHECK(found.unit_names() == Names{"", "two", "one"});
  CHECK(found.unit_of("one.weight") == "one");
  CHECK(found.unit_of("three.weight").empty());
  CHECK(found.unit_of("scale").empty());
  REQUIRE(found.units.others.size() == 2);
  CHECK(found.units.others[0].unit.name == "two");
  CHECK(found.units.others[0].unit.locations.size() == 1);
  CHECK(found.units.root.locations.size() == 2);  // scale, and what is never called
}

TEST_CASE("calls in branches, loops, other methods and functions count", "[runtime][model][units]") {
  auto net = make_net(R"(
def forward(self, x):
    for i in range(3):
        if bool(x.sum() > 0):
            x = self.two.forward(x)
    return self.rest(x)
def rest(self, x):
    return self.one.forward(x)
)",
                      {{"one", make_layer()}, {"two", make_layer()}});
  CHECK(assigned(net).unit_names() == Names{"", "two", "one"});
}

TEST_CASE("a parameter that is read outside its unit belongs to the root", "[runtime][model][units]") {
  const auto found = assigned(make_net(R"(
def forward(self, x):
    return torch.matmul(self.two.forward(self.one.forward(x)), self.one.weight)
)",
                                       {{"one", make_layer()}, {"two", make_layer()}}));
  CHECK(found.unit_of("one.weight").empty());
  CHECK(found.unit_of("two.weight") == "two");
  CHECK(found.units.others.size() == 1);  // nothing is left for "one" to gather
}

TEST_CASE("a unit whose other method is called from outside leaves what that reads to the root",
          "[runtime][model][units]") {
  const auto layer = [] {
    auto module = make_layer();
    module.define("def weigh(self, x):\n    return torch.matmul(x, self.weight)\n");
    return module;
  };
  const auto found =
      assigned(make_net("def forward(self, x):\n    return self.one.forward(self.two.weigh(self.two.forward(x)))\n",
                        {{"one", layer()}, {"two", layer()}}));
  CHECK(found.unit_of("one.weight") == "one");
  CHECK(found.unit_of("two.weight").empty());
}

TEST_CASE("a parameter that two units hold is the root's, and external to both", "[runtime][model][units]") {
  const auto shared = (at::randn({4, 4}) * 0.5).requires_grad_(true);
  const auto layer = [&] {
    Module module("Block");
    module.register_parameter("shared", shared, false);
    test::add_parameter(module, "own", {4, 4});
    module.define("def forward(self, x):\n    return torch.matmul(torch.matmul(x, self.shared), self.own)\n");
    return module;
  };
  const auto found = assigned(make_net(kTwoInTurn, {{"one", layer()}, {"two", layer()}}));
  CHECK(found.unit_of("one.shared").empty());
  for (const auto& other : found.units.others) {
    CHECK(other.unit.locations.size() == 1);
    REQUIRE(other.unit.external.size() == 1);
    CHECK(other.unit.external[0].size() == 1);  // its own slot of the two
  }
  CHECK(found.units.root.locations[0].size() + found.units.root.locations[1].size() == 3);  // scale, both slots
}

TEST_CASE("a unit's state is what its modules hold besides parameters", "[runtime][model][units]") {
  const auto layer = [] {
    Module module("Block");
    test::add_parameter(module, "weight", {4, 4});
    module.register_buffer("mean", at::zeros({4}));
    module.register_attribute("seen", c10::ListType::ofTensors(), c10::List<at::Tensor>());
    module.register_attribute("count", c10::IntType::get(), 0);
    module.define(kIdentity);
    return module;
  };
  const auto found = assigned(make_net(kTwoInTurn, {{"one", layer()}, {"two", layer()}}));
  for (const auto& other : found.units.others) CHECK(other.unit.state.size() == 2);
}

TEST_CASE("frozen parameters are sharded with their unit if they are floats", "[runtime][model][units]") {
  const auto layer = [] {
    Module module("Block");
    test::add_parameter(module, "weight", {4, 4});
    test::add_parameter(module, "still", {4}, /*trains=*/false);
    module.register_parameter("ids", at::arange(4), false);
    module.register_parameter("none", at::zeros({0}), false);
    module.register_parameter("wide", at::zeros({2}, at::kDouble), false);
    module.define(kIdentity);
    return module;
  };
  const auto found = assigned(make_net(kTwoInTurn, {{"one", layer()}, {"two", layer()}}));
  CHECK(found.table.units[1].parameters.size() == 1);
  REQUIRE(found.table.units[1].frozen.size() == 1);
  CHECK(found.table.parameters[static_cast<size_t>(found.table.units[1].frozen[0])].name == "two.still");
  CHECK(found.units.others[0].unit.frozen_locations.size() == 1);
}

TEST_CASE("a module behind an interface is a unit where it is known which one is called", "[runtime][model][units]") {
  const auto net = behind_interface(R"(
    one = self.one
    two = self.two
    return torch.sum((two).forward((one).forward(x, ), ))
)");
  CHECK(assigned(net, {"Block"}).unit_names() == Names{"", "one", "two"});
  test::ModelRun(net, {"Block"}).check_step({rows()});
}

TEST_CASE("modules that only the run chooses, or that another thread calls, leave the root as the only unit",
          "[runtime][model][units]") {
  SECTION("interface") {
    const auto net = behind_interface(R"(
    if bool(torch.gt(torch.sum(x), 0)):
      chosen = self.one
    else:
      chosen = self.two
    return torch.sum((chosen).forward(x, ))
)");
    const auto found = assigned(net, {"Block"});
    CHECK_FALSE(found.units.is_analyzable);
    CHECK(found.unit_names() == Names{""});
    CHECK(found.unit_of("one.weight").empty());
    test::ModelRun run(net, {"Block"});
    REQUIRE_FALSE(run.model->facts.notes.empty());
    CHECK_THAT(run.model->facts.notes.back(), Catch::Contains("the model is one unit"));
    run.check_step({rows() + 1});
    run.check_step({rows() - 1});
  }
  SECTION("fork") {
    const auto net = make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}});
    test::fork_first_call(*net.get_method("forward").graph());
    CHECK_FALSE(assigned(net).units.is_analyzable);
  }
  SECTION("without candidates that does not matter") {
    const auto net = make_net("def forward(self, x):\n    return self.one.forward(x)\n", {{"one", make_layer()}});
    test::fork_first_call(*net.get_method("forward").graph());
    CHECK(assigned(net).units.is_analyzable);
  }
}

TEST_CASE("objects that forward makes hold no units", "[runtime][model][units]") {
  const std::string source = R"(
class Pair:
  x : Tensor
  def __init__(self: __torch__.Pair, x: Tensor) -> NoneType:
    self.x = x
    return None
  def twice(self: __torch__.Pair) -> Tensor:
    return torch.mul(self.x, 2)
class Block(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Block, x: Tensor) -> Tensor:
    return torch.matmul(x, self.weight)
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  one : __torch__.Block
  two : __torch__.Block
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    one = self.one
    two = self.two
    pair = __torch__.Pair.__new__(__torch__.Pair)
    _0 = (pair).__init__((one).forward(x, ), )
    return torch.sum((two).forward((pair).twice(), ))
)";
  const auto weight = [] { return (at::randn({4, 4}) * 0.5).requires_grad_(true); };
  const auto net = test::ImportedClasses::make_net(source, {{"one.weight", weight()}, {"two.weight", weight()}});
  CHECK(assigned(net).unit_names() == Names{"", "one", "two"});
  test::ModelRun(net).check_step({rows()});
}

TEST_CASE("a module that a trace passes as an argument is still followed", "[runtime][model][units]") {
  const std::string source = R"(
class Shared(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Shared, x: Tensor) -> Tensor:
    return torch.matmul(x, self.weight)
class Block(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Block, shared: __torch__.Shared, x: Tensor) -> Tensor:
    return torch.matmul((shared).forward(x, ), self.weight)
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  shared : __torch__.Shared
  one : __torch__.Block
  two : __torch__.Block
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    shared = self.shared
    one = self.one
    two = self.two
    return torch.sum((two).forward(shared, (one).forward(shared, x, ), ))
)";
  const auto weight = [] { return (at::randn({4, 4}) * 0.5).requires_grad_(true); };
  const auto net = test::ImportedClasses::make_net(
      source, {{"shared.weight", weight()}, {"one.weight", weight()}, {"two.weight", weight()}});
  const auto found = assigned(net);
  CHECK(found.unit_names() == Names{"", "one", "two"});
  CHECK(found.unit_of("shared.weight").empty());
  test::ModelRun(net).check_step({rows()});
}

TEST_CASE("every node of a model is visited once, also those of units, functions and forks",
          "[runtime][model][units]") {
  const auto count = [](const Module& model) {
    int matmuls = 0;
    for_every_node(model, [&](torch::jit::Node* node) { matmuls += node->kind() == c10::aten::matmul ? 1 : 0; });
    return matmuls;
  };
  const auto layer = make_layer();
  const auto net = make_net(R"(
def forward(self, x):
    if bool(x.sum() > 0):
        x = torch.matmul(x, x)
    return self.one.forward(self.two.forward(x))
)",
                            {{"one", layer}, {"two", layer.deepcopy()}});  // of one class
  CHECK(count(net) == 2);
  test::ModelRun run(net);
  const auto forked = make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}});
  test::fork_first_call(*forked.get_method("forward").graph());
  CHECK(count(forked) == 2);
}
