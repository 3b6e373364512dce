// What a run decides by the values of its evaluations: when it stops early, and which checkpoints are the best. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::engine::run {

struct EvaluatedValue {
  int64_t step = 0;
  double value = 0;
};

// By more than `min_delta`. A value that is not a number is never better; any number is better than one that is not.
bool is_better(double value, double than, config::MetricMode mode, double min_delta = 0);

class EarlyStopping {
 public:
  explicit EarlyStopping(config::EarlyStopping options) : options_(std::move(options)) {}

  // Of the evaluations in their order.
  void add(EvaluatedValue point);
  // One line that says why the run ends after the last evaluation; empty: it goes on.
  std::optional<std::string> reason() const;

 private:
  const config::EarlyStopping options_;
  std::optional<EvaluatedValue> best_, last_;
  int64_t num_without_ = 0;  // evaluations since the best one
};

class BestCheckpoints {
 public:
  explicit BestCheckpoints(config::KeepBest options) : options_(std::move(options)) {}

  // Whether the checkpoint of that step is among the best now. Of equal ones the earlier is better.
  bool add(EvaluatedValue point);
  // The best one; empty: none yet.
  std::optional<EvaluatedValue> best() const;
  // The content of the file `best` (checkpoint_directory.hpp); empty: none yet.
  std::string text() const;

 private:
  const config::KeepBest options_;
  std::vector<EvaluatedValue> values_;  // the best first
};

}  // namespace dslaunch::runtime::engine::run
