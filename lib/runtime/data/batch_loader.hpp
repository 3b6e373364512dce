// The batches of one data rank, assembled ahead: endless in training, one pass in evaluation. One thread.
#pragma once
#include <memory>
#include <optional>

#include "config/job_config.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/data/data_schedule.hpp"
#include "runtime/data/prefetcher.hpp"
#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

struct LoaderOptions {
  int rank = 0;           // along the data axis
  int data_parallel = 1;  // ranks along the data axis
  config::Batch batch;
  AssemblyOptions assembly;
};

// Where a run continues, and what its steps decide about their batches.
struct LoaderStart {
  DataPosition position = {};
  int64_t steps_done = 0;
  DataSchedule schedule = {};

  LoaderStart(DataPosition at = {}) : position(at) {}  // NOLINT: whole samples in the order of the data
  LoaderStart(DataPosition at, int64_t steps, DataSchedule of_run)
      : position(at), steps_done(steps), schedule(std::move(of_run)) {}
};

// How the samples of `options.rank` are dealt.
TrainingOrder training_order(const SampleSource& source, const config::Data& data, const LoaderOptions& options,
                             const LoaderStart& start);

class BatchLoader {
 public:
  // Throws UserError(65) when there are no samples, or fewer than a global batch with drop_last.
  BatchLoader(std::shared_ptr<const SampleSource> source, ArraySelection selection, const config::Data& data,
              const LoaderOptions& options, const LoaderStart& start);
  int64_t accumulation() const { return accumulation_; }
  // The next micro batch; `accumulation` calls make a step. Throws the error that occurred while assembling it.
  Batch next();
  // Whether next() returns without waiting for the batch to be read.
  bool is_ready() { return prefetcher_->is_ready(); }
  // The position after the last global batch that was handed out completely: checkpoints store it.
  DataPosition position() const { return position_; }

 private:
  const int64_t accumulation_;
  DataPosition position_;
  int64_t num_returned_ = 0;
  std::unique_ptr<Prefetcher> prefetcher_;
};

// Number of steps for `epochs` epochs of the source. Throws UserError(65) for endless data (synthetic) and as above.
int64_t steps_in_epochs(const SampleSource& source, const config::Data& data, const config::Batch& batch,
                        int64_t epochs);

class EvaluationLoader {
 public:
  // Throws UserError(65) when there are no samples.
  EvaluationLoader(std::shared_ptr<const SampleSource> source, ArraySelection selection, const config::Data& data,
                   const LoaderOptions& options);
  // Empty after the last batch; every rank gets the same number. Weight a batch by its num_samples, which may be 0.
  std::optional<Batch> next() { return prefetcher_->next(); }

 private:
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace dslaunch::runtime
