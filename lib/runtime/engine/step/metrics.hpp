// What an evaluation measures beside the loss (train.metrics): perplexity, accuracy, and TorchScript files of users. A
// metric is a value of sums over all batches of all ranks, so that it is what one process computes over all samples.
// One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups.hpp"
#include "config/job_config.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::engine::step {

// What a batch's predictions are compared with. Position i of `outputs` predicts position i of `labels`.
struct Predictions {
  at::Tensor outputs;  // floating point
  at::Tensor labels;
};

// Where a model's result has its predictions.
struct PredictionSource {
  bool has_own_loss = false;  // forward returns the loss, and beside it the outputs; else they are those of the loss
  bool shifts = false;        // forward shifts the labels itself: without the first, they belong to all outputs but the
                              // last
  std::string outputs = {};   // the config's; empty: beside its loss the entry that fits the labels
};

// Throws UserError(65), naming `metric`, when there are no outputs beside the loss, when several could be meant
// (output_choice.hpp), or when there is more than one array of labels.
Predictions find_predictions(const model::ForwardResult& result, const std::vector<at::Tensor>& labels,
                             const PredictionSource& source, const std::string& metric);

// A metric that reads the results of forward.
class ResultMetric {
 public:
  virtual ~ResultMetric() = default;
  // Of one batch: 1-D, as many at every call. Throws UserError(65) naming the shapes.
  virtual at::Tensor sums_of(const Predictions& batch) = 0;
  // `sums`: of all batches, 1-D, float64, on the CPU.
  virtual double value_of(const at::Tensor& sums) = 0;
};

// `prefers_second`: where dim 1 and the last dim may both be the classes, they are in dim 1, as PyTorch defines it.
std::unique_ptr<ResultMetric> make_accuracy(bool prefers_second);
// A TorchScript file: forward(outputs, labels) returns the sums. Its method compute(sums), where it has one, makes the
// value of them; else they are two, and the value is their ratio. Throws UserError(65, 66).
std::unique_ptr<ResultMetric> make_module_metric(const config::EvaluationMetric& metric, const config::Kernels& kernels,
                                                 at::Device device);

class Metrics {
 public:
  // Of a run without metrics.
  Metrics() = default;
  // Throws UserError(65, 66) for a file that does not hold a metric. `tells`: logs once which of the model's outputs
  // the metrics take, where the loss does not say so.
  Metrics(const config::JobConfig& config, LabelConvention labels, at::Device device, bool tells = false);

  // Whether add() is needed.
  bool reads_results() const { return reads_results_; }
  // An evaluation begins: nothing has been added.
  void begin();
  void add(const model::ForwardResult& result, const std::vector<at::Tensor>& labels);
  // The values by name, on every rank: NaN for one of nothing. `label_loss`: the mean loss over all labels. Collective
  // over the world.
  std::vector<std::pair<std::string, double>> finish(double label_loss, const comm::Groups& groups);

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<ResultMetric> metric;  // null: perplexity
    at::Tensor sums;                       // 1-D, float64, on the device; undefined: none yet
  };
  at::Tensor sum_over_ranks(const Entry& entry, const comm::Groups& groups) const;

  std::vector<Entry> entries_;
  PredictionSource source_;
  at::Device device_ = at::kCPU;
  bool reads_results_ = false, tells_ = false;
};

}  // namespace dslaunch::runtime::engine::step
