// Split units beside whole ones: right splits pass, whatever the number of ranks; faults that are planted into plans
// and split graphs are found, with the unit and the tensor.
#include "runtime/model/tensor_parallel/probe.hpp"

#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/tensor_parallel/apply_placements.hpp"
#include "runtime/model/tensor_parallel/probed_values.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"
#include "runtime/model/tensor_parallel/virtual_ranks.hpp"
#include "runtime/model/torchscript/parameter_binding.hpp"
#include "support/script_models.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::tensor_parallel;
using config::TensorProbe;
using placement::ModelPlan;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;

namespace {

// Six heads of two, with a norm of each head's query; a fused weight in thirds; a gated MLP.
constexpr char kBlock[] = R"(
def forward(self, x):
    h = torch.layer_norm(x, [12], self.norm, self.norm_bias, 1e-5)
    q, k, v = torch.split_with_sizes(torch.linear(h, self.qkv, self.qkv_bias), [12, 12, 12], -1)
    q = q.view([q.size(0), q.size(1), 6, 2])
    q = (q * torch.rsqrt(torch.mean(q * q, [-1], True) + 1e-5) * self.q_norm).transpose(1, 2)
    k = k.view([k.size(0), k.size(1), 6, 2]).transpose(1, 2)
    v = v.view([v.size(0), v.size(1), 6, 2]).transpose(1, 2)
    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)
    a = a.transpose(1, 2).reshape([x.size(0), x.size(1), 12])
    x = x + torch.dropout(torch.linear(a, self.out, self.out_bias), 0.1, True)
    h = torch.layer_norm(x, [12], self.norm, self.norm_bias, 1e-5)
    gated = torch.silu(torch.linear(h, self.gate)) * torch.linear(h, self.up)
    return x + torch.linear(gated, self.down)
)";

const std::vector<std::pair<std::string, std::vector<int64_t>>> kParameters{
    {"norm", {12}},    {"norm_bias", {12}}, {"q_norm", {2}},    {"qkv", {36, 12}}, {"qkv_bias", {36}},
    {"out", {12, 12}}, {"out_bias", {12}},  {"gate", {24, 12}}, {"up", {24, 12}},  {"down", {12, 24}}};

at::Tensor zeros(at::IntArrayRef shape) {  // which would hide all faults
  return at::zeros(shape).requires_grad_();
}

// Whose units are "one" and "two".
Module make_model() {
  Module block("Block");
  for (const auto& [name, shape] : kParameters) block.register_parameter(name, zeros(shape), false);
  block.define(kBlock);
  Module other(block._ivalue()->compilation_unit(), block.type());
  for (const auto& [name, shape] : kParameters) other.setattr(name, zeros(shape));
  Module model("Model");
  model.register_module("one", block);
  model.register_module("two", other);
  model.define("def forward(self, x):\n    return self.two.forward(self.one.forward(x))\n");
  return model;
}

struct Loaded {
  Module module = make_model();
  torchscript::ParameterBinding binding = torchscript::bind_parameters(module, {});
  std::vector<graph::UnitCandidate> units = graph::find_unit_candidates(module, {"Block"});
  std::vector<RecordedInput> inputs{{"x", "float32", {4, 12}}};
  placement::ModelToPlace to_place() const { return {module, units, binding.table, binding.locations, inputs}; }
};

// `spoil_plan` before the probe is made, `spoil_graph` of the first unit's graph of each rank.
void probe(int ranks, const std::function<void(const Loaded&, ModelPlan&)>& spoil_plan,
           const std::function<void(Graph&)>& spoil_graph, bool is_manual = false, bool sequence_parallel = false) {
  const Loaded loaded;
  VirtualRanks virtual_ranks(ranks);
  std::vector<ModelPlan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    plans.push_back(
        plan_placements(loaded.to_place(), {.size = ranks, .rank = rank, .sequence_parallel = sequence_parallel}));
    if (sequence_parallel) std::erase_if(plans.back().graphs, [](const auto& graph) { return graph.calls.size() > 0; });
    REQUIRE(plans.back().graphs.size() == 1);
    spoil_plan(loaded, plans.back());
  }
  Probe probe(plans[0], loaded.binding.table, loaded.binding.locations, TensorProbe::kDistinct);
  std::vector<std::shared_ptr<const Probe::SplitGraphs>> split;
  for (int rank = 0; rank < ranks; ++rank) {
    auto& plan = plans[static_cast<size_t>(rank)].graphs[0];
    edit_graph(plan, virtual_ranks.group(rank));
    spoil_graph(*plan.flat.graph);
    split.push_back(probe.split_graphs(plans[static_cast<size_t>(rank)]));
  }
  virtual_ranks.run(
      [&](int rank) { probe.run(*split[static_cast<size_t>(rank)], *virtual_ranks.group(rank), at::kCPU, is_manual); });
}

Node* first(Graph& graph, std::string_view kind) {
  for (Node* node : graph.nodes()) {
    if (kind == node->kind().toQualString()) return node;
  }
  throw std::logic_error("no such node");
}

// What reads the attribute.
Node* reader_of(Graph& graph, const std::string& attribute) {
  for (Node* node : graph.nodes()) {
    if (node->kind() == c10::prim::GetAttr && node->s(c10::attr::name) == attribute) return node;
  }
  throw std::logic_error("no such attribute");
}

const auto kNoPlanFault = [](const Loaded&, ModelPlan&) {};
const auto kNoGraphFault = [](Graph&) {};

void check_finds(int ranks, const std::function<void(const Loaded&, ModelPlan&)>& spoil_plan,
                 const std::function<void(Graph&)>& spoil_graph, const std::string& tensor,
                 bool sequence_parallel = false) {
  try {
    probe(ranks, spoil_plan, spoil_graph, /*is_manual=*/false, sequence_parallel);
    FAIL("the fault was not found");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kInternal);
    CHECK_THAT(error.what(), Catch::Contains("tensor parallelism: unit 'one': " + tensor + " differs"));
  }
}

}  // namespace

TEST_CASE("units that are split right are what they were", "[tensor][probe]") {
  const Loaded loaded;
  const int ranks = GENERATE(2, 3, 4);  // of 6 heads 4 ranks have 2, 2, 1 and 1
  const auto which = GENERATE(TensorProbe::kDistinct, TensorProbe::kAll, TensorProbe::kOff);
  const bool sequence_parallel = GENERATE(false, true);
  const auto report = probe_on_virtual_ranks(loaded.to_place(),
                                             {.size = ranks, .probe = which, .sequence_parallel = sequence_parallel});
  const int num_units = which == TensorProbe::kAll ? 2 : 1;
  const int num_roots = sequence_parallel ? 1 : 0;  // which gathers what the units pass on
  CHECK(report.num_compared == (which == TensorProbe::kOff ? 0 : num_units + num_roots));
  CHECK(report.not_compared.empty());
}

TEST_CASE("units of several classes that compute the same are compared once", "[tensor][probe]") {
  // A trace has a class for each module.
  const auto block = [](const char* name, const std::string& activation) {
    return test::compile({name,
                          "def forward(self, x):\n    h = torch." + activation +
                              "(torch.linear(x, self.up), self.slope)\n    return x + torch.linear(h, self.down)\n",
                          {{"up", zeros({8, 4})}, {"down", zeros({4, 8})}},
                          {{"slope", at::tensor(0.1F)}}});
  };
  const auto kinds_of = [&](const std::string& last_activation) {
    const Module model =
        test::compile({"Model",
                       "def forward(self, x):\n    return self.c.forward(self.b.forward(self.a.forward(x)))\n",
                       {},
                       {},
                       {{"a", block("A", "mul")}, {"b", block("B", "mul")}, {"c", block("C", last_activation)}}});
    const auto binding = torchscript::bind_parameters(model, {});
    const auto units = graph::find_unit_candidates(model, {"A", "B", "C"});
    const std::vector<RecordedInput> inputs{{"x", "float32", {3, 4}}};
    const auto report = probe_on_virtual_ranks({model, units, binding.table, binding.locations, inputs},
                                               {.size = 2, .probe = TensorProbe::kDistinct});
    CHECK(report.not_compared == std::vector<std::string>());
    return report.num_compared;
  };
  CHECK(kinds_of("mul") == 1);
  CHECK(kinds_of("add") == 2);
}

TEST_CASE("sequences of a probe are short, unless a trace holds their length", "[tensor][probe]") {
  const auto probed_length = [](const std::string& length) {
    const Module model =
        test::compile({"Model",
                       "def forward(self, ids):\n    x = torch.embedding(self.table, ids)\n"
                       "    x = x + torch.ones([" +
                           length +
                           ", 4])\n"
                           "    return torch.linear(torch.relu(torch.linear(x, self.up)), self.down)\n",
                       {{"table", zeros({10, 4})}, {"up", zeros({8, 4})}, {"down", zeros({4, 8})}}});
    const auto binding = torchscript::bind_parameters(model, {});
    const std::vector<RecordedInput> inputs{{"ids", "int64", {600}}};
    const auto plan = placement::plan_placements({model, {}, binding.table, binding.locations, inputs}, {.size = 2});
    const auto& graph = plan.graphs.at(0);
    return graph.known.sizes(graph.flat.graph->inputs()[1])->at(1);
  };
  CHECK(probed_length("ids.size(1)") == 13);
  CHECK(probed_length("600") == 600);
}

TEST_CASE("a probe counts a mask that positions are made of within their table", "[tensor][probe]") {
  const Module model = test::compile(
      {"Model",
       "def forward(self, ids, mask):\n    positions = torch.cumsum(mask, 1) * mask - 1\n"
       "    x = torch.embedding(self.table, ids) + torch.embedding(self.places, positions.clamp(min=-1) + 2)\n"
       "    return torch.linear(torch.relu(torch.linear(x, self.up)), self.down)\n",
       {{"table", zeros({10, 4})}, {"places", zeros({8, 4})}, {"up", zeros({8, 4})}, {"down", zeros({4, 8})}}});
  const auto binding = torchscript::bind_parameters(model, {});
  const std::vector<RecordedInput> inputs{{"ids", "int64", {6}}, {"mask", "int64", {6}}};
  const auto report = probe_on_virtual_ranks({model, {}, binding.table, binding.locations, inputs},
                                             {.size = 2, .probe = TensorProbe::kDistinct});
  CHECK(report.not_compared == std::vector<std::string>());
  CHECK(report.num_compared == 1);
}

TEST_CASE("random tensors follow from their seed and the distance of tensors from every element", "[tensor][probe]") {
  const at::Tensor tensor = random_tensor({500, 300}, 7, -2, 3);  // several blocks
  CHECK(tensor.equal(random_tensor({500, 300}, 7, -2, 3)));
  CHECK_FALSE(tensor.equal(random_tensor({500, 300}, 8, -2, 3)));
  CHECK(tensor.min().item<double>() == Approx(-2).margin(1e-3));
  CHECK(tensor.max().item<double>() == Approx(3).margin(1e-3));
  CHECK(tensor.mean().item<double>() == Approx(0.5).margin(0.02));
  at::Tensor other = tensor.clone();
  other[499][299] += 4;  // of the last block
  CHECK(distance_between(other, tensor).apart == Approx(4).epsilon(1e-6));
  CHECK(distance_between(other, tensor).largest == tensor.abs().max().item<double>());
  CHECK(distance_between(other.t(), tensor.t()).apart == Approx(4).epsilon(1e-6));
  CHECK(std::isinf(distance_between(tensor.narrow(0, 0, 3), tensor).apart));
  const at::Tensor special = at::tensor({1.0, NAN, INFINITY, -2.0});
  CHECK(distance_between(special, special).apart == 0);
  CHECK(distance_between(special, special).largest == 2);
  CHECK(std::isinf(distance_between(at::tensor({1.0, NAN, 0.0, -2.0}), special).apart));
  CHECK(distance_between({}, at::tensor({1.0, -2.0})).apart == 2);
  CHECK(distance_between(at::tensor({1.0, -2.0}), {}).apart == 2);
}

TEST_CASE("a bias that each rank adds is found", "[tensor][probe]") {
  const auto add_early = [](Graph& graph) {
    Node* reduce = first(graph, kReduceOperator);
    const torch::jit::WithInsertPoint before(reduce);
    auto* bias = graph.insertNode(graph.createGetAttr(graph.inputs()[0], "out_bias"))->output();
    reduce->replaceInput(0, graph.insert(c10::aten::add, {reduce->input(0), bias}));
  };
  check_finds(2, kNoPlanFault, add_early, "output 0");
}

TEST_CASE("a gradient that is not summed over the ranks is found", "[tensor][probe]") {
  const auto forget_copy_of = [](const std::string& attribute) {
    return [attribute](Graph& graph) {
      auto* read = reader_of(graph, attribute)->output();
      Node* copy = nullptr;
      for (const auto& use : read->uses()) {
        if (std::string_view(use.user->kind().toQualString()) == kCopyOperator) copy = use.user;
      }
      REQUIRE(copy != nullptr);
      copy->output()->replaceAllUsesWith(read);
    };
  };
  check_finds(3, kNoPlanFault, forget_copy_of("q_norm"), "the gradient of 'q_norm'");
  check_finds(2, kNoPlanFault, forget_copy_of("norm"), "the gradient of 'norm'", /*sequence_parallel=*/true);
  check_finds(2, kNoPlanFault, forget_copy_of("out_bias"), "the gradient of 'out_bias'", /*sequence_parallel=*/true);
  const auto forget_first = [](Graph& graph) {
    Node* copy = first(graph, kCopyOperator);
    copy->output()->replaceAllUsesWith(copy->input(0));
  };
  CHECK_THROWS_WITH(probe(2, kNoPlanFault, forget_first), Catch::Contains("the gradient of"));
}

TEST_CASE("thirds that are cut as one range are found", "[tensor][probe]") {
  const auto join_segments = [](const Loaded& loaded, ModelPlan& plan) {
    for (auto& [number, placed] : plan.parameters) {
      const auto& name = loaded.binding.table.parameters.at(static_cast<size_t>(number)).name;
      if (!name.ends_with(".qkv")) continue;
      REQUIRE(placed.segments.size() == 3);
      placed.segments = {{.items = 36, .width = 1}};
    }
  };
  check_finds(2, join_segments, kNoGraphFault, "output 0");
  check_finds(3, join_segments, kNoGraphFault, "output 0");
}

TEST_CASE("a gate in the place of the other factor is found", "[tensor][probe]") {
  const auto swap = [](Graph& graph) {
    Node *gate = reader_of(graph, "gate"), *up = reader_of(graph, "up");
    gate->s_(c10::attr::name, "up");
    up->s_(c10::attr::name, "gate");
  };
  check_finds(2, kNoPlanFault, swap, "output 0");
}

TEST_CASE("what the user's policy splits wrong is the user's mistake", "[tensor][probe]") {
  const auto forget_reduction = [](Graph& graph) {
    Node* reduce = first(graph, kReduceOperator);
    reduce->output()->replaceAllUsesWith(reduce->input(0));
  };
  try {
    probe(2, kNoPlanFault, forget_reduction, /*is_manual=*/true);
    FAIL("the fault was not found");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Catch::Contains("unit 'one'") && Catch::Contains("tensor_parallel.policy"));
  }
}

TEST_CASE("a rank that fails ends the others", "[tensor][probe]") {
  VirtualRanks ranks(3);
  const auto body = [&](int rank) {
    if (rank == 1) throw UserError(ExitCode::kBadInput, "the cause");
    ranks.group(rank)->all_reduce(at::ones({2}));
  };
  CHECK_THROWS_WITH(ranks.run(body), "the cause");
}
