// From which step on parameters have moments. A parameter that a resumed run trains for the first time (it was frozen,
// or is new in the model) counts its own steps, as in torch.optim: bias correction and SGD's first momentum begin with
// it. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/optim/step_rates.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::optim {

struct FlatLayout;

class MomentStarts {
 public:
  MomentStarts() = default;  // all at 0 applied steps
  // By index in the table: the count of applied steps when the parameter's moments began.
  explicit MomentStarts(std::vector<int64_t> applied_steps);

  // The same for every parameter, at 0.
  bool are_zero() const { return of_parameter_.empty(); }
  int64_t of(int parameter) const;

  // Coefficients differ by optimizer group and by start: one set for each pair.
  size_t num_sets(size_t num_groups) const { return distinct_.size() * num_groups; }
  int set_of(int parameter, int group, size_t num_groups) const;
  static size_t group_of_set(size_t set, size_t num_groups) { return set % num_groups; }
  // The step that the parameters of the set count.
  int64_t step_of_set(size_t set, size_t num_groups, int64_t step) const { return step - distinct_[set / num_groups]; }
  // The states cut where the start changes; the optimizer group of each is then its set.
  std::vector<SpanState> cut(std::span<const SpanState> states, const FlatLayout& layout, size_t num_groups) const;

 private:
  std::vector<int64_t> distinct_{0};
  std::vector<int> of_parameter_;  // index in distinct_; empty: all 0
};

}  // namespace dslaunch::runtime::optim
