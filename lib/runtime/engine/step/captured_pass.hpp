// Runs gradient passes as CUDA graphs ("graph_harvesting", step_graph.hpp): the first steps are launched kernel by
// kernel; with "auto" the next ones are measured; then steps are captured and replayed, with one graph for each set of
// shapes. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/step/capture_decision.hpp"
#include "runtime/engine/step/forward_loss.hpp"
#include "runtime/engine/step/gradient_pass.hpp"
#include "runtime/engine/step/issue_clock.hpp"
#include "runtime/engine/step/shape_buckets.hpp"
#include "runtime/engine/step/step_graph.hpp"
#include "runtime/sharding/flat_parameters.hpp"

namespace dslaunch::runtime::engine::step {

class CapturedPass {
 public:
  struct Options {
    at::Device device = at::kCPU;
    // Batches of different steps may have different shapes, and each rank its own. Several ranks then exchange their
    // shapes before every step, for which they wait for the device.
    bool shapes_vary = false;
    // "auto": observes the phases of steps; must outlive this object. Null: steps are captured without measuring.
    IssueClock* clock = nullptr;
    Result<> capturable;  // as far as this rank knows before steps run; with `clock` only said where capture would pay
    std::function<std::unique_ptr<DeviceGraph>(at::Device device, const DeviceGraph* shares)> make_graph =
        make_device_graph;
  };
  // The references must outlive this object. All ranks of the world capture and replay together.
  CapturedPass(GradientPass& pass, FlatParameters& parameters, StepStreams& streams, comm::Communicator& world,
               Options options);

  // As GradientPass::compute(), of step `step`; `next` fetches the step's micro batches.
  void compute(const std::function<setup::MicroBatch()>& next, int64_t step);
  // Without `clock`; collective, before the first step: whether all ranks can capture. If not, rank 0 says why.
  bool check_ranks();
  // Whether steps are replayed; the failure says why not.
  const Result<>& captured() const { return captured_; }

 private:
  enum class State : uint8_t { kMeasuring, kCapturing, kOff };

  void measure(const std::vector<setup::MicroBatch>& batches);
  void decide();
  void run(const std::vector<setup::MicroBatch>& batches, int64_t step);
  ShapeKey agree_on_shapes(const std::vector<setup::MicroBatch>& batches);
  bool capture(const std::vector<setup::MicroBatch>& batches, size_t slot, int64_t step);
  Result<> capture_own(const std::vector<setup::MicroBatch>& batches, size_t slot);
  const DeviceGraph* any_graph() const;
  Result<> agree(const Result<>& own);
  void report(const Result<>& captured);
  void take_results(const std::vector<at::Tensor>& results);

  GradientPass& pass_;
  FlatParameters& parameters_;
  StepStreams& streams_;
  comm::Communicator& world_;
  const Options options_;
  State state_;
  int64_t num_steps_ = 0;
  std::vector<PassTiming> timings_;  // of the measured passes
  CaptureDecision decision_;         // with `clock`
  bool is_reported_ = false;
  Result<> captured_ = Failure{"no step has been captured yet"};
  std::optional<ShapeKey> only_shapes_;  // of several ranks whose shapes do not vary
  ShapeBuckets buckets_;
  std::vector<std::unique_ptr<StepGraph>> graphs_;  // by slot of the buckets
};

// Whether steps of this configuration may be measured: their host issues a step's work without waiting for anything
// else.
bool is_measurable(const config::JobConfig& config, at::Device device, bool is_observed);
// Whether a run of this configuration allows capture; `is_observed`: phase by phase.
Result<> check_capturable(const config::JobConfig& config, at::Device device, bool is_observed);

}  // namespace dslaunch::runtime::engine::step
