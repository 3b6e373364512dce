// Whole models as tensor ranks run them: units, tied weights, a head with its loss, and what a job chooses by name.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/tensor_parallel/tensor_operators.hpp"
#include "support/expect_error.hpp"
#include "support/script_models.hpp"
#include "tensor_ranks.hpp"

using namespace dslaunch;
using test::random_weight;
using test::TensorRanks;
using torch::jit::Module;

namespace {

constexpr int64_t kVocabulary = 2050;  // no number of ranks divides it; with 36 columns the table is large

constexpr double kTolerance = 1e-4;  // of sums of two blocks in fp32, whose order differs

constexpr char kBlock[] = R"(
def forward(self, x):
    q, k, v = torch.linear(torch.layer_norm(x, [36], self.norm), self.qkv, self.qkv_bias).chunk(3, -1)
    q = q.view(x.size(0), x.size(1), 6, 6).transpose(1, 2)
    k = k.view(x.size(0), x.size(1), 6, 6).transpose(1, 2)
    v = v.view(x.size(0), x.size(1), 6, 6).transpose(1, 2)
    y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True).transpose(1, 2).flatten(2)
    x = x + torch.linear(y, self.out, self.out_bias)
    return x + torch.linear(torch.silu(torch.linear(x, self.up)), self.down)
)";

Module make_block(int i) {
  const auto seed = static_cast<uint64_t>(100 * i);
  return test::compile({"Block",
                        kBlock,
                        {{"norm", random_weight({36}, seed)},
                         {"qkv", random_weight({108, 36}, seed + 1)},
                         {"qkv_bias", random_weight({108}, seed + 2)},
                         {"out", random_weight({36, 36}, seed + 3)},
                         {"out_bias", random_weight({36}, seed + 4).set_requires_grad(false)},
                         {"up", random_weight({50, 36}, seed + 5)},
                         {"down", random_weight({36, 50}, seed + 6)}}});
}

// A language model whose head is its table.
Module make_model() {
  return test::compile({"Net",
                        R"(
def forward(self, ids, labels):
    x = self.second.forward(self.first.forward(torch.embedding(self.table, ids)))
    logits = torch.linear(x, self.table)
    return torch.cross_entropy_loss(logits.view(-1, logits.size(-1)), labels.view(-1), None, 1, -100)
)",
                        {{"table", random_weight({kVocabulary, 36}, 7)}},
                        {},
                        {{"first", make_block(1)}, {"second", make_block(2)}}});
}

test::Inputs make_inputs() {
  const at::Tensor ids = at::arange(14).view({2, 7}) * 97 % kVocabulary;
  at::Tensor labels = (ids * 31 + 5) % kVocabulary;
  labels[0][2] = -100;
  return {ids, labels};
}

}  // namespace

TEST_CASE("tensor ranks split all of a language model", "[runtime][model][placement]") {
  const int ranks = GENERATE(2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  TensorRanks run(make_model, ranks, make_inputs(), {.units = {"Block"}, .sequence_parallel = sequence_parallel});
  const auto& report = run.report();
  CHECK(report.split_elements() == report.gemm_elements());
  CHECK(report.gemms.size() == 9);
  CHECK(run.split("table") == "column");
  CHECK(run.split("second.down") == "row");
  CHECK(report.notes == (sequence_parallel ? std::vector<std::string>{"positions stay split through 2 of 2 units"}
                                           : std::vector<std::string>()));
  run.check_equals_whole(kTolerance);
}

TEST_CASE("what a unit makes of numbers alone has the gradient of all that ranks make of it",
          "[runtime][model][placement]") {
  const auto make = [] {
    const Module table = test::compile({"Table",
                                        "def forward(self, ids):\n    return torch.embedding(self.rows, ids)\n",
                                        {{"rows", random_weight({64, 36}, 3)}}});
    return test::compile({"Net",
                          "def forward(self, ids):\n"
                          "    x = torch.linear(self.table.forward(ids), self.up)\n"
                          "    return torch.linear(torch.relu(x), self.down)\n",
                          {{"up", random_weight({48, 36}, 4)}, {"down", random_weight({36, 48}, 5)}},
                          {},
                          {{"table", table}}});
  };
  TensorRanks run(make, 2, {at::arange(14).view({2, 7})}, {.units = {"Table"}});
  CHECK(run.split("up") == "column");
  run.check_equals_whole(kTolerance);
}

namespace {

int count(const Module& module, std::string_view kind) {
  int out = 0;
  for (const auto* node : module.get_method("forward").graph()->nodes()) out += kind == node->kind().toQualString();
  return out;
}

// A residual stream of three dims beside GEMMs of two, and a value that all blocks read, as exports have them.
constexpr char kFlatBlock[] = R"(
def forward(self, x, other):
    shape = [x.size(0), x.size(1), 72]
    h = torch.layer_norm(x, [36], self.norm, self.norm_bias)
    y = torch.addmm(self.up_bias, h.view(-1, 36), self.up).view(shape)
    y = torch.addmm(self.down_bias, torch.gelu(y).view(-1, 72), self.down).view([x.size(0), x.size(1), 36])
    seen = torch.linear(torch.relu(torch.linear(other, self.seen)), self.out)
    return x + torch.dropout(y, 0.1, False) + seen.transpose(0, 1).transpose(0, 1), torch.mean(x, [1])
)";

Module make_flat_block(int i) {
  const auto seed = static_cast<uint64_t>(100 * i);
  return test::compile({"FlatBlock",
                        kFlatBlock,
                        {{"norm", random_weight({36}, seed)},
                         {"norm_bias", random_weight({36}, seed + 1)},
                         {"up", random_weight({36, 72}, seed + 2)},
                         {"up_bias", random_weight({72}, seed + 3)},
                         {"down", random_weight({72, 36}, seed + 4)},
                         {"down_bias", random_weight({36}, seed + 5)},
                         {"seen", random_weight({48, 36}, seed + 6)},
                         {"out", random_weight({36, 48}, seed + 7)}}});
}

Module make_flat_model() {
  return test::compile({"Net",
                        R"(
def forward(self, ids):
    x = torch.embedding(self.table, ids) + self.positions[:, :ids.size(1)]
    other = torch.layer_norm(x, [36], self.norm)
    x, mean = self.first.forward(x, other)
    x, last = self.second.forward(x, other)
    return torch.matmul(torch.layer_norm(x, [36], self.norm), self.table.t()).sum([2]) + (mean + last).sum([1], True)
)",
                        {{"table", random_weight({kVocabulary, 36}, 7)},
                         {"positions", random_weight({1, 20, 36}, 8)},
                         {"norm", random_weight({36}, 9)}},
                        {},
                        {{"first", make_flat_block(1)}, {"second", make_flat_block(2)}}});
}

test::Inputs ids_of(int64_t length) {
  return {at::arange(2 * length).view({2, length}) * 97 % kVocabulary};
}

}  // namespace

TEST_CASE("positions stay split from unit to unit", "[runtime][model][placement]") {
  TensorRanks run(make_model, 2, make_inputs(), {.units = {"Block"}, .sequence_parallel = true});
  const Module& model = run.module(0);
  CHECK(count(model, test::tensor_parallel::kReduceScatterOperator) == 1);   // behind the table
  CHECK(count(model, test::tensor_parallel::kGatherForPartsOperator) == 1);  // in front of the head
  CHECK(count(model, test::tensor_parallel::kReduceOperator) == 0);
  const Module block = model.attr("first").toModule();
  CHECK(count(block, test::tensor_parallel::kReduceScatterOperator) == 2);
  CHECK(count(block, test::tensor_parallel::kGatherForPartsOperator) == 2);
  CHECK(count(block, test::tensor_parallel::kReduceOperator) == 0);
  CHECK(count(block, test::tensor_parallel::kOwnPositionsOperator) == 0);
}

TEST_CASE("a model without positions says so", "[runtime][model][placement]") {
  const auto make = [] {
    return test::compile({"Flat",
                          "def forward(self, x):\n"
                          "    return torch.linear(torch.relu(torch.linear(x, self.a)), self.b)\n",
                          {{"a", random_weight({40, 24}, 1)}, {"b", random_weight({24, 40}, 2)}}});
  };
  TensorRanks run(make, 2, {test::random_values({5, 24}, 3)}, {.sequence_parallel = true});
  CHECK(run.report().notes ==
        std::vector<std::string>{"nothing is split along positions: no sum over the tensor ranks has a dim of them"});
  run.check_equals_whole();
}

TEST_CASE("positions of any number are split", "[runtime][model][placement]") {
  const int ranks = GENERATE(2, 3);
  const int64_t length = GENERATE(8, 7, 1);  // of the run
  const bool runs_passes = length == 7;
  INFO(length << " positions on " << ranks << " ranks");
  TensorRanks run(
      make_flat_model, ranks, ids_of(length),
      {.runs_passes = runs_passes, .units = {"FlatBlock"}, .sequence_parallel = true, .analyzed = ids_of(9)});
  const Module block = run.module(0).attr("first").toModule();
  CHECK(count(block, test::tensor_parallel::kReduceScatterOperator) == 2);
  CHECK(block.get_method("forward").function().getSchema().arguments().size() == 4);
  run.check_equals_whole(kTolerance);
}

TEST_CASE("the report says where tensor ranks draw numbers on parts of a value", "[runtime][model][placement]") {
  const auto draws_with = [](const std::string& inner, const std::string& outer) {
    const auto make = [&] {
      return test::compile({"Mlp",
                            "def forward(self, x):\n    h = torch.dropout(torch.relu(torch.linear(x, self.up)), " +
                                inner + ", True)\n    return torch.dropout(torch.linear(h, self.down), " + outer +
                                ", True)\n",
                            {{"up", random_weight({8, 4}, 1)}, {"down", random_weight({4, 8}, 2)}}});
    };
    return TensorRanks(make, 2, {at::ones({2, 4})}, {}).report().draws_on_parts;
  };
  CHECK(draws_with("0.5", "0.0") == std::vector<std::string>{"dropout in 'Mlp'"});
  CHECK(draws_with("0.0", "0.5").empty());  // of a whole value
}

TEST_CASE("the names in a job choose what is split", "[runtime][model][placement]") {
  const auto run_with = [](std::vector<config::TensorSplitRule> rules, bool needs_rules = false) {
    return TensorRanks(make_model, 2, make_inputs(),
                       {.units = {"Block"}, .rules = std::move(rules), .needs_rules = needs_rules});
  };
  using config::TensorSplit;

  auto whole =
      run_with({{.block_class = "Block", .parameter_pattern = "second", .split = TensorSplit::kWhole, .key = "k"}});
  CHECK(whole.split("second.up").empty());
  CHECK(whole.split("second.down").empty());
  CHECK(whole.split("first.up") == "column");
  whole.check_equals_whole(kTolerance);

  auto rows = run_with({{.parameter_pattern = R"(.*\.up$)", .split = TensorSplit::kRow, .key = "k"}});
  CHECK(rows.split("first.up") == "row");
  rows.check_equals_whole(kTolerance);

  test::expect_error(ExitCode::kBadInput, {"k: 'first.down' cannot be split this way: its input is split"}, [&] {
    run_with({{.parameter_pattern = R"(.*\.down$)", .split = TensorSplit::kColumn, .key = "k"}});
  });
  test::expect_error(ExitCode::kBadInput, {"k: no module with parameters is named 'secnd.up', alone or at its end"},
                     [&] { run_with({{.module = "secnd.up", .split = TensorSplit::kRow, .key = "k"}}); });
  test::expect_error(ExitCode::kBadInput, {"no rule matches 'table'"}, [&] {
    run_with({{.parameter_pattern = R"((first|second)\.(qkv|up))", .key = "k"},
              {.parameter_pattern = R"((first|second)\.)", .split = TensorSplit::kRow, .key = "k"}},
             true);
  });
}

TEST_CASE("units of a class stay whole if a branch calls one of them", "[runtime][model][placement]") {
  const auto make = [] {
    return test::compile({"Net",
                          R"(
def forward(self, ids, labels):
    x = self.first.forward(torch.embedding(self.table, ids))
    if bool(x.sum() > 0):
        x = self.second.forward(x)
    logits = torch.linear(x, self.table)
    return torch.cross_entropy_loss(logits.view(-1, logits.size(-1)), labels.view(-1), None, 1, -100)
)",
                          {{"table", random_weight({kVocabulary, 36}, 7)}},
                          {},
                          {{"first", make_block(1)}, {"second", make_block(2)}}});
  };
  TensorRanks run(make, 2, make_inputs(), {.units = {"Block"}});
  CHECK(run.report().notes ==
        std::vector<std::string>{"'Block' stays whole: a branch or loop calls a unit of its class"});
  run.check_equals_whole(kTolerance);
}

TEST_CASE("a layer whose bias one use splits and another adds behind a sum stays whole",
          "[runtime][model][placement]") {
  const auto make = [] {
    return test::compile({"Net",
                          "def forward(self, x):\n"
                          "    y = torch.tanh(torch.linear(x, self.layer, self.bias))\n"
                          "    return x + torch.tanh(torch.linear(y, self.layer, self.bias))\n",
                          {{"layer", random_weight({36, 36}, 4)}, {"bias", random_weight({36}, 5)}}});
  };
  TensorRanks run(make, 2, {random_weight({2, 7, 36}, 6).detach()}, {});
  CHECK(run.report().split_elements() == 0);
  run.check_equals_whole(kTolerance);
}

TEST_CASE("what is analyzed and probed counts nothing in the model", "[runtime][model][placement]") {
  const at::Tensor calls = at::zeros({}, at::kLong);
  const auto make = [&calls] {
    return test::compile({"Net",
                          "def forward(self, ids):\n"
                          "    self.calls.add_(1)\n"
                          "    x = torch.linear(torch.embedding(self.table, ids), self.up)\n"
                          "    return torch.linear(torch.relu(x), self.down)\n",
                          {{"table", random_weight({64, 36}, 3)},
                           {"up", random_weight({48, 36}, 4)},
                           {"down", random_weight({36, 48}, 5)}},
                          {{"calls", calls}}});
  };
  TensorRanks run(make, 2, {at::arange(14).view({2, 7})}, {});
  CHECK(run.split("up") == "column");
  CHECK(calls.item<int64_t>() == 0);
}
