// Models from TorchScript source for the tests of this room: run with their units intercepted, and by plain LibTorch on
// the same file. Not for several threads.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/initial_parameters.hpp"
#include "support/temp_dir.hpp"

namespace dslaunch::test {

using Events = std::vector<std::string>;

inline void add_parameter(torch::jit::Module& module, const char* name, at::IntArrayRef shape, bool trains = true) {
  module.register_parameter(name, (at::randn(shape) * 0.5).requires_grad_(trains), false);
}

constexpr char kTanhLayer[] = "def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight)) + x\n";

// A class with a 4 x 4 weight.
inline torch::jit::Module make_layer(const std::string& forward = kTanhLayer, const char* name = "Block",
                                     bool trains = true) {
  torch::jit::Module layer(name);
  add_parameter(layer, "weight", {4, 4}, trains);
  layer.define(forward);
  return layer;
}

// A model with a parameter `scale` of its own and these modules. Under `units` "one", "two", ... are its units.
inline torch::jit::Module make_net(const std::string& forward,
                                   const std::vector<std::pair<std::string, torch::jit::Module>>& children) {
  torch::jit::Module net("Net");
  add_parameter(net, "scale", {4});
  for (const auto& [name, child] : children) net.register_module(name, child);
  net.define(forward);
  return net;
}

// What torch.jit.trace leaves on every module that it makes.
inline void mark_as_traced(torch::jit::Module& module) {
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_attribute("_is_full_backward_hook", c10::OptionalType::create(c10::BoolType::get()), c10::IValue());
}

// Another thread computes the first call of a method: its place is taken by a fork and a wait.
inline void fork_first_call(torch::jit::Graph& graph) {
  auto call = graph.nodes().begin();
  while (call->kind() != c10::prim::CallMethod) ++call;
  auto forked = std::make_shared<torch::jit::Graph>();
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> inside;
  for (auto* input : call->inputs()) inside[input] = forked->addInput()->setType(input->type());
  auto* inner = forked->appendNode(forked->createClone(*call, [&](torch::jit::Value* v) { return inside.at(v); }));
  forked->registerOutput(inner->output());
  auto* fork = graph.create(c10::prim::fork, call->inputs(), 1)->insertBefore(*call);
  fork->g_(c10::attr::Subgraph, forked);
  fork->output()->setType(c10::FutureType::create(call->output()->type()));
  auto* wait = graph.create(c10::aten::wait, {fork->output()}, 1)->insertBefore(*call);
  wait->output()->setType(call->output()->type());
  call->output()->replaceAllUsesWith(wait->output());
  call.destroyCurrent();
}

// Classes as the code of a saved model has them, which may be interfaces, named tuples and plain classes: `source` is
// one file, code/__torch__.py. The root of the modules is __torch__.Net. `held`: values of attributes by path; modules
// are made, flags are true.
class ImportedClasses {
 public:
  using Held = std::map<std::string, c10::IValue>;

  static torch::jit::Module make_net(const std::map<std::string, std::string>& sources, const Held& held) {
    return torch::jit::Module(ImportedClasses(sources, held).make("__torch__.Net", ""));
  }
  static torch::jit::Module make_net(const std::string& source, const Held& held) {
    return make_net(std::map<std::string, std::string>{{"__torch__", source}}, held);
  }

 private:
  ImportedClasses(const std::map<std::string, std::string>& sources, Held held)
      : held_(std::move(held)),
        importer_(
            unit_, &constants_,
            [sources](const std::string& qualifier) -> std::shared_ptr<torch::jit::Source> {
              const auto found = sources.find(qualifier);
              return found == sources.end() ? nullptr
                                            : std::make_shared<torch::jit::Source>(found->second, qualifier, 1);
            },
            10) {}

  c10::intrusive_ptr<c10::ivalue::Object> make(const std::string& name, const std::string& path) {
    const auto type = importer_.loadType(c10::QualifiedName(name))->expect<c10::ClassType>();
    auto object = c10::ivalue::Object::create(c10::StrongTypePtr(unit_, type), type->numAttributes());
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const auto inner = path.empty() ? type->getAttributeName(slot) : path + "." + type->getAttributeName(slot);
      const auto held_type = type->getAttribute(slot);
      const auto given = held_.find(inner);
      if (given != held_.end() && !given->second.isString()) {
        object->setSlot(slot, given->second);
      } else if (given != held_.end() && held_type->kind() != c10::TypeKind::StringType) {
        object->setSlot(slot, make(given->second.toStringRef(), inner));  // behind an interface: the name of a class
      } else if (given != held_.end()) {
        object->setSlot(slot, given->second);
      } else if (held_type->kind() == c10::TypeKind::ClassType) {
        object->setSlot(slot, make(held_type->expect<c10::ClassType>()->name()->qualifiedName(), inner));
      } else if (held_type->kind() == c10::TypeKind::BoolType) {
        object->setSlot(slot, true);
      }
    }
    return object;
  }

  const Held held_;
  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
  std::vector<c10::IValue> constants_;
  torch::jit::SourceImporter importer_;
};

// The gather of stage 3 without ranks: a unit's parameters have values only while it is held, else NaN, and every call
// is logged in order: "train one", "infer one", "again one" (recomputation), "release one", "prepare one", "take one".
class GatheredUnits : public InitialParameters {
 public:
  // `gives_frozen`: frozen parameters come from here, too.
  explicit GatheredUnits(const runtime::model::Model& model, bool gives_frozen = false)
      : InitialParameters(model), facts_(model.facts), initial_(model.initial), gives_frozen_(gives_frozen) {
    units_.resize(facts_.table.units.size());
    for (size_t i = 0; i < units_.size(); ++i) {
      for (int p : facts_.table.units[i].parameters) units_[i].trained.push_back(initial_.value(p).clone());
      if (!gives_frozen_) continue;
      for (int p : facts_.table.units[i].frozen) units_[i].frozen.push_back(initial_.value(p).clone());
    }
    forget();
  }

  runtime::UnitValues acquire(int unit, runtime::UnitCall call) override {
    constexpr const char* kVerbs[] = {"infer", "train", "again"};
    note(kVerbs[static_cast<int>(call)], unit);
    hold(unit);
    return {views(units_[unit].trained), views(units_[unit].frozen)};
  }
  void release(int unit) override {
    note("release", unit);
    let_go(unit);
  }
  void prepare_backward(int unit) override {
    note("prepare", unit);
    hold(unit);
  }
  void take_gradients(int unit, std::vector<at::Tensor> of_unit) override {
    note("take", unit);
    const auto& parameters = parameters_of(unit);
    REQUIRE(of_unit.size() == parameters.size());
    for (size_t i = 0; i < of_unit.size(); ++i) {
      if (!of_unit[i].defined()) continue;
      CHECK(of_unit[i].layout() == at::kStrided);
      auto& sum = gradients[name_of(parameters[i])];
      sum = sum.defined() ? sum + of_unit[i] : of_unit[i].clone();
    }
    let_go(unit);
  }

  // Between steps, also after one that failed.
  void forget() {
    events.clear();
    gradients.clear();
    for (size_t i = 0; i < units_.size(); ++i) {
      units_[i].num_holds = 1;
      let_go(static_cast<int>(i));
    }
  }
  int num_held() const {
    int sum = 0;
    for (const auto& unit : units_) sum += unit.num_holds;
    return sum;
  }
  Events take_events() { return std::exchange(events, {}); }

  Events events;
  std::map<std::string, at::Tensor> gradients;

 private:
  struct Unit {
    std::vector<at::Tensor> trained, frozen;
    int num_holds = 0;
  };

  void note(const std::string& verb, int unit) {
    const auto& name = facts_.table.units[static_cast<size_t>(unit)].name;
    events.push_back(verb + " " + (name.empty() ? "root" : name));
  }
  // Every call gets tensors of its own with their own version counters, as from a gather.
  static std::vector<at::Tensor> views(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> out;
    for (const auto& tensor : tensors) out.push_back(tensor.variable_data());
    return out;
  }
  void fill(int unit, const std::function<at::Tensor(int parameter)>& value) {
    auto& [trained, frozen, num_holds] = units_[static_cast<size_t>(unit)];
    const auto& info = facts_.table.units[static_cast<size_t>(unit)];
    for (size_t i = 0; i < trained.size(); ++i) trained[i].variable_data().copy_(value(info.parameters[i]));
    for (size_t i = 0; i < frozen.size(); ++i) frozen[i].variable_data().copy_(value(info.frozen[i]));
  }
  void hold(int unit) {
    if (units_[static_cast<size_t>(unit)].num_holds++ > 0) return;
    fill(unit, [this](int p) { return initial_.value(p); });
  }
  void let_go(int unit) {
    if (--units_[static_cast<size_t>(unit)].num_holds > 0) return;
    fill(unit, [](int) { return at::full({}, NAN); });
  }

  const runtime::model::ModelFacts& facts_;
  const runtime::model::InitialValues& initial_;
  const bool gives_frozen_;
  std::vector<Unit> units_;
};

// The numbers of a step.
struct StepNumbers {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients;  // by parameter, of those that have one
};

// Which parameters have gradients, and the bits of everything.
inline void check_same(const StepNumbers& found, const StepNumbers& expected) {
  CHECK(at::equal(found.loss, expected.loss));
  CHECK(found.gradients.size() == expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    INFO(name);
    REQUIRE(found.gradients.count(name) == 1);
    CHECK(at::equal(found.gradients.at(name), gradient));
  }
}

// A model in a file, loaded as a job loads it. Seeds the random numbers before every forward.
class ModelRun {
 public:
  // `units`: see load_script_model().
  explicit ModelRun(const torch::jit::Module& net, const std::vector<std::string>& units = {},
                    bool gives_frozen = false, const runtime::model::GraphPassOptions& passes = {},
                    const std::optional<runtime::model::RecomputationOptions>& recomputation = {}) {
    net.save(path());
    model = runtime::model::torchscript::load_script_model(path(), units, passes);
    if (recomputation) summary = model->runnable->set_recomputation(*recomputation);
    if (gives_frozen) {
      model->to_device(
          at::kCPU, [](const std::string&, at::ScalarType own) { return own; },
          std::vector<bool>(model->facts.table.parameters.size(), true));
    }
    gathered = std::make_unique<GatheredUnits>(*model, gives_frozen);
    model->runnable->set_unit_parameters(gathered.get());
  }

  std::string path() const { return folder_ / "net.pt"; }

  at::Tensor forward(const std::vector<at::Tensor>& inputs) {
    torch::manual_seed(kSeed);
    return model->runnable->forward(inputs).first;
  }
  StepNumbers step(const std::vector<at::Tensor>& inputs) {
    const at::Tensor loss = forward(inputs);
    loss.backward();
    return {loss.detach(), std::exchange(gathered->gradients, {})};
  }
  // The same step by LibTorch alone, as written and without the optimising executor.
  StepNumbers plain_step(const std::vector<at::Tensor>& inputs) {
    torch::jit::GraphOptimizerEnabledGuard off(false);
    auto plain = torch::jit::load(path());
    torch::manual_seed(kSeed);
    const auto result = plain.forward({inputs.begin(), inputs.end()});
    const at::Tensor loss = result.isTensor() ? result.toTensor() : result.toTuple()->elements()[0].toTensor();
    loss.backward();
    StepNumbers out{loss.detach(), {}};
    for (const auto& p : plain.named_parameters()) {
      if (!p.value.grad().defined()) continue;
      out.gradients[p.name] = p.value.grad().is_sparse() ? p.value.grad().to_dense() : p.value.grad();
    }
    for (const auto& b : plain.named_buffers()) buffers_of_plain[b.name] = b.value;
    return out;
  }
  // A step gives the numbers of plain autograd, and nothing stays held. Returns what happened, in order.
  Events check_step(const std::vector<at::Tensor>& inputs) {
    const auto expected = plain_step(inputs);
    gathered->forget();
    check_same(step(inputs), expected);
    CHECK(gathered->num_held() == 0);
    return gathered->take_events();
  }
  // Whether the parameter is in its slot now.
  bool is_in_slot(const std::string& name) const {
    const auto& parameters = model->facts.table.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name == name) return model->tensors.frozen_value(static_cast<int>(i)).defined();
    }
    FAIL("no parameter " << name);
    return false;
  }

  static constexpr uint64_t kSeed = 5;
  std::unique_ptr<runtime::model::Model> model;
  std::string summary;  // of the recomputation
  std::unique_ptr<GatheredUnits> gathered;
  std::map<std::string, at::Tensor> buffers_of_plain;  // after the last plain step

 private:
  TempDir folder_;
};

}  // namespace dslaunch::test
