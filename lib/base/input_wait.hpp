// How long the steps of a run waited for their input, whether that limits the run, and what helps. Plain data.
#pragma once
#include <cstdint>
#include <string>

namespace dslaunch {

class InputWait {
 public:
  // The first step of a start always waits for its first batch: leave it out.
  void add(double step_ms, double input_ms);

  int64_t num_steps() const { return num_steps_; }
  double share() const;  // of the time of all steps
  double mean_ms() const { return input_ms_ / static_cast<double>(num_steps_ > 0 ? num_steps_ : 1); }
  // More than a twentieth of the time, and more than a step without work takes by itself.
  bool is_limit() const { return share() > 0.05 && mean_ms() > 1; }
  // "steps waited 12.3 of 53.1 ms for their input"
  std::string text() const;

 private:
  int64_t num_steps_ = 0;
  double step_ms_ = 0, input_ms_ = 0;
};

// What makes input faster. `num_workers`: data.num_workers; negative: not known.
std::string input_advice(int64_t num_workers);

}  // namespace dslaunch
