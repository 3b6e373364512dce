// The recomputation of a call, as a node of autograd's graph. On autograd's thread.
#pragma once
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <mutex>
#include <string>

#include "runtime/model/recomputation/pass_times.hpp"
#include "runtime/model/recomputation/recomputed_call.hpp"

namespace dslaunch::runtime::model::recomputation {

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
