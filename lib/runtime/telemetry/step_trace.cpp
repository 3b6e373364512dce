#include "runtime/telemetry/step_trace.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/format.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime {
namespace {

// Lanes in the order in which viewers show them. A thread or group beyond the first is added to its lane's number.
enum Lane {
  kPhases = 1,
  kCompute = 2,
  kCommunication = 100,
  kOffload = 150,
  kDevicePhases = 200,
  kDeviceCompute = 201
};

constexpr std::string_view kOffloadCategory = "offload";

const char* category_of(const at::RecordFunction& call) {
  if (is_offload_scope(call.name())) return kOffloadCategory.data();
  switch (call.scope()) {
    case at::RecordScope::TORCHSCRIPT_FUNCTION:
      return "module";
    case at::RecordScope::BACKWARD_FUNCTION:
      return "backward";
    case at::RecordScope::USER_SCOPE:
      return "scope";
    default:
      return "operator";
  }
}

// Backward of a custom autograd function is named by its C++ class: FusedLinearBackward, like PyTorch's own.
std::string readable(std::string name) {
  constexpr std::string_view kClass = "torch::autograd::CppNode<";
  const size_t begin = name.find(kClass), end = name.rfind('>');
  if (begin == std::string::npos || end == std::string::npos) return name;
  const size_t last_part = name.rfind("::", end) + 2;
  return name.substr(0, begin) + name.substr(last_part, end - last_part) + "Backward";
}

template <class Key>
int lane_of(std::map<Key, int>& lanes, const Key& key, int first) {
  return lanes.emplace(key, first + static_cast<int>(lanes.size())).first->second;
}

}  // namespace

struct StepTrace::Call : at::ObserverContext {
  std::string name;
  int64_t bytes = 0;
  TimeMark begin;
};

StepTrace::~StepTrace() = default;

void StepTrace::set_modules(const std::vector<ModuleInfo>& modules) {
  for (const auto& module : modules) {
    path_of_.emplace(module.identity,
                     module.path.empty() ? module.class_name : module.path + " (" + module.class_name + ")");
  }
}

void StepTrace::begin_step(int64_t step) {
  if (step != step_ || state_ != State::kBefore) return;
  // Work in flight belongs to the previous step; only the traced step waits for it.
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  using Microseconds = std::chrono::duration<double, std::micro>;
  constexpr double kDay = 86'400e6;
  clock_offset_us_ = std::fmod(Microseconds(std::chrono::system_clock::now().time_since_epoch()).count(), kDay) -
                     Microseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  step_begin_ = mark_time(device_);
  phase_begin_ = mark_time(device_);
  enter(State::kRecording);
  using enum at::RecordScope;
  scopes_ = std::make_unique<OperatorScopes<StepTrace>>(
      *this, std::unordered_set<at::RecordScope>{FUNCTION, BACKWARD_FUNCTION, TORCHSCRIPT_FUNCTION, USER_SCOPE},
      /*with_arguments=*/true, /*every_thread=*/true);
}

void StepTrace::end_phase(StepPhase phase) {
  if (state_ != State::kRecording) return;
  phases_.push_back({std::string(runtime::name_of(phase)), "phase", 0, std::move(phase_begin_), mark_time(device_)});
  phase_begin_ = mark_time(device_);
}

void StepTrace::end_step() {
  if (state_ != State::kRecording) return;
  phases_.push_back({fmt::format("step {}", step_), "step", 0, std::move(step_begin_), mark_time(device_)});
  scopes_.reset();
  enter(State::kRecorded);
}

void StepTrace::enter(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void StepTrace::issued(const std::shared_ptr<const CollectiveRecord>& record) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kRecording) collectives_.push_back(record);
}

std::string StepTrace::name_of_call(const at::RecordFunction& call) const {
  if (call.scope() != at::RecordScope::TORCHSCRIPT_FUNCTION) return readable(call.name());
  const auto arguments = call.inputs();
  if (arguments.empty() || !arguments[0].isObject()) return call.name();
  const auto found = path_of_.find(&arguments[0].toObjectRef());
  return found == path_of_.end() ? call.name() : found->second;
}

std::unique_ptr<at::ObserverContext> StepTrace::begin(const at::RecordFunction& call) {
  auto context = std::make_unique<Call>();
  context->name = name_of_call(call);
  const bool is_offload = is_offload_scope(context->name);
  if (is_offload) context->bytes = call.inputs()[0].toInt();
  const bool is_on_host = is_offload && context->name == kHostUpdateScope;
  const bool also_on_device = call.scope() != at::RecordScope::FUNCTION && !is_on_host;
  context->begin = mark_time(also_on_device ? device_ : at::Device(at::kCPU));
  return context;
}

void StepTrace::end(const at::RecordFunction& call, at::ObserverContext* context) {
  auto* begun = static_cast<Call*>(context);
  if (begun == nullptr) return;
  auto end = mark_time(begun->begin.event ? device_ : at::Device(at::kCPU));
  const std::lock_guard lock(mutex_);
  calls_.push_back({std::move(begun->name), category_of(call), at::RecordFunction::currentThreadId(),
                    std::move(begun->begin), std::move(end), begun->bytes});
}

double StepTrace::microseconds(std::chrono::steady_clock::time_point time) const {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count() + clock_offset_us_;
}

TraceSpan StepTrace::on_host(const Recorded& recorded, int lane) const {
  const double begin = microseconds(recorded.begin.host);
  return {lane, recorded.name, recorded.category, begin, microseconds(recorded.end.host) - begin, {}};
}

// The device was idle when the step began, so its events are placed by their distance from the step's first event.
double StepTrace::device_microseconds(const TimeMark& mark) const {
  const TimeMark& origin = phases_.back().begin;  // the step's own span
  return microseconds(origin.host) + milliseconds_between(origin, mark) * 1e3;
}

TraceSpan StepTrace::on_device(const Recorded& recorded, int lane) const {
  return {lane,
          recorded.name,
          recorded.category,
          device_microseconds(recorded.begin),
          milliseconds_between(recorded.begin, recorded.end) * 1e3,
          {}};
}

struct StepTrace::Layout {
  std::vector<TraceSpan> spans;
  std::map<uint64_t, int> thread_lanes{{at::RecordFunction::currentThreadId(), kCompute}};
  std::set<uint64_t> backward_threads;  // other threads read data, for example
  std::map<std::string, int> group_lanes;
  std::map<std::string, int> offload_lanes;  // by name of the work
};

void StepTrace::add_phases(Layout& layout) const {
  for (const auto& phase : phases_) {
    layout.spans.push_back(on_host(phase, kPhases));
    if (phase.begin.event) layout.spans.push_back(on_device(phase, kDevicePhases));
  }
}

void StepTrace::add_calls(Layout& layout) const {
  const auto step_end = phases_.back().end.host;
  for (const auto& call : calls_) {
    if (call.category == kOffloadCategory) {
      const int lane = lane_of(layout.offload_lanes, call.name, kOffload);
      layout.spans.push_back(call.begin.event ? on_device(call, lane) : on_host(call, lane));
      layout.spans.back().details = {{"bytes", std::to_string(call.bytes)}};
      continue;
    }
    if (call.end.host > step_end) continue;  // from a thread that works ahead
    if (call.category == std::string_view("backward")) layout.backward_threads.insert(call.thread);
    layout.spans.push_back(on_host(call, lane_of(layout.thread_lanes, call.thread, kCompute)));
    if (call.begin.event) layout.spans.push_back(on_device(call, kDeviceCompute));
  }
}

void StepTrace::add_collectives(Layout& layout) const {
  for (const auto& record : collectives_) {
    const bool is_timed_on_device = record->begin.event.has_value();
    layout.spans.push_back({lane_of(layout.group_lanes, record->group, kCommunication),
                            record->op,
                            "collective",
                            is_timed_on_device ? device_microseconds(record->begin) : microseconds(record->begin.host),
                            milliseconds_between(record->begin, record->end) * 1e3,
                            {{"bytes", std::to_string(record->bytes)}, {"ranks", std::to_string(record->group_size)}}});
  }
}

std::vector<TraceLane> StepTrace::lanes_of(const Layout& layout) const {
  std::vector<TraceLane> lanes{{kPhases, "step"}};
  for (const auto& [thread, lane] : layout.thread_lanes) {
    const char* work = layout.backward_threads.contains(thread) ? "compute" : "other";
    lanes.push_back({lane, lane == kCompute ? "compute" : fmt::format("{} (thread {})", work, thread)});
  }
  for (const auto& [group, lane] : layout.group_lanes) lanes.push_back({lane, "communication (" + group + ")"});
  for (const auto& [work, lane] : layout.offload_lanes) lanes.push_back({lane, work});
  if (!device_.is_cpu()) {
    lanes.push_back({kDevicePhases, "device: step"});
    lanes.push_back({kDeviceCompute, "device: compute"});
  }
  return lanes;
}

std::string StepTrace::take() {
  if (state_ != State::kRecorded) return {};
  enter(State::kTaken);
  const std::lock_guard lock(mutex_);
  Layout layout;
  add_phases(layout);
  add_calls(layout);
  add_collectives(layout);
  return format_trace(rank_, lanes_of(layout), layout.spans);
}

}  // namespace dslaunch::runtime
