// The rows themselves: that they name operators of LibTorch or ours, and that the tests of the columns see them all.
#include <torch/csrc/jit/runtime/operator.h>

#include <catch2/catch.hpp>
#include <set>

#include "sample_calls.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model::operators;

TEST_CASE("operators: every row names operators that exist, each once") {
  std::set<std::string> seen;
  for (const auto& name : table_names()) {
    INFO(name);
    CHECK(seen.insert(name).second);
    const auto kind = c10::Symbol::fromQualString(name);
    const bool is_of_graphs = kind.is_prim() && torch::jit::getAllOperatorsFor(kind).empty();
    CHECK((is_of_graphs || !torch::jit::getAllOperatorsFor(kind).empty()));
  }
}

TEST_CASE("operators: each has a sample, or a reason why not") {
  const auto without = names_without_sample();
  std::set<std::string> reasons(without.begin(), without.end());
  for (const auto& name : table_names()) {
    INFO(name);
    CHECK(has_sample(name) == (reasons.erase(name) == 0));
  }
  CHECK(reasons.empty());
}

TEST_CASE("operators: a name and a kind find the same row, an unknown operator has the defaults") {
  const auto kind = c10::Symbol::fromQualString("aten::linear");
  CHECK(&traits(kind) == &traits(std::string_view("aten::linear")));
  const auto& unknown = traits(c10::Symbol::fromQualString("aten::some_operator"));
  CHECK((unknown.purity == Purity::kUnknown && unknown.size == SizeRule::kUnknown && unknown.flops == nullptr));
  CHECK(&unknown == &traits(std::string_view("aten::some_operator")));
}

TEST_CASE("operators: in place, types, sizes and FLOPs hold and nothing else") {
  const auto kind = c10::Symbol::fromQualString("aten::relu_");
  CHECK(works_in_place(kind));
  CHECK(!works_in_place(c10::Symbol::fromQualString("aten::relu")));
  CHECK(!works_in_place(c10::Symbol::fromQualString("aten::__and__")));
  const auto& row = traits(kind);
  CHECK(row.size == SizeRule::kLikeFirst);
  CHECK(row.flops == elementwise_cost);
  CHECK((!row.elementwise && row.lowering == Lowering::kNone && row.gradient == Gradient::kUnknown));
  CHECK(traits(std::string_view("aten::fill_")).type == TypeRole::kElements);
  CHECK(traits(std::string_view("aten::add_")).purity == Purity::kUnknown);
  CHECK(traits(std::string_view("aten::index_add_")).wants_one_type);
}
