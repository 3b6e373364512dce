// The column of types against LibTorch: its type promotion and autocast, executed, and its lists for autocast. Types
// are planned before operators of ours are in the graph, so that their rows have no types.
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <set>

#include "base/scope_exit.hpp"
#include "sample_calls.hpp"

using dslaunch::ScopeExit;
using namespace dslaunch::test;
using namespace dslaunch::runtime::model::operators;

namespace {

TypeRole role_of(const std::string& name) {
  return traits(std::string_view(name)).type;
}

bool has_role(const OperatorTraits& row, std::initializer_list<TypeRole> roles) {
  return std::find(roles.begin(), roles.end(), row.type) != roles.end();
}

// The types of the first floating-point result and of those like it in a list; empty: LibTorch has no such kernel on
// CPUs, or wants operands of one type.
std::optional<std::set<at::ScalarType>> float_types(const SampleCall& call, const SampleInputs& inputs) {
  std::set<at::ScalarType> out;
  try {
    for (const auto& result : tensors_in({call.run(inputs).results.at(0)})) {
      if (result.is_floating_point()) out.insert(result.scalar_type());
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return out;
}

const std::set<at::ScalarType> kOnlyHalf{at::kBFloat16}, kOnlyFloat{at::kFloat};

#define DSL_NAME(name, ...) "aten::" #name,
// What PyTorch's autocast runs in half precision, and what it runs in fp32 because sums lose too much else.
const std::vector<std::string> kAutocastHalf{AT_FORALL_LOWER_PRECISION_FP(DSL_NAME)};
const std::vector<std::string> kAutocastFloat{AT_FORALL_FP32(DSL_NAME) AT_FORALL_FP32_SET_OPT_DTYPE(DSL_NAME)};
#undef DSL_NAME

}  // namespace

TEST_CASE("operators: those without floating-point results have none") {
  for_every([](const OperatorTraits& row) { return row.type == TypeRole::kNoFloat; },
            [](const std::string&, const SampleCall& call) {
              CHECK(float_types(call, random_inputs(1)) == std::set<at::ScalarType>{});
            });
}

TEST_CASE("operators: operands of one type give results of that type") {
  const auto half = with_floats_of(random_inputs(2), at::kBFloat16);
  int seen = 0;
  for_every(
      [](const OperatorTraits& row) {
        return !has_role(row, {TypeRole::kNoFloat, TypeRole::kCast}) && !row.fills;
      },
      [&](const std::string&, const SampleCall& call) {
        if (is_ours(call.node()->kind()) || tensors_in(call.run(random_inputs(2)).operands).empty()) return;
        const auto types = float_types(call, half);
        if (!types || types->empty()) return;
        CHECK(types == kOnlyHalf);
        seen += 1;
      });
  CHECK(seen > 150);
}

TEST_CASE("operators: an fp32 operand among others makes an fp32 result, or is refused where the table says so") {
  for_every(
      [](const OperatorTraits& row) {
        return has_role(row, {TypeRole::kElements, TypeRole::kArithmetic, TypeRole::kReduction});
      },
      [](const std::string& name, const SampleCall& call) {
        const auto& row = traits(std::string_view(name));
        SampleInputs mixed = with_floats_of(random_inputs(3), at::kBFloat16);
        std::vector<std::string> floats;
        for (const auto& operand : call.operand_names()) {
          if (!operand.empty() && mixed.at(operand).is_floating_point()) floats.push_back(operand);
        }
        const bool has_two = !floats.empty() && floats.front() != floats.back();
        if (!has_two || row.only_first_has_elements || name.starts_with("dslaunch::")) return;
        mixed[floats.back()] = mixed[floats.back()].to(at::kFloat);
        const auto types = float_types(call, mixed);
        const std::set<std::string> refusing{"aten::cdist", "aten::meshgrid", "aten::convolution_backward"};
        CHECK((types || row.wants_one_type || name.starts_with("aten::_scaled") || refusing.count(name) > 0));
        const bool takes_first = name == "aten::copy" || name == "aten::__getitem__";
        if (row.wants_one_type) {
          CHECK((!types || types == kOnlyHalf));
        } else if (types && !types->empty() && !takes_first) {
          CHECK(types->count(at::kFloat) == 1);
        }
      });
}

TEST_CASE("operators: the roles of casts and new tensors are decided by their arguments") {
  const auto inputs = random_inputs(4);
  CHECK(float_types(SampleCall("aten::to"), with_floats_of(inputs, at::kBFloat16)) == kOnlyFloat);
  auto other = inputs;
  other["y"] = other["y"].to(at::kBFloat16);
  CHECK(role_of("aten::type_as") == TypeRole::kTypeOf);
  CHECK(float_types(SampleCall("aten::type_as"), other) == kOnlyHalf);
  for_every([](const OperatorTraits& row) { return row.fills; },
            [](const std::string&, const SampleCall& call) {
              const auto* schema = call.node()->maybeSchema();
              REQUIRE(schema != nullptr);
              CHECK(schema->argumentIndexWithName("dtype").has_value());
            });
}

TEST_CASE("operators: batch norms and tables take parameters of another type") {
  const auto inputs = random_inputs(5);
  SampleInputs mixed = inputs;
  mixed["x"] = mixed["x"].to(at::kBFloat16);
  for_every([](const OperatorTraits& row) { return row.type == TypeRole::kBatchNorm; },
            [&](const std::string&, const SampleCall& call) { CHECK(float_types(call, mixed) == kOnlyHalf); });
  for_every([](const OperatorTraits& row) { return row.type == TypeRole::kTable; },
            [&](const std::string&, const SampleCall& call) {
              CHECK(float_types(call, with_floats_of(inputs, at::kBFloat16)) == kOnlyHalf);
            });
}

TEST_CASE("operators: what autocast computes in half precision is a GEMM") {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const ScopeExit end([] {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  });
  int count = 0;
  for_every([](const OperatorTraits&) { return true; },
            [&](const std::string& name, const SampleCall& call) {
              if (is_ours(call.node()->kind()) || float_types(call, random_inputs(8)) != kOnlyHalf) return;
              CHECK(role_of(name) == TypeRole::kGemm);
              count += 1;
            });
  CHECK(count > 15);
}

TEST_CASE("operators: GEMMs are what PyTorch's autocast runs in half precision") {
  for (const auto& name : kAutocastHalf) {
    INFO(name);
    const auto names = table_names();
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const bool is_inner = name.starts_with("aten::_scaled_dot_product");  // what attention itself calls
    CHECK((is_inner || role_of(name) == TypeRole::kGemm));
  }
}

TEST_CASE("operators: what PyTorch's autocast runs in fp32 has a role that does so") {
  for (const auto& name : kAutocastFloat) {
    INFO(name);
    const auto names = table_names();
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const bool is_precise =
        has_role(traits(std::string_view(name)), {TypeRole::kSoftmax, TypeRole::kReduction, TypeRole::kNorm});
    // These add nothing up: to us arithmetic, which stays in fp32 where its operand does.
    const bool adds_nothing = name == "aten::reciprocal" || name.starts_with("aten::upsample_");
    CHECK((is_precise || adds_nothing));
  }
}

TEST_CASE("operators: those that keep integers make none but integers of them") {
  for_every([](const OperatorTraits& row) { return row.keeps_integers; },
            [](const std::string& name, const SampleCall& call) {
              SampleInputs integers = random_inputs(6);
              for (auto& [input, tensor] : integers) tensor = at::ones_like(tensor, at::kLong);
              if (name.find("clamp") == std::string::npos) {  // the sample's bounds are fractions
                CHECK(float_types(call, integers) == std::set<at::ScalarType>{});
              }
            });
}

TEST_CASE("operators: results after the first are indices where the table says so") {
  for_every([](const OperatorTraits& row) { return row.yields_indices; },
            [](const std::string&, const SampleCall& call) {
              const auto results = call.run(random_inputs(7)).results;
              REQUIRE(results.size() > 1);
              CHECK(results.at(1).toTensor().scalar_type() == at::kLong);
            });
}
