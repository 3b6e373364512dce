#include <ATen/ATen.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <map>

#include "runtime/model/operators/operator_flops.hpp"
#include "runtime/telemetry/flops_report.hpp"
#include "runtime/telemetry/operator_times.hpp"
#include "runtime/telemetry/step_flops.hpp"

using namespace dslaunch::runtime;
using Catch::Matchers::Contains;
using model::operators::operator_cost;

namespace {

at::Tensor tensor(std::vector<int64_t> shape) {
  return at::zeros(shape);
}

std::pair<int64_t, int64_t> cost(const char* name, const std::vector<c10::IValue>& arguments) {
  const auto found = operator_cost(name, c10::ArrayRef<const c10::IValue>(arguments.data(), arguments.size()));
  REQUIRE(found);
  return {found->flops, found->macs};
}
std::pair<int64_t, int64_t> both(int64_t macs, int64_t more = 0) {
  return {2 * macs + more, macs};
}
const c10::IValue kNone;

c10::IValue ints(std::vector<int64_t> values) {
  return c10::List<int64_t>(values);
}

// A model of two blocks with a layer each, and a head.
const std::vector<ModuleInfo> kModules{
    {"", "Net"},           {"blocks", "ModuleList"},  {"blocks.0", "Block"}, {"blocks.0.fc", "Linear"},
    {"blocks.1", "Block"}, {"blocks.1.fc", "Linear"}, {"head", "Linear"}};

ParameterTable table() {
  ParameterTable table;
  const auto add = [&](const char* name, int64_t numel, std::vector<std::string> aliases = {}) {
    table.parameters.push_back({.name = name, .shape = {numel}, .numel = numel, .aliases = std::move(aliases)});
  };
  add("blocks.0.fc.weight", 1000);
  add("blocks.1.fc.weight", 1000, {"head.weight"});  // tied
  add("head.bias", 10);
  return table;
}

std::vector<ModuleCost> costs() {
  return {{{50, 0}, 10}, {{}, 0}, {{100, 0}, 4}, {{2000, 1000}, 3}, {{100, 0}, 2}, {{2000, 1000}, 1}, {{500, 250}, 2}};
}

}  // namespace

TEST_CASE("matrix products cost two FLOPs a multiply-accumulate", "[runtime][telemetry][flops]") {
  CHECK(cost("aten::linear", {tensor({2, 3, 4}), tensor({5, 4}), tensor({5})}) == both(2 * 3 * 4 * 5));
  CHECK(cost("aten::linear", {tensor({2, 4}), tensor({4}), kNone}) == both(2 * 4));
  CHECK(cost("aten::mm", {tensor({2, 3}), tensor({3, 4})}) == both(24));
  CHECK(cost("aten::bmm", {tensor({7, 2, 3}), tensor({7, 3, 4})}) == both(7 * 24));
  CHECK(cost("aten::addmm", {tensor({4}), tensor({2, 3}), tensor({3, 4})}) == both(24, 4));
  CHECK(cost("aten::baddbmm", {tensor({7, 2, 4}), tensor({7, 2, 3}), tensor({7, 3, 4})}) == both(7 * 24, 56));
  CHECK(cost("aten::matmul", {tensor({2, 3}), tensor({3})}) == both(6));
  CHECK(cost("aten::matmul", {tensor({3}), tensor({3})}) == both(3));
  CHECK(cost("aten::matmul", {tensor({3}), tensor({3, 4})}) == both(12));
  CHECK(cost("aten::matmul", {tensor({5, 1, 2, 3}), tensor({6, 3, 4})}) == both(5 * 6 * 24));
  CHECK(cost("aten::matmul", {tensor({2, 3}), tensor({9, 3, 4})}) == both(9 * 24));
}

TEST_CASE("attention costs both of its products", "[runtime][telemetry][flops]") {
  CHECK(cost("aten::scaled_dot_product_attention",
             {tensor({2, 4, 10, 8}), tensor({2, 4, 12, 8}), tensor({2, 4, 12, 6})}) == both(2 * 4 * 10 * 12 * (8 + 6)));
}

TEST_CASE("convolutions go by stride, padding, dilation and groups", "[runtime][telemetry][flops]") {
  const auto input = tensor({2, 4, 9, 9});
  CHECK(cost("aten::conv2d", {input, tensor({6, 4, 3, 3}), tensor({6}), ints({1, 1}), ints({1, 1}), ints({1, 1}), 1}) ==
        both(2 * 81 * 6 * 4 * 9, 2 * 81 * 6));
  CHECK(cost("aten::conv2d", {input, tensor({6, 2, 3, 3}), kNone, ints({2}), ints({0}), ints({2}), 2}) ==
        both(2 * 9 * 6 * 2 * 9));  // (9 - 4 - 1) / 2 + 1 = 3 each way
  CHECK(cost("aten::conv2d", {input, tensor({6, 4, 3, 3}), kNone, ints({1}), "same", ints({1}), 1}) ==
        both(2 * 81 * 6 * 4 * 9));
  CHECK(cost("aten::conv1d", {tensor({4, 10}), tensor({6, 4, 3}), kNone, ints({1}), ints({0}), ints({1}), 1}) ==
        both(8 * 6 * 4 * 3));  // no batch dimension
  const std::vector<c10::IValue> transposed{
      tensor({2, 4, 5, 5}), tensor({4, 6, 3, 3}), tensor({6}), ints({2}), ints({1}), ints({1}), 1, ints({1})};
  CHECK(cost("aten::conv_transpose2d", transposed) == both(2 * 25 * 4 * 6 * 9, 2 * 100 * 6));
  const std::vector<c10::IValue> traced{tensor({2, 4, 5, 5}),
                                        tensor({4, 6, 3, 3}),
                                        tensor({6}),
                                        ints({2, 2}),
                                        ints({1, 1}),
                                        ints({1, 1}),
                                        true,
                                        ints({1, 1}),
                                        1};
  CHECK(cost("aten::_convolution", traced) == both(2 * 25 * 4 * 6 * 9, 2 * 100 * 6));
}

TEST_CASE("backward operators cost the products that they compute", "[runtime][telemetry][flops]") {
  const auto q = tensor({2, 4, 10, 8}), k = tensor({2, 4, 12, 8}), v = tensor({2, 4, 12, 6});
  const int64_t scores = 2 * 4 * 10 * 12;
  // Scores again, their gradient from the values, and the gradients of query, key and value.
  CHECK(cost("aten::_scaled_dot_product_flash_attention_backward", {tensor({2, 4, 10, 6}), q, k, v}) ==
        both(scores * (8 + 6 + 8 + 8 + 6)));
  CHECK(cost("aten::_scaled_dot_product_flash_attention", {q, k, v}) == both(scores * (8 + 6)));
  const auto backward = [](bool transposed, std::array<bool, 3> wanted) {
    c10::List<bool> mask;
    for (const bool each : wanted) mask.push_back(each);
    const auto input = tensor(transposed ? std::vector<int64_t>{2, 6, 5, 5} : std::vector<int64_t>{2, 4, 9, 9});
    const auto gradient = tensor(transposed ? std::vector<int64_t>{2, 4, 9, 9} : std::vector<int64_t>{2, 6, 5, 5});
    return cost("aten::convolution_backward", {gradient, input, tensor({6, 4, 3, 3}), kNone, ints({2, 2}), ints({1, 1}),
                                               ints({1, 1}), transposed, ints({0, 0}), 1, mask});
  };
  for (const bool transposed : {false, true}) {
    CHECK(backward(transposed, {true, true, true}) == both(2 * (2 * 25 * 6 * 4 * 9)));
    CHECK(backward(transposed, {false, true, false}) == both(2 * 25 * 6 * 4 * 9));
  }
}

TEST_CASE("the arithmetic of a step is that of its operators, forward and backward apart",
          "[runtime][telemetry][flops]") {
  const auto trained = [](std::vector<int64_t> shape) { return at::ones(shape).requires_grad_(); };
  const auto counted = [](const std::function<at::Tensor()>& forward) {
    StepFlops flops;
    const at::Tensor loss = forward().sum();
    CHECK(flops.read().backward == 0);
    loss.backward();
    flops.begin_update();
    at::mm(at::ones({2, 3}), at::ones({3, 5}));
    return flops.read();
  };
  const auto linear = counted([&] { return at::linear(trained({7, 4}), trained({6, 4}), trained({6})); });
  CHECK(linear.forward == 7 * 4 * 6);
  CHECK(linear.backward == 2 * 7 * 4 * 6);
  CHECK(linear.update == 2 * 3 * 5);
  CHECK(linear.total() == 3 * 7 * 4 * 6 + 30);
  // Nobody asks for the gradient of the input.
  CHECK(counted([&] { return at::linear(at::ones({7, 4}), trained({6, 4})); }).backward == 7 * 4 * 6);
  const auto convolution = counted([&] { return at::conv2d(trained({2, 4, 9, 9}), trained({6, 4, 3, 3})); });
  CHECK(convolution.forward == 2 * 49 * 6 * 4 * 9);
  CHECK(convolution.backward == 2 * convolution.forward);
  const auto attention = counted([&] {
    return at::scaled_dot_product_attention(trained({2, 4, 16, 8}), trained({2, 4, 16, 8}), trained({2, 4, 16, 8}));
  });
  CHECK(attention.forward == 2 * (2 * 4 * 16 * 16 * 8));
  CHECK(attention.backward == 5 * (2 * 4 * 16 * 16 * 8));
  StepFlops again;  // what ran before is not in it
  CHECK(again.read().total() == 0);
}

TEST_CASE("an operator's own time leaves out what it calls", "[runtime][telemetry]") {
  const auto begin = std::chrono::steady_clock::now();
  OperatorTimes times;
  const auto x = at::ones({64, 64}).requires_grad_();
  at::linear(x, at::ones({64, 64})).sum().backward();
  at::linear(x, at::ones({64, 64}));
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
  std::map<std::string, WorkTime> found;
  double total = 0;
  for (const auto& work : times.take()) {
    found[work.name] = work;
    total += work.milliseconds;
    CHECK(work.milliseconds >= 0);
  }
  CHECK(found.at("aten::linear").num_calls == 2);
  CHECK(found.at("SumBackward0").num_calls == 1);
  CHECK(found.count("aten::mm") == 1);
  CHECK(total <= elapsed.count());
  CHECK(times.take().empty());
}

TEST_CASE("norms, activations and pools cost some operations an element", "[runtime][telemetry][flops]") {
  const auto x = tensor({2, 3, 4});
  CHECK(cost("aten::layer_norm", {x, ints({4}), tensor({4}), tensor({4})}) == std::pair<int64_t, int64_t>{120, 0});
  CHECK(cost("aten::layer_norm", {x, ints({4}), kNone, kNone}) == std::pair<int64_t, int64_t>{96, 0});
  CHECK(cost("aten::batch_norm", {x, tensor({3}), tensor({3}), kNone, kNone, true}).first == 120);
  CHECK(cost("aten::batch_norm", {x, tensor({3}), tensor({3}), kNone, kNone, false}).first == 48);
  CHECK(cost("aten::gelu", {x, "tanh"}).first == 24);
  CHECK(cost("aten::softmax", {x, 1, kNone}).first == 24);
  CHECK(cost("aten::upsample_nearest2d", {tensor({1, 2, 3, 3}), kNone, c10::List<double>({2.0, 2.0})}).first == 72);
  CHECK(cost("aten::upsample_nearest2d", {tensor({1, 2, 3, 3}), ints({5, 5}), kNone}).first == 50);
}

TEST_CASE("operators without a formula cost nothing themselves, strange arguments cost 0",
          "[runtime][telemetry][flops]") {
  CHECK(!operator_cost("aten::add", {}));
  CHECK(!operator_cost("aten::einsum", {}));
  CHECK(cost("aten::linear", {}) == both(0));
  CHECK(cost("aten::matmul", {kNone, kNone}) == both(0));
  CHECK(cost("aten::conv2d", {kNone, kNone}) == both(0));
}

TEST_CASE("the tree sums up costs, and counts a tied parameter where it hangs and once above",
          "[runtime][telemetry][flops]") {
  const auto tree = profile_tree(kModules, costs(), table());
  CHECK(tree[0].params == 2010);
  CHECK(tree[1].params == 2000);
  CHECK(tree[6].params == 1010);
  CHECK(tree[0].flops == 4750);
  CHECK(tree[0].macs == 2250);
  CHECK(tree[1].flops == 4200);
  CHECK(tree[1].seconds == Approx(0.006));  // never called itself: the sum of its blocks
  CHECK(tree[0].seconds == Approx(0.010));
  CHECK(tree[3].depth == 3);
  CHECK(tree[3].name == "fc");
}

TEST_CASE("the flops report has DeepSpeed's blocks", "[runtime][telemetry][flops]") {
  const auto tree = profile_tree(kModules, costs(), table());
  dslaunch::config::FlopsProfiler options;
  options.top_modules = 2;
  const std::string text = format_flops_report(tree, options, {2, {.data = 4}, 8, {}});
  CHECK_THAT(text, Contains("Profile Summary at step 2:\n"));
  const auto line = [](std::string title, const char* value) {
    title.resize(72, ' ');
    return title + value;
  };
  CHECK_THAT(text, Contains(line("world size: ", "4       \n")));
  CHECK_THAT(text, Contains(line("params per GPU: ", "2.01 K  \n")));
  CHECK_THAT(text, Contains(line("fwd MACs per GPU: ", "2.25 KMACs\n")));
  CHECK_THAT(text, Contains(line("fwd latency: ", "10 ms   \n")));
  CHECK_THAT(text, Contains(line("fwd FLOPS per GPU = fwd flops per GPU / fwd latency: ", "475 KFLOPS\n")));
  CHECK_THAT(text, Contains("depth 1:\n    params      - {'ModuleList': '2 K', 'Linear': '1.01 K'}\n"
                            "    MACs        - {'ModuleList': '2 KMACs', 'Linear': '250 MACs'}\n"));
  CHECK_THAT(text, !Contains("depth 3:"));
  CHECK_THAT(text, Contains("  (blocks): ModuleList(\n"
                            "    2 K = 99.5% Params, 2 KMACs = 88.89% MACs, 6 ms = 60% latency, 700 KFLOPS\n"
                            "    (0): Block(\n"
                            "      1 K = 49.75% Params, 1 KMACs = 44.44% MACs, 4 ms = 40% latency, 525 KFLOPS\n"
                            "      (fc): Linear(1 K = 49.75% Params, 1 KMACs = 44.44% MACs, 3 ms = 30% latency, "
                            "666.67 KFLOPS)\n"
                            "    )\n"));
  options.detailed = false;
  options.module_depth = 1;
  options.recompute_fwd_factor = 1;
  const std::string brief = format_flops_report(tree, options, {2, {.data = 4}, 8, PhaseTimes{10, 20, 15, 5, 10}});
  CHECK_THAT(brief, !Contains("Detailed Profile") && !Contains("depth 1:"));
  CHECK_THAT(brief, Contains(line("bwd FLOPS per GPU = 3 * fwd flops per GPU / bwd latency: ", "712.5 KFLOPS\n")));
  CHECK_THAT(brief, Contains(line("iter latency: ", "40 ms   \n")) && Contains(line("samples/second: ", "800     \n")));
}

TEST_CASE("the flops report of a mesh counts samples by data ranks and the model by tensor ranks",
          "[runtime][telemetry][flops]") {
  const auto tree = profile_tree(kModules, costs(), table());
  const std::string text =
      format_flops_report(tree, {}, {2, {.data = 2, .pipe = 1, .tensor = 2}, 8, PhaseTimes{10, 20, 15, 5, 10}});
  const auto line = [](std::string title, const char* value) {
    title.resize(72, ' ');
    return title + value;
  };
  CHECK_THAT(text,
             Contains(line("world size: ", "4       \n")) && Contains(line("data parallel size: ", "2       \n")));
  CHECK_THAT(text, Contains(line("model parallel size: ", "2       \n")));
  CHECK_THAT(text, Contains(line("params of model = params per GPU * mp_size: ", "4.02 K  \n")));
  CHECK_THAT(text, Contains(line("fwd flops of model = fwd flops per GPU * mp_size: ", "9.5 K   \n")));
  CHECK_THAT(text, Contains(line("samples/second: ", "400     \n")));
}
