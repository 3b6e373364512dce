// Global batches of a curriculum by metrics: DeepSpeed's sampler, the same samples for the same seed
// (docs/data_efficiency.md). Samples join when a difficulty rises, as a cluster in random order; a batch draws from all
// clusters in proportion to their sizes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/data/megatron_file.hpp"
#include "runtime/data/reference_random.hpp"

namespace dslaunch::runtime {

// The metrics of a config with what their files say of the samples. Immutable; any thread.
struct CurriculumIndex {
  struct Metric {
    config::CurriculumMetric config;
    IndexRows samples;            // of each value, ascending; empty with a single cluster
    std::vector<int64_t> values;  // of each row; only by value
  };
  std::vector<Metric> metrics;
  int64_t num_samples = 0;
  uint64_t seed = 0;
};

// Null without metrics. Throws UserError: 66 for files that are missing, 65 for files that do not fit the data, and
// difficulties that admit no sample at the first step.
std::shared_ptr<const CurriculumIndex> read_curriculum_index(const config::DataEfficiency& efficiency,
                                                             int64_t num_samples);

// One thread. A function of the index and the batch size alone: the same on all ranks.
class CurriculumSampler {
 public:
  CurriculumSampler(std::shared_ptr<const CurriculumIndex> index, int64_t train_batch);
  // The samples of the next step. Throws UserError(65) while no sample is admitted.
  std::vector<int64_t> next_batch();

 private:
  using Difficulties = std::vector<int64_t>;  // by metric

  struct Cluster {
    std::vector<int64_t> samples;
    size_t position = 0;  // of the next sample to be drawn
  };

  Difficulties difficulties_at(int64_t step) const;
  void add_cluster(const Difficulties& now);
  std::vector<int64_t> samples_in_all(const Difficulties& now) const;
  std::vector<size_t> draw_counts();
  void draw(Cluster& cluster, size_t count, std::vector<int64_t>& batch);

  const std::shared_ptr<const CurriculumIndex> index_;
  const size_t train_batch_;
  int64_t step_ = 0;
  Difficulties difficulties_;  // of step_; empty: before the first
  std::vector<Cluster> clusters_;
  NumpyRandom random_;
};

}  // namespace dslaunch::runtime
