#include "runtime/telemetry/flops_profiler.hpp"

namespace dslaunch::runtime {

// State passed from a begin to its end.
struct FlopsProfiler::Call : at::ObserverContext {
  bool is_module = false;
  std::optional<TimeMark> begin;  // of a module's outermost frame
};

FlopsProfiler::~FlopsProfiler() = default;

void FlopsProfiler::set_modules(const std::vector<ModuleInfo>& modules) {
  for (size_t i = 0; i < modules.size(); ++i) module_of_.emplace(modules[i].identity, i);
  costs_.resize(modules.size());
}

void FlopsProfiler::begin_step(int64_t step) {
  if (step != step_ || costs_.empty()) return;
  using enum at::RecordScope;
  scopes_ = std::make_unique<OperatorScopes<FlopsProfiler>>(
      *this, std::unordered_set<at::RecordScope>{FUNCTION, TORCHSCRIPT_FUNCTION}, /*with_arguments=*/true,
      /*every_thread=*/false);
}

void FlopsProfiler::end_step() {
  if (!scopes_) return;
  scopes_.reset();
  is_done_ = true;
}

std::optional<std::vector<ModuleCost>> FlopsProfiler::take() {
  if (!is_done_) return std::nullopt;
  is_done_ = false;
  for (const auto& timed : timed_) costs_[timed.module].milliseconds += milliseconds_between(timed.begin, timed.end);
  timed_.clear();
  return std::move(costs_);
}

void FlopsProfiler::reset_costs() {
  costs_.assign(costs_.size(), {});
  timed_.clear();
}

std::unique_ptr<at::ObserverContext> FlopsProfiler::begin(const at::RecordFunction& call) {
  return call.scope() == at::RecordScope::TORCHSCRIPT_FUNCTION ? begin_module(call) : begin_operator(call);
}

std::unique_ptr<at::ObserverContext> FlopsProfiler::begin_module(const at::RecordFunction& call) {
  const auto arguments = call.inputs();
  if (arguments.empty() || !arguments[0].isObject()) return nullptr;
  const auto found = module_of_.find(&arguments[0].toObjectRef());
  if (found == module_of_.end()) return nullptr;
  if (open_.empty()) {
    if (found->second != 0) return nullptr;  // a pass starts with the model itself
    reset_costs();
  }
  auto context = std::make_unique<Call>();
  context->is_module = true;
  // A unit's interception runs the original graph as a second frame of the same module.
  const bool is_second_frame = !open_.empty() && open_.back() == found->second;
  if (!is_second_frame) context->begin = mark_time(device_);
  open_.push_back(found->second);
  return context;
}

std::unique_ptr<at::ObserverContext> FlopsProfiler::begin_operator(const at::RecordFunction& call) {
  if (open_.empty()) return nullptr;
  if (open_costed_ == 0) {
    const auto cost = model::operators::operator_cost(call.name(), own_arguments(call));
    if (!cost) return nullptr;
    costs_[open_.back()].own.flops += cost->flops;
    costs_[open_.back()].own.macs += cost->macs;
  }
  open_costed_ += 1;
  return std::make_unique<Call>();
}

void FlopsProfiler::end(const at::RecordFunction&, at::ObserverContext* context) {
  auto* call = static_cast<Call*>(context);
  if (call == nullptr) return;
  if (!call->is_module) {
    open_costed_ -= 1;
    return;
  }
  if (call->begin) timed_.push_back({open_.back(), std::move(*call->begin), mark_time(device_)});
  open_.pop_back();
}

}  // namespace dslaunch::runtime
