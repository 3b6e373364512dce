// Whole models as tensor ranks run them: units, tied weights, a head with its loss, and what a job chooses by name.
#include <string>
#include <utility>
#include <vector>

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
  TensorRanks run(make_model, ranks, make_inputs(), {.units = {"Block"}});
  const auto& report = run.report();
  CHECK(report.split_elements() == report.gemm_elements());
  CHECK(report.gemms.size() == 9);
  CHECK(run.split("table") == "column");
  CHECK(run.split("second.down") == "row");
  CHECK(report.notes.empty());
  run.check_equals_whole(kTolerance);
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
