// All monitors of a run's steps that the job file or the command line enables: times, memory, FLOPs, collectives, a
// trace. Built once per rank; a monitor that is not enabled does not exist and costs nothing. One thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/groups.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/step/pipeline_clock.hpp"
#include "runtime/model/interface/model_facts.hpp"
#include "runtime/telemetry/comms_log.hpp"
#include "runtime/telemetry/flops_profiler.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"
#include "runtime/telemetry/observed_communicator.hpp"
#include "runtime/telemetry/step_times.hpp"
#include "runtime/telemetry/step_trace.hpp"

namespace dslaunch::runtime::engine::run {

struct StepMonitorOptions {
  int rank = 0;  // of the world
  comm::Mesh mesh;
  at::Device device = at::kCPU;
  std::string run_dir;                // for the trace
  std::optional<int64_t> trace_step;  // counts from 1
};

// The monitors' output for one step.
struct StepReport {
  std::optional<StepBreakdown> times;
  double input_ms = 0;                       // that the step waited for its batches
  std::vector<std::string> lines;            // always shown
  std::vector<std::string> lines_at_report;  // shown only together with a progress line
  std::optional<double> step_flops;          // of this rank, forward and backward; known once the profiler has run
  // The most allocated and reserved so far, if the monitors reset the allocator's own peaks.
  int64_t peak_device_bytes = 0, peak_reserved_bytes = 0;
};

class StepMonitors {
 public:
  // `config` must outlive this.
  StepMonitors(const config::JobConfig& config, StepMonitorOptions options);

  // Returns `inner`, or a communicator around it that a monitor watches; both live as long as this. `group` names it.
  comm::Communicator& observe(comm::Communicator& inner, const std::string& group);
  comm::Groups observe(const comm::Groups& inner);
  // The model whose modules the reports name; must outlive this object. Call before the first step.
  void watch_model(const model::ModelFacts& model);
  // Notified of the current phase of each step.
  const StepPhases& phases() const { return phases_; }
  // Null unless a step of a pipeline is traced.
  step::PipelineClock* pipeline_clock() { return pipeline_clock_ ? &*pipeline_clock_ : nullptr; }

  // Call on every rank once a step's result has arrived, in step order. Writes the profile and the trace of that step;
  // in a traced step, collective.
  // Throws SystemError (73, 74).
  StepReport take_step(int64_t step);
  // Call when the run is over; returns its final lines.
  std::vector<std::string> finish();

 private:
  void report_flops(int64_t step, StepReport& report);
  void write_trace(StepReport& report);

  const config::JobConfig& config_;
  const StepMonitorOptions options_;
  const model::ModelFacts* model_ = nullptr;
  comm::Communicator* world_ = nullptr;  // unobserved; null before observe(groups)
  std::optional<StepTimes> times_;
  std::optional<MemoryBreakdown> memory_;
  std::optional<FlopsProfiler> flops_;
  std::optional<CommsLog> collectives_;
  std::optional<StepTrace> trace_;
  std::optional<step::PipelineClock> pipeline_clock_;
  StepPhases phases_;
  std::vector<std::unique_ptr<ObservedCommunicator>> observed_;
  std::optional<double> step_flops_;
  bool has_profile_ = false, has_trace_ = false;
};

}  // namespace dslaunch::runtime::engine::run
