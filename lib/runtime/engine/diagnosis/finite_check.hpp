// Checks a forward and backward pass for the first NaN and the first infinity. Masks of -inf are common, so an infinity
// alone proves nothing if a NaN is found; it is reported beside the NaN. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/model/interface/model.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::engine::diagnosis {

class FiniteCheck : public UnitParameters, public model::UnitObserver {
 public:
  // Passes the values of `inner` on to the model.
  FiniteCheck(const ParameterTable& table, UnitParameters& inner) : table_(table), inner_(inner) {}

  // Checks a tensor; `what`: how a message names the tensor. `parameter`: of which the values are; null: of none.
  void check(const std::string& what, const at::Tensor& values, const ParameterInfo* parameter = nullptr);
  // The location of the first NaN, with that of an earlier infinity; without a NaN that of the first infinity; or "".
  std::string finding() const;
  bool has_nan() const { return !nan_.empty(); }
  const std::string& nan() const { return nan_; }
  const std::string& infinity() const { return infinity_; }
  void reset();

  UnitValues acquire(int unit, UnitCall call) override;
  void release(int unit) override { inner_.release(unit); }
  void prepare_backward(int unit) override { inner_.prepare_backward(unit); }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override;
  void on_enter(int unit, const std::vector<at::Tensor>& inputs) override;
  void on_exit(int unit, const std::vector<at::Tensor>& outputs) override;

 private:
  std::string unit_name(int unit) const;
  void check_all(int unit, const std::vector<int>& members, const std::vector<at::Tensor>& values);

  const ParameterTable& table_;
  UnitParameters& inner_;
  std::string nan_, infinity_;    // locations; empty: none yet
  std::string last_finite_unit_;  // the last unit that returned finite values
};

}  // namespace dslaunch::runtime::engine::diagnosis
