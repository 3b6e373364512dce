#include "runtime/data/sample_order.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace dslaunch::runtime {
namespace {

// The start of the next global batch: `position`, or the next epoch when drop_last drops the rest of this one.
DataPosition batch_start(DataPosition position, int64_t num_samples, int64_t train_batch, bool drop_last) {
  if (drop_last && position.offset + train_batch > num_samples) return {position.epoch + 1, 0};
  return position;
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, int64_t epoch) : size_(static_cast<uint64_t>(size)) {
  // At least 2 bits per half: with fewer bits the network reaches too few orders of a tiny set.
  half_bits_ = std::max(2, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  uint64_t key = mix64(mix64(seed) ^ static_cast<uint64_t>(epoch));
  for (uint64_t& round_key : keys_) round_key = key = mix64(key);
}

int64_t Permutation::operator()(int64_t position) const {
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_, right = value & half_mask_;
    for (uint64_t key : keys_) {
      const uint64_t next = left ^ (mix64(key ^ right) & half_mask_);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

int64_t steps_in_epochs(int64_t num_samples, int64_t train_batch, bool drop_last, int64_t epochs) {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  int64_t product = 0;
  if (__builtin_mul_overflow(drop_last ? num_samples / train_batch : num_samples, epochs, &product)) return kEndless;
  return drop_last ? product : product / train_batch + (product % train_batch > 0 ? 1 : 0);
}

DataPosition advance(DataPosition start, int64_t num_samples, int64_t count) {
  const int64_t offset = start.offset + count;
  return {start.epoch + offset / num_samples, offset % num_samples};
}

TrainingPlanner::TrainingPlanner(Options options, DataPosition start) : options_(options) {
  DSL_CHECK(options_.num_samples >= 1 && (!options_.drop_last || options_.num_samples >= options_.shape.train_batch()),
            "fewer samples than a batch");
  // A position from another data set (which has shrunk) may lie past the end.
  start = advance(start, options_.num_samples, 0);
  batch_ = batch_start(start, options_.num_samples, options_.shape.train_batch(), options_.drop_last);
}

int64_t TrainingPlanner::sample_at(DataPosition position) {
  if (!options_.shuffle) return position.offset;
  if (epoch_ != position.epoch) {
    order_.emplace(options_.num_samples, options_.seed, position.epoch);
    epoch_ = position.epoch;
  }
  return (*order_)(position.offset);
}

MicroBatchPlan TrainingPlanner::next() {
  const auto& shape = options_.shape;
  MicroBatchPlan plan;
  plan.num_samples = shape.micro_batch;
  plan.first = advance(batch_, options_.num_samples, slice_ * shape.slice() + options_.rank * shape.micro_batch);
  DataPosition position = plan.first;
  for (int64_t i = 0; i < shape.micro_batch; ++i) {
    plan.samples.push_back(sample_at(position));
    position = advance(position, options_.num_samples, 1);
  }
  plan.after = advance(batch_, options_.num_samples, shape.train_batch());
  if (++slice_ == shape.accumulation) {
    slice_ = 0;
    batch_ = batch_start(plan.after, options_.num_samples, shape.train_batch(), options_.drop_last);
  }
  return plan;
}

EvaluationPlanner::EvaluationPlanner(int64_t num_samples, int64_t micro_batch, int num_ranks, int rank)
    : num_samples_(num_samples), slice_(micro_batch * num_ranks), num_ranks_(num_ranks), rank_(rank) {
  DSL_CHECK(num_samples >= 1, "nothing to evaluate");
}

std::optional<MicroBatchPlan> EvaluationPlanner::next() {
  if (num_dealt_ == num_samples_) return std::nullopt;
  const int64_t count = std::min(slice_, num_samples_ - num_dealt_);
  // The first count % num_ranks ranks get one more.
  const int64_t share = count / num_ranks_, extra = count % num_ranks_;
  const int64_t begin = num_dealt_ + rank_ * share + std::min<int64_t>(rank_, extra);
  MicroBatchPlan plan;
  plan.num_samples = share + (rank_ < extra ? 1 : 0);
  for (int64_t i = 0; i < plan.num_samples; ++i) plan.samples.push_back(begin + i);
  if (plan.samples.empty()) plan.samples.push_back(num_samples_ - 1);
  num_dealt_ += count;
  plan.first = {0, plan.samples.front()};
  plan.after = {0, num_dealt_};
  return plan;
}

}  // namespace dslaunch::runtime
