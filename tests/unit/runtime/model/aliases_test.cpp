// Which values share memory with one that is written to in place.
#include "runtime/model/graph/aliases.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/model/graph/walk.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::graph;
using torch::jit::Block;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;

namespace {

Module net_of(const std::string& forward) {
  Module inner("Inner");
  inner.register_buffer("mean", at::zeros({2}));
  inner.define("def forward(self, x):\n    return x + self.mean\n");
  Module net("Net");
  net.register_buffer("mean", at::ones({2}));
  net.register_buffer("sum", at::ones({2}));
  net.register_module("inner", inner);
  net.define(forward);
  return net;
}

// The elements of the tuple that a graph returns.
std::vector<const Value*> returned(const Block* block) {
  const Node* tuple = block->outputs().at(0)->node();
  return {tuple->inputs().begin(), tuple->inputs().end()};
}

std::vector<bool> written(const Aliases& aliases, const Block* block) {
  std::vector<bool> out;
  for (const Value* value : returned(block)) out.push_back(aliases.is_written(value));
  return out;
}

// By element of the tuple that forward returns.
std::vector<bool> written_in(const std::string& forward) {
  const auto flat = flatten_forward(net_of(forward));
  return written(Aliases(flat), flat.graph->block());
}

std::vector<bool> written_in_class(const std::string& forward) {
  const Module net = net_of(forward);
  const auto* block = net.get_method("forward").graph()->block();
  return written(Aliases(block), block);
}

using Written = std::vector<bool>;

}  // namespace

TEST_CASE("a write is seen in views and in what they are views of, and not in copies", "[runtime][aliases]") {
  CHECK(written_in(R"(
def forward(self, x, y):
    a = x * 2
    row = a[0]
    other = a.view(-1)
    row.add_(1)
    copy = a.clone()
    return a, other, row, copy, x, y
)") == Written{true, true, true, false, false, false});
}

TEST_CASE("what may be one of two values is written with either, and they are not", "[runtime][aliases]") {
  CHECK(written_in(R"(
def forward(self, x, b: bool):
    a = x * 2
    c = x * 3
    d = a
    if b:
        d = c
    e = x * 4
    f = e
    for i in range(3):
        f = f.view(-1)
    a.add_(1)
    f.mul_(2)
    return a, c, d, e
)") == Written{true, false, true, true});
}

TEST_CASE("elements of tuples are told apart, those of lists are not", "[runtime][aliases]") {
  CHECK(written_in(R"(
def forward(self, x, y):
    a, b = x * 2, x * 3
    pair = (a, (b, x))
    c, d = pair
    d[0].add_(1)
    e, f = x * 4, x * 5
    list = [e, f]
    list[0].add_(1)
    g = x * 6
    grown = [g]
    grown.append(y)
    return a, b, c, e, f, g, y
)") == Written{false, true, false, true, true, false, false});
  // A part of a list is a new list of the same tensors; an optional that is not None is the tensor itself.
  CHECK(written_in(R"(
def forward(self, x, y: Optional[Tensor]):
    a, b = x * 2, x * 3
    tail = [a, b][1:]
    tail[0].add_(1)
    if y is not None:
        y.add_(1)
    return b, y
)") == Written{true, true});
  CHECK(written_in("def forward(self, x: List[Tensor]):\n    x[0].add_(1)\n    y = x[1]\n    return y, x\n") ==
        Written{true, true});
}

TEST_CASE("attributes are told apart by module, or by name where the module is not known", "[runtime][aliases]") {
  const std::string forward = R"(
def forward(self, x):
    self.mean.add_(1)
    a = self.inner.mean
    b = self.mean
    c = self.sum
    return a, b, c
)";
  CHECK(written_in(forward) == Written{false, true, false});
  CHECK(written_in_class(forward) == Written{true, true, false});
}

TEST_CASE("attributes that hold one tensor are one set", "[runtime][aliases]") {
  Module net("Net");
  const at::Tensor shared = at::zeros({2});
  net.register_buffer("one", shared);
  net.register_buffer("two", shared);
  net.register_parameter("weight", at::ones({2}), false);
  net.define("def forward(self, x):\n    self.one.add_(1)\n    w = self.weight.view(-1)\n    return self.two, w, x\n");
  const auto flat = flatten_forward(net);
  const Aliases aliases(flat);
  const auto values = returned(flat.graph->block());
  const auto& two = aliases.set(aliases.sets_of(values[0]).front());
  CHECK(two.is_attribute);
  CHECK(two.writes.size() == 1);
  CHECK(aliases.written_attributes().size() == 1);  // the one that is named
  CHECK(aliases.set(aliases.sets_of(values[1]).front()).is_parameter);
  CHECK_FALSE(aliases.set(aliases.sets_of(values[2]).front()).is_attribute);
}

TEST_CASE("what is assigned to an attribute may be read from it", "[runtime][aliases]") {
  CHECK(written_in(R"(
def forward(self, x, y):
    a = x * 2
    self.mean = a
    self.mean.add_(1)
    return a, y
)") == Written{true, false});
}

TEST_CASE("a call that stays may write to what it is given; a unit's is followed", "[runtime][aliases]") {
  const auto outer = [](const std::string& inner_forward) {
    Module inner("Inner");
    inner.register_buffer("mean", at::zeros({2}));
    inner.define(inner_forward);
    Module net("Net");
    net.register_module("inner", inner);
    net.define(R"(
def forward(self, x):
    a = x * 2
    b = self.inner.forward(a)
    c = x * 3
    return a, b, c
)");
    return net;
  };
  const Module reads = outer("def forward(self, x):\n    return x.view(-1)\n");
  const Module writes = outer("def forward(self, x):\n    self.mean.add_(1)\n    return x.add_(1).view(-1)\n");
  const auto* graph = reads.get_method("forward").graph()->block();
  CHECK(written(Aliases(graph), graph) == Written{true, true, false});

  const auto followed = [](const Module& net) {
    const auto flat = flatten_forward(net, {{"inner", net.attr("inner").toModule()}});
    const Aliases aliases(flat);
    const auto values = returned(flat.graph->block());
    CHECK(aliases.sets_of(values[0]) == aliases.sets_of(values[1]));
    CHECK(aliases.obstacle().empty());
    const auto& set = aliases.set(aliases.sets_of(values[0]).front());
    const auto nodes = flat.graph->nodes();
    const auto call = std::find_if(nodes.begin(), nodes.end(),
                                   [](const Node* node) { return node->kind() == c10::prim::CallMethod; });
    CHECK(set.writes.empty() == aliases.written_attributes().empty());
    if (!set.writes.empty()) CHECK(set.writes.front() == static_cast<size_t>(std::distance(nodes.begin(), call)));
    return written(aliases, flat.graph->block());
  };
  CHECK(followed(reads) == Written{false, false, false});
  CHECK(followed(writes) == Written{true, true, false});
}

TEST_CASE("writes inside branches and loops are at the position of their node", "[runtime][aliases]") {
  const auto flat = flatten_forward(net_of(R"(
def forward(self, x, b: bool):
    a = x * 2
    if b:
        a.add_(1)
    return a, x
)"));
  const Aliases aliases(flat);
  const auto& set = aliases.set(aliases.sets_of(returned(flat.graph->block())[0]).front());
  REQUIRE(set.writes.size() == 1);
  const auto nodes = flat.graph->nodes();
  CHECK((*std::next(nodes.begin(), static_cast<std::ptrdiff_t>(set.writes[0])))->kind() == c10::prim::If);
  CHECK(set.first_use() == set.writes[0]);
  CHECK(aliases.written().size() == 1);
}
