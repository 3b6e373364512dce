// What a unit's forward sees besides its arguments and parameters, kept at its first pass and put back for its second:
// random numbers, autocast, and the attributes that the forward itself writes (BatchNorm's running values, counters).
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "runtime/state/parameter_place.hpp"

namespace dslaunch::runtime {

class ForwardContext {
 public:
  // Keeps what is in force now. `state`: must outlive this object.
  ForwardContext(const std::vector<ParameterPlace>& state, at::Device device);
  ~ForwardContext();
  ForwardContext(const ForwardContext&) = delete;
  ForwardContext& operator=(const ForwardContext&) = delete;

  // While it lives, things are as they were; then again as they were found. Used once.
  class Restore {
   public:
    explicit Restore(ForwardContext& then);
    ~Restore();
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;

   private:
    ForwardContext& then_;
    std::unique_ptr<ForwardContext> now_;
  };

 private:
  struct Autocast;
  enum class Keep { kCopy, kReference };
  ForwardContext(const std::vector<ParameterPlace>& state, at::Device device, Keep keep);
  void put_back() const;

  const std::vector<ParameterPlace>& state_;
  at::Device device_;
  at::Tensor random_;
  std::unique_ptr<Autocast> autocast_;
  std::vector<c10::IValue> values_;  // of the state
};

}  // namespace dslaunch::runtime
