// Random layer-wise token dropping (DeepSpeed's random-LTD): in training, chosen units run on a random part of the
// positions alone, and the other positions pass them by (docs/data_efficiency.md). Which positions are kept is a
// function of the seed, the step, the unit and the number of its call, so tensor ranks with one seed keep the same
// ones. Calls come from the thread that runs the model, recomputations of them from autograd's.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/recomputation/recomputation.hpp"

namespace dslaunch::runtime::model::torchscript {

class TokenDropping {
 public:
  struct Unit {
    std::string name;
    int mask = -1;  // index of the mask among the arguments without self; -1: it is told by its shape
  };
  TokenDropping(TokenDroppingOptions options, std::map<int, Unit> units)
      : options_(std::move(options)), units_(std::move(units)) {}

  // From now on units keep so many positions.
  void begin_step(int64_t step, int64_t num_kept);
  void set_training(bool training) { is_training_ = training; }
  bool applies_to(int unit) const { return is_training_ && units_.contains(unit); }
  // `body` on the kept positions of its arguments; its result with all positions. The result of this function keeps the
  // same positions in every run. Throws UserError(65) when it is not known which dims of an argument are positions.
  recomputation::UnitBody wrap(int unit, recomputation::UnitBody body);

 private:
  const TokenDroppingOptions options_;
  const std::map<int, Unit> units_;
  bool is_training_ = true;
  int64_t step_ = 0, num_kept_ = 0;
  std::map<int, uint64_t> num_calls_;  // in this step, by unit
};

}  // namespace dslaunch::runtime::model::torchscript
