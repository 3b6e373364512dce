// Which arrays of the data are passed to forward, and in which order. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

// What is known of the array that an argument takes.
struct ArgumentForm {
  std::optional<bool> is_floating;  // else integers or booleans
  std::optional<size_t> num_dims;   // with the samples
};

// The arguments of the model's forward, without self.
struct ForwardArguments {
  std::vector<std::string> names;
  size_t num_required = 0;               // those without a default value
  bool takes_labels = true;              // false: the labels go to a separate loss ("loss" in the config)
  std::vector<ArgumentForm> forms = {};  // of the first arguments
};

// Indices into SampleSource::arrays(). Forward is called with the inputs, followed by the labels if it takes them.
struct ArraySelection {
  std::vector<size_t> inputs, labels;
};

// "labels", "label", "y": names that mark labels when the config does not name any.
bool is_label_name(const std::string& name);

// `inputs` and `labels` are the config's. Where they are empty: if every required argument of forward has an array of
// the same name, these arrays in forward's order; otherwise all arrays except "labels", "label" and "y", followed by
// those, in the one order that names and forms allow. Throws UserError(65) when an array is missing, when the number
// does not match forward, when an array with the name of an argument would be left out, or when there is not one order
// but several, naming both sides.
ArraySelection select_arrays(const std::vector<ArrayInfo>& arrays, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& labels, const ForwardArguments& forward);

}  // namespace dslaunch::runtime
