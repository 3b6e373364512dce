// Rows of experts: the operators on the CPU against loops over tokens, their gradients, and where the pass finds them
// in graphs as transformers writes them.
#include "runtime/model/layers/experts.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "graph_fixtures.hpp"
#include "runtime/model/layers/router.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model;
using layers::ExpertOrder;
using torch::jit::Module;

namespace {

struct Shape {
  int64_t tokens, choices, experts, columns;
};

// Expert 1 has no token; with `none` some entries are of no expert.
at::Tensor chosen_experts(const Shape& shape, bool none) {
  torch::manual_seed(shape.tokens);
  at::Tensor experts = at::randint(shape.experts, {shape.tokens * shape.choices}, at::kLong);
  experts.masked_fill_(experts.eq(1), 0);
  if (none) experts.slice(0, 0, c10::nullopt, 3).fill_(shape.experts);
  return experts;
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

// Of each entry, by counting.
void check_order(const std::vector<int64_t>& experts, int64_t num_experts, const ExpertOrder& order) {
  std::vector<int64_t> entry_of_row, row_of_entry(experts.size(), -1), ends;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    for (size_t entry = 0; entry < experts.size(); ++entry) {
      if (experts[entry] != expert) continue;
      row_of_entry[entry] = static_cast<int64_t>(entry_of_row.size());
      entry_of_row.push_back(static_cast<int64_t>(entry));
    }
    ends.push_back(static_cast<int64_t>(entry_of_row.size()));
  }
  for (size_t entry = 0; entry < experts.size(); ++entry) {
    if (row_of_entry[entry] < 0) entry_of_row.push_back(static_cast<int64_t>(entry));
  }
  CHECK(numbers(order.entry_of_row) == entry_of_row);
  CHECK(numbers(order.row_of_entry) == row_of_entry);
  CHECK(numbers(order.ends) == ends);
  CHECK(order.ends.scalar_type() == at::kInt);
}

// The experts' part of a layer, as grouped_mm_experts_forward computes it. `masks`: with those for entries of no
// expert.
std::string layer_of(bool masks, const std::string& between = "", const std::string& weighs = "") {
  const auto masked = [&](const char* line) { return std::string(masks ? line : ""); };
  return R"(
def forward(self, x, scores, chosen, up, down):
    k = chosen.size(-1)
    weights = scores.reshape([-1])
    ids = chosen.reshape([-1])
    sorted_ids, perm = torch.sort(ids, -1, False)
    rows = x[perm // k]
    row_weights = weights[perm]
    ends = torch.cumsum(torch.histc(sorted_ids.to(6), 4, 0, 3), 0, dtype=3)
)" +
         masked(
             "    none = (sorted_ids >= 4).unsqueeze(-1)\n    sorted_ids.clamp_(max=3)\n    rows = "
             "rows.masked_fill_(none, 0.0)\n") +
         between + R"(
    y = torch._grouped_mm(rows, up.transpose(-2, -1), ends)
)" + masked("    y = y.masked_fill(none, 0.0)\n") +
         R"(
    gate, linear = y.chunk(2, -1)
    y = torch.silu(gate) * linear
    y = torch._grouped_mm(y, down.transpose(-2, -1), ends)
)" + masked("    y = y.masked_fill(none, 0.0)\n") +
         R"(
    y = y * row_weights.unsqueeze(-1)
    inverse = torch.empty_like(perm)
    inverse[perm] = torch.arange(perm.size(0))
    y = y[inverse].view([x.size(0), k, x.size(-1)]).sum(1)
)" + weighs +
         "    return y.to(x.dtype)\n";
}

Module module_of(const std::string& forward) {
  Module model("Net");
  model.define(forward);
  return model;
}

std::vector<at::Tensor> results(Module& model, const std::vector<at::Tensor>& values, const at::Tensor& chosen) {
  std::vector<at::Tensor> leaves;
  for (const auto& value : values) leaves.push_back(value.detach().clone().requires_grad_());
  const at::Tensor out = model.forward({leaves[0] * 1, leaves[1] * 1, chosen, leaves[2], leaves[3]}).toTensor();
  auto found = torch::autograd::grad({out.to(at::kFloat).square().sum()}, leaves);
  found.push_back(out.detach());
  return found;
}

// Into bf16, a router's weights in fp32.
std::vector<at::Tensor> values_of(int64_t tokens, int64_t choices) {
  torch::manual_seed(3);
  return {at::randn({tokens, 16}).to(at::kBFloat16), at::rand({tokens, choices}),
          (at::randn({4, 48, 16}) * 0.3).to(at::kBFloat16), (at::randn({4, 16, 24}) * 0.3).to(at::kBFloat16)};
}

}  // namespace

TEST_CASE("rows of experts and their sums are those of loops over tokens", "[model][experts]") {
  for (const Shape& shape : {Shape{1, 1, 2, 3}, Shape{7, 2, 4, 5}, Shape{40, 3, 16, 8}}) {
    for (const bool none : {false, true}) {
      const at::Tensor experts = chosen_experts(shape, none);
      const auto order = layers::expert_order(experts, shape.experts);
      check_order(numbers(experts), shape.experts, order);
      const at::Tensor tokens = at::randn({shape.tokens, shape.columns}, at::kDouble).requires_grad_();
      const at::Tensor weights = at::randn({shape.tokens * shape.choices}, at::kDouble).requires_grad_();
      const at::Tensor rows = layers::expert_rows(tokens, order, shape.choices);
      const at::Tensor sum = layers::expert_sum(rows.square(), weights, order, shape.choices, at::kDouble);
      // A token's rows are equal: its sum is its square times the sum of its weights.
      const at::Tensor counted = weights * experts.lt(shape.experts).to(at::kDouble);
      const at::Tensor expected = tokens.square() * counted.view({shape.tokens, -1}).sum(1, true);
      CHECK(at::allclose(sum, expected));
      const at::Tensor upstream = at::randn_like(sum).detach();
      const auto found = torch::autograd::grad({sum}, {tokens, weights}, {upstream});
      const auto wanted = torch::autograd::grad({expected}, {tokens, weights}, {upstream});
      for (size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], wanted[i]));
    }
  }
}

TEST_CASE("a layer of experts gets its order, rows and sum from our operators", "[model][experts]") {
  const auto values = values_of(11, 2);
  const at::Tensor chosen = chosen_experts({11, 2, 4, 16}, false).view({11, 2});
  for (const bool masks : {false, true}) {
    CAPTURE(masks);
    auto before = module_of(layer_of(masks)), after = module_of(layer_of(masks));
    CHECK(layers::order_experts(after) == 1);
    auto kinds = kinds_in_forward(after);
    for (const char* gone : {"aten::sort", "aten::index", "aten::index_put_", "aten::histc", "aten::masked_fill",
                             "aten::masked_fill_", "aten::clamp_"}) {
      CHECK(kinds[gone] == 0);
    }
    for (const char* ours : {"dslaunch::expert_order", "dslaunch::expert_rows", "dslaunch::expert_sum"}) {
      CHECK(kinds[ours] == 1);
    }
    const auto expected = results(before, values, chosen), found = results(after, values, chosen);
    for (size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 0x1p-6, 0x1p-6));
  }
}

TEST_CASE("entries of no expert count nothing, without their masks", "[model][experts]") {
  const auto values = values_of(12, 2);
  const at::Tensor chosen = chosen_experts({12, 2, 4, 16}, true).view({12, 2});
  auto before = module_of(layer_of(true)), after = module_of(layer_of(true));
  CHECK(layers::order_experts(after) == 1);
  const auto expected = results(before, values, chosen), found = results(after, values, chosen);
  for (size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 0x1p-6, 0x1p-6));
}

TEST_CASE("experts whose order something else reads stay as they are", "[model][experts]") {
  for (const auto& forward :
       {layer_of(false, "    x = x + perm.sum()\n"), layer_of(false, "    x = x + sorted_ids.sum()\n"),
        layer_of(false, "    weights.mul_(2)\n"), layer_of(true, "    x = x + none.sum()\n"),
        layer_of(false, "", "    y = y + row_weights.sum()\n")}) {
    auto model = module_of(forward);
    CHECK(layers::order_experts(model) == 0);
    CHECK(kinds_in_forward(model)["aten::sort"] == 1);
  }
}

TEST_CASE("a router's experts and weights are those of softmax and topk", "[model][experts]") {
  const std::string choice = "    weights, chosen = torch.topk(p, 2, -1, True, True)\n";
  const std::string wide = "    p = torch.softmax(x.to(6), -1)\n", named = "    p = torch.softmax(x, -1, dtype=6)\n";
  const std::string sum = "    total = weights.sum([-1], True)\n";
  const std::string result = "    return (weights.to(7) * chosen).sum(1)\n";
  struct Case {
    std::string body;
    int routers;
  };
  for (const auto& [body, routers] : {Case{wide + choice + sum + "    weights = weights.div_(total)\n" + result, 1},
                                      Case{named + choice + sum + "    weights = weights / total\n" + result, 1},
                                      Case{named + choice + "    weights.mul_(3)\n" + result, 1},
                                      Case{wide + choice + "    weights = weights + p.sum()\n" + result, 0},
                                      Case{"    p = torch.softmax(x, -1)\n" + choice + result, 0},
                                      Case{"    p = torch.softmax(x, 0, dtype=6)\n" + choice + result, 0}}) {
    CAPTURE(body);
    const std::string forward = "def forward(self, x):\n" + body;
    auto before = module_of(forward), after = module_of(forward);
    CHECK(layers::fuse_routers(after) == routers);
    CHECK(kinds_in_forward(after)["dslaunch::expert_choice"] == routers);
    torch::manual_seed(2);
    const at::Tensor x = at::randn({9, 5}).requires_grad_();
    const at::Tensor expected = before.forward({x * 1}).toTensor(), found = after.forward({x * 1}).toTensor();
    CHECK(at::allclose(found, expected));
    CHECK(at::allclose(torch::autograd::grad({found.square().sum()}, {x})[0],
                       torch::autograd::grad({expected.square().sum()}, {x})[0]));
  }
}
