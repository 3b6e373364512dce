// The recomputation of a call, as a node of autograd's graph. On autograd's thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/model/recomputation/recomputed_call.hpp"

namespace dslaunch::runtime::model::recomputation {

// Times of recomputed calls, first forward and recomputation apart: activation_checkpointing's profile and
// synchronize_checkpoint_boundary. First forwards run on the model's thread, recomputations on autograd's.
//
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

// Recomputes a call, unless a later call of its segment has done so, and differentiates it. Its inputs are the
// gradients of the first forward's outputs; its outputs are the gradients of the inputs that require one.
class RecomputeNode : public torch::autograd::Node {
 public:
  explicit RecomputeNode(std::shared_ptr<PassTimes> times) : times_(std::move(times)) {}
  void set_call(std::shared_ptr<SavedCall> call) { call_ = std::move(call); }
  std::string name() const override { return "dslaunch::RecomputeNode"; }
  void release_variables() override { call_.reset(); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  std::mutex mutex_;
  std::shared_ptr<PassTimes> times_;
  std::shared_ptr<SavedCall> call_;
};

}  // namespace dslaunch::runtime::model::recomputation
