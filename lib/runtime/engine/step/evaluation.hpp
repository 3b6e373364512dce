// The mean loss over evaluation data, as one process would compute it: in evaluation mode, without gradients, over all
// samples once. Every rank makes the same number of forward calls, because at stage 3 each call all-gathers parameters;
// a rank that has run out of samples continues with padding batches of weight 0. Random state and buffers are restored
// afterwards, so evaluations do not change the run. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::step {

struct EvaluationBatch {
  setup::MicroBatch batch;
  int64_t num_samples = 0;  // samples that count; 0: a padding batch
};

struct EvaluationResult {
  double loss = 0;          // the mean; NaN when no sample counted
  double label_loss = 0;    // the mean over all labels that count; NaN when there are none
  int64_t num_samples = 0;  // over all data ranks
  bool stopped = false;     // a rank requested a stop before the end: `loss` covers the samples up to that point
  std::vector<std::pair<std::string, double>> metrics = {};  // train.metrics by name, in their order
};

struct EvaluationInputs {
  std::function<std::optional<EvaluationBatch>()> next;         // as many batches as on every other rank
  std::function<at::Tensor(const setup::MicroBatch&)> loss_of;  // 0-dim
  // false: loss_of returns the mean over the batch's samples. true: loss_of returns the sum over the labels that count,
  // and the result is the mean over all labels that count ("loss_average": "tokens").
  bool sums_over_labels = false;
  std::function<bool()> stop_requested;  // polled every few batches
};

// Collective over the world. All data ranks evaluate with the buffers of data rank 0 (running statistics of BatchNorm),
// which are also the buffers that a checkpoint stores.
EvaluationResult evaluate(model::Model& model, const EvaluationInputs& inputs, const comm::Groups& groups,
                          at::Device device);

}  // namespace dslaunch::runtime::engine::step
