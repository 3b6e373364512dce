// Times of recomputed calls, first forward and recomputation apart: activation_checkpointing's profile and
// synchronize_checkpoint_boundary. First forwards run on the model's thread, recomputations on autograd's.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <exception>
#include <string>

namespace dslaunch::runtime::model::recomputation {

// Accumulates the times since the last take_line().
class PassTimes {
 public:
  PassTimes(at::Device device, bool synchronize, bool profile)
      : device_(device), synchronize_(synchronize || profile), profile_(profile) {}

  class Timer {
   public:
    Timer(PassTimes& times, double& sum) : times_(times), sum_(sum) {
      times_.wait_for_device();
      if (times_.profile_) begin_ = std::chrono::steady_clock::now();
    }
    ~Timer() {
      try {
        times_.wait_for_device();
      } catch (const std::exception&) {  // the device has failed, and that error is already propagating
        return;
      }
      if (times_.profile_)
        sum_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    PassTimes& times_;
    double& sum_;
    std::chrono::steady_clock::time_point begin_;
  };

  Timer time_forward() { return Timer(*this, forward_ms_); }
  Timer time_recomputation() {
    num_calls_ += 1;
    return Timer(*this, backward_ms_);
  }

  // Returns one line and restarts from zero; empty without `profile`.
  std::string take_line();

 private:
  void wait_for_device() const;

  at::Device device_;
  bool synchronize_, profile_;
  double forward_ms_ = 0, backward_ms_ = 0;
  int64_t num_calls_ = 0;
};

}  // namespace dslaunch::runtime::model::recomputation
