// Maps DeepSpeed's names to those of the model that continues training: wrappers' prefixes, tied names, layers of a
// pipeline, parameters that only one side trains. One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime::deepspeed {

struct ImportedState;

// Prefixes that wrappers put in front of all names (DDP's "module.", a wrapper of the export) are removed or added.
struct Renaming {
  std::string strip, add;
  std::string operator()(const std::string& name) const;
};
// The renaming that makes most names match the model's; without a model it removes wrappers' prefixes.
Renaming find_renaming(const std::vector<std::string>& names, const std::vector<SavedTensor>& model);

// By name or alias; null when absent. Linear search.
const SavedTensor* find_tensor(const std::vector<SavedTensor>& model, const std::string& name);

// Renames the state to the model's names; `model`: its parameters and buffers, `value_of`: their values in the model
// file, for buffers and frozen parameters that the checkpoint lacks. Throws UserError(65) listing missing tensors and
// differing shapes.
void fit_to_model(ImportedState& state, const std::vector<SavedTensor>& model,
                  const std::function<at::Tensor(const std::string& name)>& value_of);
// Without a model: removes the prefixes only.
void strip_prefixes(ImportedState& state);

}  // namespace dslaunch::runtime::deepspeed
