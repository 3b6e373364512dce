// Where a module holds its parameters, which of them are tied, and which cannot be trained.
#include "runtime/model/torchscript/file/parameter_slots.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/model/torchscript/parameter_binding.hpp"
#include "runtime/state/mask_minimum.hpp"
#include "script_fixtures.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::file;
using torch::jit::Module;

namespace {

at::Tensor trained(at::IntArrayRef shape) {
  return at::randn(shape).requires_grad_(true);
}

Module holding(const at::Tensor& weight) {
  Module module("Holder");
  module.register_parameter("weight", weight, false);
  return module;
}

void expect_refusal(const Module& model, const std::vector<std::string>& parts) {
  test::expect_error(ExitCode::kBadInput, parts, [&] { find_parameters(model); });
}

}  // namespace

TEST_CASE("a tensor in several slots is one parameter with its other names", "[runtime][model][slots]") {
  const auto shared = trained({3, 4});
  Module net("Net");
  net.register_module("a", holding(shared));
  net.register_module("b", holding(shared.detach().requires_grad_(true)));  // another tensor over the same memory
  net.register_module("c", holding(trained({3, 4})));
  const auto found = find_parameters(net);
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "a.weight");
  CHECK(found[0].aliases == std::vector<std::string>{"b.weight"});
  CHECK(found[0].locations.size() == 2);
  CHECK(found[1].aliases.empty());
}

TEST_CASE("parameters without elements are never tied", "[runtime][model][slots]") {
  Module net("Net");
  net.register_module("a", holding(at::zeros({0})));
  net.register_module("b", holding(at::zeros({0})));
  CHECK(find_parameters(net).size() == 2);
}

TEST_CASE("a parameter in a list, dict or tuple is set there too", "[runtime][model][slots]") {
  const auto weight = trained({2});
  c10::List<at::Tensor> list;
  list.push_back(at::zeros({1}));
  list.push_back(weight);
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("w", weight);
  auto net = holding(weight);
  net.register_attribute("list", c10::ListType::ofTensors(), list);
  net.register_attribute("dict", c10::DictType::create(c10::StringType::get(), c10::TensorType::get()), dict);
  net.register_attribute("tuple", c10::TupleType::create({c10::TensorType::get(), c10::IntType::get()}),
                         c10::ivalue::Tuple::create({c10::IValue(weight), c10::IValue(1)}));
  const auto found = find_parameters(net);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].locations.size() == 4);
  const auto now = at::ones({2});
  for (const auto& location : found[0].locations) {
    CHECK(location.get().is_same(weight));
    location.set(now);
  }
  CHECK(net.attr("list").toTensorVector()[1].is_same(now));
  CHECK_FALSE(net.attr("list").toTensorVector()[0].is_same(now));
  CHECK(net.attr("dict").toGenericDict().at("w").toTensor().is_same(now));
  CHECK(net.attr("tuple").toTuple()->elements()[0].toTensor().is_same(now));
}

TEST_CASE("parameters that overlap without being the same are refused", "[runtime][model][slots]") {
  const auto base = at::randn({4, 4});
  Module net("Net");
  net.register_module("a", holding(base.detach().requires_grad_(true)));
  net.register_module("b", holding(base[1].detach().requires_grad_(true)));
  expect_refusal(net, {"'a.weight'", "'b.weight'", "share memory but are different tensors"});
}

TEST_CASE("tensors next to each other in one storage do not overlap", "[runtime][model][slots]") {
  const auto base = at::randn({2, 4});
  Module net("Net");
  net.register_module("a", holding(base[0].detach().requires_grad_(true)));
  net.register_module("b", holding(base[1].detach().requires_grad_(true)));
  CHECK(find_parameters(net).size() == 2);
}

TEST_CASE("complex parameters cannot be trained", "[runtime][model][slots]") {
  const auto complex = at::zeros({2}, at::kComplexFloat);
  CHECK(find_parameters(holding(complex)).size() == 1);  // frozen
  expect_refusal(holding(complex.clone().requires_grad_(true)), {"'weight' is ComplexFloat", "view_as_real"});
}

TEST_CASE("another attribute over a parameter's memory would miss its updates", "[runtime][model][slots]") {
  const auto weight = trained({4, 4});
  SECTION("a buffer") {
    auto net = holding(weight);
    net.register_buffer("first", weight.detach()[0]);
    expect_refusal(net, {"'first' shares memory with parameter 'weight'"});
  }
  SECTION("a detached tensor in a list") {
    auto net = holding(weight);
    c10::List<at::Tensor> list;
    list.push_back(weight.detach());
    net.register_attribute("list", c10::ListType::ofTensors(), list);
    expect_refusal(net, {"'list' shares memory with parameter 'weight'"});
  }
  SECTION("a member of an object") {
    const std::string source = R"(
class Pair:
  x : Tensor
class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  pair : __torch__.Pair
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    pair = self.pair
    return torch.matmul(x, pair.x)
)";
    expect_refusal(test::ImportedClasses::make_net(source, {{"weight", weight}, {"pair.x", weight}}),
                   {"'pair' shares memory with parameter 'weight'"});
    CHECK(find_parameters(test::ImportedClasses::make_net(source, {{"weight", weight}, {"pair.x", at::ones({4, 4})}}))
              .size() == 1);
  }
  SECTION("a buffer of its own is none") {
    auto net = holding(weight);
    net.register_buffer("copy", weight.detach().clone());
    net.register_buffer("none", at::zeros({0}));
    CHECK(find_parameters(net).size() == 1);
  }
}

TEST_CASE("the state of a module is in all attributes that can hold tensors", "[runtime][model][slots]") {
  auto inner = holding(trained({2}));
  inner.register_buffer("mean", at::zeros({2}));
  Module net("Net");
  net.register_module("inner", inner);
  net.register_attribute("seen", c10::DictType::create(c10::StringType::get(), c10::ListType::ofTensors()),
                         c10::impl::GenericDict(c10::StringType::get(), c10::ListType::ofTensors()));
  net.register_attribute("count", c10::IntType::get(), 0);
  const auto weight = inner._ivalue();
  const std::set<SlotKey> parameters{{weight.get(), inner.type()->getAttributeSlot("weight")}};
  CHECK(find_tensor_state(net, parameters).size() == 2);
  CHECK(find_tensor_state(net, {}).size() == 3);
  CHECK(join_path("", "a") == "a");
  CHECK(join_path("a", "b") == "a.b");
}

TEST_CASE("the table has what can be trained, mutable parameters go with the buffers", "[runtime][model][slots]") {
  Module net("Net");
  net.register_module("a", holding(trained({3, 4})));
  auto b = holding(at::zeros({2}, at::kBFloat16));
  b.register_buffer("mean", at::zeros({2}));
  net.register_module("b", b);
  net.register_buffer("own", at::ones({1}));
  const auto binding = torchscript::bind_parameters(net, {"b.weight"});
  REQUIRE(binding.table.parameters.size() == 1);
  const auto& a = binding.table.parameters[0];
  CHECK((a.name == "a.weight" && a.shape == std::vector<int64_t>{3, 4} && a.numel == 12 && a.trainable));
  CHECK_FALSE(binding.values[0].requires_grad());
  REQUIRE(binding.mutable_parameters.size() == 1);
  CHECK(binding.mutable_parameters[0].name == "b.weight");
  const auto buffers = torchscript::find_buffers(net);
  REQUIRE(buffers.size() == 2);
  CHECK((buffers[0].name == "b.mean" && buffers[1].name == "own"));
  CHECK(buffers[0].locations[0].get().is_same(b.attr("mean").toTensor()));
}

TEST_CASE("a model goes to the dtypes of the run, its frozen parameters too", "[runtime][model][slots]") {
  Module net("Net");
  test::add_parameter(net, "weight", {4, 4});
  net.register_parameter("still", at::full({4}, 0.1), false);
  net.register_parameter("sharded", at::full({4}, 0.1), false);
  net.register_parameter("empty", at::zeros({}).expand({4}), false);
  net.register_parameter("target", at::zeros({4}), false);
  net.register_buffer("mask", at::full({2}, -3.4e38));
  net.define(R"(
def forward(self, x):
    self.target.mul_(0.5)
    return torch.matmul(x, self.weight).sum() + self.still.sum() + self.sharded.sum() + self.mask.sum()
)");
  test::ModelRun run(net);
  auto& model = *run.model;
  const auto index = [&](const std::string& name) {
    for (size_t i = 0; i < model.facts.table.parameters.size(); ++i) {
      if (model.facts.table.parameters[i].name == name) return static_cast<int>(i);
    }
    return -1;
  };
  CHECK(index("target") == -1);  // forward writes to it
  std::vector<bool> is_sharded(model.facts.table.parameters.size());
  is_sharded[static_cast<size_t>(index("sharded"))] = true;
  model.to_device(
      at::kCPU, [](const std::string&, at::ScalarType) { return at::kHalf; }, is_sharded);
  CHECK(model.tensors.frozen_value(index("still")).scalar_type() == at::kHalf);
  CHECK_FALSE(model.tensors.frozen_value(index("sharded")).defined());
  CHECK(model.initial.is_empty(index("empty")));
  CHECK_FALSE(model.initial.is_empty(index("weight")));
  std::map<std::string, at::Tensor> buffers;
  for (const auto& [name, value] : model.tensors.buffers()) buffers[name] = value;
  CHECK(buffers.at("target").scalar_type() == at::kHalf);
  CHECK(buffers.at("mask").isfinite().all().item<bool>());  // fp16 ends before -3.4e38
}

TEST_CASE("a parameter without values may have dims of size 1", "[runtime][model][slots]") {
  const at::Tensor element = at::zeros({1});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4}, {4, 1}, {1, 4}, {2, 3, 1, 1}}) {
    CHECK(is_stride_zero(element.expand(shape)));
    CHECK_FALSE(is_stride_zero(at::zeros(shape)));
  }
  CHECK_FALSE(is_stride_zero(element));
  CHECK_FALSE(is_stride_zero(at::zeros({2, 1}).expand({2, 3})));
}

TEST_CASE("a forward that writes to a trained parameter, or that is missing, is refused", "[runtime][model][slots]") {
  const auto expect_refused = [](const std::string& method, const std::vector<std::string>& parts) {
    Module net("Net");
    test::add_parameter(net, "weight", {4, 4});
    net.define(method);
    test::expect_error(ExitCode::kBadInput, parts, [&] { test::ModelRun run(net); });
  };
  const std::vector<std::string> writes{"writes to parameter 'weight'", "Make it a buffer"};
  expect_refused("def forward(self, x):\n    self.weight.mul_(0.5)\n    return torch.matmul(x, self.weight)\n", writes);
  expect_refused("def forward(self, x):\n    self.weight = self.weight * 2\n    return x\n", writes);
  expect_refused("def apply(self, x):\n    return torch.matmul(x, self.weight)\n", {"has no method 'forward'"});
}
