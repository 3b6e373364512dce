// Sizes that a trace computes as tensors become integers, with the same results.
#include "runtime/model/rewrites/graph_constants.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "graph_fixtures.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model;
using torch::jit::Module;

namespace {

// x + n, where n is computed from the size of x by `operators`, which read %size and define %n.
std::string sum_with(const std::string& operators) {
  return R"(graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %four : int = prim::Constant[value=4]()
  %nine : int = prim::Constant[value=9]()
  %floor : str = prim::Constant[value="floor"]()
  %dims : int = aten::size(%x, %zero)
  %size : Tensor = prim::NumToTensor(%dims)
)" + operators +
         R"(  %out : Tensor = aten::add(%x, %n, %one)
  return (%out))";
}

at::Tensor result(Module& model, int64_t size) {
  return model.forward({at::zeros({size}, at::kLong)}).toTensor();
}

std::map<std::string, int> after_rewrite(const std::string& operators) {
  auto before = module_of_graph(sum_with(operators)), after = module_of_graph(sum_with(operators));
  rewrites::rewrite_size_arithmetic(after);
  for (const int64_t size : {1, 5, 8, 13}) CHECK(result(after, size).equal(result(before, size)));
  return kinds_in_forward(after);
}

}  // namespace

TEST_CASE("arithmetic on sizes becomes integer arithmetic", "[model][size_arithmetic]") {
  auto found = after_rewrite(R"(  %less : Tensor = aten::sub(%size, %nine, %one)
  %half : Tensor = aten::floor_divide(%less, %four)
  %rest : Tensor = aten::remainder(%less, %four)
  %sum : Tensor = aten::add(%half, %rest, %one)
  %double : Tensor = aten::mul(%sum, %two)
  %minus : Tensor = aten::neg(%double)
  %quotient : Tensor = aten::div(%minus, %four, %floor)
  %n : int = aten::Int(%quotient)
)");
  CHECK(found["prim::NumToTensor"] == 0);
  CHECK(found["aten::Int"] == 0);
  CHECK(found["aten::floordiv"] == 2);
}

TEST_CASE("a number that a trace stores as a tensor counts as an integer", "[model][size_arithmetic]") {
  auto model =
      module_of_graph(sum_with("  %half : Tensor = aten::floor_divide(%size, %size)\n"
                               "  %n : Scalar = aten::ScalarImplicit(%half)\n"));
  for (auto* node : model.get_method("forward").graph()->nodes()) {
    if (node->kind() != c10::Symbol::fromQualString("aten::floor_divide")) continue;
    const torch::jit::WithInsertPoint before(node);
    node->replaceInput(1, node->owningGraph()->insertConstant(at::scalar_tensor(2, at::kLong)));
  }
  rewrites::rewrite_size_arithmetic(model);
  auto found = kinds_in_forward(model);
  CHECK(found["prim::NumToTensor"] == 0);
  CHECK(found["aten::floordiv"] == 1);
  CHECK(result(model, 7).equal(at::full({7}, 3, at::kLong)));
}

TEST_CASE("a size that something writes to stays a tensor", "[model][size_arithmetic]") {
  auto found = after_rewrite(R"(  %changed : Tensor = aten::add_(%size, %four, %one)
  %n : int = aten::Int(%size)
)");
  CHECK(found["prim::NumToTensor"] == 1);
  CHECK(found["aten::Int"] == 1);
}

TEST_CASE("quotients that are not integers stay tensors", "[model][size_arithmetic]") {
  auto found = after_rewrite(R"(  %none : NoneType = prim::Constant()
  %half : Tensor = aten::div(%size, %two)
  %n : int = aten::Int(%half)
)");
  CHECK(found["prim::NumToTensor"] == 1);
  CHECK(found["aten::div"] == 1);
}

TEST_CASE("size arithmetic has a switch", "[model][size_arithmetic]") {
  auto model = module_of_graph(sum_with("  %n : int = aten::Int(%size)\n"));
  run_all_passes(model, {.size_arithmetic = false, .constants = false});
  CHECK(kinds_in_forward(model)["aten::Int"] == 1);
}
