// Patterns match an operator with its operands, wherever other code stands between them.
#include "runtime/model/graph/pattern.hpp"

#include <torch/csrc/jit/ir/irparser.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::graph;
using torch::jit::Graph;
using torch::jit::Node;

namespace {

std::shared_ptr<Graph> parse(const std::string& text) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

Node* find(const std::shared_ptr<Graph>& graph, const std::string& kind) {
  for (Node* node : graph->nodes()) {
    if (node->kind().toQualString() == kind) return node;
  }
  return nullptr;
}

std::vector<std::string> kinds(const Match& match) {
  std::vector<std::string> out;
  for (const Node* node : match) out.emplace_back(node->kind().toQualString());
  return out;
}

// rsqrt((x * x)[:, i])
const Pattern kRoot{.operators = {"aten::rsqrt"},
                    .operands = {{"self",
                                  {.operators = {"aten::select"},
                                   .operands = {{"self", {.operators = {"aten::mul"}, .operands = {}}},
                                                {"dim", {.operators = {}, .operands = {}, .constant = 1}}},
                                   .through = {"aten::view", "aten::contiguous"}}}}};

std::string root_of(const std::string& between, const std::string& dim = "1") {
  return R"(graph(%x : Tensor):
  %dims : int[] = prim::Constant[value=[-1]]()
  %dim : int = prim::Constant[value=)" +
         dim + R"(]()
  %zero : int = prim::Constant[value=0]()
  %square : Tensor = aten::mul(%x, %x)
  %row : Tensor = aten::select(%square, %dim, %zero)
)" + between +
         R"(  %root : Tensor = aten::rsqrt(%last)
  return (%root))";
}

}  // namespace

TEST_CASE("a pattern matches operators with their operands and constants", "[model][pattern]") {
  auto graph = parse(root_of("  %last : Tensor = aten::view(%row, %dims)\n"));
  CHECK(kinds(match(find(graph, "aten::rsqrt"), kRoot)) ==
        std::vector<std::string>{"aten::mul", "aten::select", "aten::view", "aten::rsqrt"});
  CHECK(match(find(graph, "aten::select"), kRoot).empty());
}

TEST_CASE("another operator between, or another constant, does not match", "[model][pattern]") {
  auto between = parse(root_of("  %last : Tensor = aten::relu(%row)\n"));
  CHECK(match(find(between, "aten::rsqrt"), kRoot).empty());
  auto constant = parse(root_of("  %last : Tensor = aten::view(%row, %dims)\n", "0"));
  CHECK(match(find(constant, "aten::rsqrt"), kRoot).empty());
}

TEST_CASE("a pattern does not leave the block of its operator", "[model][pattern]") {
  auto graph = parse(R"(graph(%x : Tensor, %c : bool):
  %square : Tensor = aten::mul(%x, %x)
  %out : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::rsqrt(%square)
      -> (%a)
    block1():
      -> (%x)
  return (%out))");
  const Pattern pattern{.operators = {"aten::rsqrt"},
                        .operands = {{"self", {.operators = {"aten::mul"}, .operands = {}}}}};
  Node* inner = *(*graph->nodes().rbegin())->blocks()[0]->nodes().begin();
  REQUIRE(inner->kind() == c10::Symbol::fromQualString("aten::rsqrt"));
  CHECK(match(inner, pattern).empty());
}
