// Which arrays of the data are passed to forward, and in which order. Pure.
#pragma once
#include <string>
#include <vector>

#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

// The arguments of the model's forward, without self.
struct ForwardArguments {
  std::vector<std::string> names;
  size_t num_required = 0;   // those without a default value
  bool takes_labels = true;  // false: the labels go to a separate loss ("loss" in the config)
};

// Indices into SampleSource::arrays(). Forward is called with the inputs, followed by the labels if it takes them.
struct ArraySelection {
  std::vector<size_t> inputs, labels;
};

// "labels", "label", "y": names that mark labels when the config does not name any.
bool is_label_name(const std::string& name);

// `inputs` and `labels` are the config's. Where they are empty: if every required argument of forward has an array of
// the same name, these arrays in forward's order; otherwise all arrays except "labels", "label" and "y" in the order of
// the file, followed by those. Throws UserError(65) when an array is missing, when the number does not match forward,
// or when an array with the name of an argument would be left out, naming both sides.
ArraySelection select_arrays(const std::vector<ArrayInfo>& arrays, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& labels, const ForwardArguments& forward);

}  // namespace dslaunch::runtime
