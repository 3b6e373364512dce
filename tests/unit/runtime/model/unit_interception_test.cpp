// When a unit's parameters are gathered and released around its calls and in backward; between, they are NaN.
#include "runtime/model/torchscript/unit_interception.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "script_fixtures.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;
using test::Events;
using test::GatheredUnits;
using test::make_layer;
using test::make_net;
using test::ModelRun;
using torch::jit::Module;

namespace {

constexpr char kTwoInTurn[] = R"(
def forward(self, x):
    x = self.one.forward(x)
    x = self.two.forward(x)
    return (x * self.scale).sum()
)";

// What a root with parameters of its own does around its units.
Events within_root(Events forward, const Events& backward) {
  forward.insert(forward.begin(), "train root");
  forward.insert(forward.end(), {"release root", "prepare root"});
  forward.insert(forward.end(), backward.begin(), backward.end());
  forward.emplace_back("take root");
  return forward;
}

at::Tensor rows() {
  return at::linspace(-1, 1, 12).view({3, 4});
}

}  // namespace

TEST_CASE("a unit is gathered around its call, and again from its outputs to its inputs in backward",
          "[runtime][model][interception]") {
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}}));
  CHECK(run.check_step({rows()}) == within_root({"train one", "release one", "train two", "release two"},
                                                {"prepare two", "take two", "prepare one", "take one"}));
  CHECK_FALSE(run.is_in_slot("one.weight"));
  CHECK_FALSE(run.is_in_slot("scale"));
}

TEST_CASE("a unit that is called twice is gathered for each call, in both directions",
          "[runtime][model][interception]") {
  ModelRun run(make_net(R"(
def forward(self, x):
    x = self.one.forward(x)
    x = self.two.forward(x)
    x = self.one.forward(x)
    return (x * self.scale).sum()
)",
                        {{"one", make_layer()}, {"two", make_layer()}}));
  CHECK(run.check_step({rows()}) ==
        within_root({"train one", "release one", "train two", "release two", "train one", "release one"},
                    {"prepare one", "take one", "prepare two", "take two", "prepare one", "take one"}));
}

TEST_CASE("of units in branches only those that run are gathered", "[runtime][model][interception]") {
  ModelRun run(make_net(R"(
def forward(self, x):
    if bool(x.sum() > 0):
        x = self.one.forward(x)
    else:
        x = self.two.forward(x)
    return (x * self.scale).sum()
)",
                        {{"one", make_layer()}, {"two", make_layer()}}));
  const auto only = [](const std::string& unit) {
    return within_root({"train " + unit, "release " + unit}, {"prepare " + unit, "take " + unit});
  };
  CHECK(run.check_step({rows() + 1}) == only("one"));
  CHECK(run.check_step({rows() - 1}) == only("two"));
}

TEST_CASE("a unit in a loop is gathered once for each time round", "[runtime][model][interception]") {
  ModelRun run(make_net(R"(
def forward(self, x, times):
    for i in range(int(times)):
        x = self.one.forward(x)
    return (x * self.scale).sum()
)",
                        {{"one", make_layer()}, {"two", make_layer()}}),
               {"one"});
  for (const int64_t times : {0, 1, 3}) {
    Events forward, backward;
    for (int64_t i = 0; i < times; ++i) {
      forward.insert(forward.end(), {"train one", "release one"});
      backward.insert(backward.end(), {"prepare one", "take one"});
    }
    CHECK(run.check_step({rows(), at::tensor(times)}) == within_root(forward, backward));
  }
}

TEST_CASE("a unit inside a unit belongs to the outer one", "[runtime][model][interception]") {
  const auto outer = [] {
    Module module("Outer");
    module.register_module("inner", make_layer(test::kTanhLayer, "Inner"));
    test::add_parameter(module, "weight", {4, 4});
    module.define("def forward(self, x):\n    return torch.matmul(self.inner.forward(x), self.weight)\n");
    return module;
  };
  const auto found = within_root({"train one", "release one", "train two", "release two"},
                                 {"prepare two", "take two", "prepare one", "take one"});
  const auto net = make_net(kTwoInTurn, {{"one", outer()}, {"two", outer()}});
  CHECK(ModelRun(net).check_step({rows()}) == found);
  CHECK(ModelRun(net, {"Outer", "two"}).check_step({rows()}) == found);
}

TEST_CASE("another instance of a unit's class runs with the parameters of the unit around it",
          "[runtime][model][interception]") {
  const auto layer = make_layer();
  auto other = layer.deepcopy();  // of the same class
  other.setattr("weight", (at::randn({4, 4}) * 0.5).requires_grad_(true));
  ModelRun run(make_net(kTwoInTurn, {{"one", layer}, {"two", other}}), {"one"});
  CHECK(run.check_step({rows()}) == within_root({"train one", "release one"}, {"prepare one", "take one"}));
}

TEST_CASE("without gradients a unit is gathered for its call only", "[runtime][model][interception]") {
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}}));
  const auto expected = run.plain_step({rows()});
  at::NoGradGuard no_grad;
  const auto loss = run.forward({rows()});
  CHECK_FALSE(loss.requires_grad());
  CHECK(at::equal(loss, expected.loss));
  CHECK(run.gathered->take_events() ==
        Events{"infer root", "infer one", "release one", "infer two", "release two", "release root"});
}

TEST_CASE("a forward that fails clears all slots, releases nothing, and the next one works",
          "[runtime][model][interception]") {
  const auto checked = make_layer(R"(
def forward(self, x):
    assert bool(x.sum() < 100), "too large"
    return torch.matmul(x, self.weight)
)");
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", checked}}));
  test::expect_error(ExitCode::kBadInput, {"forward of", "too large", "Float[3, 4]"},
                     [&] { run.forward({rows() + 1000}); });
  CHECK(run.gathered->events == Events{"train root", "train one", "release one", "train two"});
  for (const char* name : {"scale", "one.weight", "two.weight"}) CHECK_FALSE(run.is_in_slot(name));
  run.check_step({rows()});
}

TEST_CASE("an error of a gather in forward ends the call there", "[runtime][model][interception]") {
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}}));
  struct LostPeer : GatheredUnits {
    using GatheredUnits::GatheredUnits;
    UnitValues acquire(int unit, UnitCall call) override {
      auto values = GatheredUnits::acquire(unit, call);
      if (events.back() == "train two") throw PeerError(3, "far", "all_gather", "it was killed");
      return values;
    }
  } lost(*run.model);
  run.model->runnable->set_unit_parameters(&lost);
  CHECK_THROWS_AS(run.forward({rows()}), PeerError);
  CHECK(lost.events == Events{"train root", "train one", "release one", "train two"});
  for (const char* name : {"scale", "one.weight"}) CHECK_FALSE(run.is_in_slot(name));
}

TEST_CASE("an error in backward keeps its type and ends backward there", "[runtime][model][interception]") {
  struct LostPeer : GatheredUnits {
    using GatheredUnits::GatheredUnits;
    void prepare_backward(int unit) override {
      GatheredUnits::prepare_backward(unit);
      if (events.back() == at_event) throw PeerError(3, "far", "all_gather", "it was killed");
    }
    void take_gradients(int unit, std::vector<at::Tensor> of_unit) override {
      GatheredUnits::take_gradients(unit, std::move(of_unit));
      if (events.back() == at_event) throw PeerError(3, "far", "reduce_scatter", "it was killed");
    }
    std::string at_event;
  };
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", make_layer()}}));
  for (const char* at_event : {"prepare two", "take two"}) {
    LostPeer lost(*run.model);
    lost.at_event = at_event;
    run.model->runnable->set_unit_parameters(&lost);
    const auto loss = run.forward({rows()});
    CHECK_THROWS_AS(loss.backward(), PeerError);
    CHECK(lost.events.back() == at_event);
  }
}

TEST_CASE("the unit stays gathered when an output is a view of a parameter", "[runtime][model][interception]") {
  const auto table = make_layer("def forward(self, x):\n    return self.weight[1]\n", "Table");
  ModelRun run(make_net(R"(
def forward(self, x):
    row = self.one.forward(x)
    x = self.two.forward(x)
    return (x * row * self.scale).sum()
)",
                        {{"one", table}, {"two", make_layer()}}),
               {"one", "two"});
  const auto expected = run.plain_step({rows()});
  run.gathered->forget();
  test::check_same(run.step({rows()}), expected);
  const auto events = run.gathered->take_events();
  CHECK(std::count(events.begin(), events.end(), "release one") == 0);
  CHECK(std::count(events.begin(), events.end(), "take one") == 1);
}

TEST_CASE("what a unit changes in its arguments counts as its output", "[runtime][model][interception]") {
  SECTION("in place") {
    const auto in_place = make_layer(
        "def forward(self, x):\n    x.mul_(torch.matmul(x.detach().clone(), self.weight))\n    return x.sum()\n");
    ModelRun run(make_net(R"(
def forward(self, x):
    x = x * self.scale
    ignored = self.one.forward(x)
    return x.square().sum()
)",
                          {{"one", in_place}}),
                 {"one"});
    CHECK(run.check_step({rows()}) == within_root({"train one", "release one"}, {"prepare one", "take one"}));
  }
  SECTION("in place through a view") {
    const auto in_place = make_layer("def forward(self, x):\n    x.view(-1)[:4].mul_(self.weight[0])\n    return x\n");
    ModelRun run(make_net(R"(
def forward(self, x):
    x = x * self.scale
    return self.one.forward(x).square().sum()
)",
                          {{"one", in_place}}),
                 {"one"});
    CHECK(run.check_step({rows()}) == within_root({"train one", "release one"}, {"prepare one", "take one"}));
  }
  SECTION("in a list") {
    const auto appends = make_layer(R"(
def forward(self, x, seen: List[Tensor]):
    seen.append(torch.matmul(x, self.weight))
    return x
)");
    ModelRun run(make_net(R"(
def forward(self, x):
    seen = [x]
    y = self.one.forward(x, seen)
    return (seen[1] * self.scale).sum()
)",
                          {{"one", appends}}),
                 {"one"});
    CHECK(run.check_step({rows()}) == within_root({"train one", "release one"}, {"prepare one", "take one"}));
  }
  SECTION("in a dict") {
    const auto inserts = make_layer(R"(
def forward(self, x, seen: Dict[str, Tensor]):
    seen["y"] = torch.matmul(x, self.weight)
    return x
)");
    ModelRun run(make_net(R"(
def forward(self, x):
    seen = {"x": x}
    y = self.one.forward(x, seen)
    return (seen["y"] * self.scale).sum()
)",
                          {{"one", inserts}}),
                 {"one"});
    CHECK(run.check_step({rows()}) == within_root({"train one", "release one"}, {"prepare one", "take one"}));
  }
}

TEST_CASE("an output that is a view leads into its unit's backward though it is changed in place afterwards",
          "[runtime][model][interception]") {
  const auto layer = make_layer("def forward(self, x):\n    return torch.matmul(x, self.weight)[:, :2]\n");
  ModelRun run(make_net(R"(
def forward(self, x):
    y = self.one.forward(x * self.scale)
    y.mul_(2)
    return y.sum()
)",
                        {{"one", layer}}),
               {"one"});
  const auto events = run.check_step({rows()});
  CHECK(std::count(events.begin(), events.end(), "prepare one") == 1);
}

TEST_CASE("outputs in tuples, lists and dicts lead into a unit's backward", "[runtime][model][interception]") {
  const std::vector<std::pair<std::string, std::string>> returned{
      {"y, x", "y, z = self.one.forward(x)"},
      {"[x, y]", "y = self.one.forward(x)[1]"},
      {"{\"y\": y}", "y = self.one.forward(x)[\"y\"]"},
  };
  for (const auto& [result, call] : returned) {
    CAPTURE(result);
    const auto layer =
        make_layer("def forward(self, x):\n    y = torch.matmul(x, self.weight)\n    return " + result + "\n");
    ModelRun run(
        make_net("def forward(self, x):\n    " + call + "\n    return (y * self.scale).sum()\n", {{"one", layer}}),
        {"one"});
    CHECK(run.check_step({rows()}) == within_root({"train one", "release one"}, {"prepare one", "take one"}));
  }
}

TEST_CASE("a call whose results do not depend on its parameters hands over no gradients, once",
          "[runtime][model][interception]") {
  const auto detached = make_layer("def forward(self, x):\n    return torch.matmul(x, self.weight.detach()) * 2\n");
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", detached}}));
  CHECK(run.check_step({rows()}) == within_root({"train one", "release one", "train two", "release two"},
                                                {"prepare two", "take two", "prepare one", "take one"}));
}

TEST_CASE("a call whose results nothing uses has no backward", "[runtime][model][interception]") {
  ModelRun run(make_net(R"(
def forward(self, x):
    unused = self.one.forward(x)
    x = self.two.forward(x)
    return (x * self.scale).sum()
)",
                        {{"one", make_layer()}, {"two", make_layer()}}));
  CHECK(run.check_step({rows()}) ==
        within_root({"train one", "release one", "train two", "release two"}, {"prepare two", "take two"}));
}

TEST_CASE("sparse gradients are handed over dense", "[runtime][model][interception]") {
  const auto table =
      make_layer("def forward(self, ids):\n    return torch.embedding(self.weight, ids, -1, False, True)\n");
  ModelRun run(make_net(R"(
def forward(self, ids):
    return (self.one.forward(ids) * self.scale).sum()
)",
                        {{"one", table}}),
               {"one"});
  run.check_step({at::tensor({0, 2, 2}, at::kLong)});
}

TEST_CASE("a forward that computes gradients itself enters a unit's backward twice and gets its gradients once",
          "[runtime][model][interception]") {
  ModelRun run(make_net(R"(
def forward(self, x):
    x = (x * 1).requires_grad_()
    y = self.one.forward(x)
    slope = torch.grad([y.sum()], [x], None, True, True)[0]
    total = (y * self.scale).sum()
    if slope is not None:
        total = total + slope.square().sum()
    return total
)",
                        {{"one", make_layer()}, {"two", make_layer()}}),
               {"one"});
  const auto events = run.check_step({rows()});
  CHECK(std::count(events.begin(), events.end(), "prepare one") == 1);
  CHECK(std::count(events.begin(), events.end(), "take one") == 1);
}

TEST_CASE("frozen parameters are gathered in both directions where backward passes through them",
          "[runtime][model][interception]") {
  const auto frozen = make_layer(test::kTanhLayer, "Block", /*trains=*/false);
  SECTION("on the way to a trained unit") {
    ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", frozen}}), {"one", "two"}, /*gives_frozen=*/true);
    CHECK(run.check_step({rows()}) == within_root({"train one", "release one", "train two", "release two"},
                                                  {"prepare two", "take two", "prepare one", "take one"}));
    CHECK_FALSE(run.is_in_slot("two.weight"));
  }
  SECTION("not before all trained units") {
    ModelRun run(make_net(kTwoInTurn, {{"one", frozen}, {"two", make_layer()}}), {"one", "two"}, /*gives_frozen=*/true);
    CHECK(run.check_step({rows()}) ==
          within_root({"infer one", "release one", "train two", "release two"}, {"prepare two", "take two"}));
  }
  SECTION("frozen ones that the model holds stay in their slots") {
    ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", frozen}}), {"one", "two"});
    run.check_step({rows()});
    CHECK(run.is_in_slot("two.weight"));
  }
}

TEST_CASE("values that enter or leave a unit with sharded frozen parameters through an attribute are refused",
          "[runtime][model][interception]") {
  Module keeps("Frozen");
  test::add_parameter(keeps, "weight", {4, 4}, /*trains=*/false);
  keeps.register_attribute("kept", c10::TensorType::get(), at::zeros({1}));
  keeps.define("def forward(self, x):\n    self.kept = x * 2\n    return torch.matmul(x, self.weight)\n");
  ModelRun run(make_net(kTwoInTurn, {{"one", make_layer()}, {"two", keeps}}), {"one", "two"}, /*gives_frozen=*/true);
  test::expect_error(ExitCode::kBadInput, {"unit 'two' has frozen parameters", "ZeRO stage 2"},
                     [&] { run.forward({rows()}); });
  at::NoGradGuard no_grad;
  run.forward({rows()});
}

TEST_CASE("an observer sees the inputs and outputs of all calls, nested as they are",
          "[runtime][model][interception]") {
  struct Observer : UnitObserver {
    void on_enter(int unit, const std::vector<at::Tensor>& inputs) override {
      seen.push_back("enter " + std::to_string(unit) + ": " + std::to_string(inputs.size()));
    }
    void on_exit(int unit, const std::vector<at::Tensor>& outputs) override {
      seen.push_back("exit " + std::to_string(unit) + ": " + std::to_string(outputs.size()));
    }
    Events seen;
  } observer;
  const auto pair =
      make_layer("def forward(self, x, more: List[Tensor]):\n    return torch.matmul(x, self.weight), x\n");
  ModelRun run(make_net(R"(
def forward(self, x):
    y, z = self.one.forward(x, [x, x])
    return (y * self.scale).sum()
)",
                        {{"one", pair}}),
               {"one"});
  run.model->runnable->set_unit_observer(&observer);
  run.step({rows()});
  CHECK(observer.seen == Events{"enter 0: 1", "enter 1: 3", "exit 1: 2", "exit 0: 1"});
  run.model->runnable->set_unit_observer(nullptr);
  run.step({rows()});
  CHECK(observer.seen.size() == 4);
}

TEST_CASE("classes run their own graphs again when the interception is gone", "[runtime][model][interception]") {
  const auto layer = make_layer();
  const auto x = rows();
  const ParameterLocation slot{layer._ivalue(), layer.type()->getAttributeSlot("weight")};
  const auto weight = slot.get().detach();
  const auto expected = at::tanh(x.matmul(weight)) + x;
  struct OneWeight : UnitParameters {
    UnitValues acquire(int, UnitCall) override {
      num_calls += 1;
      return {{weight}, {}};
    }
    void release(int) override {}
    void prepare_backward(int) override {}
    void take_gradients(int, std::vector<at::Tensor>) override {}
    at::Tensor weight;
    int num_calls = 0;
  } parameters;
  parameters.weight = weight;
  at::NoGradGuard no_grad;
  Module again = layer;
  {
    UnitInterception interception;
    interception.intercept(layer, {.unit = 1, .name = "layer", .locations = {{slot}}});
    CHECK_THROWS_WITH(again.forward({x}), Catch::Contains("set_unit_parameters comes before the first call"));
    CHECK_THROWS_AS(interception.throw_failure(), InternalError);
    interception.throw_failure();  // only once
    interception.set_unit_parameters(&parameters);
    CHECK(at::equal(again.forward({x}).toTensor(), expected));
    CHECK(parameters.num_calls == 1);
  }
  slot.set(weight);
  CHECK(at::equal(again.forward({x}).toTensor(), expected));
  CHECK(parameters.num_calls == 1);
}
