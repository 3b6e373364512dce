#include "runtime/telemetry/operator_times.hpp"

#include <chrono>
#include <utility>

namespace dslaunch::runtime {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

struct OperatorTimes::Call : at::ObserverContext {
  Call* caller = nullptr;
  Clock::duration inside{};  // the calls that it made
  Clock::time_point begin;
};

thread_local OperatorTimes::Call* OperatorTimes::innermost_ = nullptr;

OperatorTimes::OperatorTimes()
    : scopes_(*this, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}, /*with_arguments=*/false,
              /*every_thread=*/true) {}

std::vector<WorkTime> OperatorTimes::take() {
  const std::lock_guard lock(mutex_);
  std::vector<WorkTime> out;
  for (auto& [name, time] : std::exchange(times_, {})) out.push_back(std::move(time));
  return out;
}

std::unique_ptr<at::ObserverContext> OperatorTimes::begin(const at::RecordFunction&) {
  auto call = std::make_unique<Call>();
  call->caller = std::exchange(innermost_, call.get());
  call->begin = Clock::now();
  return call;
}

void OperatorTimes::end(const at::RecordFunction& record, at::ObserverContext* context) {
  auto* call = static_cast<Call*>(context);
  if (call == nullptr) return;
  const auto elapsed = Clock::now() - call->begin;
  innermost_ = call->caller;
  if (call->caller != nullptr) call->caller->inside += elapsed;
  std::string name = readable_name(record.name());
  const std::lock_guard lock(mutex_);
  auto& time = times_[name];
  time.name = std::move(name);
  time.num_calls += 1;
  time.milliseconds += std::chrono::duration<double, std::milli>(elapsed - call->inside).count();
}

}  // namespace dslaunch::runtime
