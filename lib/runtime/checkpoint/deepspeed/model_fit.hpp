// From DeepSpeed's names to those of the model that goes on training: wrappers' prefixes, tied names, parameters that
// one side trains and the other does not. One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime::deepspeed {

struct ImportedState;

// What wrappers put in front of all names (DDP's "module.", a wrapper of the export) is taken away or put there.
struct Renaming {
  std::string strip, add;
  std::string operator()(const std::string& name) const;
};
// The renaming under which most of the names are the model's; without a model wrappers' prefixes are taken away.
Renaming find_renaming(const std::vector<std::string>& names, const std::vector<SavedTensor>& model);

// By name or alias; null when absent. Looks at all of them.
const SavedTensor* find_tensor(const std::vector<SavedTensor>& model, const std::string& name);

// Puts the state into the model's names; `model`: its parameters and buffers, `value_of`: their values in the model
// file, for buffers and frozen parameters that the checkpoint lacks. Throws UserError(65) that lists what is missing
// and which shapes differ.
void fit_to_model(ImportedState& state, const std::vector<SavedTensor>& model,
                  const std::function<at::Tensor(const std::string& name)>& value_of);
// Without a model: only the prefixes.
void strip_prefixes(ImportedState& state);

}  // namespace dslaunch::runtime::deepspeed
