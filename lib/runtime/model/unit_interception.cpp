#include "runtime/model/unit_interception.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

constexpr char kOperator[] = "dslaunch::run_unit";

struct Interceptor {
  const UnitInterception* owner = nullptr;
  BoundUnit unit;
};

// What the operator needs to find again; written while models load, read while they run.
struct Registry {
  std::unordered_map<ObjectKey, Interceptor> interceptors;
  std::unordered_map<const c10::ClassType*, std::unique_ptr<torch::jit::GraphFunction>> originals;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

// The gather as an autograd node: its outputs are the parameters of one call, its backward receives all their
// gradients.
struct GatherNode : torch::autograd::Node {
  GatherNode(UnitParameters* parameters, int unit) : parameters_(parameters), unit_(unit) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    parameters_->take_gradients(unit_, std::move(gradients));
    return {};
  }
  std::string name() const override { return "dslaunch::GatherNode"; }

 private:
  UnitParameters* parameters_;
  int unit_;
};

void attach_gather_node(std::vector<at::Tensor>& views, UnitParameters* parameters, int unit) {
  auto node = std::make_shared<GatherNode>(parameters, unit);
  for (auto& view : views) torch::autograd::set_history(view, node);
}

void set_slots(const BoundUnit& unit, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < unit.places.size(); ++i) {
    for (const auto& place : unit.places[i])
      place.object->setSlot(place.slot, values.empty() ? at::Tensor() : values[i]);
  }
}

void run_unit(torch::jit::Stack& stack) {
  const auto count = static_cast<size_t>(torch::jit::pop(stack).toInt());
  torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  const auto self = arguments.at(0).toObject();
  auto& original = *registry().originals.at(self->type().get());
  auto found = registry().interceptors.find(self.get());
  if (found == registry().interceptors.end()) {  // another instance of a unit's class that is no unit itself
    original.run(arguments);
  } else {
    found->second.owner->with_parameters(found->second.unit, [&] { original.run(arguments); });
  }
  stack.push_back(std::move(arguments.back()));
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator(
    "dslaunch::run_unit(...) -> Tensor", [](torch::jit::Stack& stack) { run_unit(stack); },
    c10::AliasAnalysisKind::CONSERVATIVE)});

void replace_forward(const c10::ClassTypePtr& type) {
  if (registry().originals.count(type.get())) return;
  auto& method = type->getMethod("forward");
  method.ensure_defined();
  auto graph = torch::jit::toGraphFunction(method).graph();
  auto original = graph->copy();
  registry().originals[type.get()] = std::make_unique<torch::jit::GraphFunction>(
      c10::QualifiedName(type->name()->qualifiedName() + ".unit_forward"), original, nullptr);

  while (!graph->outputs().empty()) graph->eraseOutput(0);
  while (graph->nodes().begin() != graph->nodes().end()) (*graph->nodes().rbegin())->destroy();
  auto* node = graph->create(c10::Symbol::fromQualString(kOperator), graph->inputs(), 1);
  node->output()->setType(original->outputs().at(0)->type());
  graph->appendNode(node);
  graph->registerOutput(node->output());
}

}  // namespace

UnitInterception::~UnitInterception() {
  for (ObjectKey key : intercepted_) registry().interceptors.erase(key);
}

void UnitInterception::intercept(const torch::jit::Module& module, BoundUnit unit) {
  replace_forward(module.type());
  registry().interceptors[module._ivalue().get()] = {this, std::move(unit)};
  intercepted_.push_back(module._ivalue().get());
}

void UnitInterception::with_parameters(const BoundUnit& unit, const std::function<void()>& call) const {
  DSL_CHECK(parameters_ != nullptr, "set_unit_parameters comes before the first call");
  auto views = parameters_->acquire(unit.unit);
  DSL_CHECK(views.size() == unit.places.size(), "a unit gets as many parameters as it has");
  if (at::GradMode::is_enabled() && !views.empty()) attach_gather_node(views, parameters_, unit.unit);
  struct Scope {  // also when the model throws: nobody reads a stale view
    const UnitInterception* self;
    const BoundUnit& unit;
    ~Scope() {
      set_slots(unit, {});
      self->parameters_->release(unit.unit);
    }
  } scope{this, unit};
  set_slots(unit, views);
  call();
}

}  // namespace dslaunch::runtime
