#include "runtime/telemetry/step_trace.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
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
  kDeviceCompute = 201,
  kExposed = 202,
  kStreams = 203
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
  if (!device_.is_cpu()) {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    kernels_.start();
  }
  using Microseconds = std::chrono::duration<double, std::micro>;
  const auto now = std::chrono::system_clock::now();
  midnight_ = std::chrono::floor<std::chrono::days>(now);
  clock_offset_us_ =
      Microseconds(now - midnight_).count() - Microseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
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
  if (call.scope() != at::RecordScope::TORCHSCRIPT_FUNCTION) return readable_name(call.name());
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
  std::map<int64_t, int> stream_lanes;
  std::vector<Interval> collectives;
  std::vector<DeviceSpan> kernels;  // of the step
  DeviceCommunication communication;
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
    const double begin = is_timed_on_device ? device_microseconds(record->begin) : microseconds(record->begin.host);
    const double duration = milliseconds_between(record->begin, record->end) * 1e3;
    layout.spans.push_back({lane_of(layout.group_lanes, record->group, kCommunication),
                            record->op,
                            "collective",
                            begin,
                            duration,
                            {{"bytes", std::to_string(record->bytes)}, {"ranks", std::to_string(record->group_size)}}});
    layout.collectives.push_back({begin, begin + duration});
  }
}

// The last collective of a step may end after it: the step's communication goes until then, and what comes later is the
// next step's.
void StepTrace::add_kernels(Layout& layout, std::vector<DeviceSpan> kernels) const {
  if (kernels.empty()) return;
  const auto& step = phases_.back();
  Interval window{device_microseconds(step.begin), device_microseconds(step.end)};
  for (const auto& each : layout.collectives) window.end = std::max(window.end, each.end);
  layout.communication = communication_in(kernels, window);
  std::erase_if(kernels, [&](const auto& each) { return each.begin_us >= window.end; });
  layout.kernels = std::move(kernels);
  constexpr std::array kCategories{"kernel", "communication kernel", "copy"};  // in the order of DeviceWork
  for (const auto& each : layout.kernels) {
    layout.spans.push_back({lane_of(layout.stream_lanes, each.stream, kStreams),
                            each.name,
                            kCategories[static_cast<size_t>(each.work)],
                            each.begin_us,
                            each.end_us - each.begin_us,
                            {}});
  }
  for (const auto& each : layout.communication.exposed) {
    layout.spans.push_back({kExposed, "exposed communication", "exposed", each.begin, each.end - each.begin, {}});
  }
}

CommunicationTime StepTrace::communication_of(const Layout& layout) const {
  using enum CommunicationTime::Source;
  if (!layout.kernels.empty())
    return {kKernels, length_of(layout.communication.all) / 1e3, length_of(layout.communication.exposed) / 1e3};
  const double total_ms = length_of(merged(layout.collectives)) / 1e3;
  return {device_.is_cpu() ? kSynchronous : kEvents, total_ms, total_ms};
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
  if (!layout.communication.all.empty()) lanes.push_back({kExposed, "device: exposed communication"});
  for (const auto& [stream, lane] : layout.stream_lanes)
    lanes.push_back({lane, describe_stream(stream, layout.kernels)});
  return lanes;
}

std::optional<StepTrace::Taken> StepTrace::take() {
  if (state_ != State::kRecorded) return std::nullopt;
  enter(State::kTaken);
  std::vector<DeviceSpan> kernels;
  if (!device_.is_cpu()) {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    kernels = kernels_.stop(midnight_);
  }
  const std::lock_guard lock(mutex_);
  Layout layout;
  add_phases(layout);
  add_calls(layout);
  add_collectives(layout);
  add_kernels(layout, std::move(kernels));
  const auto communication = communication_of(layout);
  std::vector<std::pair<std::string, double>> numbers{{"communication_ms", communication.total_ms}};
  if (communication.source != CommunicationTime::Source::kEvents)
    numbers.emplace_back("exposed_communication_ms", communication.exposed_ms);
  return Taken{format_trace(rank_, lanes_of(layout), layout.spans, numbers), communication};
}

}  // namespace dslaunch::runtime
