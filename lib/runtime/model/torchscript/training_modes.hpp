// Which modules follow train() and eval(). A model saved with some modules in eval mode and others in train mode is
// meant that way (a frozen BatchNorm), and training keeps it. A model in eval mode as a whole was merely saved in eval
// mode.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "runtime/model/rewrites/training_flag_rewrite.hpp"

namespace dslaunch::runtime::model::torchscript {

// Adds a note unless `modules` (paths) is empty. `text` has a placeholder for their names.
inline void add_note(std::vector<std::string>& notes, std::vector<std::string> modules,
                     fmt::format_string<std::string> text) {
  if (modules.empty()) return;
  std::replace(modules.begin(), modules.end(), std::string(), std::string("the model itself"));
  notes.push_back(fmt::format(text, fmt::format("{}", fmt::join(modules, ", "))));
}

struct TrainingModes {
  std::vector<torch::jit::Module> frozen_in_eval;  // modules that stay in eval mode while the others train
  std::vector<std::string> notes;                  // for the user
};

TrainingModes find_training_modes(const torch::jit::Module& module);
// What a trace has lost, for the user, one line each.
std::vector<std::string> describe_traced_modes(const rewrites::TracedModes& modes);

}  // namespace dslaunch::runtime::model::torchscript
