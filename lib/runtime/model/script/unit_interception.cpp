#include "runtime/model/script/unit_interception.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/runnable_model.hpp"
#include "runtime/model/script/plain_execution.hpp"
#include "runtime/model/units/call_hooks.hpp"
#include "runtime/model/units/gather_node.hpp"
#include "runtime/model/units/unit_forwards.hpp"
#include "runtime/model/units/unit_parameters_scope.hpp"

namespace dslaunch::runtime {
namespace {

constexpr char kOperator[] = "dslaunch::run_unit";

struct Interceptor {
  const UnitInterception* owner = nullptr;
  BoundUnit unit;
  std::optional<RecomputedUnit> recomputed;
};

// State that the operator looks up; written while models load, read while they run.
struct Registry {
  std::unordered_map<ObjectKey, Interceptor> interceptors;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

// Backward reaches a call of such a unit only on the way to the call's inputs. The root encloses all other units.
bool is_frozen(const BoundUnit& unit) {
  return unit.locations.empty() && unit.unit != 0;
}

std::vector<at::Tensor> inputs_of(const BoundUnit& unit, const torch::jit::Stack& arguments) {
  auto out = tensors_in_all(arguments);
  for (auto& value : unit.external_values()) out.push_back(std::move(value));
  return out;
}

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.requires_grad(); });
}

// Frozen parameters are gathered again when backward reaches the call's outputs. A path that bypasses the unit's
// outputs would read another unit's parameters from this slot.
void reject_side_channel_gradients(const BoundUnit& unit, const std::vector<at::Tensor>& without_backward) {
  std::vector<at::Tensor> seen = without_backward;
  for (const auto& location : unit.state) {
    for (auto& tensor : tensors_in(location.object->getSlot(location.slot))) seen.push_back(std::move(tensor));
  }
  if (!at::GradMode::is_enabled() || !any_requires_grad(seen)) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("unit '{}' has frozen parameters, and values computed from trained parameters enter or "
                              "leave it through an attribute of a module, which ZeRO stage 3 does not support: name "
                              "other \"units\" in the config, or use ZeRO stage 2",
                              unit.name));
}

void run_unit(torch::jit::Stack& stack) {
  const auto count = static_cast<size_t>(torch::jit::pop(stack).toInt());
  torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  const auto self = arguments.at(0).toObject();
  auto& original = *unit_forward(*self->type());
  auto found = registry().interceptors.find(self.get());
  if (found == registry().interceptors.end()) {  // another instance of a unit's class that is not itself a unit
    original.run(arguments);
  } else {
    const auto& [owner, unit, recomputed] = found->second;
    const torch::jit::Stack given(arguments.begin() + 1, arguments.end());  // without self
    stack.push_back(owner->call_in_graph(
        unit, given,
        [&original, self](torch::jit::Stack stack_of_call) {
          const PlainExecution plain;  // a recomputation may run on one of autograd's threads
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
  if (unit_forward(*type) != nullptr) return;
  auto& method = type->getMethod("forward");
  method.ensure_defined();
  auto graph = torch::jit::toGraphFunction(method).graph();
  auto original = graph->copy();
  keep_unit_forward(*type, original);

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

void UnitInterception::recompute(const RecomputationOptions& options,
                                 const std::function<std::optional<RecomputedUnit>(int)>& choose) {
  recomputation_ = std::make_unique<Recomputation>(options);
  for (ObjectKey key : intercepted_) {
    auto& interceptor = registry().interceptors.at(key);
    interceptor.recomputed = choose(interceptor.unit.unit);
  }
}

c10::IValue UnitInterception::call_in_graph(const BoundUnit& unit, const torch::jit::Stack& arguments,
                                            const UnitBody& body, const RecomputedUnit* recomputed) const {
  try {
    return call(unit, arguments, body, recomputed);
  } catch (const Error&) {
    if (!failure_) failure_ = std::current_exception();
    throw;
  }
}

void UnitInterception::throw_failure() {
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

c10::IValue UnitInterception::observed(int unit, const torch::jit::Stack& arguments, const UnitBody& body) const {
  if (!observer_) return body(arguments);
  std::vector<at::Tensor> inputs;
  for (const auto& argument : arguments) {
    const auto tensors = tensors_in(argument);
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  }
  observer_->on_enter(unit, inputs);
  auto result = body(arguments);
  observer_->on_exit(unit, tensors_in(result));
  return result;
}

c10::IValue UnitInterception::call(const BoundUnit& unit, const torch::jit::Stack& arguments, const UnitBody& body,
                                   const RecomputedUnit* recomputed) const {
  DSL_CHECK(parameters_ != nullptr, "set_unit_parameters comes before the first call");
  const auto inputs = inputs_of(unit, arguments);
  const bool trains =
      at::GradMode::is_enabled() && unit.has_parameters() && (!is_frozen(unit) || any_requires_grad(inputs));
  if (trains && recomputed) {
    return observed(unit.unit, arguments, [&](const torch::jit::Stack& given) {
      return recomputation_->call(unit, *recomputed, *parameters_, given, body);
    });
  }
  UnitParametersScope scope(*parameters_, unit, trains ? UnitCall::kTraining : UnitCall::kInference);
  auto call = std::make_shared<CallInBackward>(CallInBackward{parameters_, unit.unit});
  if (trains) end_at_inputs(inputs, call);
  if (trains) attach_gather_node(scope.values().parameters, call);
  EntryNodes entries(arguments);
  scope.set();
  auto result = observed(unit.unit, arguments, body);
  const auto outputs = tensors_in(result);
  if (trains) entries.hook(outputs, call);
  if (!scope.values().frozen.empty()) reject_side_channel_gradients(unit, trains ? std::vector<at::Tensor>() : outputs);
  scope.release(outputs);
  return result;
}

}  // namespace dslaunch::runtime
