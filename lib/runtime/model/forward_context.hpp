// What a unit's forward sees besides its arguments and parameters, kept at its first pass and put back for its second:
// random numbers, autocast, and the attributes that the forward itself writes (BatchNorm's running values, counters).
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "runtime/state/parameter_place.hpp"

namespace dslaunch::runtime {

class CallSurroundings {
 public:
  // Keeps what is in force now. `state`: must outlive this object.
  CallSurroundings(const std::vector<ParameterPlace>& state, at::Device device);
  ~CallSurroundings();
  CallSurroundings(const CallSurroundings&) = delete;
  CallSurroundings& operator=(const CallSurroundings&) = delete;

  // While it lives, things are as they were; then again as they were found. Used once.
  class Return {
   public:
    explicit Return(CallSurroundings& then);
    ~Return();
    Return(const Return&) = delete;
    Return& operator=(const Return&) = delete;

   private:
    CallSurroundings& then_;
    std::unique_ptr<CallSurroundings> now_;
  };

 private:
  struct Autocast;
  enum class Keep { kCopy, kReference };
  CallSurroundings(const std::vector<ParameterPlace>& state, at::Device device, Keep keep);
  void put_back() const;

  const std::vector<ParameterPlace>& state_;
  at::Device device_;
  at::Tensor random_;
  std::unique_ptr<Autocast> autocast_;
  std::vector<c10::IValue> values_;  // of the state
};

}  // namespace dslaunch::runtime
