// Weights in 8 and 4 bits: how far they lie from the numbers that they stand for, and which layers of a graph get them.
#include "runtime/model/decoding/quantized_weight.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <catch2/catch.hpp>

#include "graph_fixtures.hpp"
#include "runtime/model/decoding/quantized_layers.hpp"
#include "runtime/model/decoding/row_products.hpp"
#include "script_fixtures.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::decoding;

namespace {

// Rows of very different magnitudes, some of them zeros, with an outlier each.
at::Tensor random_weight(int64_t outputs, int64_t columns) {
  const at::Tensor scales = at::randn({outputs, 1}).mul(3).exp();
  at::Tensor weight = at::randn({outputs, columns}) * scales;
  weight.select(1, 3).mul_(20);
  weight[outputs / 2].zero_();
  return weight;
}

// By element, the most that rounding may change it.
at::Tensor bound_for(const at::Tensor& weight, const QuantizedWeight& quantized) {
  constexpr double kOwnRounding = 1e-5;  // of the scaling in fp32, relative to a step
  const at::Tensor scales = quantized.scales.to(at::kDouble);
  switch (quantized.type) {
    case WeightType::kInt8:
      return (scales / 2 * (1 + kOwnRounding)).unsqueeze(1).expand_as(weight);
    case WeightType::kFp8:  // half of the last of three bits of the mantissa, or of the least exponent
      return at::maximum(weight.abs() / 16, (scales / 1024).unsqueeze(1)) * (1 + kOwnRounding);
    default: {
      const at::Tensor of_groups = scales.select(2, 0) / 2 + scales.select(2, 1).abs() * 1e-6;
      return (of_groups * (1 + kOwnRounding)).repeat_interleave(kInt4Group, 1);
    }
  }
}

}  // namespace

TEST_CASE("a quantized weight is the nearest one in its steps", "[runtime][model][quantized]") {
  at::manual_seed(4);
  for (const auto type : {WeightType::kInt8, WeightType::kFp8, WeightType::kInt4}) {
    for (const auto& [outputs, columns] : {std::pair{1, 128}, {7, 256}, {33, 1280}}) {
      INFO(weight_type_name(type) << " " << outputs << " " << columns);
      const at::Tensor weight = random_weight(outputs, columns);
      QuantizedWeight quantized(type);
      quantized.quantize(weight, at::kFloat);
      const at::Tensor wide = weight.to(at::kDouble), error = (quantized.whole().to(at::kDouble) - wide).abs();
      CHECK((error <= bound_for(wide, quantized)).all().item<bool>());
      CHECK(quantized.whole().eq(0).sum(1)[outputs / 2].item<int64_t>() == columns);
      const int64_t expected = type == WeightType::kInt4 ? outputs * columns / 2 + outputs * columns / kInt4Group * 4
                                                         : outputs * columns + outputs * 4;
      CHECK(quantized.bytes() == expected);
      QuantizedWeight half(type);
      half.quantize(weight, at::kBFloat16);
      CHECK(at::equal(half.whole(), quantized.whole().to(at::kBFloat16)));
    }
  }
}

TEST_CASE("a weight that is quantized in parts is that of its rows", "[runtime][model][quantized]") {
  at::manual_seed(5);
  const at::Tensor weight = at::randn({140, 32768});  // more than is quantized at once
  QuantizedWeight whole(WeightType::kInt8), last(WeightType::kInt8);
  whole.quantize(weight, at::kFloat);
  last.quantize(weight.narrow(0, 120, 20), at::kFloat);
  CHECK(at::equal(whole.values.narrow(0, 120, 20), last.values));
  CHECK(at::equal(whole.scales.narrow(0, 120, 20), last.scales));
  weight[1][1] = INFINITY;
  test::expect_error(ExitCode::kBadInput, {"not finite"}, [&] { whole.quantize(weight, at::kFloat); });
}

TEST_CASE("linear layers get quantized weights, and those of one input are joined", "[runtime][model][quantized]") {
  torch::manual_seed(6);
  torch::jit::Module net("Net");
  for (const char* name : {"query", "key", "value", "other"}) test::add_parameter(net, name, {128, 128});
  test::add_parameter(net, "transposed", {128, 64});
  test::add_parameter(net, "bias", {64});
  test::add_parameter(net, "router", {8, 128});
  test::add_parameter(net, "uneven", {64, 72});
  test::add_parameter(net, "table", {40, 128});
  net.define(R"(
def forward(self, ids):
    x = torch.embedding(self.table, ids)
    q, k, v = torch.linear(x, self.query), torch.linear(x, self.key), torch.linear(x, self.value)
    route = torch.linear(x, self.router)
    y = torch.relu(torch.linear(q * k + v, self.other)) + route.sum()
    z = torch.addmm(self.bias, y, self.transposed)
    return torch.linear(torch.cat([z, route], 1), self.uneven).sum() + torch.linear(y, self.table)
)");
  ParameterTable table;
  std::map<SlotKey, int> slots;
  for (const auto& parameter : net.named_parameters(/*recurse=*/false)) {
    slots[{net._ivalue().get(), net.type()->getAttributeSlot(parameter.name)}] = static_cast<int>(slots.size());
    table.parameters.push_back({parameter.name, parameter.value.sizes().vec(), parameter.value.numel()});
  }
  const auto at = [&](const std::string& name) { return net.attr(name).toTensor().detach(); };
  const auto kinds = [](const torch::jit::Graph& graph) {
    std::map<std::string, int> out;
    for (const auto* node : graph.nodes()) out[node->kind().toQualString()] += 1;
    return out;
  };
  for (const auto type : {WeightType::kInt8, WeightType::kInt4}) {
    const auto graph = net.get_method("forward").graph()->copy();
    auto layers = quantize_layers(
        *graph, net._ivalue(), table,
        [&](const SlotKey& slot) { return slots.count(slot) > 0 ? std::optional(slots.at(slot)) : std::nullopt; },
        type);
    std::map<std::string, at::Tensor> values;
    std::set<std::string> quantized, otherwise;
    for (auto& [parameter, weight] : layers.weights) {
      const std::string& name = table.parameters[static_cast<size_t>(parameter)].name;
      quantized.insert(name);
      if (weight.is_read_otherwise) otherwise.insert(name);
      CHECK(weight.take(at(name), at::kFloat) > 0);
      QuantizedWeight own(type);
      own.quantize(name == "transposed" ? at(name).t() : at(name), at::kFloat);
      values[name] = own.whole();
    }
    CHECK(quantized == std::set<std::string>{"query", "key", "value", "other", "transposed", "table"});
    CHECK(otherwise == std::set<std::string>{"table"});
    REQUIRE(layers.kept.size() == 2);
    CHECK(layers.kept[0] == "'router': it is narrow, [8, 128]");
    CHECK(layers.kept[1] == (type == WeightType::kInt4 ? "'uneven': 128 does not divide its 72 inputs"
                                                       : "'uneven': 16 does not divide its 72 inputs"));
    const at::Tensor ids = at::arange(5);
    const at::Tensor x = at::embedding(at("table"), ids), route = at::linear(x, at("router"));
    const at::Tensor mixed =
        at::linear(x, values["query"]) * at::linear(x, values["key"]) + at::linear(x, values["value"]);
    const at::Tensor y = at::relu(at::linear(mixed, values["other"])) + route.sum();
    const at::Tensor z = at::linear(y, values["transposed"], at("bias"));
    const at::Tensor expected = at::linear(at::cat({z, route}, 1), at("uneven")).sum() + at::linear(y, values["table"]);
    const auto result = [&] {
      torch::jit::Stack stack{net._ivalue(), ids};
      torch::jit::InterpreterState(torch::jit::Code(graph, "graph")).run(stack);
      return stack.at(0).toTensor();
    };
    const at::NoGradGuard no_grad;
    CHECK(at::equal(result(), expected));
    CHECK(kinds(*graph)["dslaunch::whole_weight"] == 6);
    use_row_products(*graph);
    auto joined = kinds(*graph);
    CHECK(joined["dslaunch::whole_weight"] == 0);
    CHECK(joined["dslaunch::quantized_linears_of_rows"] == 3);  // q|k|v, other, and what reads y: addmm and the head
    CHECK(joined["dslaunch::linears_of_rows"] == 2);            // the router, the uneven one
    CHECK(at::equal(result(), expected));
  }
}
