// Everything that watches a run's steps because the job file or the command line asks for it: times, memory, FLOPs,
// collectives, a trace. Built once a rank; what nobody asks for is not there and costs nothing. One thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/telemetry/comms_log.hpp"
#include "runtime/telemetry/flops_profiler.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"
#include "runtime/telemetry/observed_communicator.hpp"
#include "runtime/telemetry/step_times.hpp"
#include "runtime/telemetry/step_trace.hpp"

namespace dslaunch::runtime {

struct StepMonitorOptions {
  int rank = 0, world_size = 1;
  at::Device device = at::kCPU;
  std::string run_dir;                // of the trace
  std::optional<int64_t> trace_step;  // counts from 1
};

// What they have to say of one step.
struct StepReport {
  std::optional<StepBreakdown> times;
  std::vector<std::string> lines;            // to show in any case
  std::vector<std::string> lines_at_report;  // to show where a progress line is shown
  std::optional<double> step_flops;          // of this rank, forward and backward; known once the profiler has run
  int64_t peak_device_bytes = 0;             // largest allocation so far, where the monitors reset the allocator's own
};

class StepMonitors {
 public:
  // `config` must outlive this.
  StepMonitors(const config::JobConfig& config, StepMonitorOptions options);

  // `inner` itself, or a communicator around it that a monitor watches; both live as long as this. `group` names it.
  comm::Communicator& observe(comm::Communicator& inner, const std::string& group);
  // Whose modules reports name; must outlive this. Before the first step.
  void watch_model(const ModelSource& model);
  // Who is told where a step stands.
  const StepPhases& phases() const { return phases_; }

  // Once a step's result has arrived, in the order of the steps, on every rank. Writes the profile and the trace of
  // that step. Throws SystemError (73, 74).
  StepReport take_step(int64_t step);
  // The run is over: its last lines.
  std::vector<std::string> finish();

 private:
  void report_flops(int64_t step, StepReport& report);
  void write_trace();

  const config::JobConfig& config_;
  const StepMonitorOptions options_;
  const ModelSource* model_ = nullptr;
  std::optional<StepTimes> times_;
  std::optional<MemoryBreakdown> memory_;
  std::optional<FlopsProfiler> flops_;
  std::optional<CommsLog> collectives_;
  std::optional<StepTrace> trace_;
  StepPhases phases_;
  std::vector<std::unique_ptr<ObservedCommunicator>> observed_;
  std::optional<double> step_flops_;
  bool has_profile_ = false, has_trace_ = false;
};

}  // namespace dslaunch::runtime
