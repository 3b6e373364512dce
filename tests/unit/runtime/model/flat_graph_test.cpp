// A copy of a forward without calls, and what its nodes belong to.
#include "runtime/model/graph/flat_graph.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/model/graph/walk.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::graph;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;

namespace {

bool is_call(const Node* node) {
  return node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction;
}

size_t count_calls(const Graph& graph) {
  size_t count = 0;
  for_each_node(graph.block(), [&](const Node* node) { count += is_call(node) ? 1 : 0; });
  return count;
}

// Two layers in a container, one of them in a branch.
Module nested() {
  Module pair("Pair");
  pair.register_module("one", test::make_layer());
  pair.register_module("two", test::make_layer());
  pair.define(R"(
def forward(self, x, b: bool):
    x = self.one.forward(x)
    if b:
        x = self.two.forward(x)
    return x
)");
  Module net("Net");
  net.register_module("pair", pair);
  net.define("def forward(self, x, b: bool):\n    return self.pair.forward(x, b) * 2\n");
  return net;
}

std::string graph_text(const Module& module) {
  return module.get_method("forward").graph()->toString(false);
}

}  // namespace

TEST_CASE("a flat graph has each node's call, and the module of each call", "[runtime][flat_graph]") {
  const Module net = nested();
  const Module pair = net.attr("pair").toModule();
  const auto flat = flatten_forward(net);
  CHECK(count_calls(*flat.graph) == 0);
  CHECK(flat.obstacle.empty());
  REQUIRE(flat.calls.size() == 3);
  CHECK(flat.calls[0].object == pair._ivalue());
  CHECK_FALSE(flat.calls[0].caller.has_value());
  CHECK(flat.calls[1].object == pair.attr("one").toObject());
  CHECK(flat.calls[1].caller == 0);
  CHECK(flat.calls[1].around == nullptr);
  CHECK(flat.calls[2].object == pair.attr("two").toObject());
  REQUIRE(flat.calls[2].around != nullptr);
  CHECK(flat.calls[2].around->kind() == c10::prim::If);
  for_each_node(flat.graph->block(), [&](const Node* node) {
    const auto call = flat.call_of.find(node);
    if (node->kind() == c10::aten::mul) CHECK(call == flat.call_of.end());
    if (node->kind() == c10::aten::matmul) CHECK(flat.calls[call->second].caller == 0);
    if (node->kind() == c10::prim::If) CHECK(call->second == 0);
    if (node->kind() == c10::prim::GetAttr && node->s(c10::attr::name) == "weight") {
      CHECK(flat.objects.at(node->input(0)) == flat.calls[call->second].object);
    }
  });
}

TEST_CASE("calls of units stay, also in branches", "[runtime][flat_graph]") {
  const Module net = nested();
  const Module pair = net.attr("pair").toModule();
  const auto flat = flatten_forward(net, {{"one", pair.attr("one").toModule()}, {"two", pair.attr("two").toModule()}});
  CHECK(count_calls(*flat.graph) == 2);
  REQUIRE(flat.unit_calls.size() == 2);
  for (const auto& [node, object] : flat.unit_calls) CHECK(flat.calls[flat.call_of.at(node)].unit_call == node);
}

TEST_CASE("a copy leaves the graphs of the model as they are", "[runtime][flat_graph]") {
  const Module net = nested();
  const Module pair = net.attr("pair").toModule();
  const auto before = graph_text(net) + graph_text(pair);
  const auto flat = flatten_resolved(net);
  flat.graph->block()->return_node()->removeAllInputs();
  CHECK(graph_text(net) + graph_text(pair) == before);
  CHECK(count_calls(*flatten_forward(net).graph) == 0);  // nothing of the first copy is kept
}

TEST_CASE("branches on constants are resolved where it is asked for", "[runtime][flat_graph]") {
  const auto has_branch = [](const FlatGraph& flat) {
    return any_node(flat.graph->block(), [](const Node* node) { return node->kind() == c10::prim::If; });
  };
  Module net("Net");
  net.define("def choose(self, x, b: bool):\n    if b:\n        return x + 1\n    return x - 1\n");
  net.define("def forward(self, x):\n    return self.choose(x, True)\n");
  CHECK(has_branch(flatten_forward(net)));
  CHECK_FALSE(has_branch(flatten_resolved(net)));
}

TEST_CASE("the first call that cannot be followed is said, and stays", "[runtime][flat_graph]") {
  Module forked("M");
  forked.define("def twice(self, x):\n    return x * 2\n");
  forked.define("def forward(self, x):\n    return self.twice(x)\n");
  test::fork_first_call(*forked.get_method("forward").graph());
  CHECK(flatten_forward(forked).obstacle == "it runs parts of itself on other threads (torch.jit.fork)");
}

TEST_CASE("graphs that run are inlined in place, once", "[runtime][flat_graph]") {
  const Module net = nested();
  const auto graphs = inline_running_forwards(net);
  REQUIRE(graphs.size() == 1);
  CHECK(graphs[0] == net.get_method("forward").graph());
  CHECK(count_calls(*graphs[0]) == 0);
  const auto before = graph_text(net);
  inline_running_forwards(net);
  CHECK(graph_text(net) == before);
}
