#include "runtime/data/array_selection.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::runtime {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

std::vector<std::string> names_of(const std::vector<ArrayInfo>& arrays) {
  std::vector<std::string> names;
  for (const auto& array : arrays) names.push_back(array.name);
  return names;
}

std::optional<size_t> find(const std::vector<ArrayInfo>& arrays, const std::string& name) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].name == name) return i;
  }
  return std::nullopt;
}

std::vector<size_t> find_all(const std::vector<ArrayInfo>& arrays, const std::vector<std::string>& wanted,
                             const char* key) {
  std::vector<size_t> found;
  for (const auto& name : wanted) {
    const auto index = find(arrays, name);
    if (!index) {
      refuse(fmt::format("data.{} names the array '{}', which the data does not have{}; it has {}", key, name,
                         did_you_mean(name, names_of(arrays)), fmt::join(names_of(arrays), ", ")));
    }
    found.push_back(*index);
  }
  return found;
}

// The arrays with the names of forward's arguments; empty unless all required ones are present.
std::vector<size_t> by_argument_names(const std::vector<ArrayInfo>& arrays, const ForwardArguments& forward) {
  std::vector<size_t> found;
  for (size_t i = 0; i < forward.names.size(); ++i) {
    const auto index = find(arrays, forward.names[i]);
    if (!index && i < forward.num_required) return {};
    if (!index) break;  // arguments are passed by position: nothing after a gap
    found.push_back(*index);
  }
  return found;
}

[[noreturn]] void reject_missing_argument(const std::vector<ArrayInfo>& arrays, const ForwardArguments& forward,
                                          const std::string& name, const std::string& missing) {
  refuse(
      fmt::format("the data's array '{}' has the name of an argument of forward ({}), but the argument '{}' before it "
                  "has no array, and arguments are passed by position. Add an array '{}' to the data, or name the "
                  "arrays for forward with data.inputs and data.labels, or --inputs and --labels (the data has {})",
                  name, fmt::join(forward.names, ", "), missing, missing, fmt::join(names_of(arrays), ", ")));
}

// Inputs were found by name: an array with the name of an argument after a gap would be left out, or, if it is one of
// the labels, be passed in place of the missing argument.
void require_all_arguments(const std::vector<ArrayInfo>& arrays, const ArraySelection& chosen,
                           const ForwardArguments& forward) {
  std::optional<std::string> missing;
  for (const auto& name : forward.names) {
    const auto index = find(arrays, name);
    const bool goes_to_loss = index && !forward.takes_labels &&
                              std::find(chosen.labels.begin(), chosen.labels.end(), *index) != chosen.labels.end();
    if (!index && !missing) missing = name;
    if (index && missing && !goes_to_loss) reject_missing_argument(arrays, forward, name, *missing);
  }
}

// For labels that were recognized by their name only, when the config names the inputs: they must follow those inputs.
void require_labels_in_place(const std::vector<ArrayInfo>& arrays, const ArraySelection& chosen,
                             const ForwardArguments& forward) {
  for (size_t i = 0; i < chosen.labels.size(); ++i) {
    const size_t at = chosen.inputs.size() + i;
    const auto& name = arrays[chosen.labels[i]].name;
    const auto own = std::find(forward.names.begin(), forward.names.end(), name);
    if (at < forward.names.size() && own != forward.names.end() && *own != forward.names[at]) {
      reject_missing_argument(arrays, forward, name, forward.names[at]);
    }
  }
}

void require_fit(const std::vector<ArrayInfo>& arrays, const ArraySelection& chosen, const ForwardArguments& forward) {
  std::vector<std::string> given;
  for (size_t i : chosen.inputs) given.push_back(arrays[i].name);
  if (forward.takes_labels) {
    for (size_t i : chosen.labels) given.push_back(arrays[i].name);
  }
  if (given.size() < forward.num_required || given.size() > forward.names.size()) {
    refuse(fmt::format(
        "the model's forward takes {}{} argument(s) ({}), but the data provides {} ({}); name the arrays in the order "
        "of forward with data.inputs and data.labels, or --inputs and --labels (the data has {})",
        forward.num_required == forward.names.size() ? "" : fmt::format("{} to ", forward.num_required),
        forward.names.size(), fmt::join(forward.names, ", "), given.size(), fmt::join(given, ", "),
        fmt::join(names_of(arrays), ", ")));
  }
  if (!forward.takes_labels && chosen.labels.empty()) {
    refuse(fmt::format(
        "the config's \"loss\" needs labels, but the data names none; set data.labels or --labels (the data has {})",
        fmt::join(names_of(arrays), ", ")));
  }
}

// A model whose forward takes one array computes its loss from that array alone (token streams always include labels).
// With more arguments, assigning arrays to positions would be a guess.
void drop_unused_labels(ArraySelection& chosen, const ForwardArguments& forward) {
  if (forward.takes_labels && forward.names.size() == 1 && chosen.inputs.size() == 1) chosen.labels.clear();
}

}  // namespace

bool is_label_name(const std::string& name) {
  return name == "labels" || name == "label" || name == "y";
}

ArraySelection select_arrays(const std::vector<ArrayInfo>& arrays, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& labels, const ForwardArguments& forward) {
  ArraySelection chosen{find_all(arrays, inputs, "inputs"), find_all(arrays, labels, "labels")};
  auto contains = [](const std::vector<size_t>& list, size_t i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  if (labels.empty()) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (is_label_name(arrays[i].name) && !contains(chosen.inputs, i)) chosen.labels.push_back(i);
    }
  }
  if (inputs.empty()) {
    std::vector<size_t> candidates = by_argument_names(arrays, forward);
    const bool are_by_name = !candidates.empty();
    if (are_by_name) require_all_arguments(arrays, chosen, forward);
    if (!are_by_name) {
      candidates.resize(arrays.size());
      std::iota(candidates.begin(), candidates.end(), size_t{0});
    } else if (labels.empty() && forward.takes_labels) {
      // Forward's own order; labels can be separated from the inputs only at its end.
      chosen.labels.clear();
      while (candidates.size() > 1 && is_label_name(arrays[candidates.back()].name)) {
        chosen.labels.insert(chosen.labels.begin(), candidates.back());
        candidates.pop_back();
      }
    }
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(chosen.inputs),
                 [&](size_t i) { return !contains(chosen.labels, i); });
  }
  if (labels.empty()) drop_unused_labels(chosen, forward);
  if (labels.empty() && !inputs.empty() && forward.takes_labels) require_labels_in_place(arrays, chosen, forward);
  require_fit(arrays, chosen, forward);
  return chosen;
}

}  // namespace dslaunch::runtime
