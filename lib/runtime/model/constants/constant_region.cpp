#include "runtime/model/constants/constant_region.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::constants {
namespace {

uint32_t version_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? static_cast<uint32_t>(value.toTensor()._version()) : 0;
}

bool any_requires_grad(const std::vector<c10::IValue>& values) {
  return std::any_of(values.begin(), values.end(),
                     [](const c10::IValue& value) { return value.isTensor() && value.toTensor().requires_grad(); });
}

// Empty: a result has no memory that could be counted.
std::optional<size_t> bytes_of(const std::vector<c10::IValue>& results) {
  size_t bytes = 0;
  for (const auto& result : results) {
    if (!result.isTensor()) continue;
    if (!result.toTensor().defined() || !result.toTensor().has_storage()) return std::nullopt;
    bytes += result.toTensor().storage().nbytes();
  }
  return bytes;
}

}  // namespace

ConstantRegion::ConstantRegion(std::shared_ptr<torch::jit::Graph> graph, RegionContext context)
    : graph_(std::move(graph)),
      context_(std::move(context)),
      num_arguments_(graph_->inputs().size()),
      code_(graph_, "constant_region") {}

ConstantRegion::Argument ConstantRegion::argument_of(const c10::IValue& value) {
  if (!value.isTensor()) return {value, std::nullopt, 0};
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor(value.toTensor().getIntrusivePtr());
  return {{}, tensor, version_of(value)};
}

bool ConstantRegion::equals(const Argument& argument, const c10::IValue& value) {
  if (!value.isTensor()) return !argument.tensor && argument.number == value;
  return argument.tensor && !argument.tensor->expired() &&
         argument.tensor->_unsafe_get_target() == value.toTensor().unsafeGetTensorImpl() &&
         argument.version == version_of(value);
}

// An argument is gone or has other values: the results are not asked for again.
bool ConstantRegion::is_stale(const Kept& kept) {
  return std::any_of(kept.arguments.begin(), kept.arguments.end(), [](const Argument& argument) {
    if (!argument.tensor) return false;
    const auto tensor = argument.tensor->lock();
    return !tensor.defined() || tensor->version_counter().current_version() != argument.version;
  });
}

bool ConstantRegion::is_intact(const Kept& kept) {
  for (size_t i = 0; i < kept.results.size(); ++i) {
    if (version_of(kept.results[i]) != kept.versions[i]) return false;
  }
  return true;
}

ConstantRegion::AutocastState ConstantRegion::autocast_state() const {
  if (!at::autocast::is_autocast_enabled(context_.device.type())) return {};
  return {true, at::autocast::get_autocast_dtype(context_.device.type())};
}

std::vector<c10::IValue> ConstantRegion::evaluate(const std::vector<c10::IValue>& arguments) {
  torch::jit::Stack stack = arguments;
  torch::jit::InterpreterState(code_).run(stack);
  return stack;
}

const std::vector<c10::IValue>* ConstantRegion::find(const std::vector<c10::IValue>& arguments, bool is_capturing) {
  const auto autocast = autocast_state();
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.autocast == autocast &&
           std::equal(kept.arguments.begin(), kept.arguments.end(), arguments.begin(), arguments.end(), equals);
  });
  if (found == kept_.end()) return nullptr;
  if (!is_intact(*found)) {
    if (!found->is_captured) kept_.erase(found);
    return nullptr;
  }
  found->is_captured |= is_capturing;
  kept_.splice(kept_.begin(), kept_, found);
  return &found->results;
}

bool ConstantRegion::make_room(size_t num_bytes) {
  kept_.remove_if([](const Kept& kept) { return !kept.is_captured && (is_stale(kept) || !is_intact(kept)); });
  size_t total = num_bytes;
  for (const auto& kept : kept_) total += kept.num_bytes;
  for (auto kept = kept_.end(); kept != kept_.begin() && (kept_.size() >= kMaxShapes || total > kMaxKeptBytes);) {
    --kept;
    if (kept->is_captured) continue;
    total -= kept->num_bytes;
    kept = kept_.erase(kept);
  }
  return kept_.size() < kMaxShapes;
}

void ConstantRegion::keep(const std::vector<c10::IValue>& arguments, const std::vector<c10::IValue>& results,
                          size_t num_bytes) {
  if (!make_room(num_bytes)) return;
  Kept kept{.arguments = {}, .autocast = autocast_state(), .results = results, .versions = {}, .num_bytes = num_bytes};
  for (const auto& argument : arguments) kept.arguments.push_back(argument_of(argument));
  for (const auto& result : results) {
    kept.versions.push_back(version_of(result));
    if (result.isTensor()) context_.masks->add(result.toTensor());
  }
  kept_.push_front(std::move(kept));
}

void ConstantRegion::run(torch::jit::Stack& stack) {
  const std::vector<c10::IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(num_arguments_), stack.end());
  torch::jit::drop(stack, num_arguments_);
  const std::lock_guard lock(mutex_);
  const bool is_capturing = context_.is_capturing(context_.device);
  const bool may_keep = !any_requires_grad(arguments);
  if (may_keep) {
    if (const auto* results = find(arguments, is_capturing)) {
      stack.insert(stack.end(), results->begin(), results->end());
      return;
    }
  }
  const auto results = evaluate(arguments);
  num_evaluations_ += 1;
  const auto num_bytes = bytes_of(results);
  if (may_keep && !is_capturing && !any_requires_grad(results) && num_bytes && *num_bytes <= kMaxBytesOfShape) {
    keep(arguments, results, *num_bytes);
  }
  stack.insert(stack.end(), results.begin(), results.end());
}

bool is_free(const torch::jit::Node* node) {
  return operators::traits(node->kind()).purity == operators::Purity::kFree;
}

bool is_repeatable(const torch::jit::Node* node) {
  if (operators::traits(node->kind()).purity == operators::Purity::kUnknown) return false;
  if (!node->blocks().empty() || node->isNondeterministic()) return false;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return node->kind().is_prim();
  return std::none_of(schema->arguments().begin(), schema->arguments().end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

}  // namespace dslaunch::runtime::model::constants
