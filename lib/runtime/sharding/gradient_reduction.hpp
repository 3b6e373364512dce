// How the gradients of unit calls become the gradients of the shards: one interface, one class for each way. Their
// memory is taken as they come and given back after the update: when activations are at their most, at the end of a
// forward, a step's gradients are not there yet.
//
// On a device: what a stream of its own works on is allocated, and freed, by the thread's current stream, which has
// waited for that stream by then.
//
// Threads: take() and participate() on autograd's thread, all else on the engine's, never at the same time as a
// backward pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

class GradientReduction {
 public:
  virtual ~GradientReduction() = default;
  virtual void begin_micro_step(bool is_last) = 0;  // before its forward
  virtual void expect(int unit) = 0;                // a call of the unit whose gradients will come
  // The gradients of one call, in the order of UnitInfo::parameters; undefined: not used.
  virtual void take(int unit, std::vector<at::Tensor> gradients) = 0;
  // Takes part in the reduction of a call that this rank did not make.
  virtual void participate(int unit) = 0;
  // After the last backward of the step: every shard's gradient is whole, in fp32.
  virtual void finish() = 0;
  // The next step's gradients begin anew; the shards' are gone.
  virtual void forget() = 0;
  // See FlatParameters::settle() and abandon_pass().
  virtual void settle() = 0;
  virtual void drop_marks() = 0;
};

// Both give the shards their gradient tensors, from finish() to forget(). All arguments must outlive the result.
// `groups`: those that are trained, by shard.
//
// Stages 0 and 1: gradients are summed up over the micro steps in a buffer of their own for each group, then reduced
// once (with overlap: while the last backward runs, from the last unit to the root).
std::unique_ptr<GradientReduction> make_whole_gradients(const ParameterTable& table, std::span<const FlatGroup> groups,
                                                        std::vector<Shard>& shards, const ShardingOptions& options,
                                                        comm::Communicator& data_group);
// Stages 2 and 3: the gradients of every call are reduced at once from a small bucket and summed up in the shards.
std::unique_ptr<GradientReduction> make_sharded_gradients(const ParameterTable& table,
                                                          std::span<const FlatGroup> groups, std::vector<Shard>& shards,
                                                          const ShardingOptions& options,
                                                          comm::Communicator& data_group);

}  // namespace dslaunch::runtime
