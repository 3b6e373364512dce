// Which sample goes to which rank in which micro batch: pure arithmetic; the order does not depend on the world size
// (docs/data.md). A planner is owned by one thread, or called under one lock.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {

// A shuffled order without a table in memory: position -> sample, a bijection of [0, size) that depends on seed and
// epoch only (docs/data.md has it as a few lines of Python). Any thread.
// A Feistel network over the next power of four that covers `size`, iterated until the value lies inside [0, size).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, int64_t epoch);
  // `position` in [0, size).
  int64_t operator()(int64_t position) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  uint64_t keys_[kRounds];
};

// How a global batch is split: micro_batch samples x num_ranks x accumulation.
struct BatchShape {
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
  int num_ranks = 1;  // along the data axis

  int64_t slice() const { return micro_batch * num_ranks; }
  int64_t train_batch() const { return slice() * accumulation; }
};

// One rank's part of one slice.
struct MicroBatchPlan {
  std::vector<int64_t> samples;  // indices into the data set
  int64_t num_samples = 0;       // those that count; less than samples.size() only for padding (evaluation)
  int64_t sequence_length = 0;   // to which samples are cut; 0: they are whole
  DataPosition first;            // of the rank's first sample in the order of dealing
  DataPosition after;            // the run's position when this global batch is done
};

// Steps that deal all samples of `epochs` epochs: with drop_last only whole batches, otherwise the last batch extends
// into the next epoch. Epochs without limit (9223372036854775807) are steps without limit.
int64_t steps_in_epochs(int64_t num_samples, int64_t train_batch, bool drop_last, int64_t epochs);

// `count` samples further, across the ends of epochs. The end of an epoch is the next one's start.
DataPosition advance(DataPosition start, int64_t num_samples, int64_t count);

// The endless sequence of a rank's micro batches in training.
class TrainingPlanner {
 public:
  struct Options {
    int64_t num_samples = 0;
    BatchShape shape;
    int rank = 0;
    bool shuffle = true;
    uint64_t seed = 0;
    bool drop_last = true;
  };
  // Requires num_samples >= 1, and with drop_last at least one whole batch.
  TrainingPlanner(Options options, DataPosition start);
  MicroBatchPlan next();

 private:
  int64_t sample_at(DataPosition position);

  const Options options_;
  DataPosition batch_;  // start of the current global batch
  int64_t slice_ = 0;   // of the current global batch
  int64_t epoch_ = -1;  // the epoch of order_
  std::optional<Permutation> order_;
};

// One pass over all samples in their own order, with the same number of micro batches on every rank. A short last slice
// is dealt evenly; a rank that gets no sample repeats the last sample as a padding batch with num_samples 0, so that
// every rank can take part in the collectives of a forward pass.
class EvaluationPlanner {
 public:
  EvaluationPlanner(int64_t num_samples, int64_t micro_batch, int num_ranks, int rank);
  std::optional<MicroBatchPlan> next();

 private:
  const int64_t num_samples_, slice_;
  const int num_ranks_, rank_;
  int64_t num_dealt_ = 0;
};

}  // namespace dslaunch::runtime
