#include "runtime/data/batch_loader.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

void require_samples(const SampleSource& source) {
  if (source.num_samples() == 0) {
    refuse(fmt::format("the data has no samples (array '{}' has 0 rows)", source.arrays()[0].name));
  }
}

void require_whole_batch(const SampleSource& source, const config::Data& data, const config::Batch& batch) {
  require_samples(source);
  if (!data.drop_last || source.num_samples() >= batch.train_batch) return;
  refuse(
      fmt::format("the data has {} sample(s), fewer than one batch of {} (micro batch {} x accumulation {} x {} data "
                  "rank(s)); make train_batch_size smaller, or set data.drop_last to false to repeat samples",
                  source.num_samples(), batch.train_batch, batch.micro_batch, batch.accumulation,
                  batch.train_batch / (batch.micro_batch * batch.accumulation)));
}

int64_t batch_bytes(const SampleSource& source, const ArraySelection& selection, int64_t num_samples) {
  int64_t bytes = 0;
  for (const auto* arrays : {&selection.inputs, &selection.labels}) {
    for (size_t array : *arrays) bytes += source.arrays()[array].sample_bytes();
  }
  return bytes * num_samples;
}

// A captured step takes all its micro batches at its start.
int64_t choose_prefetch(const config::Data& data, int64_t accumulation, int64_t bytes) {
  constexpr int64_t kDefault = 4, kMaxBytes = int64_t{1} << 30;  // beyond the default
  if (data.prefetch) return *data.prefetch;
  return std::max(kDefault, std::min(accumulation, kMaxBytes / std::max<int64_t>(bytes, 1)));
}

}  // namespace

TrainingOrder training_order(const SampleSource& source, const config::Data& data, const LoaderOptions& options,
                             const LoaderStart& start) {
  const BatchShape shape{options.batch.micro_batch, options.batch.accumulation, options.data_parallel};
  DSL_CHECK(shape.train_batch() == options.batch.train_batch, "the batch triple is not solved");
  return {.num_samples = source.num_samples(),
          .shape = shape,
          .rank = options.rank,
          .shuffle = data.shuffle,
          .seed = data.seed,
          .drop_last = data.drop_last,
          .schedule = start.schedule,
          .start = start.position,
          .steps_done = start.steps_done};
}

BatchLoader::BatchLoader(std::shared_ptr<const SampleSource> source, ArraySelection selection, const config::Data& data,
                         const LoaderOptions& options, const LoaderStart& start)
    : accumulation_(options.batch.accumulation), position_(start.position) {
  require_whole_batch(*source, data, options.batch);
  const int64_t depth =
      choose_prefetch(data, accumulation_, batch_bytes(*source, selection, options.batch.micro_batch));
  prefetcher_ = std::make_unique<Prefetcher>(
      [next = plan_training(training_order(*source, data, options, start))] { return std::optional(next()); },
      BatchAssembler(std::move(source), std::move(selection), options.assembly), data.num_workers, depth);
}

Batch BatchLoader::next() {
  Batch batch = *prefetcher_->next();
  if (++num_returned_ % accumulation_ == 0) position_ = batch.after;
  return batch;
}

int64_t steps_in_epochs(const SampleSource& source, const config::Data& data, const config::Batch& batch,
                        int64_t epochs) {
  if (source.num_samples() == SampleSource::kEndless) {
    refuse("synthetic data is endless, so the run needs a number of steps: --steps N or train.steps");
  }
  require_whole_batch(source, data, batch);
  return steps_in_epochs(source.num_samples(), batch.train_batch, data.drop_last, epochs);
}

EvaluationLoader::EvaluationLoader(std::shared_ptr<const SampleSource> source, ArraySelection selection,
                                   const config::Data& data, const LoaderOptions& options) {
  require_samples(*source);
  AssemblyOptions assembly = options.assembly;
  assembly.pictures = without_chance(assembly.pictures);
  auto planner = std::make_shared<EvaluationPlanner>(source->num_samples(), options.batch.micro_batch,
                                                     options.data_parallel, options.rank);
  prefetcher_ =
      std::make_unique<Prefetcher>([planner] { return planner->next(); },
                                   BatchAssembler(std::move(source), std::move(selection), std::move(assembly)),
                                   data.num_workers, choose_prefetch(data, /*accumulation=*/1, 0));
}

}  // namespace dslaunch::runtime
