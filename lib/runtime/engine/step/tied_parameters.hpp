// Parameters that several stages of a pipeline hold: the gradient is summed over these stages, and the first of them
// counts the parameter in norms and saves it. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "runtime/model/interface/model_facts.hpp"

namespace dslaunch::runtime::engine::step {

class TiedParameters {
 public:
  // Of a model that is not cut: there are none.
  TiedParameters() = default;
  // `pipe`: the ranks of all stages, in their order; must outlive this object.
  TiedParameters(const model::ModelFacts& model, comm::Communicator& pipe);

  // In the order of the whole model: those that are trained.
  std::vector<int> trained() const;
  // Replaces the gradient by the sum over the stages, the same on all of them. Collective among them.
  void sum(int parameter, const at::Tensor& gradient) const;
  // Whether another stage counts the parameter.
  bool is_counted_elsewhere(int parameter) const;

 private:
  struct Tied {
    int parameter = 0;
    bool is_trained = true;
    std::vector<int> stages;  // ascending
  };
  const Tied* find(int parameter) const;

  comm::Communicator* pipe_ = nullptr;
  std::vector<Tied> tied_;
};

}  // namespace dslaunch::runtime::engine::step
