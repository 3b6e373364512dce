#include "runtime/model/unit_interception.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/gather_node.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/model/plain_execution.hpp"

namespace dslaunch::runtime {
namespace {

constexpr char kOperator[] = "dslaunch::run_unit";

struct Interceptor {
  const UnitInterception* owner = nullptr;
  BoundUnit unit;
  std::optional<RecomputedUnit> recomputed;
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

struct PrepareBackward : torch::autograd::FunctionPreHook {
  explicit PrepareBackward(std::shared_ptr<CallInBackward> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    call_->prepare();
    return gradients;
  }

 private:
  std::shared_ptr<CallInBackward> call_;
};

// The nodes through which backward enters a call: those of its outputs, and of arguments that it changed in place.
class EntryNodes {
 public:
  explicit EntryNodes(at::ArrayRef<c10::IValue> arguments) {
    for (const auto& argument : arguments) {
      for (auto& tensor : tensors_in(argument)) before_.emplace_back(tensor, tensor.grad_fn());
    }
  }
  void hook(const std::vector<at::Tensor>& outputs, const std::shared_ptr<CallInBackward>& call) {
    for (const auto& output : outputs) add(output.grad_fn(), call);
    for (const auto& [tensor, node] : before_) {
      if (tensor.grad_fn() != node) add(tensor.grad_fn(), call);
    }
  }

 private:
  void add(const std::shared_ptr<torch::autograd::Node>& node, const std::shared_ptr<CallInBackward>& call) {
    if (node && hooked_.insert(node.get()).second) node->add_pre_hook(std::make_unique<PrepareBackward>(call));
  }

  std::vector<std::pair<at::Tensor, std::shared_ptr<torch::autograd::Node>>> before_;
  std::unordered_set<torch::autograd::Node*> hooked_;
};

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
    const auto& [owner, unit, recomputed] = found->second;
    const torch::jit::Stack given(arguments.begin() + 1, arguments.end());  // without self
    stack.push_back(owner->call(
        unit, given,
        [&original, self](torch::jit::Stack stack_of_call) {
          const PlainExecution plain;  // a second pass may run on a thread of autograd's
          stack_of_call.insert(stack_of_call.begin(), self);
          original.run(stack_of_call);
          return std::move(stack_of_call.back());
        },
        recomputed ? &*recomputed : nullptr));
    return;
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

std::shared_ptr<torch::jit::Graph> original_forward(const c10::ClassType& type) {
  auto found = registry().originals.find(&type);
  return found == registry().originals.end() ? nullptr : found->second->graph();
}

UnitInterception::~UnitInterception() {
  for (ObjectKey key : intercepted_) registry().interceptors.erase(key);
}

void UnitInterception::intercept(const torch::jit::Module& module, BoundUnit unit) {
  replace_forward(module.type());
  registry().interceptors[module._ivalue().get()] = {this, std::move(unit)};
  intercepted_.push_back(module._ivalue().get());
}

void UnitInterception::recompute(const RecomputationOptions& options,
                                 const std::function<std::optional<RecomputedUnit>(int)>& choose) {
  recomputation_ = std::make_unique<Recomputation>(options);
  for (ObjectKey key : intercepted_) {
    auto& interceptor = registry().interceptors.at(key);
    interceptor.recomputed = choose(interceptor.unit.unit);
  }
}

c10::IValue UnitInterception::observed(int unit, const torch::jit::Stack& arguments, const UnitBody& body) const {
  if (!observer_) return body(arguments);
  std::vector<at::Tensor> inputs;
  for (const auto& argument : arguments) {
    const auto tensors = tensors_in(argument);
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  }
  observer_->entered(unit, inputs);
  auto result = body(arguments);
  observer_->left(unit, tensors_in(result));
  return result;
}

c10::IValue UnitInterception::call(const BoundUnit& unit, const torch::jit::Stack& arguments, const UnitBody& body,
                                   const RecomputedUnit* recomputed) const {
  DSL_CHECK(parameters_ != nullptr, "set_unit_parameters comes before the first call");
  const bool trains = at::GradMode::is_enabled() && !unit.places.empty();
  if (trains && recomputed) {
    return observed(unit.unit, arguments, [&](const torch::jit::Stack& given) {
      return recomputation_->call(unit, *recomputed, *parameters_, given, body);
    });
  }
  auto views = parameters_->acquire(unit.unit, trains ? UnitCall::kTraining : UnitCall::kInference);
  DSL_CHECK(views.size() == unit.places.size(), "a unit gets as many parameters as it has");
  struct Scope {  // also when the model throws: nobody reads a stale view
    const UnitInterception* self;
    const BoundUnit& unit;
    bool stays = false;
    ~Scope() {
      unit.set_parameters({});
      if (!stays) self->parameters_->release(unit.unit);
    }
  } scope{this, unit};
  if (!trains) {
    unit.set_parameters(views);
    auto result = observed(unit.unit, arguments, body);
    scope.stays = shares_storage(views, tensors_in(result));
    return result;
  }
  auto call = std::make_shared<CallInBackward>(CallInBackward{parameters_, unit.unit});
  attach_gather_node(views, call);
  EntryNodes entries(arguments);
  unit.set_parameters(views);
  auto result = observed(unit.unit, arguments, body);
  const auto outputs = tensors_in(result);
  entries.hook(outputs, call);
  scope.stays = shares_storage(views, outputs);
  return result;
}

}  // namespace dslaunch::runtime
