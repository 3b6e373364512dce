// Watches a forward and backward for the first NaN and the first infinity. Masks of -inf are everyday, so an infinity
// alone proves nothing where a NaN is found; it is told beside it. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/model/model_source.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

class FiniteCheck : public UnitParameters, public UnitObserver {
 public:
  // Hands on what `inner` gives to the model.
  FiniteCheck(const ParameterTable& table, UnitParameters& inner) : table_(table), inner_(inner) {}

  // Looks at a tensor; `what`: how a message names it.
  void look(const std::string& what, const at::Tensor& values);
  // The place of the first NaN, with that of an infinity before it; of the first infinity where there is no NaN; "".
  std::string finding() const;
  bool has_nan() const { return !nan_.empty(); }
  void forget();

  UnitValues acquire(int unit, UnitCall call) override;
  void release(int unit) override { inner_.release(unit); }
  void prepare_backward(int unit) override { inner_.prepare_backward(unit); }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override;
  void entered(int unit, const std::vector<at::Tensor>& inputs) override;
  void left(int unit, const std::vector<at::Tensor>& outputs) override;

 private:
  std::string unit_name(int unit) const;
  void look_at(int unit, const std::vector<int>& members, const std::vector<at::Tensor>& values);

  const ParameterTable& table_;
  UnitParameters& inner_;
  std::string nan_, infinity_;  // places; empty: none yet
  std::string last_left_;       // the unit that gave back finite values last
};

}  // namespace dslaunch::runtime
