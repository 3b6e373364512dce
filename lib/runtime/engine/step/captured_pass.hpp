// Runs gradient passes as one CUDA graph ("graph_harvesting", step_graph.hpp): the first steps are computed eagerly,
// one is captured, later ones are replayed. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/step/forward_loss.hpp"
#include "runtime/engine/step/gradient_pass.hpp"
#include "runtime/engine/step/step_graph.hpp"
#include "runtime/sharding/flat_parameters.hpp"

namespace dslaunch::runtime::engine::step {

class CapturedPass {
 public:
  // The references must outlive this object. All ranks of the world capture and replay together.
  CapturedPass(GradientPass& pass, FlatParameters& parameters, StepStreams& streams, comm::Communicator& world,
               at::Device device);

  // Collective: whether all ranks can capture. If a rank cannot (`own`), rank 0 says why.
  bool enable(const Result<>& own);
  // As GradientPass::compute(), of step `step`; `next` fetches the step's micro batches.
  void compute(const std::function<setup::MicroBatch()>& next, int64_t step);
  // Whether steps are replayed; the failure says why not.
  const Result<>& captured() const { return captured_; }

 private:
  void capture(const std::vector<setup::MicroBatch>& batches, int64_t step);
  void take_results(const std::vector<at::Tensor>& results);

  GradientPass& pass_;
  FlatParameters& parameters_;
  StepStreams& streams_;
  comm::Communicator& world_;
  const at::Device device_;
  std::optional<StepGraph> graph_;  // empty: steps are not captured
  Result<> captured_ = Failure{"no step has been captured yet"};
};

// Whether a run of this configuration allows capture; `is_observed`: phase by phase.
Result<> check_capturable(const config::JobConfig& config, at::Device device, bool is_observed);

}  // namespace dslaunch::runtime::engine::step
