// Which casts of a trace in fp32 follow the type of a half-precision run. Every graph is what torch.jit.trace records
// of Python code: a cast to a tensor's own type returns that tensor, so later uses of `x` in Python read its cast here.
#include "runtime/model/dtypes/dtype_plan.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/model/graph/flat_graph.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::dtypes;
using torch::jit::Module;

namespace {

struct Planned {
  std::shared_ptr<torch::jit::Graph> graph;
  DtypePlan plan;

  // Names of the values whose types follow, in the graph's order.
  std::vector<std::string> following() const {
    std::vector<std::string> out;
    for (auto* node : graph->nodes()) {
      if (plan.follow.count(node)) out.push_back(node->output()->debugNameBase());
    }
    return out;
  }
  // Operators with an operand in `operands`.
  std::vector<std::string> users(const std::set<Operand>& operands) const {
    std::vector<std::string> out;
    for (auto* node : graph->nodes()) {
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        if (operands.count({node, i})) out.emplace_back(operator_name(node));
      }
    }
    return out;
  }
  std::vector<std::string> matched() const {
    std::set<Operand> operands;
    for (const auto& match : plan.match) operands.insert(match.operand);
    return users(operands);
  }
};

using Names = std::vector<std::string>;

Planned planned(const std::string& body) {
  Module module("Net");
  module.register_parameter("w", at::ones({4, 4}), false);
  module.register_parameter("v", at::ones({4}), false);
  module.register_buffer("table", at::ones({4}));
  module.define("def forward(self, x, ids):\n" + body);
  auto graph = graph::flatten_resolved(module).graph;
  auto plan = plan_dtypes(*graph, module);
  return {std::move(graph), std::move(plan)};
}

}  // namespace

TEST_CASE("a norm's upcast stays, its cast back follows, and the residual reads what was cast",
          "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    x1 = torch.linear(x, self.w)
    up = torch.to(x1, 6)
    normed = torch.mul(up, torch.rsqrt(torch.mean(torch.pow(up, 2), [-1], True)))
    back = torch.to(normed, 6)
    y = torch.linear(torch.mul(self.v, back), self.w)
    z = torch.add(up, y)
    return torch.linear(z, self.w)
)");
  CHECK(found.following() == Names{"back"});
  CHECK(found.users(found.plan.before_cast) == Names{"add"});
  CHECK(found.plan.narrow.empty());
}

TEST_CASE("a norm without a recorded cast back is cast where its weight is applied", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    x1 = torch.linear(x, self.w)
    up = torch.to(x1, 6)
    normed = torch.mul(up, torch.rsqrt(torch.mean(torch.pow(up, 2), [-1], True)))
    return torch.linear(torch.mul(self.v, normed), self.w)
)");
  CHECK(found.following().empty());
  CHECK(found.users(found.plan.narrow) == Names{"mul"});
}

TEST_CASE("an upcast weight stays when it meets what is fp32", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    weight = torch.add(torch.to(self.v, 6), 1.0)
    x1 = torch.linear(x, self.w)
    up = torch.to(x1, 6)
    normed = torch.mul(up, torch.rsqrt(torch.mean(torch.pow(up, 2), [-1], True)))
    return torch.linear(torch.type_as(torch.mul(normed, weight), x1), self.w)
)");
  CHECK(found.following().empty());
  CHECK(found.plan.narrow.empty());
}

TEST_CASE("softmax in fp32, then a cast back", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    q = torch.linear(x, self.w)
    scores = torch.matmul(q, torch.transpose(q, 0, 1))
    weights = torch.to(torch.softmax(scores, -1, 6), 6)
    return torch.matmul(torch.dropout(weights, 0.1, True), q)
)");
  CHECK(found.following() == Names{"weights"});
}

TEST_CASE("scores in fp32 on purpose", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    q = torch.linear(x, self.w)
    k = torch.linear(ids, self.w)
    q1 = torch.to(q, 6)
    k1 = torch.to(k, 6)
    scores = torch.matmul(q1, torch.transpose(k1, 0, 1))
    weights = torch.to(torch.softmax(scores, -1), 6)
    return torch.matmul(weights, torch.linear(x, self.w))
)");
  CHECK(found.following() == Names{"weights"});
  CHECK(found.plan.narrow.empty());
}

TEST_CASE("of two upcasts before a loss the second is enough", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    logits = torch.to(torch.linear(x, self.w), 6)
    again = torch.to(torch.view(logits, [-1, 4]), 6)
    return torch.cross_entropy_loss(again, ids, None, 1, -100, 0.0)
)");
  CHECK(found.following() == Names{"logits"});
  CHECK(found.matched().empty());
}

TEST_CASE("logits that are only returned stay in fp32", "[runtime][dtype_plan]") {
  CHECK(planned("    return torch.to(torch.linear(x, self.w), 6)\n").following().empty());
}

TEST_CASE("a cast that a GEMM follows is one to the type of its weight", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    base = torch.linear(x, self.w)
    input = torch.to(base, 6)
    result = torch.to(torch.add(base, torch.linear(input, self.w)), 6)
    return torch.linear(result, self.w)
)");
  CHECK(found.following() == Names{"input", "result"});
}

TEST_CASE("rotary tables are computed in fp32, and their last casts follow", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    q = torch.linear(x, self.w)
    positions = torch.to(torch.arange(4), 6)
    angles = torch.mul(positions, torch.to(self.table, 6))
    cos = torch.to(torch.cos(angles), 6)
    turned = torch.mul(q, cos)
    return torch.matmul(turned, q)
)");
  CHECK(found.following() == Names{"cos"});
  CHECK(found.plan.fp32_buffers == std::set<std::string>{"table"});
  CHECK(found.matched().empty());
}

TEST_CASE("a rotation in fp32 stays so up to its cast back", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    q = torch.linear(x, self.w)
    cos = torch.cos(torch.mul(torch.arange(4), self.table))
    up = torch.to(q, 6)
    turned = torch.add(torch.mul(up, cos), torch.mul(torch.neg(up), cos))
    back = torch.to(turned, 6)
    return torch.matmul(back, q)
)");
  CHECK(found.following() == Names{"back"});
  CHECK(found.matched().empty());
}

TEST_CASE("a table that is added as it is takes the run's type, a computed mask is cast where it is added",
          "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    x1 = torch.add(torch.linear(x, self.w), self.table)
    mask = torch.mul(torch.rsub(torch.to(ids, 6), 1.0), -3.0e38)
    return torch.linear(torch.add(x1, mask), self.w)
)");
  CHECK(found.plan.fp32_buffers.empty());
  CHECK(found.following().empty());
  CHECK(found.matched() == Names{"add"});
}

TEST_CASE("a new tensor takes the type of what is added to it in place", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    y = torch.linear(x, self.w)
    out = torch.zeros([4, 4], dtype=6)
    sum = torch.index_add_(out, 0, ids, y)
    return torch.linear(sum, self.w)
)");
  CHECK(found.following() == Names{"out"});
  CHECK(found.matched().empty());
}

TEST_CASE("positions that are an input are not rounded", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    q = torch.linear(x, self.w)
    angles = torch.matmul(torch.to(self.table, 6), torch.to(ids, 6))
    return torch.matmul(torch.mul(q, torch.cos(angles)), q)
)");
  CHECK(found.following().empty());
  CHECK(found.plan.fp32_buffers == std::set<std::string>{"table"});
  CHECK(found.matched() == Names{"mul"});
}

TEST_CASE("expert weights in fp32 do not make the residual stream fp32", "[runtime][dtype_plan]") {
  const auto found = planned(R"(
    x1 = torch.linear(x, self.w)
    up = torch.to(x1, 6)
    back = torch.to(torch.mul(up, torch.rsqrt(torch.mean(torch.pow(up, 2), [-1], True))), 6)
    weights = torch.softmax(torch.linear(back, self.w), -1, 6)
    mixed = torch.to(torch.sum(torch.mul(torch.linear(back, self.w), weights), [1], True), 6)
    stream = torch.add(up, mixed)
    up2 = torch.to(stream, 6)
    back2 = torch.to(torch.mul(up2, torch.rsqrt(torch.mean(torch.pow(up2, 2), [-1], True))), 6)
    return torch.linear(back2, self.w)
)");
  CHECK(found.following() == Names{"back", "mixed", "back2"});
  CHECK(found.users(found.plan.before_cast) == Names{"add"});
}
