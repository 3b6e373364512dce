// The interception against plain autograd on the same TorchScript file: same loss, bit-equal gradients, every call of a
// unit hands over its gradients once.
#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "base/error.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/initial_parameters.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;

namespace {

Module make_block(int64_t width) {
  Module block("Block");
  block.register_parameter("weight", at::randn({width, width}) * 0.3, false);
  block.register_parameter("bias", at::randn({width}), false);
  block.register_parameter("unused", at::randn({3}), false);
  block.define(R"(
    def forward(self, x):
        return torch.relu_(torch.matmul(x, self.weight) + self.bias) + x
  )");
  return block;
}

// Two blocks of one class (the first used twice), a head tied to the embedding, a frozen scale.
Module make_net() {
  torch::manual_seed(1);
  Module net("Net");
  auto table = at::randn({11, 8});
  Module embedding("Embedding");
  embedding.register_parameter("weight", table, false);
  embedding.define("def forward(self, i):\n    return torch.embedding(self.weight, i)\n");
  auto first = make_block(8);
  auto second = first.deepcopy();
  second.setattr("weight", (at::randn({8, 8}) * 0.3).requires_grad_(true));
  Module blocks("Blocks");
  blocks.register_module("0", first);
  blocks.register_module("1", second);
  blocks.define("def forward(self, x):\n    return x\n");
  net.register_module("embedding", embedding);
  net.register_module("blocks", blocks);
  net.register_parameter("scale", at::full({1}, 0.5), false);
  for (const auto& p : net.named_parameters()) p.value.set_requires_grad(p.name != "scale");
  net.define(R"(
    def forward(self, ids, labels):
        x = self.embedding.forward(ids)
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        x = getattr(self.blocks, "0").forward(x)
        logits = torch.matmul(x, self.embedding.weight.t()) * self.scale
        return torch.cross_entropy_loss(logits.view(-1, 11), labels.view(-1)), logits
  )");
  return net;
}

// Counts the calls and adds up gradients.
class PlainParameters : public test::InitialParameters {
 public:
  using InitialParameters::InitialParameters;
  UnitValues acquire(int unit, UnitCall call) override {
    calls[unit] += 1;
    return InitialParameters::acquire(unit, call);
  }
  void release(int unit) override { released[unit] += 1; }
  void prepare_backward(int unit) override { prepared[unit] += 1; }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    reduced[unit] += 1;
    CHECK(prepared[unit] == reduced[unit]);  // before its backward, and only then
    const auto& parameters = parameters_of(unit);
    REQUIRE(gradients.size() == parameters.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      auto& sum = gradient[name_of(parameters[i])];
      sum = sum.defined() ? sum + gradients[i] : gradients[i].clone();
    }
  }
  std::map<int, int> calls, released, prepared, reduced;
  std::map<std::string, at::Tensor> gradient;
};

int unit_called(const ParameterTable& table, const std::string& name) {
  for (size_t i = 0; i < table.units.size(); ++i) {
    if (table.units[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

TEST_CASE("what a unit's parameters throw in the middle of a graph keeps its type, and nothing is given back after it",
          "[runtime][model]") {
  struct LostPeer : PlainParameters {
    using PlainParameters::PlainParameters;
    UnitValues acquire(int unit, UnitCall call) override {
      if (unit > 0) throw PeerError(3, "far", "all_gather", "it was killed");
      return PlainParameters::acquire(unit, call);
    }
    void release(int) override { throw PeerError(3, "far", "all_gather", "after the first error"); }
  };
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  auto model = load_script_model(folder / "net.pt", {});
  LostPeer parameters(*model);
  model->runnable->set_unit_parameters(&parameters);
  const auto ids = at::randint(0, 11, {4, 6}, at::kLong);
  const bool trains = GENERATE(true, false);
  at::AutoGradMode mode(trains);
  try {
    model->runnable->forward({ids, ids});
    FAIL("forward went through");
  } catch (const PeerError& error) {
    CHECK(error.rank() == 3);
    CHECK_THAT(error.what(), Catch::Contains("it was killed"));
  }
}

// Keeps the last gradients; checks nothing, so any thread may use it.
class LastGradients : public test::InitialParameters {
 public:
  using InitialParameters::InitialParameters;
  void take_gradients(int unit, std::vector<at::Tensor> of_unit) override { gradients[unit] = std::move(of_unit); }
  std::map<int, std::vector<at::Tensor>> gradients;
};

// The loss, then the gradients of all units.
std::vector<at::Tensor> train_loaded_model(const std::string& path, const at::Tensor& ids) {
  std::vector<at::Tensor> out;
  auto model = load_script_model(path, {});
  LastGradients parameters(*model);
  model->runnable->set_unit_parameters(&parameters);
  model->runnable->set_recomputation({});
  for (int step = 0; step < 3; ++step) {
    out = {model->runnable->forward({ids, ids}).first};
    out[0].backward();
  }
  for (const auto& [unit, gradients] : parameters.gradients) {
    out.insert(out.end(), gradients.begin(), gradients.end());
  }
  return out;
}

TEST_CASE("models that load, run and end on several threads at once do not meet", "[runtime][model]") {
  constexpr size_t kThreads = 2, kRounds = 4;
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  const auto ids = at::randint(0, 11, {4, 6}, at::kLong);
  const auto alone = train_loaded_model(folder / "net.pt", ids);
  std::vector<std::vector<at::Tensor>> together(kThreads * kRounds);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < kRounds; ++i) {
        together[thread * kRounds + i] = train_loaded_model(folder / "net.pt", ids);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : together) {
    REQUIRE(result.size() == alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      REQUIRE(result[i].defined() == alone[i].defined());
      if (alone[i].defined()) CHECK(at::equal(result[i], alone[i]));
    }
  }
}

TEST_CASE("a second model of the same file leaves the first one's units alone", "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  const auto ids = at::randint(0, 11, {4, 6}, at::kLong);
  auto first = load_script_model(folder / "net.pt", {});
  PlainParameters parameters(*first);
  first->runnable->set_unit_parameters(&parameters);
  load_script_model(folder / "net.pt", {});  // and gone
  first->runnable->forward({ids, ids}).first.backward();
  CHECK(parameters.reduced[unit_called(first->facts.table, "blocks.1")] == 1);
}

TEST_CASE("an intercepted model gives the loss and the gradients of plain autograd bit by bit", "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  auto ids = at::randint(0, 11, {4, 6}, at::kLong), labels = at::randint(0, 11, {4, 6}, at::kLong);

  auto plain = torch::jit::load(folder / "net.pt");
  auto expected = plain.forward({ids, labels}).toTuple()->elements()[0].toTensor();
  expected.backward();

  auto model = load_script_model(folder / "net.pt", {});
  PlainParameters parameters(*model);
  model->runnable->set_unit_parameters(&parameters);
  auto result = model->runnable->forward({ids, labels});
  CHECK(result.others.size() == 1);
  result.first.backward();

  CHECK(at::equal(result.first, expected));
  const auto& table = model->facts.table;
  const int first = unit_called(table, "blocks.0"), second = unit_called(table, "blocks.1");
  REQUIRE((first > 0 && second > 0));
  CHECK(parameters.calls[first] == 2);
  CHECK(parameters.reduced[first] == 2);
  CHECK(parameters.released[first] == 2);
  CHECK(parameters.calls[second] == 1);
  CHECK(parameters.reduced[second] == 1);
  int compared = 0;
  for (const auto& p : plain.named_parameters()) {
    if (!p.value.grad().defined()) {
      CHECK(parameters.gradient.count(p.name) == 0);
      continue;
    }
    INFO(p.name);
    // Two calls are added in the order of backward, as autograd does.
    CHECK(at::equal(parameters.gradient.at(p.name), p.value.grad()));
    ++compared;
  }
  CHECK(compared == 5);
}

TEST_CASE("a parameter that is read from outside its module belongs to the root, frozen ones to no unit",
          "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  auto model = load_script_model(folder / "net.pt", {"embedding", "Block"});
  const auto& table = model->facts.table;
  for (const auto& p : table.parameters) {
    if (p.name == "embedding.weight") CHECK(p.unit == 0);
    if (p.name == "scale") CHECK_FALSE(p.trainable);
    if (p.name == "blocks.1.bias") CHECK(table.units[p.unit].name == "blocks.1");
  }
}

TEST_CASE("ids and labels get their bounds from the graph", "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  auto limits = load_script_model(folder / "net.pt", {})->facts.index_limits;
  REQUIRE(limits.size() >= 1);
  CHECK(limits[0].input == 0);
  CHECK(limits[0].bound == 11);
  CHECK_FALSE(limits[0].ignored);
}

namespace {

// The limits of a forward over (ids, labels) with two tables and a layer.
std::vector<IndexLimit> limits_in(const std::string& forward) {
  test::TempDir folder;
  Module net("Net");
  net.register_parameter("small", at::zeros({5, 3}), false);
  net.register_parameter("large", at::zeros({50, 3}), false);
  net.register_parameter("layer", at::zeros({7, 3}), false);
  net.register_attribute("padding", c10::IntType::get(), 255);
  net.define(forward);
  net.save(folder / "net.pt");
  return load_script_model(folder / "net.pt", {})->facts.index_limits;
}

}  // namespace

TEST_CASE("columns of an array that go to tables of their own have bounds of their own", "[runtime][model]") {
  const auto limits = limits_in(R"(
    def forward(self, ids, labels):
        a = torch.embedding(self.small, ids[:, 0])
        b = torch.embedding(self.large, ids[:, 1:-1].long().view(-1))
        c = torch.embedding(self.small, ids[..., -1])
        d = torch.embedding(self.small, ids.view(-1)[1:])
        return a.sum() + b.sum() + c.sum() + d.sum()
  )");
  REQUIRE(limits.size() == 3);  // where the last one's indices stand in the batch is not to be known
  CHECK(limits[0].bound == 5);
  CHECK((limits[0].range.dim == 1 && limits[0].range.begin == 0 && limits[0].range.end == 1));
  CHECK(limits[1].bound == 50);
  CHECK((limits[1].range.dim == 1 && limits[1].range.begin == 1 && limits[1].range.end == -1));
  CHECK((limits[2].range.dim == -1 && limits[2].range.begin == -1 && !limits[2].range.is_all()));
}

TEST_CASE("labels may be what the loss ignores", "[runtime][model]") {
  for (const auto& [given, ignored] : std::map<std::string, int64_t>{{"-1", -1}, {"self.padding", 255}}) {
    const auto limits = limits_in(R"(
    def forward(self, x, labels):
        logits = torch.linear(x, self.layer)
        return torch.cross_entropy_loss(logits.view(-1, logits.size(-1)), labels.view(-1), None, 1, )" +
                                  given + ")\n");
    REQUIRE(limits.size() == 1);
    CHECK(limits[0].input == 1);
    CHECK(limits[0].bound == 7);
    CHECK(limits[0].ignored == ignored);
  }
}

TEST_CASE("labels that forward shifts are told from those that it takes as they are", "[runtime][model]") {
  const auto labels_in = [](const std::string& given) {
    test::TempDir folder;
    Module net("Net");
    net.register_parameter("layer", at::zeros({7, 3}), false);
    net.define("def forward(self, x, labels):\n    logits = torch.linear(x, self.layer)\n    given = " + given +
               "\n    return torch.cross_entropy_loss(logits.view(-1, 7), given.reshape(-1), None, 1, -100)\n");
    net.save(folder / "net.pt");
    const auto model = load_script_model(folder / "net.pt", {});
    CHECK(model->facts.index_limits.size() == 1);
    return model->facts.labels;
  };
  CHECK(labels_in("labels[:, 1:]") == LabelConvention::kSame);
  CHECK(labels_in("labels[..., 1:].contiguous()") == LabelConvention::kSame);
  CHECK(labels_in("torch.pad(labels, [0, 1], \"constant\", -100.0)[:, 1:]") == LabelConvention::kSame);
  CHECK(labels_in("labels") == LabelConvention::kNotRecorded);
  CHECK(labels_in("labels[1:]") == LabelConvention::kNotRecorded);
  CHECK(labels_in("labels[:, 1:-1]") == LabelConvention::kNotRecorded);
  CHECK(labels_in("torch.pad(labels, [0, 1], \"constant\", -100.0)") == LabelConvention::kNotRecorded);
}

TEST_CASE("indices that forward changes on their way to the table give no bound", "[runtime][model]") {
  const std::vector<std::string> changes = {
      "x = ids.clone()\n        x.clamp_(0)",
      "x = ids.clone()\n        x[:, :2].masked_fill_(x[:, :2] < 0, 0)",
      "x = ids.view(-1)\n        ids.clamp_(0)",
      "x = ids\n        if bool((x < 0).any()):\n            x = x.clamp(0)",
      "x = ids\n        if self.padding > 0:\n            x = x % 5",
      "x = ids\n        if ids.dim() == 2 and bool((x < 0).any()):\n            return torch.embedding(self.small, x % "
      "5).sum()",
  };
  for (const std::string& change : changes) {
    CAPTURE(change);
    CHECK(limits_in("def forward(self, ids, labels):\n        " + change +
                    "\n        return torch.embedding(self.small, x).sum()\n")
              .empty());
  }
  // Nor do tables that only some samples go to.
  CHECK(limits_in(R"(
    def forward(self, ids, labels):
        out = torch.zeros(1)
        if int(ids.max()) < 5:
            out = torch.embedding(self.small, ids)
        return out
  )")
            .empty());
  CHECK(limits_in(R"(
    def forward(self, ids, labels):
        x = ids
        if ids.dim() == 1:
            x = ids.view(-1)
        out = torch.embedding(self.small, x)
        if ids.dim() == 2:
            out += torch.embedding(self.large, labels)
        return out
  )")
            .size() == 2);
  // A copy of another type is not a view.
  CHECK(limits_in(R"(
    def forward(self, ids, labels):
        weights = ids.float()
        weights.div_(5)
        return torch.embedding(self.small, ids) * weights.unsqueeze(-1)
  )")
            .size() == 1);
}

TEST_CASE("branches in a row take no time that doubles with each", "[runtime][model]") {
  std::string forward =
      "def forward(self, ids, labels):\n        x = ids\n        choices = torch.linear(x, self.layer)\n";
  for (int i = 0; i < 60; ++i) {
    forward += "        if x.dim() == 1:\n            x = x.unsqueeze(0)\n";
    forward += "        if x.dim() == 2:\n            choices = choices.clone()\n";
  }
  forward += "        return torch.embedding(self.small, x).sum() + torch.cross_entropy_loss(choices, labels)\n";
  CHECK(limits_in(forward).size() <= 2);
}

TEST_CASE("logits that are capped, scaled or dropped keep their classes", "[runtime][model]") {
  const auto limits = limits_in(R"(
    def forward(self, x, labels):
        choices = torch.linear(x, self.layer)
        if self.padding > 0:
            choices = torch.tanh(choices / 30.0) * 30.0
        if self.padding > 1:
            choices = torch.dropout(choices, 0.1, True)
        return torch.cross_entropy_loss(choices, labels)
  )");
  REQUIRE(limits.size() == 1);
  CHECK(limits[0].bound == 7);
}

TEST_CASE("a layer's outputs that become other classes give labels no bound", "[runtime][model]") {
  CHECK(limits_in(R"(
    def forward(self, x, labels):
        choices = torch.linear(x, self.layer).view(-1, 14)
        return torch.cross_entropy_loss(choices, labels)
  )")
            .empty());
  CHECK(limits_in(R"(
    def forward(self, x, labels):
        choices = torch.linear(x, self.layer)
        if self.padding > 0:
            choices = torch.cat([choices, choices], 1)
        return torch.cross_entropy_loss(choices, labels)
  )")
            .empty());
}

TEST_CASE("inputs that do not fit forward are the user's error and name the shapes", "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  auto model = load_script_model(folder / "net.pt", {});
  PlainParameters parameters(*model);
  model->runnable->set_unit_parameters(&parameters);
  try {
    model->runnable->forward({at::zeros({2, 3}, at::kLong), at::zeros({2, 4}, at::kLong)});
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    CHECK_THAT(error.what(), Catch::Contains("Long[2, 4]"));
  }
}

TEST_CASE("an unknown unit name is refused with the nearest one", "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  CHECK_THROWS_WITH(load_script_model(folder / "net.pt", {"Blok"}), Catch::Contains("did you mean 'Block'"));
}

TEST_CASE("a buffer of a module that the model holds twice stays one in another type", "[runtime][model]") {
  const auto sum = at::zeros({1});
  Module net("Net");
  for (const char* name : {"first", "second"}) {
    Module counter("Counter");
    counter.register_buffer("sum", sum);
    counter.register_buffer("own", at::zeros({1}));
    counter.define("def forward(self, x):\n    self.sum.add_(1)\n    return x + self.sum\n");
    net.register_module(name, counter);
  }
  net.register_parameter("weight", at::ones({1}).requires_grad_(true), false);
  net.define("def forward(self, x):\n    return self.second.forward(self.first.forward(x)) * self.weight\n");
  test::TempDir folder;
  net.save(folder / "net.pt");
  auto model = load_script_model(folder / "net.pt", {});
  model->to_device(at::kCPU, [](const std::string&, at::ScalarType) { return at::kBFloat16; }, {false});
  for (const auto& [name, value] : model->tensors.buffers()) value.add_(name == "second.sum" ? 2 : 0);
  std::map<std::string, at::Tensor> buffers;
  for (const auto& [name, value] : model->tensors.buffers()) buffers[name] = value;
  CHECK(buffers.at("first.sum").item<double>() == 2);
  CHECK(buffers.at("first.sum").scalar_type() == at::kBFloat16);
  CHECK(buffers.at("first.own").const_data_ptr() != buffers.at("second.own").const_data_ptr());
}

TEST_CASE("a skeleton keeps code, shapes and ties, and weighs little", "[runtime][model]") {
  test::TempDir folder;
  make_net().save(folder / "net.pt");
  write_model_skeleton(folder / "net.pt", folder / "skeleton.pt");
  auto skeleton = load_script_model(folder / "skeleton.pt", {});
  auto model = load_script_model(folder / "net.pt", {});
  REQUIRE(skeleton->facts.table.parameters.size() == model->facts.table.parameters.size());
  for (size_t i = 0; i < model->facts.table.parameters.size(); ++i) {
    CHECK(skeleton->facts.table.parameters[i].shape == model->facts.table.parameters[i].shape);
    CHECK(skeleton->facts.table.parameters[i].trainable == model->facts.table.parameters[i].trainable);
    CHECK((skeleton->initial.is_empty(static_cast<int>(i)) || model->facts.table.parameters[i].numel <= 1));
  }
}
