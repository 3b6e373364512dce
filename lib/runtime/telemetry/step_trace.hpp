// "--trace STEP": what one step did and when, as a trace with lanes: the step's phases, the computation (calls of
// modules, operators, backward nodes; one lane per thread), the collectives of each group of ranks, and the copies and
// updates of offloaded state. On a device the first two exist twice: when the host issued the work, and when the device
// did it (phases, modules and backward nodes by events in its stream). Operators are recorded for the host only. The
// kernels and copies of a GPU have a lane for each stream, and a lane shows where communication is exposed. Steps that
// are not traced have no overhead.
//
// Threads: operators and collectives from any thread, everything else on the engine's thread.
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/state/module_info.hpp"
#include "runtime/telemetry/device_work.hpp"
#include "runtime/telemetry/kernel_recorder.hpp"
#include "runtime/telemetry/observed_communicator.hpp"
#include "runtime/telemetry/operator_scopes.hpp"
#include "runtime/telemetry/step_phases.hpp"
#include "runtime/telemetry/trace_file.hpp"

namespace dslaunch::runtime {

class StepTrace final : public StepObserver, public CollectiveObserver {
 public:
  // `step` counts from 1.
  StepTrace(int64_t step, int rank, at::Device device) : step_(step), rank_(rank), device_(device) {}
  ~StepTrace() override;

  // The modules whose calls are named by path instead of "forward".
  void set_modules(const std::vector<ModuleInfo>& modules);

  void begin_step(int64_t step) override;
  void end_phase(StepPhase phase) override;
  void end_step() override;
  void issued(const std::shared_ptr<const CollectiveRecord>& record) override;

  struct Taken {
    std::string json;
    CommunicationTime communication;
  };
  // Returned once, when the step is done; waits for the device. Empty before and after. Kernels that run by then are
  // recorded: where the next step has been issued, its computation hides the communication that overlaps it.
  std::optional<Taken> take();

  // For OperatorScopes.
  std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  void end(const at::RecordFunction& call, at::ObserverContext* context);

 private:
  struct Call;
  struct Layout;  // lanes and spans while take() draws them
  struct Recorded {
    std::string name;
    const char* category;
    uint64_t thread;
    TimeMark begin, end;
    int64_t bytes = 0;  // of the work of offloaded state
  };
  enum class State { kBefore, kRecording, kRecorded, kTaken };
  void enter(State state);
  std::string name_of_call(const at::RecordFunction& call) const;
  double microseconds(std::chrono::steady_clock::time_point time) const;
  TraceSpan on_host(const Recorded& recorded, int lane) const;
  double device_microseconds(const TimeMark& mark) const;
  TraceSpan on_device(const Recorded& recorded, int lane) const;
  void add_phases(Layout& layout) const;
  void add_calls(Layout& layout) const;        // with mutex_ held
  void add_collectives(Layout& layout) const;  // with mutex_ held
  void add_kernels(Layout& layout, std::vector<DeviceSpan> kernels) const;
  CommunicationTime communication_of(const Layout& layout) const;
  std::vector<TraceLane> lanes_of(const Layout& layout) const;

  // fixed after construction
  const int64_t step_;
  const int rank_;
  const at::Device device_;
  std::unordered_map<const void*, std::string> path_of_;  // by identity
  // the engine's thread
  TimeMark step_begin_, phase_begin_;
  std::chrono::sys_days midnight_;  // before the step (UTC): where the trace's times begin
  double clock_offset_us_ = 0;      // steady clock to microseconds since then
  KernelRecorder kernels_;
  std::vector<Recorded> phases_;
  // all threads
  std::mutex mutex_;
  State state_ = State::kBefore;  // written by the engine's thread only; guarded when other threads read it
  std::vector<Recorded> calls_;   // guarded
  std::vector<std::shared_ptr<const CollectiveRecord>> collectives_;  // guarded
  std::unique_ptr<OperatorScopes<StepTrace>> scopes_;
};

}  // namespace dslaunch::runtime
