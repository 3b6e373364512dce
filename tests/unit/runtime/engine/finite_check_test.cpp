#include "runtime/engine/diagnosis/finite_check.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::diagnosis;

namespace {

class OneParameter : public UnitParameters {
 public:
  UnitValues acquire(int, UnitCall) override { return {{value}}; }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor>) override { taken += 1; }
  at::Tensor value = at::ones({2, 3});
  int taken = 0;
};

ParameterTable table_of_two_units() {
  ParameterTable table;
  table.parameters.push_back({"w", {2, 3}, 6, at::kFloat, true, 1, {}});
  table.units = {{"", {}}, {"block", {0}}};
  return table;
}

at::Tensor with(double value, int64_t element) {
  at::Tensor out = at::ones({2, 3});
  out.view({-1})[element] = value;
  return out;
}

const double kNan = std::nan(""), kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the first NaN is the finding, with the infinity before it", "[runtime][engine][finite_check]") {
  const auto table = table_of_two_units();
  OneParameter inner;
  FiniteCheck check(table, inner);
  check.check("a", at::ones({3}));
  check.check("ids", at::tensor({1, 2}));  // integers are always finite
  check.check("empty", at::empty({0}));
  CHECK(check.finding().empty());
  check.check("b", with(-kInfinity, 1));
  CHECK(check.finding() == "b element [0, 1] is -inf");
  check.check("c", with(-kNan, 5));  // whose sign means nothing
  check.check("d", with(kNan, 0));
  CHECK(check.finding() == "c element [1, 2] is nan; before that, b element [0, 1] is -inf");
  check.reset();
  CHECK(check.finding().empty());
}

TEST_CASE("elements of a slice are named by their place in the whole parameter", "[runtime][engine][finite_check]") {
  auto table = table_of_two_units();
  table.parameters[0].slice = LocalSlice{1, 9, {{4, 5}, {7, 9}}};
  OneParameter inner;
  inner.value = with(kNan, 5);
  FiniteCheck check(table, inner);
  check.acquire(1, UnitCall::kInference);
  CHECK(check.finding() == "parameter 'w' (unit 'block') at the beginning of the step: element [1, 8] is nan");
}

TEST_CASE("parameters, inputs, outputs and gradients are named with their unit", "[runtime][engine][finite_check]") {
  const auto table = table_of_two_units();
  OneParameter inner;
  FiniteCheck check(table, inner);

  inner.value = with(kNan, 3);
  check.acquire(1, UnitCall::kInference);
  CHECK(check.finding() == "parameter 'w' (unit 'block') at the beginning of the step: element [1, 0] is nan");

  check.reset();
  check.on_enter(1, {at::ones({2}), with(kNan, 0)});
  CHECK(check.finding() == "input 1 of unit 'block', Float[2, 3], computed by the root unit: element [0, 0] is nan");

  check.reset();
  check.on_exit(1, {with(kNan, 4)});
  CHECK(check.finding() == "the output of unit 'block', Float[2, 3]: element [1, 1] is nan");

  check.reset();
  check.on_exit(1, {at::ones({2})});
  check.on_exit(0, {at::full({}, kNan)});
  CHECK(check.finding() ==
        "the output of the root unit, Float[] after unit 'block', which returned finite values: is nan");

  check.reset();
  check.take_gradients(1, {with(kInfinity, 2)});
  CHECK(check.finding() ==
        "the gradient of parameter 'w' (unit 'block'), the first in the order of backward: element [0, 2] is inf");
  CHECK(inner.taken == 1);
}
