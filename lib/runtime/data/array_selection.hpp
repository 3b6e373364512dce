// Which arrays of the data go to forward, and in which order. Pure.
#pragma once
#include <string>
#include <vector>

#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

// What the model's forward takes, without self.
struct ForwardArguments {
  std::vector<std::string> names;
  size_t num_required = 0;   // those without a default value
  bool takes_labels = true;  // false: the labels go to a loss of their own ("loss" in the config)
};

// Indices into SampleSource::arrays(). Forward is called with the inputs and, when it takes them, the labels after
// them.
struct ArraySelection {
  std::vector<size_t> inputs, labels;
};

// "labels", "label", "y": the names that mark labels when the config names none.
bool is_label_name(const std::string& name);

// `inputs` and `labels` are the config's; where they are empty: arrays called like forward's arguments in forward's
// order when every required argument has one; else all arrays but "labels", "label" and "y" in the order of the file,
// then those. Throws UserError(65) when an array is missing, the number does not fit forward, or an array called like
// an argument would be left out, naming both sides.
ArraySelection select_arrays(const std::vector<ArrayInfo>& arrays, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& labels, const ForwardArguments& forward);

}  // namespace dslaunch::runtime
