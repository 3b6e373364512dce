// The mean loss over evaluation data, as one process would compute it: in evaluation mode, without gradients, over all
// samples once. Every rank makes the same number of forward calls, since at stage 3 each of them gathers parameters
// together with the others; a rank whose samples have run out goes on with fillers of weight 0. What is left behind is
// what was there: random state and buffers are put back, so that a run with evaluations is the run without. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "comm/communicator.hpp"
#include "runtime/engine/micro_batch.hpp"
#include "runtime/model/model_source.hpp"

namespace dslaunch::runtime {

struct EvaluationBatch {
  MicroBatch batch;
  int64_t num_samples = 0;  // those that count; 0: a filler
};

struct EvaluationResult {
  double loss = 0;          // the mean; NaN when nothing counted
  int64_t num_samples = 0;  // of all ranks
  bool stopped = false;     // a rank asked to stop before the end: `loss` is over what was seen until then
};

struct EvaluationInputs {
  std::function<std::optional<EvaluationBatch>()> next;  // as many as on every other rank
  std::function<at::Tensor(const MicroBatch&)> loss_of;  // 0-dim
  // What loss_of gives: the mean over the samples of the batch, or the sum over its labels that count, and the result
  // is then the mean over all labels that count ("loss_average": "tokens").
  bool sums_over_labels = false;
  std::function<bool()> stop_requested;  // asked every few batches
};

// Collective over `group`. All ranks evaluate with rank 0's buffers (running statistics of BatchNorm), which are also
// those that a checkpoint keeps.
EvaluationResult evaluate(ModelSource& model, const EvaluationInputs& inputs, comm::Communicator& group,
                          at::Device device);

}  // namespace dslaunch::runtime
