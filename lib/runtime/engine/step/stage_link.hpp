// What a pipeline stage sends to its neighbours and receives from them for one micro batch. One thread.
//
// A receiver must know the layout of carried values before their bytes arrive. Both ends of a cut read the same micro
// batch, so the layout of a kind of micro batch (the sizes of its arrays) is sent once, in front of the first
// activation of that kind; it is sent every time where the model carries numbers that depend on data.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/model/interface/carried_values.hpp"
#include "runtime/model/interface/model_facts.hpp"
#include "runtime/pipeline/schedule.hpp"
#include "runtime/state/deferred_gradients.hpp"
#include "runtime/state/step_streams.hpp"

namespace dslaunch::runtime::engine::step {

// A micro batch on its way through a stage.
struct StagePassage {
  setup::MicroBatch batch;
  bool has_backward = true;           // not of an evaluation
  model::CarriedValues received;      // from the stage before; leaves that collect gradients
  model::CarriedValues sent;          // to the next stage, with their history
  std::vector<at::Tensor> gradients;  // from the next stage, of those of `sent` that require one, in their order
  at::Tensor loss;                    // of the last stage
  // What its backward left for later.
  std::vector<DeferredGradients::Work> weight_gradients;
  int64_t exchange = 0;  // the last one that received something for it
};

class StageLink {
 public:
  // `pipe`: the ranks of all stages, in their order. All arguments must outlive this object.
  StageLink(comm::Communicator& pipe, const model::StageFacts& stage, StepStreams& streams, at::Device device);

  bool is_first() const { return pipe_.rank() == 0; }
  bool is_last() const { return pipe_.rank() + 1 == pipe_.size(); }

  // Issues the transfers as one group. `passages`: by micro batch; those of received activations have their batch.
  // On host memory everything has arrived when this returns. A passage whose gradients were sent is done with what it
  // received.
  void exchange(std::span<const pipeline::Action> transfers, std::span<StagePassage> passages);
  // Before the current stream reads what the passage has received.
  void wait_for(const StagePassage& passage) { wait_for_exchange(passage.exchange); }
  // After the last exchange of a step: the current stream waits for all of them.
  void finish_step() { wait_for_exchange(num_exchanges_); }

 private:
  using BatchKind = std::vector<int64_t>;
  struct Cut {  // between this stage and a neighbour
    std::map<BatchKind, model::CarriedLayout> layouts;
    bool is_fixed = true;        // by the kind of batch
    int64_t message_length = 0;  // of a layout, in int64
  };
  // An exchange in the making: buffers that stay alive, and what is sent and received.
  struct Parts;

  static Cut cut_of(const std::vector<model::CarriedInfo>& carried);
  void add_layout_to_send(const StagePassage& passage, Parts& parts);
  void receive_layouts(std::span<const pipeline::Action> transfers, std::span<StagePassage> passages, Parts& first);
  void add(const pipeline::Action& transfer, StagePassage& passage, Parts& parts);
  void issue(Parts& parts);
  void wait_for_exchange(int64_t number);

  comm::Communicator& pipe_;
  StepStreams& streams_;
  const at::Device device_;
  Cut before_, after_;
  struct InFlight {
    int64_t number = 0;
    StreamMark end;
    std::vector<at::Tensor> sent;
  };
  int64_t num_exchanges_ = 0;
  std::deque<InFlight> in_flight_;  // exchanges that the current stream has not waited for, in order
};

}  // namespace dslaunch::runtime::engine::step
