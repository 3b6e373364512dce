#include "runtime/model/torchscript/unit_interception.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/model/torchscript/units/call_hooks.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/model/torchscript/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

// Backward reaches a call of such a unit only on the way to the call's inputs. The root encloses all other units.
bool is_frozen(const units::BoundUnit& unit) {
  return unit.locations.empty() && unit.unit != 0;
}

std::vector<at::Tensor> inputs_of(const units::BoundUnit& unit, const torch::jit::Stack& arguments) {
  auto out = units::tensors_in_all(arguments);
  for (auto& value : unit.external_values()) out.push_back(std::move(value));
  return out;
}

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.requires_grad(); });
}

// Frozen parameters are gathered again when backward reaches the call's outputs. A path that bypasses the unit's
// outputs would read another unit's parameters from this slot.
void reject_side_channel_gradients(const units::BoundUnit& unit, const std::vector<at::Tensor>& without_backward) {
  std::vector<at::Tensor> seen = without_backward;
  for (const auto& location : unit.state) {
    for (auto& tensor : units::tensors_in(location.object->getSlot(location.slot))) seen.push_back(std::move(tensor));
  }
  if (!at::GradMode::is_enabled() || !any_requires_grad(seen)) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("unit '{}' has frozen parameters, and values computed from trained parameters enter or "
                              "leave it through an attribute of a module, which ZeRO stage 3 does not support: name "
                              "other \"units\" in the config, or use ZeRO stage 2",
                              unit.name));
}

struct Interceptor {
  const UnitInterception* owner = nullptr;
  units::BoundUnit unit;
  std::optional<recomputation::RecomputedUnit> recomputed;
};

}  // namespace

struct UnitInterception::UnitClass : units::UnitForward {
  using units::UnitForward::UnitForward;
  // By instance. Refers to objects that refer to the class, so its owner empties it.
  std::unordered_map<ObjectKey, Interceptor> interceptors;

  void run(torch::jit::Stack& stack, size_t count);  // `count`: of arguments on the stack, self included
};

namespace {

torch::jit::Operation run_unit_operation(const torch::jit::Node* node) {
  // As no other forward is put into such a node.
  auto unit_class = c10::static_intrusive_pointer_cast<UnitInterception::UnitClass>(units::unit_forward(*node));
  return [unit_class, count = node->inputs().size()](torch::jit::Stack& stack) { unit_class->run(stack, count); };
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator("dslaunch::run_unit(...) -> Tensor",
                                                                        run_unit_operation,
                                                                        c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace

void UnitInterception::UnitClass::run(torch::jit::Stack& stack, size_t count) {
  torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  const auto self = arguments.at(0).toObject();
  const auto found = interceptors.find(self.get());
  if (found == interceptors.end()) {  // another instance of a unit's class that is not itself a unit
    original.run(arguments);
    stack.push_back(std::move(arguments.back()));
    return;
  }
  const auto& [owner, unit, recomputed] = found->second;
  const torch::jit::Stack given(arguments.begin() + 1, arguments.end());  // without self
  recomputation::UnitBody body = [this, self](torch::jit::Stack stack_of_call) {
    const PlainExecution plain;  // a recomputation may run on one of autograd's threads
    stack_of_call.insert(stack_of_call.begin(), self);
    original.run(stack_of_call);
    return std::move(stack_of_call.back());
  };
  TokenDropping* dropping = owner->token_dropping();
  if (dropping != nullptr && dropping->applies_to(unit.unit)) body = dropping->wrap(unit.unit, std::move(body));
  stack.push_back(owner->call_in_graph(unit, given, body, recomputed ? &*recomputed : nullptr));
}

UnitInterception::UnitInterception() = default;

UnitInterception::~UnitInterception() {
  for (const auto& unit_class : classes_) unit_class->interceptors.clear();
}

void UnitInterception::intercept(const torch::jit::Module& module, units::BoundUnit unit) {
  auto unit_class = c10::static_intrusive_pointer_cast<UnitClass>(units::unit_forward(*module.type()));
  if (unit_class == nullptr) {
    unit_class = c10::make_intrusive<UnitClass>(*module.type());
    units::replace_forward(*module.type(), unit_class);
    classes_.push_back(unit_class);
  }
  unit_class->interceptors[module._ivalue().get()] = {this, std::move(unit), {}};
}

void UnitInterception::recompute(const RecomputationOptions& options, recomputation::InputRanks ranks,
                                 const std::function<std::optional<recomputation::RecomputedUnit>(int)>& choose) {
  recomputation_ = std::make_unique<recomputation::Recomputation>(options, std::move(ranks));
  for (const auto& unit_class : classes_) {
    for (auto& [object, interceptor] : unit_class->interceptors) {
      interceptor.recomputed = choose(interceptor.unit.unit);
    }
  }
}

c10::IValue UnitInterception::call_in_graph(const units::BoundUnit& unit, const torch::jit::Stack& arguments,
                                            const recomputation::UnitBody& body,
                                            const recomputation::RecomputedUnit* recomputed) const {
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

c10::IValue UnitInterception::observed(int unit, const torch::jit::Stack& arguments,
                                       const recomputation::UnitBody& body) const {
  if (!observer_) return body(arguments);
  std::vector<at::Tensor> inputs;
  for (const auto& argument : arguments) {
    const auto tensors = units::tensors_in(argument);
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  }
  observer_->on_enter(unit, inputs);
  auto result = body(arguments);
  observer_->on_exit(unit, units::tensors_in(result));
  return result;
}

c10::IValue UnitInterception::call(const units::BoundUnit& unit, const torch::jit::Stack& arguments,
                                   const recomputation::UnitBody& body,
                                   const recomputation::RecomputedUnit* recomputed) const {
  DSL_CHECK(parameters_ != nullptr, "set_unit_parameters comes before the first call");
  const auto inputs = inputs_of(unit, arguments);
  const bool trains =
      at::GradMode::is_enabled() && unit.has_parameters() && (!is_frozen(unit) || any_requires_grad(inputs));
  if (trains && recomputed) {
    return observed(unit.unit, arguments, [&](const torch::jit::Stack& given) {
      return recomputation_->call(unit, *recomputed, *parameters_, given, body);
    });
  }
  units::UnitParametersScope scope(*parameters_, unit, trains ? UnitCall::kTraining : UnitCall::kInference);
  auto call = std::make_shared<units::CallInBackward>(units::CallInBackward{parameters_, unit.unit});
  if (trains) units::end_at_inputs(inputs, call);
  if (trains) units::attach_gather_node(scope.values().parameters, call);
  units::EntryNodes entries(arguments);
  scope.set();
  auto result = observed(unit.unit, arguments, body);
  const auto outputs = units::tensors_in(result);
  if (trains) entries.hook(outputs, call);
  if (!scope.values().frozen.empty()) reject_side_channel_gradients(unit, trains ? std::vector<at::Tensor>() : outputs);
  scope.release(outputs);
  return result;
}

}  // namespace dslaunch::runtime::model::torchscript
