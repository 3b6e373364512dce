// The autograd node of a unit's gather, and which tensors a value holds.
#include "runtime/model/torchscript/units/gather_node.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <catch2/catch.hpp>

#include "runtime/model/torchscript/units/call_hooks.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::units;

namespace {

struct Taken : UnitParameters {
  UnitValues acquire(int, UnitCall) override { return {}; }
  void release(int) override {}
  void prepare_backward(int unit) override { prepared.push_back(unit); }
  void take_gradients(int unit, std::vector<at::Tensor> of_unit) override {
    taken.push_back(unit);
    gradients = std::move(of_unit);
  }
  std::vector<int> prepared, taken;
  std::vector<at::Tensor> gradients;
};

std::shared_ptr<CallInBackward> call_of(Taken& parameters) {
  return std::make_shared<CallInBackward>(CallInBackward{.parameters = &parameters, .unit = 7});
}

}  // namespace

TEST_CASE("all gradients of a call arrive at once, also where some are missing", "[runtime][model][gather_node]") {
  Taken parameters;
  std::vector<at::Tensor> views{at::ones({2}), at::ones({3}), at::ones({4})};
  attach_gather_node(views, call_of(parameters));
  for (const auto& view : views) CHECK((view.requires_grad() && is_gathered(view)));
  CHECK_FALSE(is_gathered(at::ones({1})));
  CHECK_FALSE(is_gathered(views[0] * 2));
  (views[0].sum() * 3 + views[2].sum() * 5).backward();
  CHECK(parameters.taken == std::vector<int>{7});
  REQUIRE(parameters.gradients.size() == 3);
  CHECK(at::equal(parameters.gradients[0], at::full({2}, 3.0)));
  CHECK_FALSE(parameters.gradients[1].defined());
  CHECK(at::equal(parameters.gradients[2], at::full({4}, 5.0)));
}

TEST_CASE("a call is prepared once, whichever of its outputs backward enters by", "[runtime][model][gather_node]") {
  Taken parameters;
  const auto call = call_of(parameters);
  std::vector<at::Tensor> views{at::ones({2})};
  attach_gather_node(views, call);
  const std::vector<c10::IValue> arguments{at::ones({2})};
  const EntryNodes entries(arguments);
  const auto one = views[0] * 2, two = views[0] * 3;
  entries.hook({one, two}, call);
  (one + two).sum().backward();
  CHECK(parameters.prepared == std::vector<int>{7});
  CHECK(parameters.taken == std::vector<int>{7});
}

TEST_CASE("backward that only passes by a call's inputs does not enter it", "[runtime][model][gather_node]") {
  Taken parameters;
  const auto call = call_of(parameters);
  const auto input = at::ones({2}).requires_grad_() * 2;
  const std::vector<c10::IValue> arguments{input};
  end_at_inputs({input}, call);
  const EntryNodes entries(arguments);
  std::vector<at::Tensor> views{at::ones({2})};
  attach_gather_node(views, call);
  const auto output = views[0] * input;
  entries.hook({output, input}, call);  // an input that is passed on does not lead into the call
  input.sum().backward();
  CHECK(parameters.prepared.empty());
  CHECK(parameters.taken.empty());
}

TEST_CASE("a call without gradients of its own ends at its inputs, unless backward keeps its graph",
          "[runtime][model][gather_node]") {
  Taken parameters;
  const auto call = call_of(parameters);
  const auto input = at::ones({2}).requires_grad_() * 2;
  const std::vector<c10::IValue> arguments{input};
  end_at_inputs({input, input}, call);
  const EntryNodes entries(arguments);
  call->num_parameters = 3;
  const auto output = input * 5;
  entries.hook({output}, call);
  output.sum().backward({}, /*retain_graph=*/true);
  CHECK(parameters.prepared == std::vector<int>{7});
  CHECK(parameters.taken.empty());
  output.sum().backward();
  CHECK(parameters.prepared == std::vector<int>{7});
  CHECK(parameters.taken == std::vector<int>{7});
  CHECK(parameters.gradients.size() == 3);
}

TEST_CASE("a value's tensors are those in its containers, and of an argument those in its objects too",
          "[runtime][model][gather_node]") {
  const auto tensor = at::ones({1});
  c10::List<at::Tensor> list;
  list.push_back(tensor);
  list.push_back(at::Tensor());  // undefined ones do not count
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("a", tensor);
  torch::jit::Module module("M");
  module.register_buffer("held", tensor);
  const c10::IValue object = module._ivalue();
  const c10::IValue tuple = c10::ivalue::Tuple::create({c10::IValue(list), c10::IValue(dict), c10::IValue(5), object});
  CHECK(tensors_in(tensor).size() == 1);
  CHECK(tensors_in(tuple).size() == 2);
  CHECK(tensors_in(object).empty());
  CHECK(tensors_in_all({tuple, tensor}).size() == 3);
  CHECK(tensors_reached_from({tuple, tensor}).size() == 4);
}

TEST_CASE("tensors share a storage by their memory, empty ones never", "[runtime][model][gather_node]") {
  const auto base = at::ones({4});
  CHECK(shares_storage({base}, {at::ones({1}), base[2]}));
  CHECK_FALSE(shares_storage({base}, {base.clone()}));
  CHECK_FALSE(shares_storage({base.narrow(0, 0, 0)}, {base}));
  CHECK_FALSE(shares_storage({}, {base}));
  CHECK_FALSE(shares_storage({base}, {at::eye(2).to_sparse()}));
}
