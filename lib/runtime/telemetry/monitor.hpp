// One point of a curve, as DeepSpeed's monitors receive it, texts beside them, and the interface of such monitors.
// Plain data.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime {

struct ScalarEvent {
  std::string name;  // "Train/Samples/train_loss"
  double value = 0;
  int64_t samples = 0;  // the x axis: samples of all ranks since the start of training
};

struct TextEvent {
  std::string name;  // "Train/Samples/text_1"
  std::string text;
  int64_t samples = 0;  // as of a ScalarEvent
};

// One thread. Throws SystemError (73, 74).
class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void write(std::span<const ScalarEvent> events) = 0;
  // Of a monitor of numbers only: nothing.
  virtual void write_texts(std::span<const TextEvent>) {}
};

// The monitors that the config enables, in DeepSpeed's order. Creates their directories. `resumes`: the run in
// `run_dir` goes on. `job_config`: as resolved, JSON. Throws UserError(69) as WandbMonitor does.
std::vector<std::unique_ptr<Monitor>> make_monitors(const config::JobConfig& config, const std::string& run_dir,
                                                    bool resumes, const std::string& job_config);

}  // namespace dslaunch::runtime
