// Recomputed units give the bits of plain autograd, and leave behind what a run without recomputation leaves.
#include "runtime/model/recomputation/recomputation.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "base/error.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/model/recomputation/recomputation_plan.hpp"
#include "runtime/model/recomputation/recomputed_call.hpp"
#include "script_fixtures.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using test::Events;
using test::GatheredUnits;
using test::make_layer;
using test::make_net;
using test::ModelRun;
using torch::jit::Module;

namespace {

constexpr char kTwoInTurn[] = R"(
def forward(self, x):
    x = self.one.forward(x * self.scale)
    x = self.two.forward(x)
    return x.sum()
)";

at::Tensor rows() {
  return at::linspace(-1, 1, 12).view({3, 4});
}

// Of a net whose blocks are recomputed.
struct Recomputed : ModelRun {
  explicit Recomputed(const Module& net, const RecomputationOptions& options = {},
                      const std::vector<std::string>& units = {"Block"}, bool gives_frozen = false)
      : ModelRun(net, units, gives_frozen, {}, options) {}
};

Recomputed of_two(const Module& layer, const RecomputationOptions& options = {}) {
  return Recomputed(make_net(kTwoInTurn, {{"one", layer}, {"two", layer.deepcopy()}}), options);
}

constexpr char kFiveInTurn[] = R"(
def forward(self, x):
    x = self.two.forward(self.one.forward(x * self.scale))
    return self.five.forward(self.four.forward(self.three.forward(x))).sum()
)";

Recomputed of_five(const Module& layer, const RecomputationOptions& options) {
  std::vector<std::pair<std::string, Module>> layers;
  for (const char* name : {"one", "two", "three", "four", "five"}) layers.emplace_back(name, layer.deepcopy());
  return Recomputed(make_net(kFiveInTurn, layers), options);
}
Recomputed of_five(const Module& layer, int64_t number_checkpoints) {
  return of_five(layer, RecomputationOptions{.number_checkpoints = number_checkpoints});
}

// The events of a checked step after its forward, without the root's.
Events backward_of(ModelRun& run) {
  Events events = run.check_step({rows()});
  events.erase(events.begin(), std::find(events.begin(), events.end(), "release root"));
  events.erase(std::remove_if(events.begin(), events.end(),
                              [](const auto& event) { return event.find("root") != std::string::npos; }),
               events.end());
  return events;
}

// Of CPU tensors that this thread has allocated since, and not freed.
class LiveBytes {
 public:
  LiveBytes() : count_(std::make_shared<Count>()), guard_(c10::DebugInfoKind::PROFILER_STATE, count_) {}
  int64_t bytes() const { return count_->bytes; }

 private:
  struct Count : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes += size; }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t bytes = 0;
  };
  std::shared_ptr<Count> count_;
  c10::DebugInfoGuard guard_;
};

// The error of a step's backward.
void expect_refusal(
    ModelRun& run, const std::string& why, const std::function<void()>& between = [] {}) {
  const auto loss = run.forward({rows()});
  between();
  test::expect_error(ExitCode::kBadInput, {"cannot recompute unit 'one'", why, "activation_checkpointing"},
                     [&] { loss.backward(); });
  run.gathered->forget();
}

}  // namespace

TEST_CASE("a recomputed unit is gathered again in its backward, and not released there",
          "[runtime][model][recomputation]") {
  auto run = of_two(make_layer());
  const Events expected{"train root", "train one", "release one", "train two", "release two",  "release root",
                        "again two",  "take two",  "again one",   "take one",  "prepare root", "take root"};
  auto events = run.check_step({rows()});
  // The root's outputs are the sum's.
  CHECK(std::count(events.begin(), events.end(), "prepare root") == 1);
  const auto without_root = [](Events all) {
    all.erase(std::remove(all.begin(), all.end(), "prepare root"), all.end());
    return all;
  };
  CHECK(without_root(events) == without_root(expected));
  CHECK(run.summary == "activation_checkpointing: 2 of 2 blocks are recomputed in backward");
}

TEST_CASE("a recomputation drops what its first forward dropped, and random numbers continue as without it",
          "[runtime][model][recomputation]") {
  auto run = of_two(make_layer(R"(
def forward(self, x):
    x = torch.dropout(torch.matmul(x, self.weight), 0.5, True)
    return x * torch.rand_like(x)
)"));
  run.plain_step({rows()});
  const auto after_plain = device::save_random_state(at::kCPU);
  run.check_step({rows()});
  CHECK(at::equal(device::save_random_state(at::kCPU), after_plain));
}

TEST_CASE("state that a unit's forward writes is written once, and its recomputation reads what the forward read",
          "[runtime][model][recomputation]") {
  Module layer("Block");
  test::add_parameter(layer, "weight", {4, 4});
  layer.register_buffer("mean", at::zeros({4}));
  layer.register_buffer("variance", at::ones({4}));
  layer.register_buffer("calls", at::ones({}));
  layer.register_attribute("count", c10::IntType::get(), 1);
  layer.define(R"(
def forward(self, x):
    self.count += 1
    self.calls.add_(1)
    x = torch.matmul(x, self.weight) * self.calls * self.count
    return torch.batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1.0e-5, False)
)");
  auto run = of_two(layer);
  run.check_step({rows()});
  int compared = 0;
  for (const auto& [name, value] : run.model->tensors.buffers()) {
    INFO(name);
    CHECK(at::equal(value, run.buffers_of_plain.at(name)));
    compared += 1;
  }
  CHECK(compared == 6);
}

TEST_CASE("a recomputation casts as its first forward did under autocast", "[runtime][model][recomputation]") {
  struct Autocast {
    explicit Autocast(bool on) { at::autocast::set_autocast_enabled(at::kCPU, on); }
    ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
  };
  auto run = of_two(make_layer());
  at::Tensor loss;
  {
    Autocast on(true);
    loss = run.forward({rows()});
  }
  loss.backward();
  const auto found = run.gathered->gradients;
  // The same file without recomputation.
  auto model = torchscript::load_script_model(run.path(), {"one", "two"});
  GatheredUnits gathered(*model);
  model->runnable->set_unit_parameters(&gathered);
  {
    Autocast on(true);
    loss = model->runnable->forward({rows()}).first;
  }
  loss.backward();
  test::check_same({loss, found}, {loss, gathered.gradients});
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("arguments and results of a recomputed unit may be containers", "[runtime][model][recomputation]") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"def forward(self, x, y: Tuple[Tensor, Tensor]):\n    return torch.matmul(x, self.weight) * y[0], y[1]\n",
       "y, z = self.one.forward(x, (x, x * 2))"},
      {"def forward(self, x: List[Tensor]):\n    return [x[0], torch.matmul(x[1], self.weight)]\n",
       "r = self.one.forward([x, x * 2])\n    y, z = r[0], r[1]"},
      {"def forward(self, x: Dict[str, Tensor]):\n    return {\"y\": torch.matmul(x[\"x\"], self.weight), \"z\": "
       "x[\"x\"]}\n",
       "r = self.one.forward({\"x\": x})\n    y, z = r[\"y\"], r[\"z\"]"},
      {"def forward(self, x, flag: bool, more: Optional[Tensor]):\n    y = torch.matmul(x, self.weight)\n"
       "    if more is not None:\n        y = y + more\n    return y, torch.argmax(y)\n",
       "y, z = self.one.forward(x, True, None)"},
      // a result that is an argument, a view of one, a view of a parameter
      {"def forward(self, x):\n    return x, torch.matmul(x, self.weight)\n", "y, z = self.one.forward(x)"},
      {"def forward(self, x):\n    return x.view(-1)[:4], torch.matmul(x, self.weight)\n",
       "y, z = self.one.forward(x)"},
      {"def forward(self, x):\n    return self.weight[1], torch.matmul(x, self.weight)\n",
       "y, z = self.one.forward(x)"},
  };
  for (const auto& [layer, call] : cases) {
    CAPTURE(layer);
    Recomputed run(make_net("def forward(self, x):\n    x = x * self.scale\n    " + call +
                                "\n    return (y * self.scale).sum() + z.sum()\n",
                            {{"one", make_layer(layer)}}));
    CHECK(run.summary.find("1 of 1 blocks") != std::string::npos);
    run.check_step({rows()});
  }
}

TEST_CASE("a unit that changes its arguments in place works on copies, and its caller sees the changes",
          "[runtime][model][recomputation]") {
  for (const char* change : {"x.mul_(self.weight[0])", "x.view(-1)[:4].add_(self.weight[1])"}) {
    CAPTURE(change);
    const auto layer = make_layer(std::string("def forward(self, x):\n    ") + change + "\n    return torch.tanh(x)\n");
    Recomputed run(make_net(R"(
def forward(self, x):
    x = x * self.scale
    y = self.one.forward(x)
    return y.sum() + x.square().sum()
)",
                            {{"one", layer}}));
    run.check_step({rows()});
  }
}

TEST_CASE("an integer argument that a unit changes keeps its change", "[runtime][model][recomputation]") {
  const auto layer =
      make_layer("def forward(self, x, n):\n    n.add_(1)\n    return torch.matmul(x, self.weight) * n\n");
  Recomputed run(make_net(R"(
def forward(self, x):
    n = torch.ones([1], dtype=4)
    y = self.one.forward(x * self.scale, n)
    return y.sum() * n.sum()
)",
                          {{"one", layer}}));
  run.check_step({rows()});
}

TEST_CASE("outputs may be changed in place where no other output shares their memory",
          "[runtime][model][recomputation]") {
  const auto layer = make_layer(R"(
def forward(self, x):
    y = torch.matmul(x, self.weight)
    return y[:, :2], y[:, 2:]
)");
  Recomputed run(make_net(R"(
def forward(self, x):
    y, z = self.one.forward(x * self.scale)
    y.mul_(2)
    return y.sum() + z.square().sum()
)",
                          {{"one", layer}}));
  run.check_step({rows()});
}

TEST_CASE("changes between a call and its backward that a recomputation cannot repeat are refused",
          "[runtime][model][recomputation]") {
  SECTION("of an argument") {
    Recomputed run(make_net(R"(
def forward(self, x):
    y = x * self.scale
    z = self.one.forward(y)
    y.add_(1)
    return z.sum() + y.sum()
)",
                            {{"one", make_layer()}}));
    expect_refusal(run, "one of its arguments was changed in place before backward");
  }
  SECTION("of an output that another one overlaps") {
    const auto layer = make_layer("def forward(self, x):\n    y = torch.matmul(x, self.weight)\n    return y, y[0]\n");
    Recomputed run(make_net(R"(
def forward(self, x):
    y, z = self.one.forward(x * self.scale)
    z.add_(1)
    return y.sum() + z.sum()
)",
                            {{"one", layer}}));
    expect_refusal(run, "two of its outputs share memory");
  }
  SECTION("of its way") {
    Module layer("Block");
    test::add_parameter(layer, "weight", {4, 4});
    layer.register_attribute("training", c10::BoolType::get(), true);
    layer.define(R"(
def forward(self, x):
    y = torch.matmul(x, self.weight)
    if self.training:
        y = y[0]
    return y
)");
    Recomputed run(
        make_net("def forward(self, x):\n    return self.one.forward(x * self.scale).sum()\n", {{"one", layer}}));
    expect_refusal(run, "returned other outputs than its first forward", [&] { run.model->runnable->train(false); });
  }
}

TEST_CASE("a parameter that a unit reads and the root owns gets gradients of both", "[runtime][model][recomputation]") {
  const auto table = make_layer("def forward(self, ids):\n    return torch.embedding(self.weight, ids)\n");
  const auto net = make_net(R"(
def forward(self, ids):
    x = self.one.forward(ids)
    return torch.matmul(x * self.scale, self.one.weight.t()).square().sum()
)",
                            {{"one", table}});
  Recomputed run(net);
  run.check_step({at::tensor({0, 2, 2}, at::kLong)});
}

TEST_CASE("a tied parameter inside a recomputed unit is the root's", "[runtime][model][recomputation]") {
  Module tied("Block");
  const auto shared = (at::randn({4, 4}) * 0.5).requires_grad_(true);
  tied.register_parameter("weight", shared, false);
  test::add_parameter(tied, "own", {4});
  tied.define("def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight)) * self.own\n");
  Module net("Net");
  net.register_parameter("head", shared, false);
  net.register_module("one", tied);
  net.define(R"(
def forward(self, x):
    x = self.one.forward(torch.matmul(x, self.head))
    return torch.matmul(x, self.head).square().sum()
)");
  Recomputed run(net);
  CHECK(run.model->facts.table.units.size() == 2);
  auto expected = run.plain_step({rows()});
  expected.gradients.erase("one.weight");  // the same tensor by its other name
  run.gathered->forget();
  test::check_same(run.step({rows()}), expected);
}

TEST_CASE("a recomputed unit without influence of its parameters hands over no gradients",
          "[runtime][model][recomputation]") {
  auto run = of_two(make_layer("def forward(self, x):\n    return torch.matmul(x, self.weight.detach()) * 2\n"));
  const auto events = run.check_step({rows()});
  CHECK(std::count(events.begin(), events.end(), "take one") == 1);
}

TEST_CASE("a number of checkpoints splits the units into segments that are recomputed as a whole",
          "[runtime][model][recomputation]") {
  auto run = of_five(make_layer(), 2);
  CHECK(run.summary == "activation_checkpointing: 5 of 5 blocks are recomputed in backward, in 2 groups");
  CHECK(backward_of(run) == Events{"infer four", "release four", "again five", "take five", "prepare four",  //
                                   "take four", "infer one", "release one", "infer two", "release two", "again three",
                                   "take three", "prepare two", "take two", "prepare one", "take one"});
}

TEST_CASE("segments of a given size hold so many units each, the last one the rest",
          "[runtime][model][recomputation]") {
  auto run = of_five(make_layer(), RecomputationOptions{.units_per_group = 2});
  CHECK(run.summary == "activation_checkpointing: 5 of 5 blocks are recomputed in backward, in 3 groups");
  CHECK(backward_of(run) == Events{"again five", "take five", "infer three", "release three", "again four", "take four",
                                   "prepare three", "take three", "infer one", "release one", "again two", "take two",
                                   "prepare one", "take one"});
  auto all = of_five(make_layer(), RecomputationOptions{.units_per_group = 9});
  CHECK_THAT(all.summary, Catch::EndsWith("5 of 5 blocks are recomputed in backward, in 1 groups"));
  auto by_number = of_five(make_layer(), 1);
  CHECK(backward_of(all) == backward_of(by_number));
}

TEST_CASE("as many checkpoints as units, or more, are one for each", "[runtime][model][recomputation]") {
  for (const int64_t number : {5, 6, 1000}) {
    auto run = of_five(make_layer(), number);
    CHECK(run.summary == "activation_checkpointing: 5 of 5 blocks are recomputed in backward");
    CHECK(backward_of(run) == Events{"again five", "take five", "again four", "take four", "again three", "take three",
                                     "again two", "take two", "again one", "take one"});
  }
}

TEST_CASE("of a segment only the first input stays in memory between forward and backward",
          "[runtime][model][recomputation]") {
  const auto bytes_until_backward = [](int64_t number) {
    auto run = of_five(make_layer(), number);
    LiveBytes live;
    const auto loss = run.forward({rows()});
    const int64_t bytes = live.bytes();
    loss.backward();
    return bytes;
  };
  const auto bytes_of_input = static_cast<int64_t>(rows().nbytes());
  CHECK(bytes_until_backward(5) - bytes_until_backward(2) == 3 * bytes_of_input);
  CHECK(bytes_until_backward(5) - bytes_until_backward(1) == 4 * bytes_of_input);
}

TEST_CASE("segments give the bits of plain autograd, whatever their units do", "[runtime][model][recomputation]") {
  const char* const layers[] = {
      // random numbers
      "def forward(self, x):\n    return torch.dropout(torch.matmul(x, self.weight), 0.5, True) * torch.rand_like(x)\n",
      // a change of its argument, which is the output of the unit before
      "def forward(self, x):\n    x.mul_(self.weight[0])\n    return torch.matmul(x, self.weight)\n",
      "def forward(self, x):\n    return self.weight[:3] * x.sum()\n",
      // a view of its argument
      "def forward(self, x):\n    return x.view([4, 3]).view([3, 4])\n",
      // its argument
      "def forward(self, x):\n    return x\n",
      // nothing of it reaches the parameters
      "def forward(self, x):\n    return torch.matmul(x, self.weight.detach()) * 2\n",
      // nothing reaches its argument
      "def forward(self, x):\n    return torch.matmul(x.detach(), self.weight)\n",
  };
  for (const char* layer : layers) {
    CAPTURE(layer);
    for (const int64_t number : {1, 2, 3}) of_five(make_layer(layer), number).check_step({rows()});
  }
}

TEST_CASE("a view of a parameter, which is not there any more, is passed on in a segment",
          "[runtime][model][recomputation]") {
  Recomputed run(
      make_net("def forward(self, x):\n"
               "    return self.two.forward(self.one.forward(x * self.scale)).square().sum()\n",
               {{"one", make_layer("def forward(self, x):\n    return self.weight[:3]\n")}, {"two", make_layer()}}),
      {.number_checkpoints = 1});
  const auto expected = run.plain_step({rows()});
  run.gathered->forget();
  test::check_same(run.step({rows()}), expected);
}

TEST_CASE("units of a segment write their state once, and read what their first forward read",
          "[runtime][model][recomputation]") {
  Module layer("Block");
  test::add_parameter(layer, "weight", {4, 4});
  layer.register_buffer("mean", at::zeros({4}));
  layer.register_buffer("calls", at::ones({}));
  layer.define(R"(
def forward(self, x):
    self.calls.add_(1)
    x = torch.matmul(x, self.weight) * self.calls + self.mean
    self.mean.copy_(x.detach().mean(0))
    return x
)");
  auto run = of_five(layer, 2);
  run.check_step({rows()});
  for (const auto& [name, value] : run.model->tensors.buffers()) {
    INFO(name);
    CHECK(at::equal(value, run.buffers_of_plain.at(name)));
  }
}

TEST_CASE("frozen units are part of a segment", "[runtime][model][recomputation]") {
  const auto frozen = make_layer(test::kTanhLayer, "Frozen", false);
  Recomputed run(make_net(kFiveInTurn, {{"one", make_layer()},
                                        {"two", frozen},
                                        {"three", make_layer()},
                                        {"four", frozen.deepcopy()},
                                        {"five", make_layer()}}),
                 {.number_checkpoints = 2}, {"Block", "Frozen"}, /*gives_frozen=*/true);
  CHECK_THAT(run.summary, Catch::Contains("5 of 5 blocks"));
  run.check_step({rows()});
}

TEST_CASE("a unit of a segment that is given something else than the output before it saves that",
          "[runtime][model][recomputation]") {
  const auto net = [](const char* between) {
    return make_net(std::string("def forward(self, x):\n    y = self.one.forward(x * self.scale)\n    z = ") + between +
                        "\n    return z.sum() + y.square().sum()\n",
                    {{"one", make_layer()}, {"two", make_layer()}});
  };
  SECTION("another tensor") {
    Recomputed run(net("self.two.forward(y * 2)"), {.number_checkpoints = 1});
    CHECK(backward_of(run) == Events{"again two", "take two", "again one", "take one"});
  }
  SECTION("the output of a unit before that") {
    const auto layer = make_layer("def forward(self, x):\n    return torch.matmul(x, self.weight) + 1\n");
    Recomputed run(make_net(R"(
def forward(self, x):
    y = self.one.forward(x * self.scale)
    z = self.two.forward(y)
    return (self.three.forward(y) + z).sum()
)",
                            {{"one", layer}, {"two", layer.deepcopy()}, {"three", layer.deepcopy()}}),
                   {.number_checkpoints = 1});
    CHECK(backward_of(run) == Events{"again three", "take three", "infer one", "release one", "again two", "take two",
                                     "prepare one", "take one"});
  }
  SECTION("the output, changed") {
    const auto layer = make_layer("def forward(self, x):\n    return torch.matmul(x, self.weight) + 1\n");
    Recomputed run(make_net(R"(
def forward(self, x):
    y = self.one.forward(x * self.scale)
    y.mul_(2)
    return self.two.forward(y).sum()
)",
                            {{"one", layer}, {"two", layer.deepcopy()}}),
                   {.number_checkpoints = 1});
    CHECK(backward_of(run) == Events{"again two", "take two", "again one", "take one"});
  }
  SECTION("the first unit again") {
    Recomputed run(make_net("def forward(self, x):\n    y = self.one.forward(x * self.scale)\n"
                            "    y = self.two.forward(self.two.forward(y))\n    return y.sum()\n",
                            {{"one", make_layer()}, {"two", make_layer()}}),
                   {.number_checkpoints = 1});
    CHECK(backward_of(run) == Events{"again two", "take two", "infer one", "release one", "again two", "take two",
                                     "prepare one", "take one"});
  }
}

TEST_CASE("units of a segment may pass on several values, and one of them unchanged",
          "[runtime][model][recomputation]") {
  const auto layer = make_layer(R"(
def forward(self, x, y: Tuple[Tensor, Tensor]):
    z = torch.matmul(x, self.weight) * y[0]
    return z, (y[1], z.sum())
)");
  Recomputed run(make_net(R"(
def forward(self, x):
    x = x * self.scale
    y, more = self.one.forward(x, (x, x * 2))
    y, more = self.two.forward(y, more)
    y, more = self.three.forward(y, more)
    return y.sum() + more[0].sum() + more[1]
)",
                          {{"one", layer}, {"two", layer.deepcopy()}, {"three", layer.deepcopy()}}),
                 {.number_checkpoints = 1});
  run.check_step({rows()});
}

TEST_CASE("a segment whose last output is not used is recomputed as far as backward reaches",
          "[runtime][model][recomputation]") {
  const auto layer = make_layer();
  Recomputed run(make_net(R"(
def forward(self, x):
    y = self.one.forward(x * self.scale)
    z = self.two.forward(y)
    self.three.forward(z)
    return z.sum()
)",
                          {{"one", layer}, {"two", layer.deepcopy()}, {"three", layer.deepcopy()}}),
                 {.number_checkpoints = 1});
  const auto expected = run.plain_step({rows()});
  test::check_same(run.step({rows()}), expected);
}

TEST_CASE("units that cannot be recomputed are named with the reason, and run without",
          "[runtime][model][recomputation]") {
  SECTION("a list that grows") {
    const auto layer = make_layer(
        "def forward(self, x, seen: List[Tensor]):\n    seen.append(x)\n    return torch.matmul(x, self.weight)\n");
    Recomputed run(make_net("def forward(self, x):\n    return (self.one.forward(x, [x]) * self.scale).sum()\n",
                            {{"one", layer}, {"two", make_layer()}}));
    CHECK(run.summary ==
          "activation_checkpointing: 0 of 1 blocks are recomputed in backward; not 'one': it changes a list or dict "
          "argument");
    const auto events = run.check_step({rows()});
    CHECK(std::count(events.begin(), events.end(), "prepare one") == 1);
  }
  SECTION("gradients in a unit's forward") {
    const auto layer = make_layer(R"(
def forward(self, x):
    slope = torch.grad([torch.matmul(x, self.weight).sum()], [x], None, True, True)[0]
    y = torch.matmul(x, self.weight)
    if slope is not None:
        y = y + slope
    return y
)");
    Recomputed run(
        make_net("def forward(self, x):\n    return self.one.forward(x * self.scale).sum()\n", {{"one", layer}}));
    CHECK_THAT(run.summary, Catch::Contains("not 'one': it computes gradients itself"));
    run.check_step({rows()});
  }
  SECTION("gradients in the model's forward") {
    Recomputed run(make_net(R"(
def forward(self, x):
    x = x * self.scale
    y = self.one.forward(x).sum()
    slope = torch.grad([y], [x], None, True, True)[0]
    if slope is not None:
        y = y + slope.square().sum()
    return y
)",
                            {{"one", make_layer()}}));
    CHECK_THAT(run.summary, Catch::Contains("not 'one': the model computes gradients in its forward"));
    run.check_step({rows()});
  }
}

TEST_CASE("a model whose units are single layers has nothing to recompute", "[runtime][model][recomputation]") {
  Module net("Net");
  Module head("Head");
  test::add_parameter(head, "weight", {4, 1 << 14});  // large enough for a unit
  head.define("def forward(self, x):\n    return torch.matmul(x, self.weight)\n");
  net.register_module("head", head);
  net.define("def forward(self, x):\n    return self.head.forward(x).sum()\n");
  ModelRun run(net);
  REQUIRE(run.model->facts.table.units.size() == 2);
  CHECK_THAT(run.model->runnable->set_recomputation({}), Catch::Contains("has no effect"));
  run.check_step({rows()});
}

TEST_CASE("saved inputs may lie in one buffer, or on the host", "[runtime][model][recomputation]") {
  auto run = of_two(make_layer(), {.cpu_checkpointing = true, .contiguous_memory = true, .synchronize = true});
  for (int step = 0; step < 3; ++step) run.check_step({rows() + step});
}

TEST_CASE("a profile counts the calls since the last one", "[runtime][model][recomputation]") {
  auto run = of_two(make_layer(), {.profile = true});
  run.step({rows()});
  CHECK_THAT(run.model->runnable->take_recomputation_profile(), Catch::StartsWith("recomputation: 2 calls | forward "));
  CHECK_THAT(run.model->runnable->take_recomputation_profile(),
             Catch::StartsWith("recomputation: 0 calls | forward 0.00"));
  auto without = of_two(make_layer());
  without.step({rows()});
  CHECK(without.model->runnable->take_recomputation_profile().empty());
  CHECK(ModelRun(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}}))
            .model->runnable->take_recomputation_profile()
            .empty());
}

TEST_CASE("backward through a recomputed call is possible once", "[runtime][model][recomputation]") {
  auto run = of_two(make_layer());
  const auto loss = run.forward({rows()});
  loss.backward({}, /*retain_graph=*/true);
  CHECK_THROWS_WITH(loss.backward(), Catch::Contains("a recomputed call passes through backward once"));
}

TEST_CASE("a gather that fails in a recomputation keeps its error, and state and slots are as before",
          "[runtime][model][recomputation]") {
  struct LostPeer : GatheredUnits {
    using GatheredUnits::GatheredUnits;
    UnitValues acquire(int unit, UnitCall call) override {
      auto values = GatheredUnits::acquire(unit, call);
      if (events.back() == "again one") throw PeerError(3, "far", "all_gather", "it was killed");
      return values;
    }
  };
  auto run =
      of_two(make_layer("def forward(self, x):\n    return torch.dropout(torch.matmul(x, self.weight), 0.5, True)\n"));
  LostPeer lost(*run.model);
  run.model->runnable->set_unit_parameters(&lost);
  const auto loss = run.forward({rows()});
  const auto random = device::save_random_state(at::kCPU);
  CHECK_THROWS_AS(loss.backward(), PeerError);
  CHECK(at::equal(device::save_random_state(at::kCPU), random));
  CHECK_FALSE(run.is_in_slot("two.weight"));
  CHECK(lost.events.back() == "again one");
}

TEST_CASE("without gradients nothing is kept for a recomputation", "[runtime][model][recomputation]") {
  auto run = of_two(make_layer());
  at::NoGradGuard no_grad;
  run.forward({rows()});
  CHECK(run.gathered->events ==
        Events{"infer root", "infer one", "release one", "infer two", "release two", "release root"});
}

TEST_CASE("parts of one tensor overlap where they have an element in common", "[runtime][model][recomputation]") {
  using recomputation::may_overlap;
  const auto base = at::zeros({4, 6});
  CHECK_FALSE(may_overlap(base.narrow(1, 0, 3), base.narrow(1, 3, 3)));
  CHECK_FALSE(may_overlap(base.narrow(0, 0, 2), base.narrow(0, 2, 2)));
  CHECK(may_overlap(base.narrow(1, 0, 4), base.narrow(1, 3, 3)));
  CHECK(may_overlap(base.narrow(0, 1, 2), base.narrow(0, 2, 2)));
  CHECK(may_overlap(base, base[0]));  // strides differ: not known
  CHECK_FALSE(may_overlap(base.narrow(0, 0, 0), base));
  CHECK_FALSE(may_overlap(base.select(1, 0), base.select(1, 1)));
}

TEST_CASE("tensors in a value are replaced, the rest stays what it is", "[runtime][model][recomputation]") {
  using recomputation::map_tensors;
  const auto twice = [](const at::Tensor& tensor) { return tensor * 2; };
  c10::List<at::Tensor> list;
  list.push_back(at::ones({1}));
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("a", at::ones({1}));
  const c10::IValue tuple = c10::ivalue::Tuple::create({c10::IValue(list), c10::IValue(dict), c10::IValue(5)});
  const auto mapped = map_tensors(tuple, twice).toTuple()->elements();
  CHECK(mapped[0].toTensorVector()[0].item<float>() == 2);
  CHECK(mapped[1].toGenericDict().at("a").toTensor().item<float>() == 2);
  CHECK(mapped[2].toInt() == 5);
  CHECK_FALSE(map_tensors(c10::IValue(at::Tensor()), twice).toTensor().defined());
  CHECK(list.get(0).item<float>() == 1);
  CHECK_FALSE(recomputation::is_differentiable(at::ones({1}, at::kLong)));
  CHECK_FALSE(recomputation::is_differentiable({}));
  CHECK(recomputation::is_differentiable(at::ones({1}, at::kBFloat16)));
}
