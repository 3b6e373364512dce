// State that a unit's forward reads besides arguments and parameters, saved at its first forward and restored for its
// recomputation: random numbers, autocast, and attributes that forward writes (BatchNorm's running values, counters).
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::recomputation {

class ForwardContext {
 public:
  // Saves the current state. `state`: must outlive this object.
  ForwardContext(const std::vector<ParameterLocation>& state, at::Device device);
  ~ForwardContext();
  ForwardContext(const ForwardContext&) = delete;
  ForwardContext& operator=(const ForwardContext&) = delete;

  // Restores the saved state during its lifetime, then the state that it found. Used once.
  class Restore {
   public:
    explicit Restore(ForwardContext& saved);
    ~Restore();
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;

   private:
    ForwardContext& saved_;
    std::unique_ptr<ForwardContext> current_;
  };

 private:
  struct Autocast;
  enum class Keep { kCopy, kReference };
  ForwardContext(const std::vector<ParameterLocation>& state, at::Device device, Keep keep);
  void apply() const;

  const std::vector<ParameterLocation>& state_;
  at::Device device_;
  at::Tensor random_;
  std::unique_ptr<Autocast> autocast_;
  std::vector<c10::IValue> values_;  // of the state
};

}  // namespace dslaunch::runtime::model::recomputation
