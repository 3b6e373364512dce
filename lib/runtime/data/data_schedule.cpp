#include "runtime/data/data_schedule.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "config/difficulty.hpp"

namespace dslaunch::runtime {
namespace {

// Deals the batches of a CurriculumSampler. Batches of earlier steps are drawn again, so that the random numbers are
// those of a run that was never interrupted.
class CurriculumPlanner {
 public:
  explicit CurriculumPlanner(const TrainingOrder& order)
      : shape_(order.shape),
        rank_(order.rank),
        num_samples_(order.num_samples),
        sampler_(order.schedule.curriculum, order.shape.train_batch()) {
    while (num_batches_ < order.steps_done) next_batch();
  }

  MicroBatchPlan next() {
    if (slice_ == 0) batch_ = next_batch();
    const auto begin = batch_.begin() + slice_ * shape_.slice() + rank_ * shape_.micro_batch;
    MicroBatchPlan plan;
    plan.samples.assign(begin, begin + shape_.micro_batch);
    plan.num_samples = shape_.micro_batch;
    plan.first = advance({}, num_samples_, (num_batches_ - 1) * shape_.train_batch());
    plan.after = advance({}, num_samples_, num_batches_ * shape_.train_batch());
    slice_ = (slice_ + 1) % shape_.accumulation;
    return plan;
  }

 private:
  std::vector<int64_t> next_batch() {
    num_batches_ += 1;
    return sampler_.next_batch();
  }

  const BatchShape shape_;
  const int rank_;
  const int64_t num_samples_;
  CurriculumSampler sampler_;
  int64_t num_batches_ = 0;
  int64_t slice_ = 0;
  std::vector<int64_t> batch_;
};

std::function<MicroBatchPlan()> choose_samples(const TrainingOrder& order) {
  if (order.schedule.curriculum) {
    return [planner = std::make_shared<CurriculumPlanner>(order)] { return planner->next(); };
  }
  if (order.schedule.batches) {
    return [order, micro_batch = order.steps_done * order.shape.accumulation]() mutable {
      const auto [step, accumulation_step] = std::div(micro_batch++, order.shape.accumulation);
      return order.schedule.batches->plan(step + 1, accumulation_step, order.shape, order.rank);
    };
  }
  const TrainingPlanner::Options plain{.num_samples = order.num_samples,
                                       .shape = order.shape,
                                       .rank = order.rank,
                                       .shuffle = order.shuffle,
                                       .seed = order.seed,
                                       .drop_last = order.drop_last};
  return [planner = std::make_shared<TrainingPlanner>(plain, order.start)] { return planner->next(); };
}

std::string describe_lengths(const config::Difficulty& difficulty, int64_t num_steps) {
  const auto changes = config::difficulty_changes(difficulty, num_steps);
  std::vector<int64_t> lengths;
  for (const auto& change : changes) lengths.push_back(change.difficulty);
  std::sort(lengths.begin(), lengths.end());
  const auto num_lengths = std::unique(lengths.begin(), lengths.end()) - lengths.begin();
  if (changes.size() == 1) {
    return fmt::format("curriculum_learning: samples are cut to length {}", changes.front().difficulty);
  }
  return fmt::format(
      "curriculum_learning: samples are cut to length {} at step 1 up to {} from step {} on, {} lengths in all, each a "
      "shape of its own for captured steps",
      changes.front().difficulty, changes.back().difficulty, changes.back().first_step, num_lengths);
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> DataSchedule::values_at(int64_t step) const {
  std::vector<std::pair<std::string, int64_t>> out;
  if (sequence_length) out.emplace_back("curriculum_seqlen", config::difficulty_at(*sequence_length, step));
  if (curriculum) {
    for (const auto& metric : curriculum->metrics) {
      out.emplace_back("difficulty_" + metric.config.name, config::difficulty_at(metric.config.difficulty, step));
    }
  }
  if (kept_positions) out.emplace_back("random_ltd_kept", config::difficulty_at(*kept_positions, step - 1));
  if (batches) out.emplace_back("batch_size", batches->num_samples(step));
  return out;
}

std::vector<std::string> DataSchedule::describe(int64_t num_steps) const {
  std::vector<std::string> lines;
  if (sequence_length) lines.push_back(describe_lengths(*sequence_length, num_steps));
  if (batches) lines.push_back(batches->summary());
  return lines;
}

std::function<MicroBatchPlan()> plan_training(const TrainingOrder& order) {
  auto next = choose_samples(order);
  if (!order.schedule.sequence_length) return next;
  return [next = std::move(next), difficulty = *order.schedule.sequence_length, accumulation = order.shape.accumulation,
          micro_batch = order.steps_done * order.shape.accumulation]() mutable {
    MicroBatchPlan plan = next();
    const int64_t length = config::difficulty_at(difficulty, micro_batch++ / accumulation + 1);
    plan.sequence_length = plan.sequence_length == 0 ? length : std::min(plan.sequence_length, length);
    return plan;
  };
}

}  // namespace dslaunch::runtime
