// Embeddings whose max_norm torch.jit.script has dropped, and the note about them.
#include "runtime/model/analysis/index_bounds_analysis.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model::analysis;

namespace {

using Names = std::vector<std::string>;

constexpr char kFunctional[] = R"(
def embedding(ids: Tensor, weight: Tensor, padding: Optional[int]=None, max_norm: Optional[float]=None) -> Tensor:
  return torch.embedding(weight, ids)
def embedding_bag(ids: Tensor, weight: Tensor, max_norm: Optional[float]=None) -> Tensor:
  return torch.mean(torch.embedding(weight, ids), [0])
def other(ids: Tensor, weight: Tensor, max_norm: Optional[float]=None) -> Tensor:
  return torch.embedding(weight, ids)
)";

torch::jit::Module net_with(const std::string& body) {
  const std::string net = R"(
class Table(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Table, ids: Tensor) -> Tensor:
    weight = self.weight
)" + body + R"(
class Net(Module):
  __parameters__ = []
  __buffers__ = []
  table : __torch__.Table
  def forward(self: __torch__.Net, ids: Tensor) -> Tensor:
    table = self.table
    return torch.sum((table).forward(ids, ))
)";
  return test::ImportedClasses::make_net({{"__torch__", net}, {"__torch__.torch.nn.functional", kFunctional}},
                                         {{"table.weight", at::ones({5, 3}).requires_grad_(true)}});
}

Names dropped(const std::string& body) {
  return find_dropped_max_norm(net_with(body));
}

constexpr char kDropped[] = "    return __torch__.torch.nn.functional.embedding(ids, weight, None, 1.0, )\n";

}  // namespace

TEST_CASE("an embedding that is called with a max_norm is reported", "[runtime][model][max_norm]") {
  CHECK(dropped(kDropped) == Names{"table"});
  CHECK(dropped("    return __torch__.torch.nn.functional.embedding_bag(ids, weight, 2.0, )\n") == Names{"table"});
  CHECK(dropped("    out = weight\n    if bool(torch.gt(torch.sum(ids), 0)):\n"
                "      out = __torch__.torch.nn.functional.embedding(ids, weight, None, 1.0, )\n"
                "    else:\n      out = weight\n    return out\n") == Names{"table"});
  test::ModelRun run(net_with(kDropped));
  REQUIRE(run.model->facts.notes.size() == 1);
  CHECK(run.model->facts.notes[0] ==
        "scripting drops max_norm of embeddings, so their rows are not renormalised: table");
}

TEST_CASE("an embedding without one, another function, or a renormalisation by hand is not reported",
          "[runtime][model][max_norm]") {
  CHECK(dropped("    return __torch__.torch.nn.functional.embedding(ids, weight, None, None, )\n").empty());
  CHECK(dropped("    return __torch__.torch.nn.functional.embedding(ids, weight, )\n").empty());
  CHECK(dropped("    return __torch__.torch.nn.functional.other(ids, weight, 1.0, )\n").empty());
  CHECK(dropped("    _0 = torch.embedding_renorm_(weight, ids, 1.0, 2.0)\n" + std::string(kDropped)).empty());
}
