// Stages of a pipeline one after the other give the bits of the whole model: loss and gradients.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/model/interface/carried_values.hpp"
#include "runtime/model/interface/stage_plan.hpp"
#include "staged_run.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using test::make_layer;
using test::make_net;
using test::ModelRun;
using test::StagedRun;
using torch::jit::Module;

namespace {

using Children = std::vector<std::pair<std::string, Module>>;

at::Tensor rows() {
  return at::linspace(-1, 1, 12).view({3, 4});
}

StageOptions in_stages(int count, const std::string& partition = "uniform") {
  StageOptions options;
  options.num_stages = count;
  options.partition = partition;
  return options;
}

Children four_layers(const std::string& forward = test::kTanhLayer) {
  Children out;
  for (const char* name : {"one", "two", "three", "four"}) out.emplace_back(name, make_layer(forward));
  return out;
}

constexpr char kFourInTurn[] = R"(
def forward(self, x):
    x = self.two.forward(self.one.forward(x * self.scale))
    x = self.four.forward(self.three.forward(x))
    return x.sum()
)";

std::vector<std::string> parameters_of(const Model& model) {
  std::vector<std::string> out;
  for (const auto& parameter : model.facts.table.parameters) out.push_back(parameter.name);
  return out;
}

std::vector<std::string> origins(const PlannedStage& stage) {
  std::vector<std::string> out;
  for (const auto& value : stage.carried_in) out.push_back(value.origin);
  return out;
}

}  // namespace

TEST_CASE("a chain of units runs as stages, each with its own parameters alone", "[runtime][model][stages]") {
  const int count = GENERATE(1, 2, 3, 4);
  StagedRun run(make_net(kFourInTurn, four_layers()), in_stages(count));
  run.check_step({rows()});
  CHECK(run.plan().stages.size() == static_cast<size_t>(count));
  CHECK(run.plan().tied.empty());
  std::vector<std::string> held;
  for (const auto& stage : run.stages) {
    const auto names = parameters_of(*stage);
    held.insert(held.end(), names.begin(), names.end());
  }
  CHECK(held == parameters_of(*run.whole.model));
  if (count == 4) {
    CHECK(parameters_of(*run.stages[0]) == std::vector<std::string>{"scale", "one.weight"});
    CHECK(parameters_of(*run.stages[2]) == std::vector<std::string>{"three.weight"});
    CHECK(origins(run.plan().stages[2]) == std::vector<std::string>{"output of 'two'"});
    CHECK(run.plan().stages[0].inputs == std::vector<size_t>{0});
    CHECK(run.plan().stages[1].inputs.empty());
  }
}

TEST_CASE("a value that skips stages is passed on by those between", "[runtime][model][stages]") {
  StagedRun run(make_net(R"(
def forward(self, x):
    a = self.one.forward(x * self.scale)
    b = self.two.forward(a)
    c = self.three.forward(b)
    return self.four.forward(c + a).sum() + b.mean()
)",
                         four_layers()),
                in_stages(4));
  run.check_step({rows()});
  CHECK(origins(run.plan().stages[2]) == std::vector<std::string>{"output of 'one'", "output of 'two'"});
  CHECK(run.plan().stages[3].carried_in.size() == 2);  // c + a is computed by the stage of 'three'
}

TEST_CASE("what follows from the inputs alone is computed again where it is read", "[runtime][model][stages]") {
  StagedRun run(make_net(R"(
def forward(self, x, mask):
    bias = torch.where(mask > 0, 1.0, 0.5).unsqueeze(-1)
    length = x.size(0)
    y = self.one.forward(x * self.scale) * bias
    y = self.two.forward(y)
    n = torch.arange(length).unsqueeze(-1)
    y = self.three.forward(y) * bias * n
    return self.four.forward(y).view(length, 2, 2).sum() / length
)",
                         four_layers()),
                in_stages(2));
  run.check_step({rows(), at::tensor({1.0f, 0.0f, 1.0f})});
  CHECK(origins(run.plan().stages[1]) == std::vector<std::string>{"output of 'two'"});
  CHECK(run.plan().stages[1].inputs == std::vector<size_t>{0, 1});
}

TEST_CASE("sizes of carried tensors travel as numbers", "[runtime][model][stages]") {
  StagedRun run(make_net(R"(
def forward(self, x):
    y = self.one.forward(x * self.scale)[:2]
    count = y.size(0)
    is_even = count % 2 == 0
    share = 1.0 / float(count)
    y = self.two.forward(y)[:1]
    y = self.four.forward(self.three.forward(y))
    positions = torch.arange(count)
    if is_even:
        y = y * 2.0
    return y.sum() * share + positions.sum()
)",
                         four_layers()),
                in_stages(2));
  run.check_step({rows()});
  const auto& carried = run.plan().stages[1].carried_in;
  REQUIRE(carried.size() == 4);
  CHECK(!carried[0].is_number);
  for (size_t i = 1; i < 4; ++i) {
    CHECK(carried[i].is_number);
    CHECK(!carried[i].depends_on_data);
  }
}

TEST_CASE("sizes may come from a tensor of an object that is not a module", "[runtime][model][stages]") {
  const auto weight = [] { return at::eye(4).requires_grad_(); };
  const auto net = test::ImportedClasses::make_net(R"(
class Tables:
  shift : Tensor
class Block(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Block, x: Tensor) -> Tensor:
    weight = self.weight
    return torch.tanh(torch.matmul(x, weight))
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  one : __torch__.Block
  two : __torch__.Block
  tables : __torch__.Tables
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    one = self.one
    two = self.two
    tables = self.tables
    y = torch.add((one).forward(x, ), tables.shift)
    z = (two).forward(torch.mul(y, 2), )
    return torch.mul(torch.sum(z), torch.size(y, 0))
)",
                                                   {{"one.weight", weight()},
                                                    {"two.weight", weight()},
                                                    {"tables", std::string("__torch__.Tables")},
                                                    {"tables.shift", at::ones({4})}});
  StagedRun run(net, in_stages(2));
  run.check_step({rows()});
}

TEST_CASE("sizes of embeddings are those of the ids, also where a unit looks them up", "[runtime][model][stages]") {
  Module embedding("Embedding");
  test::add_parameter(embedding, "weight", {11, 4});
  embedding.define("def forward(self, i):\n    return torch.embedding(self.weight, i)\n");
  auto children = four_layers();
  children.insert(children.begin(), {"embedding", embedding});
  const auto net = make_net(R"(
def forward(self, ids):
    x = self.embedding.forward(ids)
    width = x.size(-1)
    positions = torch.arange(x.size(1)).unsqueeze(-1) * 0.25
    y = torch.dropout(x + positions + self.scale, 0.0, False)
    rows = y.size(0)
    y = self.two.forward(self.one.forward(y))
    y = self.four.forward(self.three.forward(y)) * positions
    return y.view(rows * width, -1).sum() / rows
)",
                            children);
  const bool is_unit = GENERATE(false, true);
  const std::vector<std::string> units =
      is_unit ? std::vector<std::string>{"Block", "Embedding"} : std::vector<std::string>{"Block"};
  StagedRun run(net, in_stages(2), units);
  run.check_step({at::tensor({3, 1, 7, 10, 0, 2}, at::kLong).view({2, 3})});
  CHECK(origins(run.plan().stages[1]) == std::vector<std::string>{"output of 'two'"});
  CHECK(run.plan().tied.empty());
  if (is_unit) CHECK(run.stages[0]->facts.table.units[1].parameters.size() == 1);
}

TEST_CASE("a number that is read out of a carried tensor depends on the data", "[runtime][model][stages]") {
  StagedRun run(make_net(R"(
def forward(self, x):
    y = self.one.forward(x * self.scale)
    largest = float(y.detach().max())
    y = self.two.forward(y)
    y = self.four.forward(self.three.forward(y))
    return y.sum() * largest
)",
                         four_layers()),
                in_stages(2));
  run.check_step({rows()});
  REQUIRE(run.plan().stages[1].carried_in.size() == 2);
  CHECK(run.plan().stages[1].carried_in[1].depends_on_data);
}

TEST_CASE("a parameter that units of two stages share is held by both, and named", "[runtime][model][stages]") {
  auto layers = four_layers();
  layers[3].second.setattr("weight", layers[0].second.attr("weight"));
  StagedRun run(make_net(kFourInTurn, layers), in_stages(3));
  run.check_step({rows()});
  REQUIRE(run.plan().tied.size() == 1);
  CHECK(run.plan().tied[0].name == "one.weight");
  CHECK(run.plan().tied[0].stages == std::vector<int>{0, 2});
  CHECK(parameters_of(*run.stages[2]) == std::vector<std::string>{"one.weight"});
  CHECK(run.stages[2]->facts.stage->whole.parameters.size() == 4);
}

TEST_CASE("a tied head reads the embedding's table on its own stage", "[runtime][model][stages]") {
  Module embedding("Embedding");
  test::add_parameter(embedding, "weight", {11, 4});
  embedding.define("def forward(self, i):\n    return torch.embedding(self.weight, i)\n");
  auto children = four_layers();
  children.insert(children.begin(), {"embedding", embedding});
  StagedRun run(make_net(R"(
def forward(self, ids, labels):
    table = self.embedding.weight
    x = self.two.forward(self.one.forward(self.embedding.forward(ids)))
    x = self.four.forward(self.three.forward(x)) * self.scale
    return torch.cross_entropy_loss(torch.matmul(x, table.t()), labels)
)",
                         children),
                in_stages(2), {"Block", "Embedding"});
  run.check_step({at::tensor({3, 1, 7, 10}, at::kLong), at::tensor({0, 4, 2, 9}, at::kLong)});
  REQUIRE(run.plan().tied.size() == 1);
  CHECK(run.plan().tied[0].name == "embedding.weight");
  CHECK(run.plan().stages[1].carried_in.size() == 1);
  CHECK(run.plan().stages[0].inputs == std::vector<size_t>{0});
  CHECK(run.plan().stages[1].inputs == std::vector<size_t>{1});
}

TEST_CASE("tuples, integer and boolean tensors are carried", "[runtime][model][stages]") {
  constexpr char kOfTuples[] = R"(
def forward(self, t: Tuple[Tensor, Tuple[Tensor, Tensor]]):
    x, (order, keep) = t
    x = torch.tanh(torch.matmul(x, self.weight))[order] * keep.unsqueeze(-1)
    return x, (order.flip([0]), torch.logical_not(keep))
)";
  StagedRun run(make_net(R"(
def forward(self, x):
    y = x * self.scale
    t = (y, (torch.argsort(y.sum(1)), y.sum(1) > 0))
    t = self.four.forward(self.three.forward(self.two.forward(self.one.forward(t))))
    return t[0].sum()
)",
                         four_layers(kOfTuples)),
                in_stages(3));
  run.check_step({rows()});
  CHECK(run.plan().stages[2].carried_in.size() == 3);
  CHECK(run.sent[0].tensors[1].scalar_type() == at::kLong);
  CHECK(run.sent[0].tensors[2].scalar_type() == at::kBool);
}

TEST_CASE("units that change what they receive get a copy of it", "[runtime][model][stages]") {
  constexpr char kInPlace[] = R"(
def forward(self, x):
    x = torch.relu_(x.add_(0.5))
    return torch.matmul(x, self.weight)
)";
  StagedRun run(make_net(kFourInTurn, four_layers(kInPlace)), in_stages(4));
  run.check_step({rows()});

  // The residual stream is one piece of memory.
  constexpr char kResidual[] =
      "def forward(self, x):\n    return x.add_(torch.tanh(torch.matmul(x.clone(), self.weight)))\n";
  StagedRun residual(make_net(kFourInTurn, four_layers(kResidual)), in_stages(3));
  residual.check_step({rows()});
}

TEST_CASE("a stage repeats what forward changes in its inputs", "[runtime][model][stages]") {
  StagedRun run(make_net(R"(
def forward(self, x, mask):
    y = self.two.forward(self.one.forward(x * self.scale))
    mask.add_(1)
    y = self.four.forward(self.three.forward(y))
    return (y * mask).sum()
)",
                         four_layers()),
                in_stages(2));
  run.check_step({rows(), at::ones({4})});
}

TEST_CASE("a table that carried values are written to is carried", "[runtime][model][stages]") {
  StagedRun run(make_net(R"(
def forward(self, x):
    sums = torch.zeros(2)
    y = self.two.forward(self.one.forward(x * self.scale))
    sums[0] = y.sum()
    y = self.four.forward(self.three.forward(y))
    return y.mean() + sums.sum()
)",
                         four_layers()),
                in_stages(2));
  run.check_step({rows()});
  CHECK(run.plan().stages[1].carried_in.size() == 2);
}

TEST_CASE("batch norm keeps its statistics on its stage", "[runtime][model][stages]") {
  const auto layer = [] {
    Module out("Block");
    test::add_parameter(out, "weight", {4, 4});
    out.register_buffer("mean", at::zeros({4}));
    out.register_buffer("variance", at::ones({4}));
    out.register_buffer("count", at::zeros({}, at::kLong));
    out.define(R"(
def forward(self, x):
    self.count.add_(1)
    y = torch.batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1.0e-5, False)
    return torch.tanh(torch.matmul(y, self.weight)) + x
)");
    return out;
  };
  StagedRun run(make_net(kFourInTurn, {{"one", layer()}, {"two", layer()}, {"three", layer()}, {"four", layer()}}),
                in_stages(2));
  run.check_step({rows()});
  run.check_step({rows() * 2});
  std::map<std::string, at::Tensor> found;
  for (const auto& stage : run.stages) {
    for (const auto& [name, value] : stage->tensors.buffers()) CHECK(found.emplace(name, value).second);
  }
  CHECK(run.plan().stages[1].buffers.size() == 6);
  CHECK(run.plan().stages[1].buffers.front() == "three.mean");
  const auto expected = run.whole.model->tensors.buffers();
  CHECK(found.size() == expected.size());
  for (const auto& [name, value] : expected) CHECK(at::equal(found.at(name), value));
}

TEST_CASE("dropout draws the numbers of the whole model when the stages run in its order", "[runtime][model][stages]") {
  constexpr char kDropout[] = R"(
def forward(self, x):
    return torch.dropout(torch.tanh(torch.matmul(x, self.weight)), 0.5, True) + x
)";
  StagedRun run(make_net(R"(
def forward(self, x):
    x = torch.dropout(x, 0.25, True)
    noise = torch.rand(4)
    x = self.two.forward(self.one.forward(x * self.scale))
    x = self.four.forward(self.three.forward(torch.dropout(x, 0.25, True)))
    return (x * noise).sum()
)",
                         four_layers(kDropout)),
                in_stages(3));
  run.check_step({rows()});
}

TEST_CASE("blocks of a stage are recomputed", "[runtime][model][stages]") {
  StagedRun run(make_net(kFourInTurn, four_layers()), in_stages(2), {"Block"}, false, RecomputationOptions{});
  for (const auto& summary : run.summaries) {
    CHECK(summary == "activation_checkpointing: 2 of 2 blocks are recomputed in backward");
  }
  run.check_step({rows()});
}

TEST_CASE("several micro batches are under way in a stage", "[runtime][model][stages]") {
  const int recomputed = GENERATE(0, 1, 2);  // 2: both blocks of a stage as one segment
  std::optional<RecomputationOptions> recomputation;
  if (recomputed > 0) recomputation.emplace();
  if (recomputed == 2) recomputation->number_checkpoints = 1;
  StagedRun run(make_net(kFourInTurn, four_layers()), in_stages(2), {"Block"}, false, recomputation);
  const auto first_loss = run.forward({rows()}).first;
  auto sent = run.sent, given = run.given;
  const auto second_loss = run.forward({rows() * 2}).first;
  std::swap(run.sent, sent);
  std::swap(run.given, given);
  run.backward(first_loss);
  std::swap(run.sent, sent);
  std::swap(run.given, given);
  run.backward(second_loss);
  run.whole.forward({rows()}).backward();
  run.whole.forward({rows() * 2}).backward();
  std::map<std::string, at::Tensor> found;
  for (const auto& gathered : run.gathered) {
    CHECK(gathered->num_held() == 0);
    found.insert(gathered->gradients.begin(), gathered->gradients.end());
  }
  test::check_same({second_loss.detach(), found}, {second_loss.detach(), run.whole.gathered->gradients});
}

TEST_CASE("layers without units: a sequence of different modules", "[runtime][model][stages]") {
  Module sequence("Sequential");
  Module convolution("Conv");
  test::add_parameter(convolution, "weight", {3, 1, 3});
  convolution.define("def forward(self, x):\n    return torch.conv1d(x, self.weight, None, [1], [1], [1], 1)\n");
  Module activation("ReLU"), flatten("Flatten"), linear("Linear"), scale("Scale");
  activation.define("def forward(self, x):\n    return torch.relu_(x)\n");
  flatten.define("def forward(self, x):\n    return torch.flatten(x, 1)\n");
  test::add_parameter(linear, "weight", {5, 12});
  linear.define("def forward(self, x):\n    return torch.linear(x, self.weight, None)\n");
  test::add_parameter(scale, "factor", {5});
  scale.define("def forward(self, x):\n    return x * self.factor\n");
  sequence.register_module("0", convolution);
  sequence.register_module("1", activation);
  sequence.register_module("2", flatten);
  sequence.register_module("3", linear);
  sequence.register_module("4", scale);
  sequence.define(R"(
def forward(self, x):
    x = getattr(self, "1").forward(getattr(self, "0").forward(x))
    x = getattr(self, "3").forward(getattr(self, "2").forward(x))
    return getattr(self, "4").forward(x)
)");
  StagedRun run(
      make_net("def forward(self, x):\n    return self.layers.forward(x.unsqueeze(1)).sum() + self.scale.sum()\n",
               {{"layers", sequence}}),
      in_stages(3), {});
  run.check_step({rows()});
  REQUIRE(run.plan().layers.size() == 3);
  CHECK(run.plan().layers[1].path == "layers.3");
  // In-place ReLU and flatten belong to the layer in front of them.
  CHECK(origins(run.plan().stages[1]) == std::vector<std::string>{"flatten after 'layers.0'"});
}

TEST_CASE("a value out of a branch is named after the operator that computes it", "[runtime][model][stages]") {
  const std::string branch = GENERATE("if inplace:\n        x = torch.relu_(x)\n    else:\n        x = torch.relu(x)",
                                      "if inplace:\n        assert x.dim() < 9\n        x = torch.relu_(x)");
  StagedRun run(make_net(R"(
def forward(self, x):
    inplace = x.dim() > 0
    x = self.two.forward(self.one.forward(x * self.scale))
    )" + branch + R"(
    return self.four.forward(self.three.forward(x)).sum()
)",
                         four_layers()),
                in_stages(2));
  run.check_step({rows()});
  CHECK(origins(run.plan().stages[1]) == std::vector<std::string>{"relu_ after 'two'"});
}

TEST_CASE("a branch around units is not cut", "[runtime][model][stages]") {
  const auto net = make_net(R"(
def forward(self, x):
    x = self.one.forward(x * self.scale)
    if x.size(0) > 2:
        x = self.three.forward(self.two.forward(x))
    return self.four.forward(x).sum()
)",
                            four_layers());
  StagedRun run(net, in_stages(3));
  run.check_step({rows()});
  CHECK(run.plan().layers.size() == 3);
  CHECK(run.plan().layers[1].class_name == "If");
  CHECK(parameters_of(*run.stages[1]) == std::vector<std::string>{"two.weight", "three.weight"});
}

TEST_CASE("two chains with a value carried past the second", "[runtime][model][stages]") {
  constexpr char kDecoder[] = R"(
def forward(self, y, memory):
    return torch.tanh(torch.matmul(y, self.weight)) + memory
)";
  Children children{
      {"one", make_layer()}, {"two", make_layer()}, {"three", make_layer(kDecoder)}, {"four", make_layer(kDecoder)}};
  StagedRun run(make_net(R"(
def forward(self, x, y):
    memory = self.two.forward(self.one.forward(x * self.scale))
    z = self.three.forward(y, memory)
    return self.four.forward(z, memory).sum()
)",
                         children),
                in_stages(4));
  run.check_step({rows(), rows() * 3});
  CHECK(origins(run.plan().stages[3]) == std::vector<std::string>{"output of 'two'", "output of 'three'"});
}

TEST_CASE("parameters that nothing reads stay with the layer that they lie in", "[runtime][model][stages]") {
  auto layers = four_layers();
  test::add_parameter(layers[2].second, "unused", {3});
  Module pooler("Pooler");
  test::add_parameter(pooler, "weight", {2});
  pooler.define("def forward(self, x):\n    return x\n");
  layers.insert(layers.begin() + 1, {"pooler", pooler});
  StagedRun run(make_net(kFourInTurn, layers), in_stages(2));
  run.check_step({rows()});
  CHECK(parameters_of(*run.stages[0]) ==
        std::vector<std::string>{"scale", "one.weight", "pooler.weight", "two.weight"});
  CHECK(parameters_of(*run.stages[1]) == std::vector<std::string>{"three.weight", "three.unused", "four.weight"});
}

TEST_CASE("frozen parameters stay on their stage, and gradients pass through them", "[runtime][model][stages]") {
  auto layers = four_layers();
  layers[1].second = make_layer(test::kTanhLayer, "Block", /*trains=*/false);
  layers[2].second = make_layer(test::kTanhLayer, "Block", /*trains=*/false);
  const bool gives_frozen = GENERATE(false, true);  // as ZeRO stage 3 gathers them
  StagedRun run(make_net(kFourInTurn, layers), in_stages(2), {"Block"}, gives_frozen);
  run.check_step({rows()});
  CHECK(run.plan().stages[1].num_parameters == 32);
  CHECK(run.plan().stages[1].num_trainable == 16);
}

TEST_CASE("a `with` statement is not cut, and the code around it is", "[runtime][model][stages]") {
  constexpr char kRegions[] = R"(
class autocast:
  _enabled : bool
  device : str
  fast_dtype : int
  def __init__(self: __torch__.regions.autocast) -> NoneType:
    self._enabled = True
    self.device = "cpu"
    self.fast_dtype = 15
    return None
  def __enter__(self: __torch__.regions.autocast) -> NoneType:
    return None
  def __exit__(self: __torch__.regions.autocast, kind: Any, value: Any, traceback: Any) -> NoneType:
    return None
)";
  constexpr char kNet[] = R"(
class Block(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Block, x: Tensor) -> Tensor:
    return torch.tanh(torch.matmul(x, self.weight))
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  one : __torch__.Block
  two : __torch__.Block
  three : __torch__.Block
  four : __torch__.Block
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    y = (self.one).forward(x, )
    region = __torch__.regions.autocast.__new__(__torch__.regions.autocast)
    _0 = (region).__init__()
    with region:
      z = (self.three).forward((self.two).forward(y, ), )
    return torch.sum(torch.add((self.four).forward(torch.to(z, 6), ), y))
)";
  test::ImportedClasses::Held held;
  for (const char* name : {"one", "two", "three", "four"}) {
    held[std::string(name) + ".weight"] = at::randn({4, 4}).requires_grad_(true);
  }
  const auto net = test::ImportedClasses::make_net({{"__torch__", kNet}, {"__torch__.regions", kRegions}}, held);
  StagedRun run(net, in_stages(3));
  run.check_step({rows()});
  CHECK(run.stages[1]->facts.table.parameters.size() == 2);
  const std::string path = run.whole.path();
  test::expect_error(
      ExitCode::kBadInput,
      {"the model cannot be cut into 4 pipeline stages: between 'two' and 'three' it lies inside a `with` statement"},
      [&] { torchscript::load_script_stage(path, {"Block"}, {}, in_stages(4)); });
}

TEST_CASE("an evaluation runs stage by stage", "[runtime][model][stages]") {
  constexpr char kDropout[] =
      "def forward(self, x):\n    return torch.dropout(torch.matmul(x, self.weight), 0.5, self.training)\n";
  auto layers = four_layers();
  for (auto& [name, layer] : layers) {
    layer = Module("Block");
    test::add_parameter(layer, "weight", {4, 4});
    layer.register_attribute("training", c10::BoolType::get(), true);
    layer.define(kDropout);
  }
  StagedRun run(make_net(kFourInTurn, layers), in_stages(3));
  at::NoGradGuard no_grad;
  for (auto* model : {run.stages[0].get(), run.stages[1].get(), run.stages[2].get(), run.whole.model.get()}) {
    model->runnable->train(false);
  }
  const auto found = run.forward({rows()}).first;
  CHECK(at::equal(found, run.whole.forward({rows()})));
  for (const auto& gathered : run.gathered) CHECK(gathered->num_held() == 0);
}

TEST_CASE("what a model cannot be cut into is refused with the reason", "[runtime][model][stages]") {
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  const auto message = [&](const Module& net, const StageOptions& options,
                           const std::vector<std::string>& units = {"Block"}) {
    net.save(path);
    return test::message_of(ExitCode::kBadInput, "",
                            [&] { torchscript::plan_script_stages(path, units, {}, options); });
  };
  const auto net = make_net(kFourInTurn, four_layers());
  CHECK(
      message(net, in_stages(5)) ==
      "the model cannot be cut into 5 pipeline stages: it has 4 layers ('one', 'two', 'three', 'four'). Use at most 4 "
      "stages");
  CHECK(message(net, in_stages(2, "sizes")) ==
        "pipeline.partition 'sizes': expected best, time, uniform, parameters or type:REGEX");
  CHECK(message(net, in_stages(2, "type:Attention")) ==
        "pipeline.partition 'type:Attention': no layer has such a class (the model's layers are of: Block)");
  CHECK(message(net, in_stages(2, "type:(")) == "pipeline.partition 'type:(': not a regular expression");
  auto beyond = in_stages(2);
  beyond.first_layers = {4};
  CHECK(message(net, beyond) == "pipeline.partition 'layers:4': the model has layers 0 to 3");

  Module stack("Stack");
  for (const auto& [name, layer] : four_layers()) stack.register_module(name, layer);
  stack.define(R"(
def forward(self, x):
    return self.four.forward(self.three.forward(self.two.forward(self.one.forward(x))))
)");
  CHECK(message(make_net("def forward(self, x):\n    return self.stack.forward(x * self.scale).sum()\n",
                         {{"stack", stack}}),
                in_stages(2), {"Stack"}) ==
        "the model cannot be cut into 2 pipeline stages: it has 1 layer ('stack'). Use 1 stage, or set "
        "\"units\": [\"Block\"] in the config, blocks that lie inside these layers");

  auto layers = four_layers();
  for (size_t i : {1, 2, 3}) layers[i].second = make_layer(test::kTanhLayer, "Block", /*trains=*/false);
  CHECK(message(make_net(kFourInTurn, layers), in_stages(2)) ==
        "the model cannot be cut into 2 pipeline stages: one of them would have no trainable parameters (frozen layers "
        "count with a trained one); use fewer stages");

  CHECK(
      message(make_net(R"(
def forward(self, x):
    seen = [x]
    x = self.one.forward(x * self.scale)
    seen.append(x)
    x = self.two.forward(x)
    seen.append(x)
    x = self.four.forward(self.three.forward(x))
    seen.append(x)
    return torch.stack(seen).sum()
)",
                       four_layers()),
              in_stages(3)) ==
      "the model cannot be cut into 3 pipeline stages: between 'one' and 'two' a value of type List[Tensor] would have "
      "to be carried (ListConstruct); between 'two' and 'three' a value of type List[Tensor] would have to be carried "
      "(ListConstruct); between 'three' and 'four' a value of type List[Tensor] would have to be carried "
      "(ListConstruct); use 1 stage, or change forward there");

  CHECK(message(make_net(R"(
def forward(self, x):
    a = self.one.forward(x * self.scale)
    column = a.t()
    b = self.two.forward(a)
    c = self.three.forward(b)
    a.add_(1.0)
    return (self.four.forward(c) + a + column.t()).sum()
)",
                         four_layers()),
                in_stages(4)) ==
        "the model cannot be cut into 4 pipeline stages: between 'two' and 'three' t after 'one' would be carried, and "
        "its memory is changed in place later under another name; use at most 3 stages, or change forward there");

  // A buffer that counts on both sides.
  Module counting("Net");
  for (const auto& [name, layer] : four_layers()) counting.register_module(name, layer);
  counting.register_buffer("seen", at::zeros({}));
  counting.define(R"(
def forward(self, x):
    x = self.two.forward(self.one.forward(x))
    self.seen.add_(1)
    x = self.three.forward(x)
    return self.four.forward(x).sum() + self.seen
)");
  CHECK(message(counting, in_stages(4)) ==
        "the model cannot be cut into 4 pipeline stages: between 'three' and 'four' forward changes a buffer or "
        "attribute that is used on both sides; use at most 3 stages, or change forward there");
}

TEST_CASE("code that cannot be followed is refused", "[runtime][model][stages]") {
  auto net = make_net(kFourInTurn, four_layers());
  test::fork_first_call(*torch::jit::toGraphFunction(net.get_method("forward").function()).graph());
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  net.save(path);
  CHECK(
      test::message_of(ExitCode::kBadInput, "",
                       [&] { torchscript::plan_script_stages(path, {"Block"}, {}, in_stages(2)); }) ==
      "the model cannot be cut into pipeline stages: it runs parts of itself on other threads (torch.jit.fork); use 1 "
      "stage, or write this part of forward as direct calls of its modules");
}

TEST_CASE("measured layers decide where the fewest bytes are carried", "[runtime][model][stages]") {
  const auto net = make_net(R"(
def forward(self, x):
    x = self.one.forward(x * self.scale)
    wide = torch.tanh(x.repeat([1, 8]))
    x = self.two.forward(wide[:, :4])
    x = self.three.forward(x)
    x = torch.tanh(x.repeat([2, 1]))[:1]
    return self.four.forward(x).sum()
)",
                            four_layers());
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  net.save(path);
  torch::manual_seed(3);
  const auto measured = torchscript::measure_script_layers(path, {"Block"}, {}, {{{3, 4}, at::kFloat}}, at::kCPU);
  const auto drawn = at::rand({4});
  torch::manual_seed(3);
  CHECK(at::equal(drawn, at::rand({4})));  // as if nothing had run
  REQUIRE(measured.ok());
  CHECK(measured->flops == std::vector<int64_t>{2 * 3 * 16, 2 * 3 * 16, 2 * 3 * 16, 2 * 16});
  for (int64_t time : measured->nanoseconds) CHECK(time > 0);
  auto options = in_stages(4);
  options.measurement = decode_measurement(encode(*measured));
  CHECK_FALSE(torchscript::plan_script_stages(path, {"Block"}, {}, options).is_measured);  // "uniform" does not use it
  auto timed = options;
  timed.partition = "time";
  CHECK(torchscript::plan_script_stages(path, {"Block"}, {}, timed).is_measured);
  StagedRun run(net, options);
  run.check_step({rows()});
  CHECK(origins(run.plan().stages[1]) == std::vector<std::string>{"slice after 'one'"});
  CHECK(run.plan().stages[1].carried_in[0].bytes == 3 * 4 * 4);
  CHECK(run.plan().stages[3].carried_in[0].bytes == 4 * 4);
  CHECK(describe_stages(run.plan())[1].find("receives 1 tensor, 48 B (slice after 'one')") != std::string::npos);
}

TEST_CASE("a model that changes itself is not measured", "[runtime][model][stages]") {
  Module net("Net");
  for (const auto& [name, layer] : four_layers()) net.register_module(name, layer);
  net.register_attribute("count", c10::IntType::get(), 0);
  net.define(R"(
def forward(self, x):
    self.count += 1
    return self.four.forward(self.three.forward(self.two.forward(self.one.forward(x)))).sum()
)");
  const test::TempDir folder;
  net.save(folder / "net.pt");
  const auto measured =
      torchscript::measure_script_layers(folder / "net.pt", {"Block"}, {}, {{{3, 4}, at::kFloat}}, at::kCPU);
  REQUIRE(!measured.ok());
  CHECK(measured.error() == "the model sets its attribute 'count'");
  auto options = in_stages(2, "time");
  options.unmeasured = measured.error();
  const auto plan = torchscript::plan_script_stages(folder / "net.pt", {"Block"}, {}, options);
  CHECK_FALSE(plan.is_measured);
  CHECK(plan.notes == std::vector<std::string>{"pipeline stages are balanced by parameters, because the times of their "
                                               "layers are not measured: the model sets its attribute 'count'"});
  StagedRun run(net, in_stages(3));
  run.check_step({rows()});
}

TEST_CASE("partition methods", "[runtime][model][stages]") {
  auto layers = four_layers();
  layers[1].second = Module("Wide");
  test::add_parameter(layers[1].second, "weight", {4, 4});
  test::add_parameter(layers[1].second, "more", {100});
  layers[1].second.define(test::kTanhLayer);
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  make_net(kFourInTurn, layers).save(path);
  const auto first_layers = [&](StageOptions options) {
    std::vector<size_t> out;
    for (const auto& stage : torchscript::plan_script_stages(path, {"Block", "Wide"}, {}, options).stages) {
      out.push_back(stage.first_layer);
    }
    return out;
  };
  CHECK(first_layers(in_stages(2, "uniform")) == std::vector<size_t>{0, 2});
  CHECK(first_layers(in_stages(3, "parameters")) == std::vector<size_t>{0, 1, 2});
  CHECK(first_layers(in_stages(2, "type:wide")) == std::vector<size_t>{0, 3});
  auto timed = in_stages(2, "time");
  timed.layer_costs = {1, 1, 1, 5};
  CHECK(first_layers(timed) == std::vector<size_t>{0, 3});
  timed.first_layers = {1};
  CHECK(first_layers(timed) == std::vector<size_t>{0, 1});
}

TEST_CASE("carried values arrive in the memory order in which they were", "[runtime][model][stages]") {
  const auto dense = at::rand({2, 3, 4}).permute({2, 0, 1});
  const auto holes = at::rand({4, 6}).slice(1, 0, 6, 2).set_requires_grad(true);
  const CarriedValues sent{{dense, holes, at::ones({}, at::kBool), at::empty({0, 3}, at::kHalf)}, {7, -1}};
  const auto layout = decode(encode(layout_of(sent)));
  CHECK(layout == layout_of(sent));
  const auto received = allocate(layout, at::kCPU);
  CHECK(received.numbers == sent.numbers);
  CHECK(received.tensors[0].strides() == dense.strides());
  CHECK(received.tensors[1].is_contiguous());
  CHECK(received.tensors[1].requires_grad());
  CHECK(received.tensors[1].is_leaf());
  CHECK(!received.tensors[0].requires_grad());
  CHECK(received.tensors[2].scalar_type() == at::kBool);
  CHECK(received.tensors[3].sizes() == at::IntArrayRef({0, 3}));
  CHECK(in_layout_order(dense).is_same(dense));
  CHECK(in_layout_order(holes).is_contiguous());
  CHECK_THROWS_AS(decode({1, 0, 6}), InternalError);
  CHECK_THROWS_AS(decode({0, 0, 1}), InternalError);
  CHECK_THROWS_AS(decode_measurement({2, 1}), InternalError);
}

TEST_CASE("an unwritten buffer that two stages read is held by both", "[runtime][model][stages]") {
  Module net("Net");
  for (const auto& [name, layer] : four_layers()) net.register_module(name, layer);
  net.register_buffer("table", at::linspace(0, 1, 4));
  net.define(R"(
def forward(self, x):
    x = self.two.forward(self.one.forward(x * self.table.cos()))
    return (self.four.forward(self.three.forward(x)) * self.table.cos()).sum()
)");
  StagedRun run(net, in_stages(2));
  run.check_step({rows()});
  for (const auto& stage : run.plan().stages) CHECK(stage.buffers == std::vector<std::string>{"table"});
  CHECK(run.plan().stages[1].carried_in.size() == 1);
}

TEST_CASE("an error in a stage names the module, and what the stage was given", "[runtime][model][stages]") {
  Module stack("Stack");
  for (const auto& [name, layer] : four_layers()) stack.register_module(name, layer);
  stack.define(R"(
def forward(self, x):
    x = self.two.forward(self.one.forward(x))
    return self.four.forward(self.three.forward(x))
)");
  StagedRun run(
      make_net("def forward(self, x):\n    return self.stack.forward(x * self.scale).sum()\n", {{"stack", stack}}),
      in_stages(2));
  run.forward({rows()});
  auto carried = StagedRun::received(run.sent[0]);
  carried.tensors[0] = carried.tensors[0].detach().to(at::kDouble);
  test::expect_error(
      ExitCode::kBadInput,
      {"failed on inputs none and, from the stage before, Double[3, 4]: stack.three: matmul takes operands "
       "of one type, and got fp64 and fp32"},
      [&] { run.stages[1]->runnable->run_stage({at::Tensor()}, carried); });
}
