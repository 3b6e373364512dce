// The parameters of a model in flat buffers, sharded over the ranks of the data axis according to ZeRO's stages:
//
//   stage 0: every rank holds everything; gradients are all-reduced; the optimizer's step is replicated.
//   stage 1: master weights and moments are sharded; gradients are reduce-scattered at the accumulation boundary;
//            updated parameters all-gathered after the step (with overlap: while the next forward runs, unit by unit).
//   stage 2: gradients are sharded as well: reduced in every accumulation step, as each call's backward ends.
//   stage 3: parameters as well: gathered while each unit runs, the next units ahead of use. Small ones stay whole.
//            Frozen ones are sharded and gathered like the others; at stages 0 to 2 the model keeps them itself.
//
// With offload the optimizer's state of some groups, and at stage 3 the gathered parameters, rest in host memory or in
// files.
// Updates of that state may still be running when gather_parameters() is called (PendingUpdates): a unit's parameters
// are published when it is first acquired, on every rank in the order of the groups and before any gradient is reduced;
// of a pipeline's stage with several data ranks, all are published at the first call of a step. Where they are early, a
// group's update begins in the step's last backward, when its gradients are complete.
//
// Threads: acquire/release on the thread that runs the model, prepare_backward, gradient_destination and take_gradients
// on autograd's thread, everything else on the engine's thread and never during a backward pass.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/sharding/collective_order.hpp"
#include "runtime/sharding/gathered_parameters.hpp"
#include "runtime/sharding/gradient_reduction.hpp"
#include "runtime/sharding/pending_updates.hpp"
#include "runtime/sharding/segment_locations.hpp"
#include "runtime/sharding/sharding_options.hpp"
#include "runtime/sharding/state_layout.hpp"
#include "runtime/state/state_arrays.hpp"
#include "runtime/state/step_streams.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

class FlatParameters : public UnitParameters {
 public:
  // The streams and the groups must outlive this object. Stage 3 gathers use `gather_group`; reductions and everything
  // else use `data_group`: two communicators of the same ranks, so that on a device neither waits for the other. On
  // host memory they may be the same object.
  FlatParameters(const ParameterTable& table, ShardingOptions options, StepStreams& streams,
                 comm::Communicator& data_group, comm::Communicator& gather_group);

  // Reads elements [begin, begin + out.numel()) of what this rank has of a parameter (its shape in the table) into
  // `out` (1-D, any floating type, host memory).
  using ReadElements = std::function<void(int parameter, int64_t begin, at::Tensor out)>;
  // Fills this rank's shards (frozen parameters included), reading only the elements it needs, then gathers all
  // parameters from all ranks. All ranks call it and must read the same values. `barrier` runs between the reads and
  // the first collective; it is a barrier for ranks whose reads may take longer than the collective timeout.
  void load(const ReadElements& read, const std::function<void()>& barrier = {});

  UnitValues acquire(int unit, UnitCall call) override;
  void release(int unit) override;
  void prepare_backward(int unit) override;
  std::optional<GradientDestination> gradient_destination(int unit, size_t parameter, at::ScalarType factors) override;
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override;
  DeferredGradients* deferred_gradients() override { return deferred_; }

  void begin_accumulation_step(bool is_last);  // before a forward whose backward follows
  void end_accumulation_step();                // after that backward
  // Of a pipeline (stages 0 and 1), whose micro batches overlap: before the first forward of a step, and before the
  // last backward of it. end_accumulation_step() follows once.
  void begin_overlapping_micro_batches();
  void begin_last_backward();
  void reduce_gradients();   // after the last backward: the state has its gradients
  void release_gradients();  // after their use: the next step starts from zero
  void gather_parameters();  // after the optimizer has written the state, or begun to
  // Waits for pending updates and publishes their results. Collective.
  void finish_updates();
  // Of the passes without backward that begin from now on: whether ranks do them on their own
  // (CollectiveOrder::Pass::kGeneration). The other ranks then acquire and release the root once for each pass.
  void set_generating(bool generates) { generates_ = generates; }
  // Whether parameters are whole only while their unit is acquired.
  bool gathers_units() const;
  // From now on, updates of offloaded state are pending until `updates` says otherwise; it must outlive the last use.
  void set_pending_updates(PendingUpdates& updates);
  // From now on, backwards may leave weight gradients there (stages 0 and 1); it must outlive the last pass.
  void set_deferred_gradients(DeferredGradients& deferred);

  // The next passes run as a graph, many times (engine/step/captured_pass.hpp): they must gather all that they use.
  void begin_capture();
  // A capture of the pass was aborted, possibly in the middle of an accumulation step: nothing of it has run, and
  // StepStreams::discard() has been called.
  void abandon_pass();

  // What the optimizer works on: this rank's part of every trained group, cut by optimizer group, without moments. The
  // gradients are there from reduce_gradients() to release_gradients().
  std::span<SpanState> state() { return state_; }
  const std::vector<FrozenShard>& frozen_shards() const { return frozen_shards_; }
  const std::vector<FlatGroup>& groups() const { return groups_; }
  // Whether this frozen parameter is sharded here; the others stay in the model.
  bool shards_frozen(int parameter) const { return is_sharded_frozen_[static_cast<size_t>(parameter)]; }
  int num_shards() const { return layout_.num_shards; }
  // Whether any state is offloaded, of this rank or another.
  bool offloads_state() const;
  // The divisor that turns summed gradients into the mean over the data ranks: data ranks / predivide.
  double gradient_divisor() const;

 private:
  struct UnitViews {  // the parameters in their own shapes, valid while the unit stays at one address
    const void* address = nullptr;
    UnitValues values;
  };

  std::unique_ptr<GradientSink> make_sink();
  at::Tensor zeros_at_rest(size_t group, int64_t numel, at::ScalarType dtype) const;
  GatheredParameters::AtRest store_parameters(std::vector<at::Tensor> slices);
  void allocate_resident(size_t group);
  // Both return this rank's slice of the parameters as it rests in memory; undefined where it does not.
  at::Tensor make_state(size_t group);
  Range own_range(size_t group) const { return shard_range(groups_[group], shard_index_, layout_.num_shards); }
  at::Tensor make_frozen_shard(size_t group);
  void load_trained(const ReadElements& read);
  void load_frozen(const ReadElements& read);
  void load_stored(const ReadElements& read, const FrozenShard& shard);
  CollectiveOrder::Options collective_order_options();
  void participate(UnitEvent event);
  void ensure_gathered(int unit, UnitEvent::Kind kind);
  const UnitValues& views_of(int unit);
  at::Tensor view_at(SegmentLocation location) const;
  at::Tensor full_parameters(int group) const;
  void end_inference_pass();
  void publish(size_t end);
  void begin_early_update(std::span<const SpanState> group, const at::Tensor& squares);
  bool orders_collectives() const { return options_.stage >= 2; }

  // fixed after construction
  const ParameterTable& table_;
  const ShardingOptions options_;
  StepStreams& streams_;
  comm::Communicator& data_group_;
  const int shard_index_;
  const StateLayout layout_;
  const std::vector<FlatGroup>& groups_;  // of the layout: trained ones, then frozen ones, as frozen_shards_
  std::vector<std::vector<SegmentLocation>> locations_;
  std::vector<std::vector<std::optional<SegmentLocation>>> frozen_locations_;
  std::vector<bool> is_sharded_frozen_;  // by parameter
  DeferredGradients* deferred_ = nullptr;
  PendingUpdates* updates_ = nullptr;  // null: updates have been written when gather_parameters() is called
  // the engine's thread, or autograd's during a backward pass
  std::vector<at::Tensor> resident_;        // by group: whole parameters, padded; undefined where they are gathered
  std::vector<StreamMark> resident_ready_;  // by group: the end of the last gather after a step
  size_t num_published_ = 0;                // groups, in order, since gather_parameters()
  std::vector<SpanState> state_;            // by group, then by range
  std::vector<FrozenShard> frozen_shards_;
  std::shared_ptr<ParameterStore> parameter_store_;  // null: no parameters are in files
  std::unique_ptr<GatheredParameters> gathered_;     // stage 3 on several ranks or with parameters on the host
  std::shared_ptr<GradientStore> gradient_store_;    // null: gradients are in memory
  std::unique_ptr<GradientSink> sink_;
  std::unique_ptr<GradientReduction> gradients_;  // delivers to the sink
  CollectiveOrder collective_order_;
  std::vector<UnitViews> views_;  // by unit
  bool in_training_pass_ = false, in_inference_pass_ = false;
  bool generates_ = false;
  bool is_last_pass_ = false;           // of the step
  bool micro_batches_overlap_ = false;  // in a training pass of a pipeline
};

}  // namespace dslaunch::runtime
