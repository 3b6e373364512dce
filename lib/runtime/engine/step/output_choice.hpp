// Which entry of forward's result is the model's outputs: what a loss from outside and the metrics take. Pure.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/model/interface/runnable_model.hpp"

namespace dslaunch::runtime::engine::step {

struct NamedOutput {
  std::string name;  // its key, field or index; empty: forward returned one tensor
  at::Tensor value;
};

// All tensors of the result but the one that has the name "loss".
std::vector<NamedOutput> outputs_of(const model::ForwardResult& result);
// "'hidden_states' Float[4, 8], 'logits' Float[4, 4]".
std::string describe(const std::vector<NamedOutput>& outputs);

// `wanted`: the config's "outputs". Empty: "logits", else the only entry or the only one that can be outputs, else of a
// tuple or a list the first that is not a scalar. Throws UserError(65), with the entries and their shapes, when there
// is not exactly one such entry; `whose`: what takes it, for the message.
NamedOutput choose_output(const model::ForwardResult& result, const std::string& wanted, const std::string& whose);
// The same choice among `outputs`, which is not empty; `has_own_names`: of the result.
NamedOutput choose_output(const std::vector<NamedOutput>& outputs, bool has_own_names, const std::string& wanted,
                          const std::string& whose);

// One line for the user on the `chosen` entry; empty: forward returned one tensor.
std::string describe_choice(const model::ForwardResult& result, const NamedOutput& chosen, const std::string& whose);

}  // namespace dslaunch::runtime::engine::step
