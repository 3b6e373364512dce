// Dynamic batching: samples are packed into groups of a limited number of tokens, and a step gets a fixed number of
// groups, not of samples: DeepSpeed's packing, the same groups for the same lengths (docs/data_efficiency.md).
// Immutable once planned; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/data/sample_order.hpp"

namespace dslaunch::runtime {

class DynamicBatches {
 public:
  // `same_size`: the groups of a step have the same number of samples, and their micro batches one length, as pipeline
  // stages need. Throws UserError(65) when the samples do not fill one step.
  DynamicBatches(std::vector<int64_t> lengths, const config::DynamicBatching& config, int64_t train_batch,
                 bool same_size, uint64_t seed);

  // The samples of a rank in one accumulation step of a step (counted from 1); after the last step of the data its
  // first one follows again.
  MicroBatchPlan plan(int64_t step, int64_t accumulation_step, const BatchShape& shape, int rank) const;

  int64_t num_steps() const { return static_cast<int64_t>(sizes_.size()); }  // of one pass over the data
  int64_t num_samples(int64_t step) const { return sizes_[index_of(step)]; }
  double rate_scale(int64_t step) const;
  // Samples times length of the largest micro batch.
  int64_t max_positions(const BatchShape& shape) const;
  // "13 steps of 4 x ... ", for the log.
  std::string summary() const;
  std::string describe(int64_t step) const;
  const std::vector<std::vector<int64_t>>& groups() const { return groups_; }

 private:
  size_t index_of(int64_t step) const { return static_cast<size_t>((step - 1) % num_steps()); }
  int64_t longest_of(std::span<const int64_t> samples) const;

  std::vector<int64_t> lengths_;  // of samples
  int64_t train_batch_;           // groups of a step
  bool same_size_;
  config::RateScaling scaling_;
  std::vector<std::vector<int64_t>> groups_;
  std::vector<int64_t> sizes_;   // samples of each step
  std::vector<int64_t> begins_;  // samples before each step
  int64_t num_left_out_ = 0;     // samples in no group
};

// One length for each of the data's samples, from 1 to `max_length`. Throws UserError: 66 for a file that is missing,
// 65 for one that does not fit the data.
std::vector<int64_t> read_sample_lengths(const std::string& metrics_path, int64_t num_samples, int64_t max_length);

}  // namespace dslaunch::runtime
