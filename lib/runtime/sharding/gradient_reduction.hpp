// How the gradients of unit calls become the gradients of the state that this rank owns: one interface, one class per
// strategy. Memory for gradients is allocated as they arrive and freed after the update, so a step's gradients do not
// yet exist at the end of a forward, when activations take the most memory.
//
// On a device: memory that a side stream works on is allocated and freed on the thread's current stream, which has
// waited for the side stream before it frees.
//
// Threads: destination(), take() and participate() on autograd's thread, everything else on the engine's thread and
// never during a backward pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/sharding/gradient_sink.hpp"
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/state/gradient_destination.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/step_streams.hpp"

namespace dslaunch::runtime {

class GradientReduction {
 public:
  virtual ~GradientReduction() = default;
  virtual void begin_accumulation_step(bool is_last) = 0;  // before its forward
  // Where the micro batches of a step overlap (a pipeline, stages 0 and 1): its one begin_accumulation_step() says that
  // it is not the last, and the backward that follows this call is the step's last.
  virtual void begin_last_backward() = 0;
  virtual void expect(int unit) = 0;  // a call of the unit whose gradients will come
  // UnitParameters::gradient_destination(), 1-D: in the buffer from which the gradient is reduced.
  virtual std::optional<GradientDestination> destination(int unit, size_t parameter, at::ScalarType factors) = 0;
  // The gradients of one call, in the order of UnitInfo::parameters; undefined: not used, or written.
  // `others_may_follow`: in this accumulation step other ranks may still make calls of the unit in which this rank only
  // participates.
  virtual void take(int unit, std::vector<at::Tensor> gradients, bool others_may_follow) = 0;
  // Takes part in the reduction of a call that this rank did not make.
  virtual void participate(int unit, bool others_may_follow) = 0;
  // After the last backward of the step: everything is delivered, and the current stream waits for it.
  virtual void finish() = 0;
  // The next step's gradients start from zero. Before the sink's release().
  virtual void release() = 0;
};

// All arguments must outlive the result. `groups`: the trained ones.
//
// Stages 0 and 1: gradients are accumulated over the micro batches in one buffer per group, then reduced and delivered
// once (with overlap, or at stage 1 with one micro batch: while the last backward runs, from the last unit to the
// root). At stage 1 with one micro batch a buffer lives from its unit's backward to its reduction.
std::unique_ptr<GradientReduction> make_bucketed_all_reduce(const ParameterTable& table,
                                                            std::span<const FlatGroup> groups, GradientSink& sink,
                                                            const ShardingOptions& options, StepStreams& streams,
                                                            comm::Communicator& data_group);
// Stages 2 and 3: the gradients of each call are reduced at once from a small bucket and delivered.
std::unique_ptr<GradientReduction> make_sharded_gradients(const ParameterTable& table,
                                                          std::span<const FlatGroup> groups, GradientSink& sink,
                                                          const ShardingOptions& options, StepStreams& streams,
                                                          comm::Communicator& data_group);

}  // namespace dslaunch::runtime
