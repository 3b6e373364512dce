// What operators do with floating-point types, and where the values of a flat graph come from and go to.
#include "runtime/model/dtypes/dtype_operators.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <catch2/catch.hpp>

#include "runtime/model/dtypes/dtype_plan.hpp"
#include "runtime/model/dtypes/dtype_values.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::dtypes;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;

namespace {

// The flat graph of a forward over tensors x and i (integers) with a weight, a buffer and an integer buffer.
struct Flat {
  explicit Flat(const std::string& body) : module("Net") {
    module.register_parameter("w", at::ones({4, 4}), false);
    module.register_buffer("table", at::ones({4}));
    module.register_buffer("ids", at::arange(4));
    module.define("def forward(self, x, i):\n" + body);
    graph = graph::flatten_resolved(module).graph;
  }
  const Node* last() const { return graph->outputs().at(0)->node(); }
  // The value that Python calls so.
  Value* named(const std::string& name) const {
    for (Node* node : graph->nodes()) {
      for (Value* output : node->outputs()) {
        if (output->debugNameBase() == name) return output;
      }
    }
    for (Value* input : graph->inputs()) {
      if (input->debugNameBase() == name) return input;
    }
    FAIL("no value " << name);
    return nullptr;
  }

  Module module;
  std::shared_ptr<Graph> graph;
};

TypeRole role(const std::string& expression) {
  return type_role(Flat("    return " + expression + "\n").last());
}

at::Tensor run(const char* name, torch::jit::Stack stack) {
  torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name)).at(0)->getOperation()(stack);
  return stack.at(0).toTensor();
}

}  // namespace

TEST_CASE("operators have the roles that decide about types", "[runtime][model][dtype_operators]") {
  const std::vector<std::pair<TypeRole, std::vector<std::string>>> expected{
      {TypeRole::kElements,
       {"x.view(-1)", "torch.cat([x, x])", "x[0]", "torch.dropout(x, 0.5, True)", "x.to(\"cpu\")", "x.zero_()"}},
      {TypeRole::kArithmetic, {"x + x", "torch.relu(x)", "torch.sigmoid_(x)", "x * 2"}},
      {TypeRole::kCast, {"x.to(6)", "torch.to(x, 15)"}},
      {TypeRole::kTypeOf, {"x.to(i)", "torch.type_as(x, i)", "x.to(i.dtype)"}},
      {TypeRole::kNoFloat,
       {"x.to(4)", "x == x", "torch.argmax(x)", "torch.arange(4, dtype=4)", "torch.zeros([2], dtype=11)"}},
      {TypeRole::kFactory,
       {"torch.zeros([2], dtype=6)", "torch.ones_like(x, dtype=6)", "x.new_full([2], 1.0, dtype=6)"}},
      {TypeRole::kGemm,
       {"torch.linear(x, self.w)", "torch.matmul(x, x)", "torch.scaled_dot_product_attention(x, x, x)"}},
      {TypeRole::kNorm, {"torch.layer_norm(x, [4])", "torch.rms_norm(x, [4])"}},
      {TypeRole::kBatchNorm, {"torch.batch_norm(x, None, None, None, None, True, 0.1, 0.1, False)"}},
      {TypeRole::kTable, {"torch.embedding(self.w, i)"}},
      {TypeRole::kSoftmax, {"torch.softmax(x, -1)", "torch.cross_entropy_loss(x, i)", "torch.mse_loss(x, x)"}},
      {TypeRole::kReduction, {"x.sum()", "torch.rsqrt(x)", "torch.pow(x, 2)", "x.mean()", "torch.exp_(x)"}},
  };
  for (const auto& [expected_role, expressions] : expected) {
    for (const auto& expression : expressions) {
      CAPTURE(expression);
      CHECK(static_cast<int>(role(expression)) == static_cast<int>(expected_role));
    }
  }
  const Flat tuple("    return x, i\n");
  CHECK(type_role(tuple.last()) == TypeRole::kElements);
}

TEST_CASE("names of operators in place are those without, special methods stay", "[runtime][model][dtype_operators]") {
  const Flat in_place("    return torch.add_(x, x)\n"), plain("    return x + x\n"),
      special("    return torch.__and__(i, i)\n");
  CHECK((operator_name(in_place.last()) == "add" && operators::works_in_place(in_place.last()->kind())));
  CHECK((operator_name(plain.last()) == "add" && !operators::works_in_place(plain.last()->kind())));
  CHECK((operator_name(special.last()) == "__and__" && !operators::works_in_place(special.last()->kind())));
  CHECK(operator_name(Flat("    return x, i\n").last()) == "prim::TupleConstruct");
  CHECK(operators::traits(Flat("    return torch.lerp(x, x, 0.5)\n").last()->kind()).wants_one_type);
  CHECK_FALSE(operators::traits(plain.last()->kind()).wants_one_type);
}

TEST_CASE("operands are the tensors, those in lists one by one", "[runtime][model][dtype_operators]") {
  const auto count = [](const std::string& expression) {
    const Flat flat("    return " + expression + "\n");
    return operands_of(const_cast<Node*>(flat.last())).size();
  };
  CHECK(count("torch.linear(x, self.w)") == 2);
  CHECK(count("torch.linear(x, self.w, self.table)") == 3);
  CHECK(count("torch.cat([x, x, x], 0)") == 3);
  CHECK(count("torch.expand_as(x, i)") == 1);  // only the first carries elements
  CHECK(count("x[i]") == 1);                   // indices do not
  CHECK(count("torch.add(x, 2)") == 1);
}

TEST_CASE("the type argument is known where it is a constant", "[runtime][model][dtype_operators]") {
  CHECK(type_argument(Flat("    return x.to(6)\n").last())->value == at::kFloat);
  CHECK_FALSE(type_argument(Flat("    return x.to(i.dtype)\n").last())->value);
  CHECK_FALSE(type_argument(Flat("    return torch.sum(x)\n").last()));
  CHECK_FALSE(type_argument(Flat("    return x + x\n").last()));
  CHECK(input_named(Flat("    return torch.linear(x, self.w)\n").last(), "weight") == 1);
  CHECK_FALSE(input_named(Flat("    return torch.linear(x, self.w)\n").last(), "nothing"));
}

TEST_CASE("a parameter's influence reaches what is computed, not positions, sizes and indices",
          "[runtime][model][dtype_operators]") {
  const Flat flat(R"(
    a = torch.linear(x, self.w)
    b = torch.relu(a)
    angles = torch.cos(self.table)
    best = torch.argmax(b, -1)
    values, where = torch.topk(b, 2)
    rows = self.ids[1:]
    out = torch.zeros([3, 4])
    part = out[0]
    changed = part.add_(b[0])
    c = b
    if x.dim() > 1:
        c = angles
    return torch.cat([b.view(-1), out.view(-1), values.view(-1), c.view(-1)]), best, where, rows, changed
)");
  const ValueOrigins origins(*flat.graph, flat.module);
  for (const char* name : {"a", "b", "values", "out", "changed", "c"}) {
    CAPTURE(name);
    CHECK(origins.depends_on_parameter(flat.named(name)));
  }
  for (const char* name : {"angles", "best", "where", "rows", "x"}) {
    CAPTURE(name);
    CHECK_FALSE(origins.depends_on_parameter(flat.named(name)));
  }
  for (const char* name : {"best", "where", "rows"}) CHECK(origins.is_integer(flat.named(name)));
  CHECK_FALSE(origins.is_integer(flat.named("values")));
  const Value* weight = flat.named("a")->node()->input(1);
  const Value* table = flat.named("angles")->node()->input(0);
  CHECK(origins.is_parameter(weight));
  CHECK(origins.buffer_names(weight).empty());
  CHECK(origins.buffer_names(table) == std::vector<std::string>{"table"});
}

TEST_CASE("values are followed through tuples", "[runtime][model][dtype_operators]") {
  auto graph = std::make_shared<Graph>();
  auto* x = graph->addInput("x")->setType(c10::TensorType::get());
  auto* y = graph->addInput("y")->setType(c10::TensorType::get());
  auto* pair = graph->insertNode(graph->createTuple({x, y}))->output();
  auto* outer = graph->insertNode(graph->createTuple({pair, y}))->output();
  auto* unpacked = graph->insertNode(graph->createTupleUnpack(outer));
  auto* inner = graph->insertNode(graph->createTupleUnpack(unpacked->output(0)));
  auto* relu = graph->insert(c10::aten::relu, {inner->output(0)});
  graph->registerOutput(relu);
  const Operand use{relu->node(), 0};
  CHECK(entry_of(use) == Operand{pair->node(), 0});
  CHECK(entry_of({inner, 0}) == Operand{outer->node(), 0});
  bool leaves = false;
  CHECK(values_after({pair->node(), 0}, leaves) == std::vector<Value*>{inner->output(0)});
  CHECK_FALSE(leaves);
  CHECK(uses_of(y).size() == 2);
  CHECK(values_after({graph->return_node(), 0}, leaves).empty());
  CHECK(leaves);
  leaves = false;
  graph->registerOutput(outer);
  values_after({outer->node(), 1}, leaves);
  CHECK(leaves);
}

TEST_CASE("inserted casts touch what they are meant for only", "[runtime][model][dtype_operators]") {
  const auto narrow = [](const at::Tensor& tensor) {
    return run("dslaunch::narrow_fp32", {tensor, static_cast<int64_t>(at::kHalf)}).scalar_type();
  };
  CHECK(narrow(at::ones({2})) == at::kHalf);
  CHECK(narrow(at::ones({2}, at::kDouble)) == at::kDouble);
  CHECK(narrow(at::ones({2}, at::kLong)) == at::kLong);
  const auto match = [](const at::Tensor& tensor, const at::Tensor& like, bool one_type) {
    return run("dslaunch::match_type", {tensor, like, one_type}).scalar_type();
  };
  const auto wide = at::ones({2}), half = at::ones({2}, at::kHalf), number = at::ones({}), ids = at::arange(2);
  CHECK(match(wide, half, false) == at::kHalf);
  CHECK(match(number, half, false) == at::kFloat);  // it does not change the result's type
  CHECK(match(number, half, true) == at::kHalf);
  CHECK(match(number, at::ones({}, at::kHalf), false) == at::kHalf);
  CHECK(match(ids, half, true) == at::kLong);
  CHECK(match(wide, ids, true) == at::kFloat);
}

TEST_CASE("modules of one class that run twice follow together", "[runtime][model][dtype_operators]") {
  const auto layer = [](const char* name) {
    Module module(name);
    test::mark_as_traced(module);
    test::add_parameter(module, "w", {4, 4});
    module.define(R"(
def forward(self, x):
    up = torch.to(x, 6)
    normed = torch.mul(up, torch.rsqrt(torch.add(torch.mean(torch.pow(up, 2), [-1], True), 1.0e-6)))
    return torch.linear(torch.to(normed, 6), self.w)
)");
    return module;
  };
  const auto net = [&] {
    torch::manual_seed(3);
    auto one = layer("Layer");
    auto two = one.deepcopy();  // of the same class
    two.setattr("w", (at::randn({4, 4}) * 0.5).requires_grad_(true));
    Module module("Net");
    test::mark_as_traced(module);
    module.register_module("one", one);
    module.register_module("two", two);
    module.define("def forward(self, x):\n    return self.two.forward(self.one.forward(x)).sum()\n");
    return module;
  };
  test::ModelRun run(net(), {}, false, {.compute_dtype = at::kBFloat16});
  REQUIRE(run.model->facts.notes.size() == 1);
  CHECK(run.model->facts.notes[0] == "fp32 export: 1 casts follow bf16");
  const auto x = at::linspace(-1, 1, 12).view({3, 4}).to(at::kBFloat16);
  struct Half : test::InitialParameters {
    using InitialParameters::InitialParameters;
    runtime::UnitValues acquire(int unit, runtime::UnitCall call) override {
      auto out = InitialParameters::acquire(unit, call);
      for (auto& value : out.parameters) value = value.to(at::kBFloat16);
      return out;
    }
    void take_gradients(int, std::vector<at::Tensor>) override {}
  } half(*run.model);
  run.model->runnable->set_unit_parameters(&half);
  const auto found = run.forward({x});
  at::Tensor expected = x;
  for (const char* name : {"one", "two"}) {
    const auto up = expected.to(at::kFloat);
    const auto normed = up * (up.pow(2).mean(at::IntArrayRef{-1}, true) + 1e-6).rsqrt();
    expected = at::linear(normed.to(at::kBFloat16), net().attr(name).toModule().attr("w").toTensor().to(at::kBFloat16));
  }
  CHECK(found.scalar_type() == at::kBFloat16);
  CHECK(at::equal(found, expected.sum()));
}

TEST_CASE("tensors of an object that is not a module are neither parameters nor buffers", "[runtime][dtypes]") {
  const auto net =
      test::ImportedClasses::make_net(R"(
class Tables:
  angles : Tensor
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  tables : __torch__.Tables
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    tables = self.tables
    return torch.add(x, tables.angles)
)",
                                      {{"tables", std::string("__torch__.Tables")}, {"tables.angles", at::ones({4})}});
  const auto flat = graph::flatten_resolved(net);
  const ValueOrigins origins(*flat.graph, flat.module);
  const Value* angles = flat.graph->outputs().at(0)->node()->input(1);
  REQUIRE(angles->node()->kind() == c10::prim::GetAttr);
  CHECK_FALSE(origins.is_parameter(angles));
  CHECK(origins.buffer_names(angles).empty());
}
