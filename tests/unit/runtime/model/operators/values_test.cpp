// The columns of operators that make numbers of tensors, take indices, or have a counterpart on integers.
#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <catch2/catch.hpp>

#include "sample_calls.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model::operators;

namespace {

// The operator's result for these operands and defaults for the rest; an overload that takes them.
c10::IValue call_of(std::string_view name, const std::vector<c10::IValue>& operands) {
  const auto kind = c10::Symbol::fromQualString(std::string(name));
  for (const auto& candidate : torch::jit::getAllOperatorsFor(kind)) {
    torch::jit::Stack stack = operands;
    try {
      candidate->schema().checkAndNormalizeInputs(stack);
    } catch (const c10::Error&) {
      continue;
    }
    candidate->getOperation()(stack);
    return stack.at(0);
  }
  FAIL("no overload of " << name);
  return {};
}

}  // namespace

TEST_CASE("operators: those that read shapes, types and places read no elements") {
  for_every([](const OperatorTraits& row) { return row.reads != Reads::kElements; },
            [](const std::string&, const SampleCall& call) {
              const auto inputs = random_inputs(1);
              SampleInputs others = inputs;
              for (auto& [name, tensor] : others) tensor = at::zeros_like(tensor);
              const auto one = call.run(inputs).results.at(0), other = call.run(others).results.at(0);
              if (one.isTensor()) {
                CHECK(one.toTensor().sizes() == other.toTensor().sizes());
              } else {
                CHECK(one == other);
              }
            });
}

TEST_CASE("operators: those that read a number read it of the elements") {
  for_every([](const OperatorTraits& row) { return row.reads_number; },
            [](const std::string&, const SampleCall& call) {
              SampleInputs inputs = random_inputs(2), others = inputs;
              for (auto& [name, tensor] : others) tensor = at::zeros_like(tensor);
              others["y"] = at::ones_like(others["y"]);
              inputs["y"] = inputs["x"];
              const auto one = call.run(inputs).results.at(0), other = call.run(others).results.at(0);
              CHECK(!one.isTensor());
              CHECK(one != other);
            });
}

TEST_CASE("operators: the counterpart on integers makes the same of the tensor's only element") {
  for_every([](const OperatorTraits& row) { return !row.on_integers.empty(); },
            [](const std::string& name, const SampleCall&) {
              const auto counterpart = traits(std::string_view(name)).on_integers;
              if (name == counterpart && name == "aten::floordiv") return;  // it takes integers only
              for (const auto& [a, b] : {std::pair<int64_t, int64_t>{7, 2}, {-7, 2}, {7, -3}, {0, 5}, {-6, -3}}) {
                std::vector<c10::IValue> tensors{at::tensor(a)}, integers{a};
                if (name != "aten::neg") {
                  tensors.emplace_back(at::tensor(b));
                  integers.emplace_back(b);
                }
                if (name == "aten::div") tensors.emplace_back("floor");
                if (name == "aten::add" || name == "aten::sub") tensors.emplace_back(1);
                const at::Tensor expected = call_of(name, tensors).toTensor();
                CHECK(expected.item<int64_t>() == call_of(counterpart, integers).toInt());
              }
            });
}

TEST_CASE("operators: an index at its bound is refused, one below is not") {
  const auto with_index = [](const SampleCall& call, const OperatorTraits& row, int64_t index) {
    SampleInputs inputs = random_inputs(3);
    const auto name = call.operand_names().at(static_cast<size_t>(row.index.input));
    inputs[name] = at::full_like(inputs.at(name), index);
    return call.run(inputs);
  };
  for_every([](const OperatorTraits& row) { return row.index.input >= 0 && row.index.bound != IndexBound::kUnknown; },
            [&](const std::string& name, const SampleCall& call) {
              const auto& row = traits(std::string_view(name));
              const auto table = call.run(random_inputs(3)).operands.at(0).toTensor();
              const int64_t bound = row.index.bound == IndexBound::kClasses ? table.size(1) : table.size(0);
              CHECK_NOTHROW(with_index(call, row, bound - 1));
              CHECK_THROWS(with_index(call, row, bound));
            });
}

TEST_CASE("operators: operands of indices hold integers") {
  for_every([](const OperatorTraits& row) { return row.index.input >= 0; },
            [](const std::string& name, const SampleCall& call) {
              const auto input = static_cast<size_t>(traits(std::string_view(name)).index.input);
              const auto operand = call.run(random_inputs(4)).operands.at(input);
              CHECK(operand.toTensor().scalar_type() == at::kLong);
            });
}

TEST_CASE("operators: what only reports has no results") {
  for (const auto& name : table_names()) {
    if (!traits(std::string_view(name)).only_reports) continue;
    INFO(name);
    for (const auto& candidate : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
      CHECK(candidate->schema().returns().empty());
    }
  }
}
