#include "runtime/data/array_selection.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/join_some.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::runtime {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

constexpr size_t kMaxNames = 5;

std::vector<std::string> names_of(const std::vector<ArrayInfo>& arrays) {
  std::vector<std::string> names;
  for (const auto& array : arrays) names.push_back(array.name);
  return names;
}

std::string some_names(const std::vector<ArrayInfo>& arrays) {
  return join_some(names_of(arrays), kMaxNames);
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
                         did_you_mean(name, names_of(arrays)), some_names(arrays)));
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
                  name, fmt::join(forward.names, ", "), missing, missing, some_names(arrays)));
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
  const auto fits = [&](size_t count) { return count >= forward.num_required && count <= forward.names.size(); };
  if (!fits(given.size())) {
    const bool lacks_loss = forward.takes_labels && !chosen.labels.empty() && fits(chosen.inputs.size());
    refuse(fmt::format(
        "the model's forward takes {}{} argument(s) ({}), but the data provides {} ({}); name the arrays in the order "
        "of forward with data.inputs and data.labels, or --inputs and --labels{}{}",
        forward.num_required == forward.names.size() ? "" : fmt::format("{} to ", forward.num_required),
        forward.names.size(), fmt::join(forward.names, ", "), given.size(), join_some(given, kMaxNames),
        lacks_loss ? "; labels go to forward unless a loss takes them: --loss cross_entropy, --loss mse or --loss FILE"
                   : "",
        given.size() == arrays.size() ? "" : fmt::format(" (the data has {})", some_names(arrays))));
  }
  if (!forward.takes_labels && chosen.labels.empty()) {
    refuse(fmt::format(
        "the config's \"loss\" needs labels, but the data names none; set data.labels or --labels (the data has {})",
        some_names(arrays)));
  }
}

bool has_name_of_argument(const ArrayInfo& array, const ForwardArguments& forward) {
  return std::find(forward.names.begin(), forward.names.end(), array.name) != forward.names.end();
}

// The orders in which arrays can be the first arguments: an array with an argument's name is that argument, one that
// marks labels by its name comes after those that do not, and types and dims are those of the argument's form.
class ArgumentOrders {
 public:
  ArgumentOrders(const std::vector<ArrayInfo>& arrays, std::vector<size_t> chosen, const ForwardArguments& forward)
      : arrays_(arrays), chosen_(std::move(chosen)), forward_(forward), is_used_(chosen_.size()) {}

  // Empty: there is not one order but several, or none.
  std::optional<std::vector<size_t>> only_one() {
    if (chosen_.size() <= kMaxArrays) extend();
    return num_found_ == 1 ? std::optional(found_) : std::nullopt;
  }

 private:
  static constexpr size_t kMaxArrays = 8;  // all their orders are tried

  void extend() {
    if (order_.size() == chosen_.size()) {
      if (num_found_++ == 0) found_ = order_;
      return;
    }
    for (size_t i = 0; i < chosen_.size() && num_found_ < 2; ++i) {
      if (is_used_[i] || !allows(order_.size(), arrays_[chosen_[i]])) continue;
      is_used_[i] = true;
      order_.push_back(chosen_[i]);
      extend();
      order_.pop_back();
      is_used_[i] = false;
    }
  }

  bool allows(size_t argument, const ArrayInfo& array) const {
    if (has_name_of_argument(array, forward_)) return forward_.names[argument] == array.name;
    if (is_among(chosen_, forward_.names[argument])) return false;
    const auto marks_labels = [&](size_t i) {
      return is_label_name(arrays_[i].name) && !has_name_of_argument(arrays_[i], forward_);
    };
    if (!is_label_name(array.name) && std::any_of(order_.begin(), order_.end(), marks_labels)) return false;
    return argument >= forward_.forms.size() || has_form(array, forward_.forms[argument]);
  }

  bool is_among(const std::vector<size_t>& some, const std::string& name) const {
    return std::any_of(some.begin(), some.end(), [&](size_t i) { return arrays_[i].name == name; });
  }

  static bool has_form(const ArrayInfo& array, const ArgumentForm& form) {
    const bool is_floating = c10::isFloatingType(array.dtype);
    const size_t num_dims = array.sample_shape.size() + 1;
    return form.is_floating.value_or(is_floating) == is_floating && form.num_dims.value_or(num_dims) == num_dims;
  }

  const std::vector<ArrayInfo>& arrays_;
  const std::vector<size_t> chosen_;
  const ForwardArguments& forward_;
  std::vector<bool> is_used_;
  std::vector<size_t> order_, found_;
  int num_found_ = 0;
};

bool may_be_labels(const std::string& name) {
  return is_label_name(name) || name.find("label") != name.npos || name.find("target") != name.npos;
}

// "--inputs tokens --labels targets", for arrays in forward's order.
std::string as_options(const std::vector<std::string>& names, const ForwardArguments& forward) {
  const bool names_labels = forward.takes_labels && names.size() > 1 && may_be_labels(forward.names[names.size() - 1]);
  const size_t num_inputs = names.size() - (names_labels ? 1 : 0);
  const std::vector<std::string> inputs(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(num_inputs));
  return fmt::format("--inputs {}{}", fmt::join(inputs, ","), names_labels ? " --labels " + names.back() : "");
}

[[noreturn]] void refuse_order(const std::vector<ArrayInfo>& arrays, const std::vector<size_t>& chosen,
                               const ForwardArguments& forward) {
  std::vector<std::string> described, names;
  for (size_t i : chosen) {
    described.push_back(fmt::format("'{}' {}[{}]", arrays[i].name, c10::toString(arrays[i].dtype),
                                    fmt::join(arrays[i].sample_shape, ", ")));
    names.push_back(arrays[i].name);
  }
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return !may_be_labels(name); });
  std::string options = as_options(names, forward);
  if (names.size() == 2) {
    std::swap(names[0], names[1]);
    options += " or " + as_options(names, forward);
  }
  refuse(
      fmt::format("which array of the data is which argument of forward is not known: forward takes ({}), and the data "
                  "has {}; name the arrays in forward's order: {}{} (data.inputs and data.labels in the config)",
                  fmt::join(forward.names, ", "), join_some(described, kMaxNames),
                  chosen.size() > 2 ? "for example " : "", options));
}

// In the one order that there is; as they are when their number, with that of `others` behind them, does not fit, which
// is reported later.
std::vector<size_t> ordered(const std::vector<ArrayInfo>& arrays, const std::vector<size_t>& chosen,
                            const ForwardArguments& forward, size_t num_others) {
  const size_t num_given = chosen.size() + num_others;
  if (chosen.size() < 2 || num_given < forward.num_required || num_given > forward.names.size()) return chosen;
  const auto order = ArgumentOrders(arrays, chosen, forward).only_one();
  if (!order) refuse_order(arrays, chosen, forward);
  return *order;
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
    const bool are_by_name = !candidates.empty(), finds_labels = labels.empty() && forward.takes_labels;
    if (are_by_name) require_all_arguments(arrays, chosen, forward);
    if (!are_by_name) {
      candidates.resize(arrays.size());
      std::iota(candidates.begin(), candidates.end(), size_t{0});
    }
    if (!finds_labels) std::erase_if(candidates, [&](size_t i) { return contains(chosen.labels, i); });
    const size_t num_others = finds_labels || !forward.takes_labels ? 0 : chosen.labels.size();
    if (!are_by_name) candidates = ordered(arrays, candidates, forward, num_others);
    if (finds_labels && (are_by_name || candidates.size() <= forward.names.size())) {
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
