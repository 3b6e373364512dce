#include "runtime/telemetry/step_flops.hpp"

#include "runtime/model/operators/operator_flops.hpp"

namespace dslaunch::runtime {
namespace {

// What runs on this thread. Operators inside one that is counted are counted with it.
thread_local int open_counted = 0, open_backward = 0;

}  // namespace

struct StepFlops::Call : at::ObserverContext {
  explicit Call(int& counter) : open(counter) { open += 1; }
  int& open;
};

StepFlops::StepFlops()
    : scopes_(*this, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}, /*with_arguments=*/true,
              /*every_thread=*/true) {}

StepMacs StepFlops::read() const {
  return {forward_, backward_, update_};
}

std::unique_ptr<at::ObserverContext> StepFlops::begin(const at::RecordFunction& call) {
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) return std::make_unique<Call>(open_backward);
  if (open_counted > 0) return nullptr;
  const auto cost = model::operators::operator_cost(call.name(), own_arguments(call));
  if (!cost || cost->macs == 0) return nullptr;
  (open_backward > 0 ? backward_ : is_in_update_ ? update_ : forward_) += cost->macs;
  return std::make_unique<Call>(open_counted);
}

void StepFlops::end(const at::RecordFunction&, at::ObserverContext* context) {
  if (auto* call = static_cast<Call*>(context)) call->open -= 1;
}

}  // namespace dslaunch::runtime
