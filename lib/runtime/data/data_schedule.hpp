// What data efficiency decides about the batches of a run, step by step: which samples, how much of them, and the
// factor of the learning rate. A function of the step alone, so that a run that resumes needs nothing from a checkpoint
// but the number of its steps. Immutable; any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/curriculum_sampler.hpp"
#include "runtime/data/dynamic_batches.hpp"

namespace dslaunch::runtime {

struct DataSchedule {
  std::optional<config::Difficulty> sequence_length;  // empty: samples are whole
  std::optional<config::Difficulty> kept_positions;   // of units with random_ltd, which the model draws
  std::shared_ptr<const CurriculumIndex> curriculum;  // null: samples in the order of the data
  std::shared_ptr<const DynamicBatches> batches;      // null: batches of a fixed number of samples

  bool shapes_vary() const { return sequence_length || batches; }
  // Of a step, counted from 1: what its line of metrics has beside the usual values. Names as in metrics.jsonl.
  std::vector<std::pair<std::string, int64_t>> values_at(int64_t step) const;
  double rate_scale(int64_t step) const { return batches ? batches->rate_scale(step) : 1; }
  // Lines for the start of a run of `num_steps` steps.
  std::vector<std::string> describe(int64_t num_steps) const;
};

// How the training data is dealt to one data rank, and from where on.
struct TrainingOrder {
  int64_t num_samples = 0;
  BatchShape shape;
  int rank = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = true;
  DataSchedule schedule;
  DataPosition start;      // of a run without a curriculum or dynamic batches
  int64_t steps_done = 0;  // before the first batch
};

// The rank's micro batches, `accumulation` of them a step, without end. One thread, or called under one lock.
std::function<MicroBatchPlan()> plan_training(const TrainingOrder& order);

}  // namespace dslaunch::runtime
